"""tera-hetero: peers of very different capacity (named as future work in TERA).

Capacities follow a power law. Plain TERA loads all peers alike, so a weak peer is as busy as a
strong one. Three ways to diffuse events are compared:

- `paper`: every peer advertises to D neighbours and forwards an event to its whole view;
- `flat`: the same, but events go to half of the view, as many as `aware` sends on average;
- `aware`: D and the number of neighbours an event is forwarded to grow with capacity, within
  bounds that keep weak peers advertising and events spreading. Access points are whoever
  advertises, so strong peers serve as access points more often. To keep topics evenly spread
  over tables, the popularity that is advertised is the topic's advertising effort: the sum of
  its members' D over the mean D.

Measured for forwarding events, which is what the choice decides, and for the whole load, most of
which follows from how many topics a peer asked for: the rank correlation with capacity; Jain's
index of the load per capacity (1: all peers equally busy for what they can do); the load per
capacity of the weakest tenth against the mean. And deliveries: none should be missed.
"""

from __future__ import annotations

import numpy as np

from weft.engine.core.arrays import Array, jain
from weft.engine.core.draws import base_key, random_peers
from weft.engine.data.workload import Memberships
from weft.engine.experiments.common import Columns, Params, Point, Size, rank_correlation, workload
from weft.engine.tera.events import Events
from weft.engine.tera.world import Settings, World, build
from weft.rules.draw import absorb, stream_of
from weft.rules.sizing import visits_for

SEEDS = {"quick": 2, "full": 10}
_VIEW = 20
_FANOUT = 10  # mean, of `flat` and `aware`
_FANOUT_LEAST = 4  # so that an event still spreads from a weak peer
_EXPONENT = 2.0  # of the power law's tail: P(capacity > c) = c^-exponent, for c ≥ 1
_CAPACITY_MOST = 100.0


def points(size: Size) -> list[Point]:
    peers = 10_000 if size == "full" else 1_000
    return [
        {
            "peers": peers,
            "topics": 100,
            "subscriptions": 10 * peers,
            "zipf": 0.7,
            "table_size": 10,
            "cycles": 100,
            "events": 10,
            "choice": choice,
        }
        for choice in ("paper", "flat", "aware")
    ]


def capacities(peers: int, seed: int) -> Array:
    """Drawn by the inverse of the power law's distribution function."""
    key = int(base_key(seed, stream_of("tera-hetero.capacity")))
    uniform = np.array([(absorb(key, peer) >> 11) * 2.0**-53 for peer in range(peers)])
    return np.asarray(np.minimum((1.0 - uniform) ** (-1.0 / _EXPONENT), _CAPACITY_MOST))


def run(params: Params, seed: int) -> Columns:
    """Rows: one per peer."""
    held = workload(params, seed)
    capacity = capacities(held.peers, seed)
    settings = Settings(
        table_size=params["table_size"],
        visits=visits_for(0.999, params["table_size"], held.topics),
        settled=True,
        load=True,
    )
    fanout = advertise_to = popularity = None
    if params["choice"] == "flat":
        fanout = np.full(held.total, _FANOUT, np.int32)
    elif params["choice"] == "aware":
        fanout = np.clip(_scaled(capacity, _FANOUT), _FANOUT_LEAST, _VIEW)
        fanout = fanout[held.members].astype(np.int32)
        advertise_to, popularity = _by_capacity(held, capacity, settings.advertise_to)
    world = build(settings, held, seed, advertise_to, popularity)
    copies = np.zeros(held.total, np.int64)
    events = Events(world, forwarded=copies, fanout=fanout)
    _publish(world, events, params, seed)
    assert world.general_load is not None and world.topics.handled is not None
    of_topics = np.bincount(held.members, weights=world.topics.handled, minlength=held.peers)
    forwarded = np.bincount(held.members, weights=copies, minlength=held.peers)
    load = world.general_load + of_topics
    return {
        "peer": np.arange(held.peers),
        "capacity": capacity,
        "subscriptions_held": held.per_peer(),
        "general": world.general_load,
        "topic": of_topics.astype(np.int64),
        "forwarded": forwarded.astype(np.int64),
        "access_point_for": _entries_naming(world),
        **_against(capacity, load, "load"),
        **_against(capacity, forwarded, "forwarded"),
        "delivery": events.flood.notified / max(1, events.totals.expected),
        "events_lost": events.totals.lost,
        "messages": world.counts.total(),
    }


def _against(capacity: Array, load: Array, name: str) -> Columns:
    """How a load goes with capacity."""
    busy = load / capacity
    weakest = capacity <= np.quantile(capacity, 0.1)
    return {
        f"{name}_rank_correlation": rank_correlation(load, capacity),
        f"{name}_jain": jain(busy),
        f"{name}_weakest_to_mean": float(busy[weakest].mean() / busy.mean()),
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
    for cycle in range(params["cycles"]):
        world.step()
        topics = random_peers(params["events"], world.memberships.topics, seed, "hetero.t", cycle)
        who = random_peers(params["events"], world.memberships.peers, seed, "hetero.p", cycle)
        events.publish(topics, who)
        events.advance()
    while not events.is_over:
        world.step()
        events.advance()


def _entries_naming(world: World) -> Array:
    """In how many table entries each peer is the access point."""
    used = np.arange(world.tables.size) < world.tables.counts[:, None]
    named = world.memberships.members[world.tables.points[used]]
    return np.bincount(named, minlength=world.memberships.peers)


def seconds(params: Params) -> float:
    return float(params["cycles"] * params["subscriptions"] * 8e-7)
