"""The report of a demonstration: one HTML file that needs nothing else."""

from __future__ import annotations

from html import escape

from weft.demo import figures
from weft.demo.figures import STYLE, Picture, duration
from weft.demo.output import Summary
from weft.demo.show import Outcome, latencies_ms
from weft.demo.traffic import Traffic, way_of
from weft.demo.verdict import explain
from weft.trace import CONTROL, GROUPS, MAINTENANCE, PAYLOAD, group_of

_GROUPS = {
    PAYLOAD: "payload: carry events",
    CONTROL: "control: serve the spreading of events",
    MAINTENANCE: "maintenance: keep the overlays alive",
}
KINDS = {
    "AdoptMe": "perhaps no peer knows me: take me as a neighbour",
    "Advertisement": "I am subscribed to these topics",
    "Again": "an event that you have from another topic belongs to this one, too",
    "Beat": "our link is there, and I have seen these events",
    "Behind": "while I read the past, only announce events to me; or: push them again",
    "BlocksReply": "stored events that you asked for",
    "BlocksRequest": "send me these stored events",
    "CollectReply": "members that rank first at you",
    "CollectWalk": "which members rank first at me?",
    "Graft": "send me these events, and push to me from now on",
    "Heads": "how far my copy of a topic's history goes",
    "Hint": "there is another overlay of your topic",
    "IHave": "I hold these events, and have not pushed them to you",
    "IHaveOfTopics": "the same, in several topics",
    "InLink": "whether you are among my neighbours from now on",
    "JoinGift": "a neighbour for a peer that has just joined",
    "JoinReply": "members of the topic that you join",
    "JoinRequest": "take me into this topic",
    "JoinWalk": "here is a new member; passed on step by step",
    "LeaveNotice": "I am not in this topic any more",
    "Level": "the events that I push come after these",
    "LinkList": "the topics in which we have a link",
    "LinkRelease": "give up our link, if you have enough others",
    "LinkReply": "whether we have a link now",
    "LinkRequest": "let us have a link in this topic",
    "LookupHit": "this peer is subscribed to the topic that you look for",
    "LookupMiss": "a search has ended without finding one",
    "LookupWalk": "where is a subscriber of this topic? Passed on step by step",
    "Offer": "recent events that I hold, as yours differ",
    "Overdue": "these events were announced: will you push them?",
    "PageReply": "a page of a topic's history",
    "PageRequest": "send me a page of a topic's history",
    "Passed": "those events will not come from me",
    "Payload": "an event, pushed on to a neighbour",
    "Ping": "are you there?",
    "Pong": "I am here",
    "Prune": "stop pushing to me, announce instead",
    "Repair": "events that you asked for",
    "RouteCheck": "did you get my event? Asked by a publisher that is not subscribed",
    "RouteEvent": "an event for a subscriber, from a publisher that is not subscribed",
    "RouteKnown": "whether I got the event",
    "RouteResult": "what became of the event that you sent me",
    "SampleReply": "a peer drawn at random, to estimate how many there are",
    "SampleWalk": "a walk to a peer at random",
    "ShuffleReply": "some of the peers that I know, in exchange",
    "ShuffleRequest": "some of the peers that I know, for some of yours",
    "Stale": "the subscriber that you named is not there",
    "SubTopicReply": "whether the sub-topic was added",
    "SubTopicRequest": "add this sub-topic to your topic",
    "TableCopy": "subscribers of topics that I know, for a new peer",
    "TopicNews": "the newest version of a topic's record",
    "Unlink": "our link has ended",
    "Want": "send me these events",
}
"""What each kind of message says, in words; those that peers of the demonstration send."""

_PAGE_STYLE = """
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 40px 24px 64px; }
h1 { font-size: 30px; margin: 0 0 6px; letter-spacing: -0.01em; }
h2 { font-size: 19px; margin: 0 0 4px; }
p { margin: 0 0 12px; color: var(--muted); max-width: 68ch; }
.verdict { display: inline-block; font-weight: 600; padding: 6px 14px; border-radius: 999px;
  color: var(--paper); margin: 12px 0 24px; }
.good { background: var(--green); } .bad { background: var(--red); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(45%, 210px), 1fr));
  gap: 12px; margin-bottom: 36px; }
.tile { background: var(--panel); border: 1px solid var(--grid); border-radius: 10px;
  padding: 14px 16px; }
.tile b { display: block; font-size: 24px; font-variant-numeric: tabular-nums; }
.tile span { color: var(--muted); font-size: 13px; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr));
  gap: 20px; }
figure { margin: 0; background: var(--panel); border: 1px solid var(--grid); border-radius: 10px;
  padding: 18px 20px 12px; min-width: 0; }
figure.wide { grid-column: 1 / -1; }
figure p { font-size: 14px; }
figure svg { width: 100%; height: auto; display: block; }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }
td, th { padding: 3px 18px 3px 0; text-align: left; }
td + td, th + th { text-align: right; }
th { color: var(--muted); font-weight: 500; }
.kinds { width: 100%; } .kinds td { vertical-align: top; }
.kinds :is(td, th):nth-child(2):not(:last-child) { text-align: left; }
@media (max-width: 600px) {
  .kinds tr { display: grid; grid-template-columns: 1fr auto; }
  .kinds :is(td, th):last-child { padding-right: 0; }
  .kinds tr:not(.group) > :nth-child(2) { grid-row: 2; grid-column: 1 / -1; color: var(--muted); }
}
.kinds .group th { padding-top: 12px; border-bottom: 1px solid var(--grid); color: var(--ink); }
footer { margin-top: 36px; font-size: 14px; color: var(--muted); }
code { font-size: 0.9em; }
"""


def overlay(outcome: Outcome, traffic: Traffic) -> Picture:
    """The picture of all peers, their links and the way of one event."""
    return figures.overlay(outcome.status, way_of(traffic))


def page(outcome: Outcome, traffic: Traffic, summary: Summary) -> str:
    shown = [
        _figure(
            "The weft, and the way of one event",
            "Every peer with its links; a thicker line serves more topics over one connection. "
            "Arrows show how one event went from its publisher to every subscriber of its topic. "
            "A dashed arrow is an event from a publisher that is not subscribed, to an access "
            "point, which is a subscriber that spreads it in the topic; a moment later a few more "
            "subscribers are asked whether they got it, in case the first one lies, and get it if "
            "they did not.",
            overlay(outcome, traffic),
            wide=True,
        )
        if outcome.status
        else "",
        _figure(
            "How long it took",
            "From publish to notification, all on this machine. A publisher that is not "
            "subscribed first looks for a subscriber, which takes longer the first time.",
            figures.latency(*latencies_ms(outcome)),
        ),
        _figure(
            "How much each peer worked",
            "Messages that each peer sent while events were published: payload carries events, "
            "control serves their spreading, maintenance keeps the overlays alive.",
            figures.load(traffic, outcome.workload.interests),
        ),
        _figure(
            "Which peer is interested in what",
            "Popular topics have more subscribers and more events; peers with one topic in "
            "common are likely to share more.",
            figures.interests(outcome.workload),
        ),
        _measured(summary),
        _kinds(summary),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>weft demo</title><style>{STYLE}{_PAGE_STYLE}</style></head><body><main>"
        f"{_head(outcome, summary)}{_tiles(summary)}"
        f'<div class="figures">{"".join(shown)}</div>{_foot(summary)}</main></body></html>\n'
    )


def _head(outcome: Outcome, summary: Summary) -> str:
    expected, delivered = summary["notifications_expected"], summary["notifications_delivered"]
    if summary["all_delivered"]:
        kind, text = "good", f"All {expected:,} notifications arrived, each once"
    elif not summary["complete"]:
        kind, text = "bad", f"Not finished: {delivered:,} of {expected:,} notifications so far"
    else:
        kind, text = "bad", f"{delivered:,} of {expected:,} notifications arrived"
    wrong = "".join(f"<p>{escape(line)}</p>" for line in explain(outcome.verdict, outcome.workload))
    return (
        "<h1>weft demo</h1>"
        f"<p>{summary['peers']} peers in {summary['processes']} processes on one machine, each "
        "with its own identity and TLS listener and no server between them, subscribed to topics, "
        "published events, and checked that every subscriber got every event.</p>"
        f'<div class="verdict {kind}">{text}</div>{wrong if summary["complete"] else ""}'
    )


def _tiles(summary: Summary) -> str:
    latency = summary["latency_ms"]
    tiles = [
        (f"{summary['events']:,}", "events published"),
        (f"{summary['subscriptions']:,}", f"subscriptions to {summary['topics']} topics"),
        (f"{summary['notifications_delivered']:,}", "notifications"),
        (_time(latency["p50"]), "half arrived within"),
        (_time(latency["p99"]), "99 % arrived within"),
        (_show(summary["payload_copies_per_delivery"]), "copies of an event per delivery"),
        (
            _show(summary["payload_copies_per_delivery_second_half"]),
            "copies per delivery once the trees have settled",
        ),
        (_show(summary["messages_per_notification"]), "messages of all kinds per notification"),
    ]
    cells = "".join(
        f'<div class="tile"><b>{value}</b><span>{name}</span></div>' for value, name in tiles
    )
    return f'<div class="tiles">{cells}</div>'


def _show(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"


def _time(value_ms: float | None) -> str:
    return "–" if value_ms is None else duration(value_ms)


def _figure(title: str, text: str, picture: Picture, *, wide: bool = False) -> str:
    kind = ' class="wide"' if wide else ""
    return f"<figure{kind}><h2>{title}</h2><p>{text}</p>{picture.render()}</figure>"


def _kinds(summary: Summary) -> str:
    """Messages by group, and in each group by kind, the most frequent first."""
    counts: dict[str, int] = summary["messages_by_kind"]
    parts = []
    for group in GROUPS:
        ours = {kind: count for kind, count in counts.items() if group_of(kind) == group}
        parts.append(
            f'<tr class="group"><th colspan="2">{_GROUPS[group]}</th>'
            f"<th>{sum(ours.values()):,}</th></tr>"
        )
        parts += [
            f"<tr><td>{escape(kind)}</td><td>{escape(KINDS.get(kind, ''))}</td>"
            f"<td>{count:,}</td></tr>"
            for kind, count in ours.items()
        ]
    return (
        '<figure class="wide"><h2>Messages by kind</h2><p>All that the peers sent while events '
        "were published. The names are those of the trace.</p>"
        '<table class="kinds"><tr><th>kind</th><th>what it says</th><th>messages</th></tr>'
        f"{''.join(parts)}</table></figure>"
    )


def _measured(summary: Summary) -> str:
    """A table of figures in words: of the time of publishing, and, if the pipeline measured the
    traces, of the whole run."""
    found = summary.get("measured", {})
    rows = "".join(
        f"<tr><td>{text}</td><td>{_show(own)}</td>"
        + (f"<td>{_show(found.get(name))}</td>" if found else "")
        + "</tr>"
        for text, own, name in _compared(summary)
    )
    seconds = summary["duration_s_by_phase"].get("publishing", 0.0)
    head = f"<th></th><th>while publishing ({seconds:.1f} s)</th>"
    verdict = ""
    if found:
        head += f"<th>whole run ({summary['duration_s']:.0f} s)</th>"
        differences = summary["measured_differences"]
        verdict = (
            "The pipeline measured the second column, only from the peers' traces; it includes "
            "joining and connecting the topics, so it has more messages per notification. The "
            "figures that the demo counted itself over the whole run "
            + (
                "are the same: events, notifications, messages, bytes, copies and hops agree."
                if not differences
                else "differ: " + escape("; ".join(differences))
            )
            + " All its figures are in <code>summary.json</code>, its tables in "
            "<code>tables/</code>."
        )
    return (
        "<figure><h2>What it cost</h2><p>All figures of this report are of the time in which "
        "events were published, from the first event to the last notification. "
        f"{verdict}</p><table><tr>{head}</tr>{rows}</table></figure>"
    )


def _compared(summary: Summary) -> list[tuple[str, float | None, str]]:
    """Each figure in words, its value while publishing, and its name in the pipeline's."""
    groups = summary["messages_per_notification_by_group"]
    latency = summary["latency_ms"]
    return [
        ("notifications", summary["notifications_delivered"], "delivered"),
        (
            "messages of all kinds per notification",
            summary["messages_per_notification"],
            "messages_per_notification",
        ),
        (
            "… that carry events",
            groups.get("payload"),
            "messages_payload_per_notification",
        ),
        (
            "… that serve their spreading",
            groups.get("control"),
            "messages_control_per_notification",
        ),
        (
            "… that keep the overlays alive",
            groups.get("maintenance"),
            "messages_maintenance_per_notification",
        ),
        ("bytes per notification", summary["bytes_per_notification"], "bytes_per_notification"),
        (
            "copies of an event per delivery to another peer",
            summary["payload_copies_per_delivery"],
            "copies_per_delivery",
        ),
        (
            "ms until half arrived (in the application; in the trace: at its peer)",
            latency["p50"],
            "latency_ms_p50",
        ),
        ("ms until 99 % arrived", latency["p99"], "latency_ms_p99"),
    ]


def _foot(summary: Summary) -> str:
    phases = ", ".join(
        f"{name} {seconds:.1f} s" for name, seconds in summary["duration_s_by_phase"].items()
    )
    return (
        f"<footer>Took {summary['duration_s']:.0f} s: {phases}. The same figures are in "
        "<code>summary.json</code>; the traces of all peers are in <code>trace/</code>, one JSON "
        f"object a line. Seed {summary['seed']}; peers exchange views every second.</footer>"
    )
