"""Bursts: links have a rate, so events queue on the tree's links while announcements overtake them
on the others. The tree stays a tree, and each publisher's events come in order."""

from __future__ import annotations

from functools import partial

import pytest

from weft.protocol.config import Config, Stan
from weft.sim.builder import OneTopic
from weft.sim.checkers.deliveries import check_complete, check_in_order, check_once
from weft.sim.network import Conditions, Latency
from weft.sim.world import World

WARM_UP = 20
"""Events of each publisher that shape the tree."""

PUBLISHERS = 10
RUNS = 12
EACH = 64  # events in a run
EVENTS = PUBLISHERS * RUNS * EACH
CROWDED = Conditions(events_per_s=1_500)
"""The burst is twice as much as a link carries in two seconds, and most links carry all of it."""

BUSY = Conditions(latency=Latency("long_tail", 20), events_per_s=3_000)
"""Some messages take half a second, as between processes that wait for their turn."""


def burst(seed: int, peers: int, publishers: int = PUBLISHERS) -> World:
    """All members of a topic know its tree; then some publish as fast as they can."""
    net = OneTopic(seed, Config(), CROWDED)
    for number in range(peers):
        net.enter([0] if number else [], then_ms=10)
    net.subscribe(*range(peers))
    net.run(60_000)
    for number in range(publishers):
        net.publish(number, payload=b"first of %d" % number, every_ms=300)
    net.run(3_000)
    net.world.copies = 0
    for number in range(RUNS):
        for publisher in range(publishers):
            payloads = [b"%d %d %d" % (publisher, number, place) for place in range(EACH)]
            publish = partial(net.publish_in, publisher, net.topic, *payloads)
            net.world.at(net.world.now_ms + 20 * number, publish)
    net.run(60_000)
    return net.world


@pytest.mark.parametrize(("seed", "peers"), [(1, 10), (2, 10), (3, 25)])
def test_in_a_burst_the_tree_stays_a_tree_and_order_holds(seed: int, peers: int) -> None:
    world = burst(seed, peers)
    assert check_complete(world.record) + check_once(world.record) == []
    assert check_in_order(world.record) == []
    last = max(world.record.publications.values(), key=lambda one: one.at_ms)
    queued_ms = max(one.at_ms for one in world.record.deliveries) - last.at_ms
    assert queued_ms > 4 * Config().dissemination.graft_timeout_ms
    assert world.copies <= 1.05 * EVENTS * (peers - 1)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("peers", [3, 6])
def test_in_a_burst_of_all_members_of_a_small_topic_one_copy_goes_to_each(
    seed: int, peers: int
) -> None:
    """Each publisher pushes to all others itself."""
    world = burst(seed, peers, publishers=peers)
    assert check_complete(world.record) + check_once(world.record) == []
    assert check_in_order(world.record) == []
    assert world.copies <= 1.01 * peers * RUNS * EACH * (peers - 1)


def burst_after_waves(seed: int, peers: int, stan: bool) -> World:
    """All publish at once while the tree takes shape, which turns the ways of events around at
    members that do not hear of it. Some time later all publish 768 events in three runs."""
    net = OneTopic(seed, Config(stan=Stan(enabled=stan)), BUSY)
    for number in range(peers):
        net.enter([0] if number else [], then_ms=10)
    net.subscribe(*range(peers))
    net.run(60_000)
    world = net.world
    for number in range(WARM_UP):
        for publisher in range(PUBLISHERS):
            publish = partial(net.publish, publisher, payload=b"%d, %d" % (publisher, number))
            world.at(world.now_ms + 100 * number + 7 * publisher, publish)
    net.run(100 * WARM_UP + 1_600)
    world.copies = 0
    for number in range(3):
        for publisher in range(PUBLISHERS):
            payloads = [b"%d %d %d" % (publisher, number, place) for place in range(256)]
            publish = partial(net.publish_in, publisher, net.topic, *payloads)
            world.at(world.now_ms + 120 * number + 3 * publisher, publish)
    net.run(60_000)
    return world


@pytest.mark.parametrize(
    ("seed", "peers", "stan"),
    [(1, 50, False), (2, 50, False), (3, 50, False), (2, 25, False), (1, 50, True), (4, 25, True)],
)
def test_a_tree_that_took_shape_under_load_stays_one_in_a_burst(
    seed: int, peers: int, stan: bool
) -> None:
    """Before members asked on along the tree: 1.1 to 1.4 copies of each event."""
    world = burst_after_waves(seed, peers, stan)
    assert check_complete(world.record) + check_once(world.record) == []
    assert check_in_order(world.record) == []
    assert world.copies <= 1.01 * 3 * 256 * PUBLISHERS * (peers - 1)
