"""tadht-parasite: no peer is sent events of other topics (paper 002, Lemma 4.1 and Section 5).

Peers subscribe to topics of Zipf 0.7, then events are published one after the other: most by
subscribers, every fourth by a peer outside of the topic. *calm*: nothing fails. *loss*: five in a
hundred messages are lost, from the beginning. *crash*: nearly a third of the peers go down without
a word halfway through the events. *churn*: peers unsubscribe and others subscribe between events.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from weft.lab import ground, schemes
from weft.lab.defect import Defect, again, lost, not_repaired, sent_also, to_a_stranger
from weft.lab.experiment import Columns, Entry, Params, Size
from weft.lab.figures import Figure, means, panels
from weft.lab.measures import at_most, reasons, smalls, texts, truths, wholes
from weft.lab.memberships import memberships_of
from weft.lab.tadht import Net, Spread, topic_of
from weft.pipeline.schemas import joined
from weft.pipeline.transforms import numbers, together
from weft.protocol.config import TopicDhtSettings
from weft.sim.network import Conditions

SEEDS = {"quick": 1, "full": 1}
WAYS = (
    ("full-gossip", "push"),
    ("full-gossip", "push-pull"),
    ("forward-gossip", "push"),
    ("forward-gossip", "push-pull"),
    ("full-treecast", "push"),
    ("forward-treecast", "push"),
)
CONDITIONS = ("calm", "loss", "crash", "churn")
SHAPES: dict[str, Params] = {
    "quick": {"peers": 24, "topics": 3, "subscriptions": 40, "zipf": 0.7, "events": 8},
    "full": {"peers": 60, "topics": 6, "subscriptions": 180, "zipf": 0.7, "events": 24},
}


def points(size: Size) -> list[Params]:
    return [
        {**SHAPES[size], "scheme": scheme, "mode": mode, "condition": condition}
        for condition in CONDITIONS
        for scheme, mode in WAYS
        if size == "full" or mode == "push"
    ]


def seconds(params: Params) -> float:
    gossip = 3.0 if params["scheme"] == "full-gossip" else 1.0
    return float(params["subscriptions"]) * 0.08 * gossip


_LOSS_PERCENT, _CRASH_PERCENT = 5, 30
_BETWEEN_MS = 2_000
_OUTSIDE_EVERY = 4
_JOIN_MS = 3_000
"""guess: how long a newcomer takes to be in its topic; it must get events published after that."""


def run(params: Params, seed: int) -> Columns:
    """Rows: one per event."""
    settings = TopicDhtSettings(scheme=params["scheme"], gossip_mode=params["mode"])
    condition = params["condition"]
    loss = _LOSS_PERCENT if condition == "loss" else 0
    net = Net(seed, params["peers"], settings, Conditions(loss_percent=loss))
    net.subscribe_all(memberships_of(params, seed))
    net.run(2 * settings.period_ms)
    settled = net.settle()
    sent = []
    for event in range(params["events"]):
        if condition == "crash" and event == params["events"] // 2:
            _crash(net)
        if condition == "churn":
            _churn(net, event, params["topics"])
        sent.append(_publish(net, event, params["topics"]))
    net.run(6 * settings.period_ms)
    spreads = [_outcome(net, *one) for one in sent]
    return {
        "event": list(range(len(sent))),
        "outside": [outside for _, _, _, outside in sent],
        **{
            name: [getattr(one, name) for one in spreads]
            for name in ("members", "copies", "rounds", "missed")
        },
        "settled_periods": -1 if settled is None else settled,
        "lookups": net.lookups.inside,
        "lookups_parasite": net.lookups.parasites,
        "copies_all": net.copies.all,
        "copies_parasite": len(net.world.record.parasites),
    }


def _crash(net: Net) -> None:
    count = len(net.nodes) * _CRASH_PERCENT // 100
    net.crash(*net.dice.some("lab.crash", range(len(net.nodes)), count))


def _churn(net: Net, event: int, topics: int) -> None:
    """One subscriber leaves a topic, and a peer that never was in it joins."""
    topic = topic_of(net.dice.below("lab.churn", topics, event))
    inside = net.subscribers(topic)
    known = {stay.peer for stay in net.world.record.stays if stay.topic == topic}
    outside = [one for one in net.alive() if one not in known]
    if len(inside) > 2 and outside:
        net.unsubscribe(net.dice.pick("lab.leaves", inside, event), topic)
        net.subscribe(net.dice.pick("lab.comes", outside, event), [topic])
        net.run(_JOIN_MS)


def _publish(net: Net, event: int, topics: int) -> tuple[int, list[int], int, bool]:
    """The publication, the subscribers then, the topic, whether it came from outside."""
    number = event % topics
    members = net.subscribers(topic_of(number))
    strangers = [one for one in net.alive() if one not in members]
    outside = event % _OUTSIDE_EVERY == _OUTSIDE_EVERY - 1 and bool(strangers)
    publisher = net.dice.pick("lab.publisher", strangers if outside else members, event)
    publication = net.publish(publisher, topic_of(number))
    net.run(_BETWEEN_MS)
    return publication, members, number, outside


def _outcome(net: Net, publication: int, members: list[int], number: int, _: bool) -> Spread:
    stayed = frozenset(net.subscribers(topic_of(number)))
    spread = net.spread_of(publication, [one for one in members if one in stayed], topic_of(number))
    return Spread(len(members), spread.copies, spread.rounds, spread.missed)


COLUMNS = joined(
    texts("scheme", "mode", "condition"),
    wholes("peers", "event"),
    truths("outside"),
    wholes("members", "copies", "rounds", "missed"),
    smalls("settled_periods"),
    wholes("lookups", "lookups_parasite", "copies_all", "copies_parasite"),
)
TITLES = {
    "copies_parasite": "copies of events to peers that are not subscribed",
    "lookups_parasite": "requests inside a topic to peers that are not subscribed",
    "difference": "largest difference from N_t − 1 copies, nothing failing, a handover from "
    "outside taken off",
    "missed": "live subscribers that an event never reached",
    "stale": "churn: copies to peers that had unsubscribed, per thousand copies",
    "stale_lookups": "churn: requests to peers that had unsubscribed, per thousand requests",
    "copies_all": "copies of events received",
    "lookups": "requests inside topics",
}


def sent(rows: DataFrame) -> DataFrame:
    """Per scheme, condition and seed: parasites, misses, and how far trees are from exact."""
    handed = F.when(F.col("outside"), 1).otherwise(0)
    difference = F.abs(F.col("copies") - F.col("members") + 1 - handed)
    found = rows.withColumns({"way": schemes.named(), "difference": difference})
    return found.groupBy("way", "condition", "seed").agg(
        F.first("copies_parasite").alias("copies_parasite"),
        F.first("lookups_parasite").alias("lookups_parasite"),
        F.first("copies_all").alias("copies_all"),
        F.first("lookups").alias("lookups"),
        F.max("difference").alias("difference"),
        F.sum("missed").alias("missed"),
        F.max("rounds").alias("rounds"),
    )


def totals(found: DataFrame) -> DataFrame:
    """Per seed: everything summed over schemes and conditions, those with unsubscriptions too."""
    calm_trees = (F.col("condition") == "calm") & F.col("way").isin(*schemes.TREES)
    churn = F.col("condition") == "churn"

    def stale(column: str, of_all: str) -> Column:
        """A number per thousand of another, where peers unsubscribe."""
        return 1000 * F.sum(F.when(churn, F.col(column))) / F.sum(F.when(churn, F.col(of_all)))

    return found.groupBy("seed").agg(
        F.sum("copies_parasite").alias("copies_parasite"),
        F.sum("lookups_parasite").alias("lookups_parasite"),
        F.max(F.when(calm_trees, F.col("difference"))).alias("difference"),
        F.sum("missed").alias("missed"),
        stale("copies_parasite", "copies_all").alias("stale"),
        stale("lookups_parasite", "lookups").alias("stale_lookups"),
        F.sum("copies_all").alias("copies_all"),
        F.sum("lookups").alias("lookups"),
    )


def measure(rows: DataFrame, size: Size) -> DataFrame:
    found = rows.transform(sent)
    asked = at_most(0.0, "copies_parasite", "lookups_parasite", "difference", "missed")
    prefix = F.concat("way", F.lit(", "), "condition", F.lit(": "))
    others = {"copies_parasite": "parasite copies", "missed": "missed", "rounds": "most rounds"}
    return together(
        found.transform(totals).transform(numbers(TITLES, asked)),
        found.transform(numbers(others, by=("way", "condition"), prefix=prefix)),
    )


def figure(rows: DataFrame) -> Figure:
    """Copies sent, by scheme and condition; in the title, how many of them were parasites."""
    names = ("copies_all", "copies_parasite")
    drawn = means(rows.transform(sent), ("way", "condition"), *names)
    drawing, axes = panels(columns=2, rows=2)
    for panel, condition in zip(axes, CONDITIONS, strict=True):
        some = drawn[drawn["condition"] == condition].set_index("way").reindex(schemes.ORDER)
        colours = [schemes.style(way)["color"] for way in schemes.ORDER]
        panel.barh(list(schemes.ORDER), some["copies_all"].fillna(0), color=colours)
        panel.invert_yaxis()
        panel.set_title(f"{condition}: {some['copies_parasite'].sum():g} parasites")
        panel.set_xlabel("copies of events received")
    return drawing


ENTRY = Entry.of(
    __name__,
    title="No parasite messages, with the real machines",
    claim="No event and no lookup inside a topic reaches a peer that is not subscribed, in any "
    "of the four schemes, whether messages are lost, peers crash or unsubscribe. Trees send "
    "exactly N_t − 1 copies where nothing fails, one more for a publisher outside. How many of "
    "a thousand go to peers that have unsubscribed, which others know for a while, is told.",
    tolerances=reasons(
        TITLES,
        copies_parasite=ground.paper(
            "2026-11-15", "None: the schemes are made to spare peers events of other topics."
        ),
        lookups_parasite=ground.paper("2026-11-15", "None, by Lemma 4.1."),
        difference=ground.paper("2026-11-15", "None: each member is sent the event once."),
        missed=ground.asked(
            "2026-11-15", "None: what trees and gossip miss is repaired within some periods."
        ),
    ),
    defects=(
        Defect(
            "copies go to strangers, too",
            sent_also("Cast", "Payload", to=to_a_stranger, one_in=7),
            where=lambda params: params["condition"] == "calm",
        ),
        Defect(
            "requests go to strangers, too",
            sent_also("FindRequest", to=to_a_stranger, one_in=7),
            where=lambda params: params["condition"] == "calm",
        ),
        Defect(
            "trees send copies twice",
            sent_also("Cast", "Payload", to=again, one_in=5),
            where=lambda params: params["condition"] == "calm",
        ),
        Defect(
            "one copy in three is lost, and no repair",
            not_repaired("Cast", "Payload", one_in=3),
            where=lambda params: params["condition"] == "calm",
        ),
        Defect(
            "peers that leave a topic do not say so",
            lost("Vanished", "Forget"),
            where=lambda params: params["condition"] == "churn",
        ),
    ),
)
