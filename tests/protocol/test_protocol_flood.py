"""The flood: everybody handles everything."""

from __future__ import annotations

import pytest

from protocol_kit import Rig, T, answers, contact, delivered, event, told
from weft.ids import GENERAL, Contact
from weft.protocol import seam
from weft.protocol.config import Config, HistorySettings
from weft.protocol.flood import FloodMember
from weft.protocol.membership import JoinRequest
from weft.protocol.wire import Payload
from weft.sim.builder import OneTopic
from weft.sim.network import Conditions
from wood import Wood

FLOOD = Config(routing="flood")


def test_an_event_goes_on_to_all_neighbours_but_where_it_came_from() -> None:
    rig = Rig(1, FLOOD)
    rig.meet(2, 3, 4)
    passing = rig.hear(2, Payload(T, event(4, 1), 1))
    assert told(passing, Payload) == [3]  # nor to its publisher
    assert delivered(passing) == []
    assert rig.peer.counters["parasites"] == 1
    assert answers(rig.subscribe()) == [(1, "joined")]
    taken = rig.hear(3, Payload(T, event(4, 2), 1))
    assert delivered(taken) == [(4, 2)] and told(taken, Payload) == [2]
    assert rig.peer.counters["duplicates"] == 0
    again = rig.hear(2, Payload(T, event(4, 2), 1))
    assert delivered(again) == [] and told(again, Payload) == []
    assert rig.peer.counters["duplicates"] == 1


def test_an_event_waits_for_neighbours() -> None:
    rig = Rig(1, FLOOD)
    rig.publish(b"x")
    met = rig.hear(2, JoinRequest(GENERAL))
    assert told(met, Payload) == [2]


def test_subscribers_are_known_and_passed_on_once() -> None:
    rig = Rig(1, FLOOD)
    rig.meet(2, 3)
    rig.subscribe()
    member = FloodMember(T, contact(5), 1, 7)
    assert told(rig.hear(2, member), FloodMember) == [3]
    assert told(rig.hear(3, member), FloodMember) == []
    assert rig.peer.members(T) == [contact(5)]
    rig.do(seam.PeerLost(contact(5).peer))
    assert rig.peer.members(T) == []


def test_more_subscribers_than_are_remembered_do_not_go_round_for_ever() -> None:
    rig = Rig(1, FLOOD)
    rig.meet(2, 3)
    rig.subscribe()
    words = [FloodMember(T, contact(number), 1, 7) for number in range(10, 110)]
    assert all(told(rig.hear(2, word), FloodMember) == [3] for word in words)
    assert not any(told(rig.hear(3, word), FloodMember) for word in words)
    assert len(rig.peer.members(T)) == 32


def test_a_neighbour_has_a_share_of_the_subscribers_that_are_made_known() -> None:
    """Whatever it makes up, and however often; others are not kept out by it."""
    rig = Rig(1, FLOOD, checked=False)
    rig.meet(2, 3)
    made_up = [FloodMember(T, contact(66), 1, tick) for tick in range(1_000)]
    made_up += [FloodMember(T, contact(number), 1, 7) for number in range(100, 5_100)]
    assert sum(3 in told(rig.hear(66, word), FloodMember) for word in made_up) == 256
    assert told(rig.hear(2, FloodMember(T, contact(7), 1, 1)), FloodMember) == [3]


def test_what_many_made_up_leaves_room_for_what_is_true() -> None:
    rig = Rig(1, FLOOD, checked=False)
    rig.meet(2, 3)
    for number in range(5_000):
        rig.hear(1_000 + number // 200, FloodMember(T, contact(10_000 + number), 1, 7))
    assert 3 in told(rig.hear(2, FloodMember(T, contact(7), 1, 1)), FloodMember)


def test_what_a_subscriber_says_itself_stands_against_what_others_say() -> None:
    """They name another address, with numbers that none of its own can pass."""
    rig = Rig(1, FLOOD)
    rig.meet(2, 3)
    rig.subscribe()
    last = (1 << 63) - 1
    elsewhere = Contact(contact(7).peer, "/ip4/9.9.9.9/tcp/9")
    rig.hear(66, FloodMember(T, elsewhere, last, last - 1))
    assert {2, 3} <= {*told(rig.hear(7, FloodMember(T, contact(7), 5, 5)), FloodMember)}
    assert rig.peer.members(T) == [contact(7)]
    assert told(rig.hear(66, FloodMember(T, elsewhere, last, last)), FloodMember) == []
    assert rig.peer.members(T) == [contact(7)]


@pytest.mark.parametrize("history", [False, True])
def test_everybody_gets_everything(history: bool) -> None:
    wood = Wood(20, routing="flood", history=history, loss_percent=5)
    subscribers = range(10)
    wood.subscribe(*subscribers)
    wood.run(30_000)
    wood.publish(*range(20))
    wood.run(60_000)
    assert {len(wood.delivered(number)) for number in subscribers} == {20}
    parasites = [wood.peer(number).counters["parasites"] for number in range(10, 20)]
    assert all(parasites) and max(parasites) <= 20  # one for each event, but their own
    if history:
        streams = [wood.stream(number) for number in subscribers]
        assert streams == [streams[0]] * len(streams)


def test_a_publisher_from_outside_is_asked_for_what_got_lost() -> None:
    """Its first event reached nobody. It tells the subscriber that it hears of."""
    net = OneTopic(1, Config(routing="flood", history=HistorySettings(enabled=True)))
    for _ in range(2):
        net.enter([0])
    net.run(15_000)
    net.subscribe(1)
    net.run(20_000)
    net.world.network.set_conditions(Conditions(loss_percent=100))
    net.publish(0, payload=b"one")
    net.run(1_000)
    net.world.network.set_conditions(Conditions())
    net.run(200_000)
    assert [d.event.payload for d in net.deliveries(1)] == [b"one"]
    net.publish(0, payload=b"two")
    net.run(5_000)
    assert [d.event.payload for d in net.deliveries(1)] == [b"one", b"two"]
