"""Bursts: links have a rate, so events queue on the tree's links while announcements overtake them
on the others. The tree stays a tree, and each publisher's events come in order."""

from __future__ import annotations

from functools import partial

import pytest

from weft.protocol.config import Config
from weft.sim.builder import OneTopic
from weft.sim.checkers.deliveries import check_complete, check_in_order, check_once
from weft.sim.network import Conditions
from weft.sim.world import World

PUBLISHERS = 10
RUNS = 12
EACH = 64  # events in a run
EVENTS = PUBLISHERS * RUNS * EACH
CROWDED = Conditions(events_per_s=1_500)
"""The burst is twice as much as a link carries in two seconds, and most links carry all of it."""


def burst(seed: int, peers: int) -> World:
    """All members of a topic know its tree; then some publish as fast as they can."""
    net = OneTopic(seed, Config(), CROWDED)
    for number in range(peers):
        net.enter([0] if number else [], then_ms=10)
    net.subscribe(*range(peers))
    net.run(60_000)
    for number in range(PUBLISHERS):
        net.publish(number, payload=b"first of %d" % number, every_ms=300)
    net.run(3_000)
    net.world.copies = 0
    for number in range(RUNS):
        for publisher in range(PUBLISHERS):
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
