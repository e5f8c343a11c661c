"""Entering the network, entering it again, and finding the part of it that was lost."""

from __future__ import annotations

from protocol_kit import (
    Group,
    Rig,
    T,
    contact,
    everything_sent,
    number_of,
    sent,
    timers,
    told,
)
from weft.ids import GENERAL
from weft.protocol import seam
from weft.protocol.config import Config, Cyclon
from weft.protocol.liveness import Ping
from weft.protocol.membership import (
    Descriptor,
    JoinReply,
    JoinRequest,
    ShuffleReply,
    ShuffleRequest,
)


def test_a_peer_asks_those_it_was_told_of() -> None:
    rig = Rig(1, join=(2, 3))
    assert told(rig.start, JoinRequest) == [2, 3]
    assert len(timers(rig.start, "rejoin")) == 1


def test_a_newcomer_asks_a_few_of_many_and_never_itself() -> None:
    rig = Rig(1, join=(1, 2, 3, 4, 5, 6, 7))
    asked = told(rig.start, JoinRequest)
    assert len(asked) == len(set(asked)) == 3
    assert 1 not in asked


def test_a_connection_that_cannot_be_made_is_not_tried_again_at_once() -> None:
    rig = Rig(1, join=(2,))
    assert everything_sent(rig.lose(2)) == []
    [again] = timers(rig.start, "rejoin")
    assert again.after_ms >= 500
    assert told(rig.wait_for("rejoin"), JoinRequest) == [2]


def test_pauses_between_attempts_to_enter_grow_up_to_a_cycle() -> None:
    rig = Rig(1, join=(2,))
    effects = rig.start + rig.wait(120_000)
    pauses = [again.after_ms for again in timers(effects, "rejoin")]
    assert pauses[:4] == [500, 1_000, 2_000, 4_000]
    assert pauses == sorted(pauses)
    assert pauses[-1] == rig.peer.config.cyclon.cycle_ms
    assert len(told(effects, JoinRequest)) < 30


def test_once_a_peer_has_entered_its_pauses_start_over() -> None:
    rig = Rig(1, join=(2,))
    rig.wait(60_000)
    rig.meet(2)
    [again] = timers(rig.lose(2), "rejoin")
    assert again.after_ms == 500


def test_without_neighbours_a_peer_enters_again_by_those_it_was_given() -> None:
    rig = Rig(1, join=(2,))
    rig.meet(2, 3)
    rig.lose(2)
    assert told(rig.lose(3), JoinRequest) == [2]


def answer_exchanges(rig: Rig, effects: list[seam.Effect]) -> None:
    for to, request in sent(effects, ShuffleRequest):
        rig.hear(to, ShuffleReply(request.topic, request.tick, []))


def test_without_neighbours_a_peer_enters_again_by_those_it_met() -> None:
    rig = Rig(1)
    rig.meet(2, 3, 4)
    for _ in range(60):
        answer_exchanges(rig, rig.cycle())
    rig.lose(2)
    rig.lose(3)
    assert told(rig.lose(4), JoinRequest) == [2, 3, 4]


def test_a_peer_that_was_forgotten_is_looked_up_from_time_to_time() -> None:
    rig = Rig(1)
    rig.meet(2, 3, 4)
    for _ in range(60):
        answer_exchanges(rig, rig.cycle())
    rig.lose(2)
    asked = []
    for _ in range(20):
        effects = rig.cycle()
        asked += told(effects, ShuffleRequest)
        answer_exchanges(
            rig, [e for e in effects if isinstance(e, seam.Send) and number_of(e.to) != 2]
        )
    assert 2 <= asked.count(2) <= 6


def test_parts_that_dropped_each_other_from_all_views_find_each_other() -> None:
    group = Group(10)
    group.run(400_000)
    group.drop = lambda sender, to, message: (sender <= 5) != (to <= 5)
    group.run(600_000)
    for number, peer in group.peers.items():
        assert all((number_of(c) <= 5) == (number <= 5) for c in peer.general.contacts())
    group.drop = lambda sender, to, message: False
    group.run(300_000)
    for number, peer in group.peers.items():
        assert len(peer.general) == 9, number


def test_for_each_that_does_not_answer_the_next_one_is_asked() -> None:
    rig = Rig(1, join=(2, 3, 4, 5, 6))
    asked = told(rig.start, JoinRequest)
    left = {2, 3, 4, 5, 6} - set(asked)
    [fourth] = told(rig.lose(asked[0]), JoinRequest)
    [fifth] = told(rig.lose(asked[1]), JoinRequest)
    assert {fourth, fifth} == left
    assert told(rig.lose(fourth), JoinRequest) == []  # all were tried: it pauses


def test_with_no_neighbour_left_a_peer_enters_by_those_that_spoke_lately() -> None:
    rig = Rig(1)
    rig.meet(2)
    rig.hear(3, ShuffleRequest(GENERAL, 1, []))  # it spoke, and is in no view
    assert told(rig.lose(2), JoinRequest) == [3]


def test_linked_peers_heal_a_view_of_the_dead() -> None:
    rig = Rig(1)
    rig.meet(2)
    rig.subscribe(T)
    rig.link(7)
    effects = rig.lose(2)
    assert told(effects, JoinRequest) == []
    assert rig.peer.general.contacts() == [contact(7)]


def test_a_view_of_the_dead_is_known_as_such_within_two_cycles() -> None:
    rig = Rig(1, pings=True)
    rig.meet(*range(2, 22))
    rig.wait(2 * rig.peer.config.cyclon.cycle_ms)
    assert rig.peer.isolated


def test_entering_is_answered_by_whoever_is_asked() -> None:
    rig = Rig(1)
    assert told(rig.hear(9, JoinRequest(GENERAL)), JoinReply) == [9]
    assert rig.peer.general.contacts() == [contact(9)]


def test_a_peer_whose_request_was_lost_asks_again_though_others_entered_by_it() -> None:
    rig = Rig(1, join=(2,))
    rig.hear(3, JoinRequest(GENERAL))
    assert rig.peer.general.peers
    assert told(rig.wait_for("rejoin"), JoinRequest) == [2]


def test_a_peer_with_enough_neighbours_does_not_ask_again() -> None:
    rig = Rig(1, join=(2,))
    rig.meet(3, 4, 5)
    assert told(rig.wait_for("rejoin"), JoinRequest) == []


def test_where_those_it_met_are_silent_a_peer_enters_by_those_it_was_told_of() -> None:
    config = Config(cyclon=Cyclon(view_size=2, shuffle_length=2))
    rig = Rig(1, config)
    rig.meet(2, 3)
    rig.hear(2, ShuffleRequest(GENERAL, 1, [Descriptor(contact(9), 0)]))
    effects = [e for number in (2, 3, 9, 2) for e in rig.lose(number)]
    assert 9 not in told(effects, JoinRequest)  # it failed itself
    rig.hear(4, ShuffleRequest(GENERAL, 1, [Descriptor(contact(8), 0), Descriptor(contact(7), 0)]))
    view = {number_of(one) for one in rig.peer.general.contacts()}
    assert len(view) == 2
    effects = [e for number in sorted(view) for e in rig.lose(number)]
    [untold] = {4, 7, 8} - view
    assert untold in told(effects, JoinRequest)


def test_a_peer_without_neighbours_takes_in_one_that_looks_for_it() -> None:
    rig = Rig(1)
    rig.hear(5, Ping(3, 0))
    assert rig.peer.general.contacts() == [contact(5)]


def test_a_peer_that_was_asked_is_not_asked_again_before_the_request_has_left() -> None:
    rig = Rig(1, join=(2,))
    rig.do(seam.Stalled(contact(2).peer))
    assert told(rig.wait(5_000), JoinRequest) == []
    rig.do(seam.Resumed(contact(2).peer))
    assert set(told(rig.wait(20_000), JoinRequest)) == {2}
