"""tadht-fail: crashed forwarders and crashed roots, with the real state machines in virtual time.

*stabilise*: some of the peers go down at once and without a word. Counted are the live children
that are not at their closest live forwarder right after it, and the periods of Algorithm 1 until
Lemma 4.2 and the bound on children hold for everybody again.

*roots*: events go out by f + 1 trees. The moment an event is published, the f roots that it is
handed to beside its publisher go down without a word, before anything reaches them. Counted are the
live subscribers that the trees alone miss (the dead roots are inside of the publisher's own tree,
too), and those that still lack the event after the links' repair.

The same over arrays at 10⁴ peers, where lookups find at once who is there (`stabilise, arrays`),
and where senders notice dead links (`roots, arrays`): without the repair of what a dead forwarder's
children lack, so that f crashed roots may cost k·f children.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.engine.experiments.common import Columns, Params, Point, Size, workload
from weft.engine.topic_dht.crash import Crash, survivors
from weft.engine.topic_dht.events import Events
from weft.engine.topic_dht.roles import settled
from weft.engine.topic_dht.space import places_of
from weft.lab.tadht.world import Net, topic_of
from weft.protocol.topic_dht.settings import Settings
from weft.sim.checkers.topic_dht import check_topic, seats_of
from weft.sim.network import Conditions

SEEDS = {"quick": 1, "full": 2}
PERIODS_MAX = 10
STABILISE, ROOTS = "stabilise", "roots"
STABILISE_ARRAYS, ROOTS_ARRAYS = "stabilise, arrays", "roots, arrays"
_TREES_MS = 1_000
"""So long after a publication the trees alone have brought what they bring: ten hops of at most
40 ms, and nobody has noticed yet that a peer is gone."""


def points(size: Size) -> list[Point]:
    full = size == "full"
    shape: Point = {"peers": 40, "topics": 4, "subscriptions": 80, "zipf": 0.7}
    if full:
        shape = {"peers": 80, "topics": 8, "subscriptions": 260, "zipf": 0.7}
    crashes = [(30, 0), (30, 5), (50, 0)] if full else [(30, 0)]
    stabilise: list[Point] = [
        {**shape, "kind": STABILISE, "percent": percent, "loss_percent": loss, "roots": 1}
        for percent, loss in crashes
    ]
    roots: list[Point] = [
        {
            **shape,
            "kind": ROOTS,
            "percent": 0,
            "loss_percent": 0,
            "roots": count,
            "scheme": scheme,
            "events": 8 if full else 4,
        }
        for count in ((2, 4) if full else (3,))
        for scheme in ("full-treecast", "forward-treecast")
    ]
    return stabilise + roots + _points_of_arrays(full)


def _points_of_arrays(full: bool) -> list[Point]:
    shape: Point = {"peers": 1_000, "topics": 100, "subscriptions": 10_000, "zipf": 0.7}
    if full:
        shape = {"peers": 10_000, "topics": 1_000, "subscriptions": 200_000, "zipf": 0.7}
    stabilise: list[Point] = [
        {**shape, "kind": STABILISE_ARRAYS, "percent": percent, "loss_percent": 0, "roots": 1}
        for percent in (30, 50)
    ]
    roots: list[Point] = [
        {
            **shape,
            "kind": ROOTS_ARRAYS,
            "percent": 0,
            "loss_percent": 0,
            "roots": 3,
            "scheme": scheme,
            "events": shape["topics"],
        }
        for scheme in ("full-treecast", "forward-treecast")
    ]
    return stabilise + roots


def run(params: Params, seed: int) -> Columns:
    ways: dict[str, Callable[[Params, int], Columns]] = {
        STABILISE: stabilise,
        ROOTS: roots,
        STABILISE_ARRAYS: stabilise_arrays,
        ROOTS_ARRAYS: roots_arrays,
    }
    return ways[params["kind"]](params, seed)


def _settled(params: Params, seed: int, settings: Settings) -> Net:
    conditions = Conditions(loss_percent=params["loss_percent"])
    net = Net(seed, params["peers"], settings, conditions)
    net.subscribe_all(workload(params, seed))
    net.run(2 * settings.period_ms)
    net.settle()
    return net


def stabilise(params: Params, seed: int) -> Columns:
    """One row."""
    settings = Settings()
    net = _settled(params, seed, settings)
    forwarders = _forwarders(net)
    count = params["peers"] * params["percent"] // 100
    net.crash(*net.dice.some("tadht-fail.crash", range(params["peers"]), count))
    left, lost = _forwarders(net), _misplaced(net)
    periods = net.settle(2 * PERIODS_MAX)
    return {
        "scheme": settings.scheme,
        "events": 0,
        "k": settings.k,
        "crashed": forwarders - left,
        "lost": lost,
        "periods": 2 * PERIODS_MAX + 1 if periods is None else periods,
        "missed_by_trees": 0,
        "missed": 0,
        "parasites": net.parasites,
    }


def _forwarders(net: Net) -> int:
    return sum(
        role.forwarder is not None
        for machine in net.machines().values()
        for role in machine.roles.by_topic.values()
    )


def _misplaced(net: Net) -> int:
    """Live children that are not at their closest live forwarder."""
    seats = seats_of(net.machines(), net.wanted)
    return sum(
        len(check_topic(topic, some, net.settings.k).parents) for topic, some in seats.items()
    )


def roots(params: Params, seed: int) -> Columns:
    """One row per event; each costs the network f peers."""
    settings = Settings(scheme=params["scheme"], roots=params["roots"])
    net = _settled(params, seed, settings)
    by_trees, finally_, crashed = [], [], []
    for event in range(params["events"]):
        topic = topic_of(event % params["topics"])
        members = net.subscribers(topic)
        publisher = net.dice.pick("tadht-fail.publisher", members, event)
        before = len(net.copies.roots_of)
        publication = net.publish(publisher, topic)
        dead = _crash_roots(net, before)
        crashed.append(len(dead))
        net.run(_TREES_MS)
        by_trees.append(net.spread_of(publication, members, topic).missed)
        net.run(3 * settings.period_ms)
        finally_.append(net.spread_of(publication, members, topic).missed)
    return {
        "k": settings.k,
        "crashed": crashed,
        "lost": 0,
        "periods": 0,
        "missed_by_trees": by_trees,
        "missed": finally_,
        "parasites": net.parasites,
    }


def _crash_roots(net: Net, before: int) -> list[int]:
    """The roots that the latest event is on its way to go down now; none in a topic too small."""
    found = list(net.copies.roots_of.values())[before:]
    numbers = [net.world.record.index_of(peer) for peers in found for peer in peers]
    net.crash(*numbers)
    return numbers


# --- over arrays ----------------------------------------------------------------------------------


def stabilise_arrays(params: Params, seed: int) -> Columns:
    """One row."""
    held = workload(params, seed)
    held_roles = settled(held, places_of(held.peers, seed), Settings().k, seed)
    crash = Crash(held_roles, survivors(held.peers, params["percent"], seed), seed)
    periods = crash.periods_until_right(2 * PERIODS_MAX)
    return {
        "scheme": Settings().scheme,
        "events": 0,
        "k": held_roles.k,
        "crashed": crash.crashed_forwarders,
        "lost": crash.lost,
        "periods": 2 * PERIODS_MAX + 1 if periods is None else periods,
        "missed_by_trees": 0,
        "missed": 0,
        "parasites": 0,
    }


def roots_arrays(params: Params, seed: int) -> Columns:
    """One row per event."""
    held = workload(params, seed)
    settings = Settings(scheme=params["scheme"])
    held_roles = settled(held, places_of(held.peers, seed), Settings().k, seed)
    missed = {}
    for mended in (False, True):
        events = Events(held_roles, params["scheme"], seed, mended=mended)
        missed[mended] = [
            events.publish(topic, events.random_member(topic), params["roots"], True).missed
            for topic in range(params["events"])
        ]
    return {
        "k": settings.k,
        "crashed": params["roots"] - 1,
        "lost": 0,
        "periods": 0,
        "missed_by_trees": missed[False],
        "missed": missed[True],
        "parasites": 0,
    }


def seconds(params: Params) -> float:
    if params["kind"] in (STABILISE_ARRAYS, ROOTS_ARRAYS):
        return 2.0 + float(params["subscriptions"]) * 1e-5
    return float(params["subscriptions"]) * 0.1
