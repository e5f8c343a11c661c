"""pulsar-flood: what a notification costs over a tree and over the naive flood.

All have joined and settled. Then some peers, subscribed or not, publish at a slow pace, and what is
sent meanwhile is traced, with its bytes. From the trace the pipeline's transforms count messages
and bytes by kind: events on their way (*payload*), what keeps the tree up (*upkeep*: beats, syncs,
joins, pings), and the messages of the *DHT*, which the tree needs, once for all topics. Exchanges
of views keep the general overlay up under every routing and are left out. Of the flood only events
are counted: that subscribers make themselves known there is an addition of ours
(`protocol/flood.py`).
"""

from __future__ import annotations

from functools import lru_cache, partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from weft.ids import Contact
from weft.lab import ground
from weft.lab.defect import SEND, Defect, Function, lost, sent_also
from weft.lab.experiment import Columns, Entry, Params, Size, every
from weft.lab.figures import Figure, look, means, panels
from weft.lab.measures import at_most, reals, reasons, smalls, texts, told, wholes
from weft.lab.pulsar import JOIN_CYCLES, Net
from weft.lab.task import shape_of
from weft.lab.traced import PIECES, WindowWriter, overview, recorded, tables_of
from weft.net import codec
from weft.pipeline.schemas import joined, selected
from weft.pipeline.traces import figures
from weft.pipeline.transforms import numbers, together
from weft.protocol.config import Config, Cyclon
from weft.protocol.kademlia import rpc
from weft.protocol.liveness import LinkList, Ping, Pong
from weft.protocol.publication import RouteEvent, RouteResult
from weft.protocol.pulsar.attachment import TreeJoin, TreeJoinReply
from weft.protocol.pulsar.branch import RendezvousSync, TreeFamily, TreeLeave
from weft.protocol.pulsar.pulsar import Pulsar
from weft.protocol.wire import Message, Payload
from weft.sim.world import World

SHARES = {"quick": (0.1, 1.0), "full": (0.05, 0.1, 0.25, 1.0)}
SIZES = {"quick": (25,), "full": (25, 50, 100)}
EVENTS = 40


def points(size: Size) -> list[Params]:
    same, routings = {"events": EVENTS}, ("pulsarcast", "flood")
    return every(same, peers=SIZES[size], share=SHARES[size], routing=routings)


def seconds(params: Params) -> float:
    peers, share = float(params["peers"]), float(params["share"])
    return peers / 40 + (peers * peers * share / 1_000 if params["routing"] == "flood" else 0)


SETTLE_CYCLES = 20
"""guess: tables of the DHT are still being filled before that, which takes more messages."""
MEASURED_CYCLES = 20
PUBLISHERS = 8
EVENT_KINDS = (Payload, RouteEvent, RouteResult)
TREE_KINDS = (TreeJoin, TreeJoinReply, TreeFamily, TreeLeave, RendezvousSync)
UPKEEP_KINDS = (Ping, Pong, LinkList, *TREE_KINDS)
DHT_KINDS = (rpc.FindRequest, rpc.FindReply)


def run(params: Params, seed: int) -> Columns:
    """What the trace of the measured cycles adds up to, and how many peers were in the tree."""
    known, found = recorded(partial(play, params, seed))
    return {**found, **known}


def play(params: Params, seed: int, writer: WindowWriter) -> Columns:
    """All join and settle; then some publish, which is traced with the bytes on the wire."""
    config = Config(routing=params["routing"], trace=True)
    net = Net(
        *(seed, params["peers"], config),
        writer=writer,
        size_of=lambda message: len(codec.encode(message)),
    )
    members = net.draw_subscribers(max(2, round(params["share"] * params["peers"])))
    net.subscribe(*members)
    net.run_cycles(JOIN_CYCLES + SETTLE_CYCLES)
    publishers = net.dice.some("lab.publishers", range(params["peers"]), PUBLISHERS)
    every_ms = MEASURED_CYCLES * net.cycle_ms // params["events"]
    writer.begin()
    net.publish_all(publishers, params["events"], every_ms)
    inside = {*members, *(n for n in range(params["peers"]) if _is_root(net, n))}
    return {
        "subscribed": len(members),
        "in_tree": len(inside),
        "outside": sum(
            publishers[number % PUBLISHERS] not in inside for number in range(params["events"])
        ),
        "cycles": MEASURED_CYCLES,
    }


def _is_root(net: Net, number: int) -> bool:
    branch = net.branch(number)
    return branch is not None and branch.rendezvous


MINORITY = 0.25
COLUMNS = joined(
    texts("routing"),
    smalls("peers"),
    reals("share"),
    smalls("events", "subscribed", "in_tree", "outside", "cycles"),
    PIECES,
)
RUN = ("routing", "peers", "share", "events", "subscribed", "in_tree", "outside", "cycles")
GROUPS = {"payload": EVENT_KINDS, "upkeep": UPKEEP_KINDS, "dht": DHT_KINDS}
COSTS = joined(
    texts("routing"),
    smalls("peers"),
    reals("share"),
    smalls("events", "subscribed", "in_tree", "outside", "cycles"),
    wholes("notifications", "owed"),
    wholes(*(f"{group}_{kind}" for group in GROUPS for kind in ("messages", "bytes"))),
)
TITLES = {
    "missed": "notifications that are missing",
    "exact": "messages of the tree less those of its links, the most",
    "ratio": "messages per notification, tree over flood, over what their links allow, the most",
    "minority_messages": "messages with upkeep, tree over flood, at most a quarter subscribed, an "
    "event per cycle, the most",
    "minority_bytes": "bytes with upkeep, tree over flood, at most a quarter subscribed, an event "
    "per cycle, the most",
}


@lru_cache(maxsize=1)
def costs(rows: DataFrame) -> DataFrame:
    """Rows of runs → one row for each: notifications, those owed, and what was sent by group, as
    the pipeline counts it. Verdict and picture both ask for it, so the few rows of the last answer
    are kept."""
    given = (F.col("delivered") + F.col("others")).alias("notifications")
    known = overview(rows, *RUN)
    numbers = known.select("run", given)
    of_kinds = tables_of(rows).traffic.transform(figures.messages, numbers, ("run",))

    def sent(group: str, name: str) -> Column:
        kinds = [kind.__name__ for kind in GROUPS[group]]
        return F.coalesce(F.sum(F.when(F.col("rpc").isin(kinds), F.col(name))), F.lit(0))

    sums = of_kinds.groupBy("run").agg(
        *(sent(group, "sent").alias(f"{group}_messages") for group in GROUPS),
        *(sent(group, "bytes_sent").alias(f"{group}_bytes") for group in GROUPS),
    )
    wide = known.withColumns({"notifications": given, "owed": F.col("expected")}).join(sums, "run")
    shape = shape_of(COSTS)
    return rows.sparkSession.createDataFrame(selected(wide, shape).collect(), shape)


def compared(rows: DataFrame) -> DataFrame:
    """Costs → per seed, size and share: tree and flood side by side, per event; and the number of
    events per cycle from which on the tree with all its upkeep is cheaper."""
    keys = ["seed", "peers", "share"]

    def per_event(name: str) -> Column:
        return F.col(name) / F.col("events")

    def per_cycle(kind: str) -> Column:
        return (F.col(f"upkeep_{kind}") + F.col(f"dht_{kind}")) / F.col("cycles")

    links = F.col("events") * (F.col("in_tree") - 1) + 2 * F.col("outside")
    trees = rows.where("routing = 'pulsarcast'").select(
        *keys,
        "subscribed",
        "in_tree",
        (F.col("owed") - F.col("notifications")).alias("missed"),
        F.abs(F.col("payload_messages") - links).alias("exact"),
        per_event("payload_messages").alias("tree_messages"),
        per_event("payload_bytes").alias("tree_bytes"),
        per_cycle("messages").alias("kept_messages"),
        per_cycle("bytes").alias("kept_bytes"),
    )
    floods = rows.where("routing = 'flood'").select(
        *keys,
        (F.col("owed") - F.col("notifications")).alias("missed_too"),
        per_event("payload_messages").alias("flood_messages"),
        per_event("payload_bytes").alias("flood_bytes"),
    )

    def crossing(kind: str) -> Column:
        saved = F.col(f"flood_{kind}") - F.col(f"tree_{kind}")
        return F.when(saved > 0, F.col(f"kept_{kind}") / saved)

    def whole(kind: str) -> Column:
        return (F.col(f"tree_{kind}") + F.col(f"kept_{kind}")) / F.col(f"flood_{kind}")

    half_view = F.least(F.lit(Cyclon().view_size), F.col("peers") - 1) / 2
    allowed = (F.col("in_tree") + 1) / (F.col("peers") * half_view)
    return trees.join(floods, keys).withColumns(
        {
            "missed": F.col("missed") + F.col("missed_too"),
            "ratio": F.col("tree_messages") / F.col("flood_messages") / allowed,
            "whole_messages": whole("messages"),
            "whole_bytes": whole("bytes"),
            "crossing_messages": crossing("messages"),
            "crossing_bytes": crossing("bytes"),
        }
    )


def worst(pairs: DataFrame) -> DataFrame:
    """Per seed: what is asked."""
    few = F.col("share") <= MINORITY
    return pairs.groupBy("seed").agg(
        F.sum("missed").alias("missed"),
        F.max("exact").alias("exact"),
        F.max("ratio").alias("ratio"),
        F.max(F.when(few, F.col("whole_messages"))).alias("minority_messages"),
        F.max(F.when(few, F.col("whole_bytes"))).alias("minority_bytes"),
    )


def measure(rows: DataFrame, size: Size) -> DataFrame:
    asked = at_most(1.0, *TITLES) | at_most(0.0, "missed", "exact")
    others = {
        f"{kind} per notification, {routing}": F.col(f"{routing}_{kind}") / F.col("subscribed")
        for kind in ("messages", "bytes")
        for routing in ("tree", "flood")
    }
    others["messages per cycle that keep the tree and the DHT up"] = F.col("kept_messages")
    for kind in ("messages", "bytes"):
        title = f"events per cycle from which on the tree sends fewer {kind}"
        others[title] = F.col(f"crossing_{kind}")
    pairs = rows.transform(costs).transform(compared)
    point = F.format_string("%d peers, %.0f %% subscribed; ", "peers", F.col("share") * 100)
    return together(
        pairs.transform(worst).transform(numbers(TITLES, asked)),
        pairs.transform(told(others, ("peers", "share"), point)),
    )


def in_trees(world: World, contact: Contact, message: Message) -> Contact | None:
    """Finds the same peer once more, in networks that use trees."""
    routing = getattr(world.nodes[0].machine, "routing", None)
    return contact if isinstance(routing, Pulsar) else None


twice = sent_also("Payload", to=in_trees)[SEND]
"""A planted defect: trees send copies once more."""


def eight_times(send: Function) -> object:
    """A planted defect: questions that keep trees and tables up are sent eight times."""
    again: Function = sent_also(Ping.__name__, rpc.FindRequest.__name__, to=in_trees)[SEND]
    return again(again(again(send)))


def figure(rows: DataFrame) -> Figure:
    pairs = rows.transform(costs).transform(compared)
    names = [name for name in pairs.columns if name not in ("seed", "peers", "share")]
    found = means(pairs, ("peers", "share"), *names)
    drawing, [messages, weights, crossings] = panels(columns=3)
    for number, (peers, some) in enumerate(found.groupby("peers")):
        style = look(number)
        share, each = 100 * some["share"], some["subscribed"]
        for panel, kind in ((messages, "messages"), (weights, "bytes")):
            label = f"{peers} peers"
            panel.plot(share, some[f"tree_{kind}"] / each, label=f"tree, {label}", **style)
            panel.plot(
                share, some[f"flood_{kind}"] / each, ls=":", label=f"flood, {label}", **style
            )
        crossings.plot(share, some["crossing_messages"], label=f"messages, {peers} peers", **style)
        crossings.plot(
            share, some["crossing_bytes"], ls=":", label=f"bytes, {peers} peers", **style
        )
    messages.set_ylabel("messages per notification")
    weights.set_ylabel("bytes per notification")
    crossings.set_ylabel("events per cycle (10 s)")
    crossings.set_title("from where on the tree with its upkeep is cheaper")
    for panel in (messages, weights, crossings):
        panel.set(xlabel="subscribed, %", xscale="log")
        ticks = sorted(set(100 * found["share"]))
        panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        panel.minorticks_off()
    messages.set_yscale("log")
    weights.set_yscale("log")
    crossings.set_ylim(bottom=0)
    messages.legend(ncols=2, fontsize=7)
    crossings.legend(ncols=2, fontsize=7)
    return drawing


ENTRY = Entry.of(
    __name__,
    title="A tree against the naive flood",
    claim="A flood reaches every peer, subscribed or not. A tree carries an event over exactly its "
    "links, one per member, so it sends fewer messages per notification everywhere; and where at "
    "most a quarter of the peers is subscribed, also with everything that keeps the tree and the "
    "DHT up, as soon as there is an event per cycle. From which rate on that holds is told.",
    seeds={"quick": 1, "full": 2},
    tolerances=reasons(
        TITLES,
        missed=ground.asked("2026-11-15", "Nothing is lost on the way here."),
        exact=ground.derived(
            "2026-11-15",
            "Members and rendezvous, less one, for each event; and a question and an answer "
            "where the publisher is outside.",
        ),
        ratio=ground.derived(
            "2026-11-16",
            "A tree sends an event over its links, one for each in it, and from outside one more; "
            "a flood over at least half of every peer's view, since what came from a neighbour or "
            "is known to be there need not be sent.",
        ),
        minority_messages=ground.asked("2026-11-15", "Cheaper means: fewer."),
        minority_bytes=ground.asked("2026-11-15", "Cheaper means: fewer."),
    ),
    defects=(
        Defect("trees send every copy four times", {SEND: lambda send: twice(twice(send))}),
        Defect("one copy in five is lost", lost("Payload", "Repair", one_in=5)),
        Defect(
            "pings and requests of the DHT are sent eight times",
            {SEND: eight_times},
            where=lambda params: params["share"] <= MINORITY,
        ),
    ),
)
