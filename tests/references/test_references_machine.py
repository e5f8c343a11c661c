"""What holds for every reference: all subscribers get an event, once, and a run is its seed's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from reference_net import ReferenceNet
from weft.ids import Contact, Topic
from weft.protocol import seam
from weft.references.epidemic import DaMulticast, Flooding
from weft.references.gossipsub import D_HI, GossipSub
from weft.references.poldercast import F, PolderCast
from weft.references.scribe import Scribe
from weft.references.spidercast import SpiderCast

ALL = [Flooding, Scribe, GossipSub, PolderCast, SpiderCast, DaMulticast]
TO_SUBSCRIBERS = [GossipSub, PolderCast, SpiderCast, DaMulticast]
Make = Callable[[Contact, int], seam.Machine]


@pytest.mark.parametrize("make", ALL)
def test_an_event_reaches_every_subscriber_once(make: Make) -> None:
    net = ReferenceNet(make)
    net.settle(25, others=3)
    net.publish(7, 3, payload=b"one", every_ms=2_000)
    net.run(5_000)
    found = Counter((one.peer, one.event) for one in net.world.record.deliveries)
    assert net.reached(b"one") == set(range(25))
    assert set(found.values()) == {1}


@pytest.mark.parametrize("make", TO_SUBSCRIBERS)
def test_no_other_peer_handles_it(make: Make) -> None:
    net = ReferenceNet(make)
    net.settle(15, others=5)
    net.publish(2, payload=b"one")
    net.run(5_000)
    assert not net.world.record.parasites


@pytest.mark.parametrize("make", ALL)
def test_the_same_seed_is_the_same_run(make: Make) -> None:
    counts = []
    for _ in range(2):
        net = ReferenceNet(make)
        net.settle(10)
        net.publish(1, payload=b"x")
        net.run(3_000)
        counts.append([(one.at_ms, one.peer, one.hops) for one in net.world.record.deliveries])
    assert counts[0] and counts[0] == counts[1]


@pytest.mark.parametrize("make", [GossipSub, SpiderCast, PolderCast, Scribe])
def test_a_peer_that_unsubscribes_gets_nothing_more(make: Make) -> None:
    net = ReferenceNet(make)
    net.settle(12)
    net.world.unsubscribe(net.nodes[4], net.topic)
    net.run(40_000)
    net.publish(1, payload=b"later")
    net.run(5_000)
    assert net.reached(b"later") == set(range(12)) - {4}


@pytest.mark.parametrize("make", [GossipSub, SpiderCast, DaMulticast, PolderCast, Scribe])
def test_the_living_find_each_other_after_a_crash(make: Make) -> None:
    net = ReferenceNet(make)
    net.settle(24)
    net.crash(*range(0, 24, 3))
    net.run(150_000)
    net.publish(1, payload=b"after")
    net.run(5_000)
    assert net.reached(b"after") == set(range(24)) - set(range(0, 24, 3))


def test_lazy_gossip_makes_up_for_lost_messages() -> None:
    net = ReferenceNet(GossipSub, loss=25)
    net.settle(20)
    for number in range(10):
        net.publish(number, payload=b"%d" % number, every_ms=500)
    net.run(8_000)
    assert all(net.reached(b"%d" % number) == set(range(20)) for number in range(10))


def test_a_mesh_is_mutual_and_bounded() -> None:
    net = ReferenceNet(GossipSub)
    net.settle(40)
    meshes = {}
    for node in net.nodes:
        assert isinstance(node.machine, GossipSub)
        meshes[node.contact.peer] = set(node.machine.mesh[net.topic])
    assert all(len(mesh) <= D_HI for mesh in meshes.values())
    one_sided = [(a, b) for a, mesh in meshes.items() for b in mesh if a not in meshes[b]]
    assert len(one_sided) <= 4  # grafts and prunes on their way


def test_rings_close_in_the_order_of_places() -> None:
    net = ReferenceNet(PolderCast)
    net.settle(20)
    after = {}
    for node in net.nodes:
        assert isinstance(node.machine, PolderCast)
        ring = node.machine.ring(net.topic)
        assert ring is not None
        after[node.contact.peer] = ring[1].peer
    start = at = net.nodes[0].contact.peer
    steps = 0
    while steps == 0 or at != start:
        at, steps = after[at], steps + 1
        assert steps <= 20
    assert steps == 20


def test_a_ring_with_shortcuts_sends_f_copies() -> None:
    net = ReferenceNet(PolderCast)
    net.settle(20)
    before = net.world.copies
    net.publish(3, payload=b"x")
    net.run(5_000)
    assert net.world.copies - before == pytest.approx(20 * F, abs=2)


def test_an_event_climbs_to_the_group_above() -> None:
    net = ReferenceNet(DaMulticast)
    net.settle(12)
    for number in range(12):
        net.world.subscribe(net.nodes[number], Topic("/t/below"))
    above = range(12, 16)
    for number in above:
        net.enter([0], 50)
        net.world.subscribe(net.nodes[number], net.topic)
    net.run(150_000)
    net.world.publish(net.nodes[1], Topic("/t/below"), b"climbs")
    net.run(5_000)
    found = [one for one in net.world.record.deliveries if one.topic == net.topic]
    assert {one.peer for one in found} == set(range(16))
