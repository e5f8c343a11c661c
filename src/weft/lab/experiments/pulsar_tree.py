"""pulsar-tree: how long a tree takes to heal.

A tree with four rendezvous and steady publishers. Then some of its peers crash, at once and for
good: the member with most children (*parent*), the rendezvous with most children (*rendezvous*),
half of the rendezvous (*half*), or all but one of them (*all but one*). Their neighbours notice at
once, or (silent) have to find out. From then on each event is followed: the repair took until the
last event was published that some live subscriber did not get promptly.

How long that may be follows from the settings. A loss is noticed at once, or by pings: a link is
probed after so long a silence, counts as lost after so many pings without an answer, and is looked
at every five seconds. Then a peer that lost its parent asks those it knows above, at worst
each of the dead first, and is sent down by full members, level by level.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from weft.lab import ground
from weft.lab.defect import ARRIVE, Defect, Function, kind_of, lost
from weft.lab.experiment import Columns, Entry, Params, Size, every
from weft.lab.figures import BLACK, Figure, colour, panels, table
from weft.lab.measures import at_most, reals, reasons, smalls, texts, told, truths, wholes
from weft.lab.pulsar import JOIN_CYCLES, Net
from weft.pipeline.schemas import joined
from weft.pipeline.transforms import numbers, together
from weft.protocol.config import Config, HistorySettings, PulsarSettings
from weft.sim.network import Conditions, Latency
from weft.sim.node import Node
from weft.sim.record import Delivery
from weft.sim.world import LOST_AFTER_MS, World

CRASHES = ("parent", "rendezvous", "half", "all but one")


def points(size: Size) -> list[Params]:
    some = {"peers": 60, "subscribers": 48} if size == "full" else {"peers": 30, "subscribers": 24}
    crashes = CRASHES if size == "full" else (CRASHES[0], CRASHES[-1])
    found = every(some, crash=crashes, silent=(False, True), history=(False, True))
    return [one for one in found if size == "full" or one["silent"] or not one["history"]]


RENDEZVOUS = 4
"""With four, half of them are fewer than all but one."""
CHILDREN_MAX = 4
"""With so few children each, few peers make a tree of several levels."""
ONE_WAY_MS = 20
PUBLISHERS = 3
EVERY_MS = 250
BEFORE_EVENTS = 20
AFTER_MS = 20_000
"""guess: events are published for so much longer than the repair may take."""
PROMPT_MS = 2_000
"""guess: much more than the way through a whole tree, and less than any timeout."""
LEVELS_MAX = 8
"""measured: no tree of so few peers is deeper."""


def run(params: Params, seed: int) -> Columns:
    config = settings(params["history"])
    net = Net(seed, params["peers"], config, Conditions(latency=Latency("constant", ONE_WAY_MS)))
    members = net.draw_subscribers(params["subscribers"])
    net.subscribe(*members, since="beginning" if params["history"] else None)
    net.run_cycles(2 * JOIN_CYCLES)
    doomed = _doomed(net, params["crash"])
    lasting = [number for number in members if number not in set(doomed)]
    publishers = net.dice.some("lab.publishers", lasting, PUBLISHERS)
    net.publish_all(publishers, BEFORE_EVENTS, EVERY_MS)
    crash_ms = net.world.now_ms
    net.crash(*doomed, silent=params["silent"])
    most_ms = allowed_ms(config, params["silent"], len(doomed))
    net.publish_all(publishers, (most_ms + AFTER_MS) // EVERY_MS, EVERY_MS)
    net.run_cycles(JOIN_CYCLES)
    return {
        "crashed": len(doomed),
        **_followed(net, lasting, crash_ms),
        "repair_ms_allowed": float(most_ms),
    }


def settings(history: bool) -> Config:
    return Config(
        routing="pulsarcast",
        pulsar=PulsarSettings(rendezvous=RENDEZVOUS, children_max=CHILDREN_MAX),
        history=HistorySettings(enabled=history),
    )


LOOK_MS = 5_000
"""How often `protocol/liveness.py` looks through links at rest."""


def allowed_ms(config: Config, silent: bool, crashed: int) -> int:
    """The most time until every subscriber gets events again, by the settings."""
    links = config.links
    pinged_ms = links.ping_after_ms + LOOK_MS
    noticed_ms = pinged_ms + links.pings_unanswered_max * links.ping_timeout_ms
    asked_ms = config.pulsar.reply_timeout_ms if silent else LOST_AFTER_MS
    return (
        (noticed_ms if silent else LOST_AFTER_MS)
        + crashed * asked_ms
        + LEVELS_MAX * 2 * ONE_WAY_MS
        + EVERY_MS
    )


def _doomed(net: Net, crash: str) -> list[int]:
    """The peers that are to crash, those with most children first."""
    places = {number: net.branch(number) for number in range(len(net.nodes))}
    order = sorted(
        (number for number, branch in places.items() if branch is not None),
        key=lambda number: (-len(places[number].children), number),  # type: ignore[union-attr]
    )
    roots = [number for number in order if places[number].rendezvous]  # type: ignore[union-attr]
    if len(roots) != RENDEZVOUS:
        raise RuntimeError(f"the tree has {len(roots)} rendezvous in place of {RENDEZVOUS}")
    if crash == "parent":
        return [number for number in order if number not in roots][:1]
    return roots[: {"rendezvous": 1, "half": RENDEZVOUS // 2, "all but one": RENDEZVOUS - 1}[crash]]


def _followed(net: Net, members: list[int], crash_ms: int) -> Columns:
    """What became of the events that were published after the crash."""
    record = net.world.record
    got: dict[bytes, dict[int, Delivery]] = {}
    for one in record.deliveries:
        got.setdefault(one.event.payload, {}).setdefault(one.peer, one)
    last_ms, never, late = crash_ms - EVERY_MS, 0, 0
    affected: set[int] = set()
    events = [one for one in record.publications.values() if one.at_ms >= crash_ms]
    for publication in events:
        reached = got.get(publication.payload, {})
        for number in members:
            delivery = reached.get(number)
            if delivery is None or delivery.at_ms > publication.at_ms + PROMPT_MS:
                last_ms = max(last_ms, publication.at_ms)
                affected.add(number)
                never += delivery is None
                late += delivery is not None
    return {
        "repair_ms": float(last_ms + EVERY_MS - crash_ms),
        "affected": len(affected),
        "live": len(members),
        "owed": len(events) * len(members),
        "late": late,
        "never": never,
    }


COLUMNS = joined(
    texts("crash"),
    truths("silent", "history"),
    smalls("peers", "subscribers", "crashed", "live", "affected"),
    wholes("owed", "late", "never"),
    reals("repair_ms", "repair_ms_allowed"),
)
GROUPS = ("crash", "silent", "history")
TITLES = {
    "noticed": "crash noticed: repair time over the time allowed, the most",
    "silent": "silent crash: repair time over the time allowed, the most",
    "lost": "events that never came, with history",
}


def healing(rows: DataFrame) -> DataFrame:
    """Per seed: what is asked, the worst of all crashes; times are of the tree alone."""
    took = F.col("repair_ms") / F.col("repair_ms_allowed")
    alone = ~F.col("history")
    return rows.groupBy("seed").agg(
        F.max(F.when(alone & ~F.col("silent"), took)).alias("noticed"),
        F.max(F.when(alone & F.col("silent"), took)).alias("silent"),
        F.sum(F.when(F.col("history"), F.col("never"))).alias("lost"),
    )


def measure(rows: DataFrame, size: Size) -> DataFrame:
    asked = at_most(1.0, *TITLES) | at_most(0.0, "lost")
    point = F.format_string(
        "%s, %s, %s; ",
        F.col("crash"),
        F.when(F.col("silent"), "silent").otherwise("noticed"),
        F.when(F.col("history"), "with history").otherwise("tree alone"),
    )
    others = {
        "seconds until everybody gets events again": F.col("repair_ms") / 1_000,
        "subscribers that missed something at first": F.col("affected") / F.col("live"),
        "events that never came, of those owed meanwhile": F.col("never") / F.col("owed"),
    }
    return together(
        rows.transform(healing).transform(numbers(TITLES, asked)),
        rows.transform(told(others, GROUPS, point)),
    )


def alone_after_a_while(push: Function) -> Function:
    """A planted defect: once the tree stands, nobody is given a place in it."""

    def instead(world: World, time_ms: int, node: Node, fact: object) -> None:
        formed = len(world.record.publications) > BEFORE_EVENTS // 2
        if not formed or kind_of(fact) != "TreeJoinReply":
            push(world, time_ms, node, fact)

    return instead


def figure(rows: DataFrame) -> Figure:
    means = table(
        rows.groupBy(*GROUPS).agg(
            F.avg("repair_ms").alias("repair"),
            F.max("repair_ms").alias("most"),
            F.avg("repair_ms_allowed").alias("allowed"),
        )
    )
    drawing, axes = panels(columns=2)
    shown = [crash for crash in CRASHES if crash in set(means["crash"])]
    for panel, silent in zip(axes, (False, True), strict=True):
        for shift, history in ((-0.2, False), (0.2, True)):
            some = means[(means["silent"] == silent) & (means["history"] == history)]
            if not len(some):
                continue
            some = some.set_index("crash")
            known = [(place, some.loc[crash]) for place, crash in enumerate(shown)]
            x = [place + shift for place, _ in known]
            label = "with history" if history else "the tree alone"
            tint = colour(5 if history else 0)
            panel.bar(x, [row["repair"] / 1e3 for _, row in known], 0.38, label=label, color=tint)
            panel.plot(x, [row["most"] / 1e3 for _, row in known], "_", color=BLACK, ms=12)
        bound = means[(means["silent"] == silent) & ~means["history"]].set_index("crash")
        for place, crash in enumerate(shown):
            ends = [place - 0.42, place + 0.42]
            panel.plot(ends, [bound.loc[crash]["allowed"] / 1e3] * 2, ls="--", color=BLACK, lw=1)
        panel.set_xticks(range(len(shown)), shown)
        panel.set_title("crash nobody is told of" if silent else "crash that neighbours notice")
        panel.set_ylabel("seconds until all get events again")
        panel.plot([], [], "_", color=BLACK, ms=12, label="longest")
        panel.plot([], [], ls="--", color=BLACK, lw=1, label="allowed")
        panel.legend(loc="upper left", ncols=2)
        panel.set_ylim(top=1.25 * means[means["silent"] == silent]["allowed"].max() / 1e3)
    return drawing


ENTRY = Entry.of(
    __name__,
    title="Trees heal",
    claim="After the crash of a parent, of a rendezvous, of half of the rendezvous or of all "
    "but one, every subscriber gets events again within the time that the settings give: "
    "until the loss is noticed, and until the peers above it, which know each other, have been "
    "asked. With history, what was missed meanwhile comes after all.",
    seeds={"quick": 1, "full": 3},
    tolerances=reasons(
        TITLES,
        noticed=ground.derived(
            "2026-11-15",
            "A second until a failed connection is told, another for each of the dead that is "
            "asked for a place, eight round trips down the tree, and the time between two events.",
        ),
        silent=ground.derived(
            "2026-11-15",
            "15 s of silence, up to 5 s until they are seen, three pings of 1 s; then 0.5 s "
            "for each of the dead that is asked for a place, eight round trips down the tree, and "
            "the time between two events.",
        ),
        lost=ground.asked("2026-11-15", "Other live peers have every event that was missed."),
    ),
    defects=(
        Defect("joins are not answered after the crash", {ARRIVE: alone_after_a_while}),
        Defect("missing events are not given", lost("BlocksReply", "PageReply", "Repair")),
    ),
    seconds=lambda params: (4.0 if params["silent"] else 2.0) * (3 if params["history"] else 1),
)
