"""pulsar-gap: what repairing a gap costs, from one missing event to a thousand.

One subscriber is cut off for a moment (no peer notices) while others publish as many events as the
gap is to have. Then the cut heals and one more event is published: its parent is missing. Time is
taken until the subscriber has been handed everything; its questions for events of the past and the
answers to them are counted. (Questions of others to it are not: a peer that gets its events by way
of the subscriber was cut off with it.)

How much may be needed follows from the settings. An event names its parents, so a short gap is
walked back height by height: at most a question and an answer per missing event, after
`patience_ms` in which the parent may come by itself. A gap of more than `walk_back_max` heights is
read in pages: a question and an answer per page. (One publisher's events are one height each;
concurrent ones share heights.) Where messages are lost, a question is asked again until its answer
comes.

In these runs the peer that brought the last event also has the gap's. So there is a third kind
of run, for the paper's own claim (004, Section 4.5): a subscriber that lacks the parent of an event
asks the DHT for it. There the gap is one that *only the DHT* can fill. A publisher, another leaf of
the tree and the parent of both are cut off together, so that these three alone get the gap's
events. When the cut heals, the other leaf publishes the event that shows the gap, and all three
crash as soon as it is on its way to the others: then no live peer has any event of the gap. Cycles
later, when the tree has forgotten the publisher, it comes back with its store and does not
subscribe. No member knows of it; it provides what it published, where the paper's publisher puts
its events into the DHT (Section 4.4). Time is taken from its return until every live subscriber has
been handed everything. There are more peers than an event has records in the DHT, so the records
must be found.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from weft.ids import Contact, PeerId
from weft.lab import ground, pulsar
from weft.lab.defect import ARRIVE, Defect, Function, again, late, not_repaired, sent_also
from weft.lab.experiment import Columns, Entry, Params, Size, every
from weft.lab.figures import BLACK, Figure, look, means, panels
from weft.lab.measures import at_most, reals, reasons, smalls, texts, told, wholes
from weft.lab.pulsar import CONTACTS, JOIN_CYCLES, Net, repair
from weft.pipeline.schemas import joined
from weft.pipeline.transforms import numbers, together
from weft.protocol.config import Config, HistorySettings, Routing
from weft.protocol.history.blocks import BLOCKS_MAX, BlocksReply, BlocksRequest
from weft.protocol.history.reader import PageReply, PageRequest
from weft.protocol.wire import Message
from weft.sim.network import Conditions, Latency, Partition
from weft.sim.node import Node, keyed
from weft.sim.record import Delivery
from weft.sim.world import Observer, World

GAPS = {"quick": (1, 10, 100), "full": (1, 3, 10, 30, 60, 100, 300, 1_000)}
REAL_GAPS = {"quick": (100,), "full": (1, 10, 100, 1_000)}
DHT_GAPS = {"quick": (1, 10, 100), "full": (1, 3, 10, 30, 100, 300)}
LOSSES = (0.0, 0.1)
PEERS = 10
DHT_PEERS = 60
"""Three times as many as keep the records of one event, of which PEERS are subscribed."""


def points(size: Size) -> list[Params]:
    routings = pulsar.ROUTINGS[: 3 if size == "full" else 2]
    publishers = (1, 3) if size == "full" else (1,)
    machines = {"how": "machines", "peers": PEERS}
    network = {"how": "network", "publishers": 1, "loss": 0.0}
    dht = {**network, "how": "dht", "peers": DHT_PEERS, "routing": "pulsarcast"}
    real = routings if size == "full" else ("pulsarcast",)
    return [
        *every(machines, routing=routings, publishers=publishers, loss=LOSSES, gap=GAPS[size]),
        *every(network, routing=real, gap=REAL_GAPS[size]),
        *every(dht, gap=DHT_GAPS[size]),
    ]


def seconds(params: Params) -> float:
    per_second = {"network": 250, "dht": 200}.get(params["how"], 600)
    return (2.0 if params["how"] == "dht" else 0.1) + float(params["gap"]) / per_second


QUESTIONS, ANSWERS = (BlocksRequest, PageRequest), (BlocksReply, PageReply)
REPAIR = (*QUESTIONS, *ANSWERS)
ONE_WAY_MS = 20
EVERY_MS = 5
"""So quick that the cut is over before any peer takes the subscriber for lost."""
HOPS_MAX = 10
"""measured: no event takes more hops to any of so few peers."""
STORE_MS = 5
"""How long a disk takes; the simulator's take as long."""
PATIENCE_MS = 400_000
"""guess: with losses it may take several rounds of asking."""


class Talk(Observer):
    """Counts what one peer sends and is sent, by kind, since `begin`."""

    def __init__(self, watched: Contact) -> None:
        self._watched = watched
        self.said: Counter[type] = Counter()
        self.heard: Counter[type] = Counter()

    def begin(self) -> None:
        self.said.clear()
        self.heard.clear()

    def sent(
        self, now_ms: int, sender: Node, to: Contact, receiver: Node | None, message: Message
    ) -> None:
        if sender.contact == self._watched:
            self.said[type(message)] += 1
        elif to == self._watched:
            self.heard[type(message)] += 1


def run(params: Params, seed: int) -> Columns:
    gap = params["gap"]
    if params["how"] == "network":
        measured = repair(params["routing"], gap)
        return {**measured, "heights": gap + 1, "holders": pulsar.MEMBERS, **_nothing_allowed()}
    if params["how"] == "dht":
        return only_by_dht(params, seed)
    conditions = Conditions(latency=Latency("constant", ONE_WAY_MS))
    talk = Talk(keyed(seed, params["peers"] - 1)[0])
    net = Net(seed, params["peers"], settings(params["routing"]), conditions, [talk])
    world = net.world
    members = list(range(params["peers"]))
    net.subscribe(*members, since="beginning")
    net.run_cycles(JOIN_CYCLES)
    publishers, victim = members[: params["publishers"]], net.nodes[members[-1]]
    net.publish_all(publishers, len(publishers), 1_000)
    _cut_off(net, [victim.index], publishers, gap)
    loss_percent = round(100 * params["loss"])  # from now on, so that no other peer lacks anything
    world.network.set_conditions(replace(world.network.conditions, loss_percent=loss_percent))
    talk.begin()
    healed_ms = world.now_ms
    net.publish_next(publishers[0])
    wanted = gap + 1 + len(publishers)
    repaired = net.run_while(
        lambda: len(net.deliveries(victim.index)) < wanted, ONE_WAY_MS, PATIENCE_MS
    )
    handed = net.deliveries(victim.index)
    asked = sum(talk.said[kind] for kind in QUESTIONS)
    answered = sum(talk.heard[kind] for kind in ANSWERS)
    heights = _height(handed[-1]) - _height(handed[len(publishers) - 1])
    return {
        "missing": wanted - len(handed),
        "repair_ms": float(handed[-1].at_ms - healed_ms) if repaired else float("nan"),
        "messages": float(asked + answered),
        "heights": heights,
        "holders": params["peers"] - 1,
        **allowed(gap, heights, params["loss"]),
    }


def _cut_off(net: Net, some: Sequence[int], publishers: Sequence[int], gap: int) -> None:
    """Let peers publish while some and all others hear nothing of each other."""
    net.world.set_partition(Partition(tuple(int(node.index in some) for node in net.nodes)))
    net.publish_all(publishers, gap, EVERY_MS)
    net.run(2 * ONE_WAY_MS)  # what is on its way is lost, too
    net.world.set_partition(None)


def _height(delivery: Delivery) -> int:
    assert delivery.descriptor is not None
    return delivery.descriptor.height


def settings(routing: Routing) -> Config:
    return Config(routing=routing, history=HistorySettings(enabled=True))


def allowed(gap: int, heights: int, loss: float) -> Columns:
    """The most messages for a gap, by the settings, and the most time where nothing is lost.

    With losses, a question and its answer come through with a chance q, so n of them take n/q on
    average, with a standard deviation of √(n (1 − q))/q, of which three are allowed.
    """
    history = HistorySettings()
    begins_ms = HOPS_MAX * ONE_WAY_MS + STORE_MS
    turns = _turns(gap, heights)
    exchanges = turns
    if heights <= history.walk_back_max:
        exchanges = gap
        begins_ms += history.patience_ms
    through = (1 - loss) ** 2
    asked = (exchanges + 3 * math.sqrt(exchanges * (1 - through))) / through
    return {
        "messages_allowed": 2 * asked,
        "ms_allowed": float(begins_ms + turns * 2 * ONE_WAY_MS) if not loss else math.nan,
    }


def _turns(gap: int, heights: int) -> int:
    """Round trips for a gap: one per height, or per page."""
    if heights <= HistorySettings().walk_back_max:
        return heights
    return -(-(gap + 1) // BLOCKS_MAX) + 1  # one page more for events published meanwhile


def _nothing_allowed() -> Columns:
    return {"messages_allowed": math.nan, "ms_allowed": math.nan}


# --- where only the DHT can fill it ---------------------------------------------------------------

AWAY_CYCLES = 3
"""measured: by then no member names the peers that crashed. If members do not ask the DHT (a
planted defect), none gets an event of the gap although the publisher is back."""
LOOK_MS = 60_000
"""A peer that comes back looks through its store once in this time, to provide what it has."""
LOOKS_MS = 500
"""How often the run is looked at; times are those of the deliveries."""
LOOKUP_TRIPS = 4
"""derived: round trips of a lookup. A table holds a third of so few peers, the nearest among them;
three rounds settle which peers are the nearest, and one more trip asks them or stores there."""


def only_by_dht(params: Params, seed: int) -> Columns:
    """One row: a gap of which no live peer has an event when members notice it."""
    gap, peers = params["gap"], params["peers"]
    conditions = Conditions(latency=Latency("constant", ONE_WAY_MS))
    net = Net(seed, peers, settings(params["routing"]), conditions)
    members = net.draw_subscribers(PEERS)
    net.subscribe(*members, since="beginning")
    net.run_cycles(JOIN_CYCLES)
    publisher, sibling, parent = _leaves_of_one(net, members)
    net.publish_all([sibling], 1, 1_000)
    _cut_off(net, [publisher, sibling, parent], [publisher], gap)
    lacking = net.stream(publisher)[-gap:]
    net.publish_next(sibling)
    net.run(STORE_MS + ONE_WAY_MS * 3 // 2)  # past the parent; no answer to it has come
    net.crash(publisher, sibling, parent)
    net.run_cycles(AWAY_CYCLES)
    others = net.alive(members)
    holders = sum(not set(lacking).isdisjoint(net.stream(each)) for each in net.alive())
    net.start(publisher, net.alive()[:CONTACTS])
    back_ms = net.world.now_ms
    wanted = gap + 2
    net.run_while(
        lambda: any(len(net.deliveries(each)) < wanted for each in others), LOOKS_MS, PATIENCE_MS
    )
    handed = [net.deliveries(each) for each in others]
    missing = sum(wanted - len(some) for some in handed)
    took_ms = max((some[-1].at_ms for some in handed if some), default=back_ms) - back_ms
    return {
        "missing": missing,
        "repair_ms": math.nan if missing else float(took_ms),
        "messages": math.nan,
        "heights": gap + 1,
        "holders": holders,
        "messages_allowed": math.nan,
        "ms_allowed": allowed_by_dht(gap, len(others)),
    }


def _leaves_of_one(net: Net, members: Sequence[int]) -> tuple[int, int, int]:
    """Two subscribers without children that have the same parent, and that one."""
    leaves: dict[PeerId, int] = {}
    for number in members:
        branch = net.branch(number)
        if branch is None or branch.parent is None or branch.children:
            continue
        parent = branch.parent.peer
        if parent in leaves:
            return leaves[parent], number, net.world.record.peers[parent]
        leaves[parent] = number
    raise ValueError("no two leaves of the tree have the same parent")


def allowed_by_dht(gap: int, members: int) -> float:
    """The most time from the return of the one peer that has the events, by the settings: until it
    looks through its store and has told the DHT; until members, which ask again after a pause, have
    asked each other in vain and then the DHT; and a round trip per height or page. The bound takes
    it that no peer that is asked is down: lookups that wait for crashed peers exceed it."""
    trips = LOOKUP_TRIPS + members + LOOKUP_TRIPS + _turns(gap, gap + 1)
    return float(LOOK_MS + HistorySettings().retry_ms + trips * 2 * ONE_WAY_MS)


# --- measures -------------------------------------------------------------------------------------

COLUMNS = joined(
    texts("how", "routing"),
    smalls("publishers"),
    reals("loss"),
    smalls("gap", "heights", "holders"),  # holders: live peers that have the gap's events
    wholes("missing"),
    reals("repair_ms", "messages", "messages_allowed", "ms_allowed"),
)
GROUPS = ("how", "routing", "publishers", "loss", "gap")
TITLES = {
    "missing": "events that stayed missing",
    "messages": "messages over those allowed, no loss, the most",
    "messages_loss": "messages over those allowed, 10 % lost, the most",
    "time": "time over the time allowed, no loss, the most",
    "dht_missing": "only the DHT can fill it: events that stayed missing",
    "dht_time": "only the DHT can fill it: time over the time allowed, the most",
    "dht_holders": "only the DHT can fill it: members that had an event of it, the most",
}


def costs(rows: DataFrame) -> DataFrame:
    """Per seed: what is asked, the worst of all gaps."""
    quiet = F.col("loss") == 0
    messages = F.col("messages") / F.col("messages_allowed")
    machines = rows.where("how = 'machines'")
    by_dht = F.col("how") == "dht"
    each = rows.groupBy("seed").agg(
        F.sum(F.when(~by_dht, F.col("missing"))).alias("missing"),
        F.sum(F.when(by_dht, F.col("missing"))).alias("dht_missing"),
        F.max(F.when(by_dht, F.col("repair_ms") / F.col("ms_allowed"))).alias("dht_time"),
        F.max(F.when(by_dht, F.col("holders"))).alias("dht_holders"),
    )
    worst = machines.groupBy("seed").agg(
        F.max(F.when(quiet, messages)).alias("messages"),
        F.max(F.when(~quiet, messages)).alias("messages_loss"),
        F.max(F.when(quiet, F.col("repair_ms") / F.col("ms_allowed"))).alias("time"),
    )
    return each.join(worst, "seed", "left")


def measure(rows: DataFrame, size: Size) -> DataFrame:
    asked = at_most(1.0, *TITLES) | at_most(0.0, "missing", "dht_missing", "dht_holders")
    point = F.format_string(
        "%s, %s, %d publishers, %.0f %% lost, gap of %d; ",
        F.when(F.col("how") == "network", "real peers")
        .when(F.col("how") == "dht", "only by the DHT")
        .otherwise("simulated"),
        F.col("routing"),
        F.col("publishers"),
        F.col("loss") * 100,
        F.col("gap"),
    )
    per_event = F.nanvl(F.col("messages"), F.lit(None)) / F.col("gap")
    others = {"milliseconds": F.col("repair_ms"), "messages per missing event": per_event}
    return together(
        rows.transform(costs).transform(numbers(TITLES, asked)),
        rows.transform(told(others, GROUPS, point)),
    )


def two_of_three(push: Function) -> Function:
    """A planted defect: most answers do not arrive."""

    def instead(world: World, time_ms: int, node: Node, fact: object) -> None:
        if not isinstance(getattr(fact, "message", None), ANSWERS) or time_ms % 3 == 0:
            push(world, time_ms, node, fact)

    return instead


FIND = "weft.protocol.history.fetch:Providers.find"


def finds_nobody(find: Function) -> Function:
    """A planted defect: no peer looks for providers."""
    return lambda *args: False


def is_short(params: Mapping[str, Any]) -> bool:
    """The points that defects are planted at: some of each kind in virtual time, so that no measure
    falls short for want of rows."""
    return bool(params["how"] != "network" and params["gap"] <= DHT_GAPS["quick"][1])


def figure(rows: DataFrame) -> Figure:
    found = means(rows, GROUPS, "repair_ms", "messages", "messages_allowed", "ms_allowed")
    drawing, [quiet, lossy, messages] = panels(columns=3)
    single = found[found["publishers"] == 1]
    machines = single[single["how"] == "machines"]
    for routing in pulsar.ROUTINGS:
        mine = machines[machines["routing"] == routing]
        if not len(mine):
            continue
        real = single[(single["how"] == "network") & (single["routing"] == routing)]
        style = {**pulsar.style(routing), "label": pulsar.NAMES[routing]}
        dotted = {**style, "ls": ":", "label": None}
        calm, stormy = mine[mine["loss"] == 0], mine[mine["loss"] > 0]
        quiet.plot(calm["gap"], calm["repair_ms"], **style)
        if len(real):
            quiet.plot(real["gap"], real["repair_ms"], **dotted)
        lossy.plot(stormy["gap"], stormy["repair_ms"], **style)
        messages.plot(calm["gap"], calm["messages"] / calm["gap"], **style)
        messages.plot(stormy["gap"], stormy["messages"] / stormy["gap"], **dotted)
    by_dht = single[single["how"] == "dht"]
    quiet.plot(by_dht["gap"], by_dht["repair_ms"], **look(len(pulsar.ROUTINGS)), label="by the DHT")
    bound = machines[(machines["loss"] == 0) & (machines["routing"] == "pulsarcast")]
    dashes: Any = {"color": BLACK, "ls": "--", "lw": 1, "label": "allowed, no loss"}
    quiet.plot(bound["gap"], bound["ms_allowed"], **dashes)
    messages.plot(bound["gap"], bound["messages_allowed"] / bound["gap"], **dashes)
    for panel, title in (
        (quiet, "no loss (dotted: real peers)"),
        (lossy, "10 % of the messages lost"),
    ):
        panel.set(title=title, ylabel="milliseconds until repaired")
    messages.set(title="no loss (dotted: 10 % lost)", ylabel="messages per missing event")
    for panel in (quiet, lossy, messages):
        panel.set(xscale="log", yscale="log", xlabel="missing events")
        panel.legend()
    return drawing


ENTRY = Entry.of(
    __name__,
    title="A gap is repaired",
    claim="A gap of 1 to 1000 events is found when the next event comes, and repaired. A short "
    "one is walked back: at most a question and an answer per missing event, a round trip per "
    "height. A longer one is read: a question and an answer per page of 256 events. So a gap "
    "of a thousand takes a fifth of a second where a round trip takes 40 ms. Where no member "
    "has what is missing, the DHT leads to the peer that provides it, once there is one.",
    seeds={"quick": 1, "full": 2},
    tolerances=reasons(
        TITLES,
        missing=ground.asked("2026-11-15", "Other live peers keep every event that is missing."),
        messages=ground.derived(
            "2026-11-15",
            "A question and an answer per missing event up to 16 heights; beyond, per "
            "page of 256 events, and one more for what was published meanwhile.",
        ),
        messages_loss=ground.derived(
            "2026-11-15",
            "As without losses, each repeated until question and answer come "
            "through (0.81 of them do), with three standard deviations.",
        ),
        time=ground.derived(
            "2026-11-15",
            "Ten hops for the event that shows the gap; the patience of half a second where "
            "it is walked; and a round trip per height or page.",
        ),
        dht_missing=ground.paper(
            "2026-11-16",
            "Section 4.5: every subscriber eventually gets the same stream, since it asks the DHT "
            "for a parent that it lacks; one peer that provides it is up.",
        ),
        dht_time=ground.derived(
            "2026-11-16",
            "The minute in which a peer that came back looks through its store; the pause of five "
            "seconds between two rounds of asking; one such round; two lookups; a round trip per "
            "height or page.",
        ),
        dht_holders=ground.by_construction(
            "2026-11-16", "The run crashes every peer that has events of the gap, by design."
        ),
    ),
    defects=(
        Defect("missing events are not given", not_repaired(one_in=1), where=is_short),
        Defect("two answers in three are lost", {ARRIVE: two_of_three}, where=is_short),
        Defect(
            "each question is put twice",
            sent_also("BlocksRequest", "PageRequest", to=again),
            where=is_short,
        ),
        Defect("gaps are not asked of the DHT", {FIND: finds_nobody}, where=is_short),
        Defect("the DHT is told a minute late", late("AddProvider", by_ms=60_000), where=is_short),
    ),
)
