"""tera-hetero: peers of very different capacity (named as future work in TERA).

Capacities follow a power law. Plain TERA loads all peers alike, so a weak peer is as busy as a
strong one. Three ways to diffuse events are compared:

- `paper`: every peer advertises to D neighbours and forwards an event to its whole view;
- `flat`: the same, but events go to half of the view, as many as `aware` sends on average;
- `aware`: D and the number of neighbours an event is forwarded to grow with capacity, within
  bounds that keep weak peers advertising and events spreading. Access points are the peers that
  advertise, so strong peers serve as access points more often. To keep topics evenly spread over
  tables, the popularity that is advertised is the topic's advertising effort: the sum of its
  members' D over the mean D.

Two loads are measured: forwarded events, which the choice decides, and all messages, most of which
follow from the number of a peer's topics. Of each, the rank correlation with capacity; of all
messages, Jain's index of the load per capacity (1: all peers equally busy for what they can do) and
the load per capacity of the weakest tenth against the mean. And deliveries: none should be missed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from weft.engine.core.arrays import SENT, Array
from weft.engine.core.draws import base_key, random_peers
from weft.engine.data.memberships import Memberships
from weft.engine.tera.events import Events
from weft.engine.tera.world import World, WorldSettings, build
from weft.lab import ground
from weft.lab.counted import COUNTS, GENERAL, TOPIC, Count, both_ways, loads_of, rows_of
from weft.lab.defect import Defect
from weft.lab.experiment import Columns, Entry, Params, Size, every
from weft.lab.figures import Figure, look, means, panels, plain_log
from weft.lab.measures import at_least, at_most, each, reals, reasons, texts, wholes
from weft.lab.memberships import memberships_of
from weft.pipeline.schemas import joined
from weft.pipeline.transforms import numbers, ranked, together
from weft.protocol.wire import Payload
from weft.rules.capacity import FANOUT_LEAST
from weft.rules.deployment import visits_for
from weft.rules.draw import absorb, stream_of
from weft.rules.fairness import jain

SEEDS = {"quick": 2, "full": 10}
_VIEW = 20
_FANOUT = 10  # mean, of `flat` and `aware`; the weakest are given 5
_WEAKEST_MOST = 0.95
_EXPONENT = 2.0  # of the power law's tail: P(capacity > c) = c^-exponent, for c ≥ 1
_CAPACITY_MOST = 100.0


def points(size: Size) -> list[Params]:
    peers = 10_000 if size == "full" else 1_000
    shape = {"peers": peers, "topics": 100, "subscriptions": 10 * peers, "zipf": 0.7}
    same = {**shape, "table_size": 10, "cycles": 100, "events": 10}
    return every(same, choice=("paper", "flat", "aware"))


def capacities(peers: int, seed: int) -> Array:
    """Drawn by the inverse of the power law's distribution function."""
    key = int(base_key(seed, stream_of("tera-hetero.capacity")))
    uniform = np.array([(absorb(key, peer) >> 11) * 2.0**-53 for peer in range(peers)])
    return np.asarray(np.minimum((1.0 - uniform) ** (-1.0 / _EXPONENT), _CAPACITY_MOST))


def run(params: Params, seed: int) -> Columns:
    """Rows: what each peer sent and received, by part (`lab/counted.py`)."""
    held = memberships_of(params, seed)
    capacity = capacities(held.peers, seed)
    settings = WorldSettings(
        table_size=params["table_size"],
        visits=visits_for(0.999, params["table_size"], held.topics),
        settled=True,
        load=True,
    )
    fanout = advertise_to = popularity = None
    if params["choice"] == "flat":
        fanout = np.full(held.total, _FANOUT, np.int32)
    elif params["choice"] == "aware":
        fanout = np.clip(_scaled(capacity, _FANOUT), FANOUT_LEAST, _VIEW)
        fanout = fanout[held.members].astype(np.int32)
        advertise_to, popularity = _by_capacity(held, capacity, settings.advertise_to)
    world = build(settings, held, seed, advertise_to, popularity)
    copies = np.zeros(held.total, np.int64)
    events = Events(world, forwarded=copies, fanout=fanout)
    _publish(world, events, params, seed)
    assert world.general_load is not None
    forwarded = np.bincount(held.members, weights=copies, minlength=held.peers).astype(np.int64)
    in_topics = world.loads_in_topics()
    in_topics[:, SENT] -= forwarded
    counts = [
        *both_ways(GENERAL, world.general_load),
        *both_ways(TOPIC, in_topics),
        Count(TOPIC, forwarded, Payload.__name__),
    ]
    return {
        **rows_of(counts, capacity=capacity, access_point_for=_entries_naming(world)),
        "delivery": events.flood.notified / max(1, events.totals.expected),
        "events_lost": events.totals.lost,
        "messages_all": world.counts.total(),
    }


def _scaled(capacity: Array, mean: float) -> Array:
    return np.asarray(np.rint(mean * capacity / capacity.mean()))


def _by_capacity(held: Memberships, capacity: Array, usual: int) -> tuple[Array, Array]:
    """D of each peer, and what each membership advertises."""
    to = np.clip(_scaled(capacity, usual), 1, _VIEW).astype(np.int32)
    effort = np.bincount(held.topic_of, weights=to[held.members], minlength=held.topics)
    advertised = np.maximum(1, np.rint(effort / usual))
    return to, advertised[held.topic_of].astype(np.int32)


def _publish(world: World, events: Events, params: Params, seed: int) -> None:
    held = world.memberships
    for cycle in range(params["cycles"]):
        world.step()
        topics = random_peers(params["events"], held.topics, seed, "hetero.t", cycle)
        publishers = random_peers(params["events"], held.peers, seed, "hetero.p", cycle)
        events.publish(topics, publishers)
        events.advance()
    while not events.is_over:
        world.step()
        events.advance()


def _entries_naming(world: World) -> Array:
    """In how many table entries each peer is the access point."""
    used = np.arange(world.tables.size) < world.tables.counts[:, None]
    named = world.memberships.members[world.tables.points[used]]
    return np.bincount(named, minlength=world.memberships.peers)


def flattened(scaled: Callable[..., Array]) -> Callable[..., Array]:
    """A planted defect: nothing grows with capacity."""
    return lambda capacity, mean: np.full(len(capacity), mean)


def nothing_below_the_mean(scaled: Callable[..., Array]) -> Callable[..., Array]:
    """A planted defect: peers below the mean capacity, three of four with this power law, forward
    as little as is allowed."""

    def instead(capacity: Array, mean: float) -> Array:
        wanted = scaled(capacity, mean)
        return np.where(wanted < mean, 0, wanted)

    return instead


def with_a_quarter_of_the_fanout(made: Callable[..., Events]) -> Callable[..., Events]:
    """A planted defect: of what is forwarded, a quarter arrives."""

    def instead(world: World, forwarded: Array, fanout: Array | None) -> Events:
        return made(world, forwarded=forwarded, fanout=None if fanout is None else fanout // 4)

    return instead


CHOICES = {
    "paper": "to the whole view",
    "flat": "to half of the view",
    "aware": "by capacity, half on average",
}
TITLES = {
    "gain": "rank correlation of load and capacity, gained by the capacity-aware choice",
    "sent": "rank correlation of events forwarded and capacity, capacity-aware",
    "weakest": "load per capacity of the weakest tenth, capacity-aware over flat",
    "delivery": "deliveries with the capacity-aware choice",
}
COLUMNS = joined(
    texts("choice"),
    COUNTS,
    reals("capacity"),
    wholes("access_point_for"),
    reals("delivery"),
    wholes("events_lost", "messages_all"),
)


def busy(rows: DataFrame) -> DataFrame:
    """Per peer: its load, its load per capacity, its tenth by capacity (1 is the weakest)."""
    known = ("choice", "seed", "capacity", "access_point_for", "delivery", "messages_all")
    by_capacity = Window.partitionBy("choice", "seed").orderBy("capacity", "peer")
    load = F.col("sent") + F.col("received")
    return rows.transform(loads_of, {}, *known).withColumns(
        {
            "load": load,
            "forwarded": F.col("payload_sent"),
            "busy": load / F.col("capacity"),
            "tenth": F.ntile(10).over(by_capacity),
        }
    )


def fairness(rows: DataFrame) -> DataFrame:
    """Per choice and seed: how well load follows capacity."""
    names = ("capacity", "load", "forwarded")
    peers = rows.transform(busy).transform(ranked(*names, by=("choice", "seed")))
    weakest = F.avg(F.when(F.col("tenth") == 1, F.col("busy")))
    squares = F.sum(F.col("busy") * F.col("busy"))
    return peers.groupBy("choice", "seed").agg(
        F.corr("capacity_rank", "load_rank").alias("ranks"),
        F.corr("capacity_rank", "forwarded_rank").alias("sent"),
        jain(F.sum("busy"), squares, F.count("busy")).alias("jain"),
        weakest.alias("weakest"),
        (weakest / F.avg("busy")).alias("weakest_share"),
        F.first("delivery").alias("delivery"),
        F.first("messages_all").alias("messages"),
        F.sqrt(2 / (F.count("peer") - 1)).alias("noise"),
    )


def gains(found: DataFrame) -> DataFrame:
    """Per seed: the capacity-aware choice against the flat one, which sends as many messages."""

    def of(choice: str, name: str) -> Column:
        return F.max(F.when(F.col("choice") == choice, F.col(name)))

    return found.groupBy("seed").agg(
        (of("aware", "ranks") - of("flat", "ranks")).alias("gain"),
        of("aware", "sent").alias("sent"),
        (of("aware", "weakest") / of("flat", "weakest")).alias("weakest"),
        of("aware", "delivery").alias("delivery"),
        F.max("noise").alias("noise"),
    )


TOLD = {
    "ranks": "rank correlation of load and capacity",
    "sent": "rank correlation of events forwarded and capacity",
    "jain": "Jain's index of load per capacity",
    "weakest_share": "load per capacity of the weakest tenth, over the mean",
    "delivery": "deliveries",
    "messages": "messages",
}


def measure(rows: DataFrame, size: Size) -> DataFrame:
    found = rows.transform(fairness)
    asked = at_least(3 * F.col("noise") / F.sqrt("seeds"), "gain") | at_least(0.5, "sent")
    asked |= at_most(_WEAKEST_MOST, "weakest") | at_least(0.999, "delivery")
    return together(
        found.transform(gains).transform(numbers(TITLES, asked, keep=("noise",))),
        found.transform(numbers(TOLD, by=("choice",), prefix=each("choice"))),
    )


def figure(rows: DataFrame) -> Figure:
    labels = {
        "load": "messages handled",
        "busy": "messages handled per capacity",
        "forwarded": "events forwarded",
        "access_point_for": "table entries that name the peer",
    }
    drawn = means(rows.transform(busy), ("choice", "tenth"), "capacity", *labels)
    drawing, axes = panels(columns=2, rows=2)
    for panel, (name, label) in zip(axes, labels.items(), strict=True):
        for number, (choice, how) in enumerate(CHOICES.items()):
            some = drawn[drawn["choice"] == choice]
            panel.plot(some["capacity"], some[name], label=f"{choice}: {how}", **look(number))
        plain_log(panel, (1, 2, 3, 4, 6))
        panel.set(ylim=(0, None), xlabel="capacity, means of tenths of the peers", ylabel=label)
    axes[1].legend(loc="upper right")
    return drawing


ENTRY = Entry.of(
    __name__,
    title="Load against capacity",
    claim="The paper leaves peers of different capacity to future work: all carry the same "
    "load for the same subscriptions. With a capacity-aware choice (strong peers advertise and "
    "forward more, and so serve as access points more often) load moves from weak peers to "
    "strong ones, and events still arrive.",
    tolerances=reasons(
        TITLES,
        gain=ground.derived(
            "2026-11-15",
            "Two rank correlations over N peers differ by chance by √(2/(N−1)), over S seeds "
            "by √(2/(N−1)/S); more than three of them.",
        ),
        sent=ground.by_construction(
            "2026-11-16", "How many neighbours a peer forwards to is set from its capacity."
        ),
        weakest=ground.asked(
            "2026-11-16",
            "Load moves away from weak peers: a twentieth less than before, per capacity. The "
            "bound was 1 until then, and peers that all take themselves for equally strong keep "
            "that.",
        ),
        delivery=ground.derived(
            "2026-11-15",
            "A fan-out of ten on average and at least four reaches all but a thousandth.",
        ),
    ),
    defects=(
        Defect(
            "all peers take themselves for equally strong",
            {"weft.lab.experiments.tera_hetero:_scaled": flattened},
        ),
        Defect(
            "weak peers forward to one neighbour",
            {
                "weft.lab.experiments.tera_hetero:_scaled": nothing_below_the_mean,
                "weft.lab.experiments.tera_hetero:FANOUT_LEAST": lambda least: 1,
            },
        ),
        Defect(
            "three of four copies are lost",
            {"weft.lab.experiments.tera_hetero:Events": with_a_quarter_of_the_fanout},
        ),
    ),
    seconds=lambda params: float(params["cycles"] * params["subscriptions"] * 8e-7),
)
