"""Linked peers are watched: pings over silent links, lost peers, lists that settle differences."""

from __future__ import annotations

from functools import partial

import pytest

import protocol_kit
from protocol_kit import Rig, T, contact, event, everything_sent, linked, number_of, sent, told
from weft.ids import GENERAL, Topic
from weft.protocol import config as c
from weft.protocol import messages as m
from weft.protocol import seam
from weft.protocol.liveness import ANSWERS, LinkList, Ping, Pong
from weft.protocol.membership import (
    Descriptor,
    JoinGift,
    JoinRequest,
    LeaveNotice,
    ShuffleReply,
    ShuffleRequest,
)
from weft.protocol.tera.access_points import LookupMiss
from weft.protocol.tera.links import LinkRequest, Unlink
from weft.protocol.wire import LIST_MAX, Payload

U = Topic("/u")
# Cycles so long that nothing but pings happens.
CALM = c.Config(cyclon=c.Cyclon(cycle_ms=10_000_000))


member = partial(protocol_kit.member, config=CALM, pings=True)


# --- pings --------------------------------------------------------------------------------------


def test_a_silent_peer_is_pinged() -> None:
    rig = member(2)
    links = rig.peer.config.links
    assert everything_sent(rig.wait(links.ping_after_ms - 1)) == []
    assert told(rig.wait(links.ping_timeout_ms), Ping) == [2]


@pytest.mark.parametrize("message", [Pong(0, 0), LookupMiss(77)])
def test_any_message_is_a_sign_of_life(message: m.AnyMessage) -> None:
    rig = member(2)
    pings = []
    for _ in range(30):
        rig.hear(2, message)
        pings += told(rig.wait(5_000), Ping)
    assert pings == []


def test_a_peer_that_leaves_pings_unanswered_is_lost() -> None:
    rig = member(2, 3)
    effects: list[seam.Effect] = []
    while not any(isinstance(e, seam.Disconnect) for e in effects):
        assert rig.now < 100_000
        effects += rig.wait(1_000)
        rig.hear(3, LookupMiss(77))
    assert told(effects, Ping) == [2, 2, 2]
    [gone] = [e for e in effects if isinstance(e, seam.Disconnect)]
    assert gone.peer == contact(2).peer
    assert linked(rig) == [3]
    assert rig.peer.counters["peers_silent"] == 1


def test_a_peer_that_answers_stays() -> None:
    rig = member(2)
    for _ in range(100):
        for to, ping in sent(rig.wait(1_000), Ping):
            rig.hear(to, Pong(ping.nonce, ping.links))
    assert linked(rig) == [2]


def test_a_ping_is_answered_whoever_sends_it() -> None:
    rig = member(2)
    assert everything_sent(rig.hear(9, Ping(5, 0))) == [(9, Pong(5, 0))]


def test_one_watch_however_many_topics_are_shared() -> None:
    rig = member(2, topics=(T, U))
    assert told(rig.wait(15_000), Ping) == [2]


# --- connections --------------------------------------------------------------------------------


def test_a_connection_is_held_from_the_first_link_to_the_last() -> None:
    rig = Rig(1, CALM)
    rig.subscribe(T)
    rig.subscribe(U)
    effects = rig.hear(2, LinkRequest(T, True)) + rig.hear(2, LinkRequest(U, True))
    assert [e.contact for e in effects if isinstance(e, seam.Hold)] == [contact(2)]
    effects = rig.hear(2, Unlink(T))
    assert not any(isinstance(e, seam.Release) for e in effects)
    effects = rig.hear(2, Unlink(U))
    assert [e.peer for e in effects if isinstance(e, seam.Release)] == [contact(2).peer]


# --- differences --------------------------------------------------------------------------------


def fingerprint(*topics: Topic) -> int:
    """What a peer linked to us in these topics says of it."""
    [(_, pong)] = sent(member(9, topics=topics).hear(9, Ping(0, 0)), Pong)
    return pong.links


def pinged(*topics: Topic) -> tuple[Rig, int]:
    """A peer linked in these topics that has just pinged peer 2, and the ping's nonce."""
    rig = member(2, topics=topics)
    [(_, ping)] = sent(rig.wait(15_000), Ping)
    return rig, ping.nonce


def test_ends_that_agree_say_no_more() -> None:
    rig, nonce = pinged(T, U)
    assert everything_sent(rig.hear(2, Pong(nonce, fingerprint(U, T)))) == []


def test_ends_that_differ_exchange_lists() -> None:
    rig, nonce = pinged(T)
    effects = rig.hear(2, Pong(nonce, fingerprint(T, U)))
    assert everything_sent(effects) == [(2, LinkList([T], first=True))]
    assert everything_sent(rig.hear(2, Pong(nonce, fingerprint(T, U)))) == []  # once
    effects = rig.hear(2, LinkList([T], first=True))
    assert everything_sent(effects) == [(2, LinkList([T], first=False))]


def test_a_list_that_answers_is_not_answered() -> None:
    rig = member(2)
    assert everything_sent(rig.hear(2, LinkList([T], first=False))) == []


def test_what_only_the_other_end_believes_in_is_taken_over() -> None:
    rig = member(3)
    rig.hear(2, LinkList([T], first=False))
    assert linked(rig) == [2, 3]


def test_what_only_this_end_believes_in_is_given_up() -> None:
    rig = member(2, topics=(T, U))
    rig.hear(2, LinkList([U], first=False))
    assert (linked(rig, T), linked(rig, U)) == ([], [2])


def test_a_link_in_a_topic_one_is_not_in_is_denied() -> None:
    rig = member(2)
    effects = rig.hear(2, LinkList([T, U], first=False))
    assert everything_sent(effects) == [(2, LeaveNotice(U))]


def test_a_list_that_may_be_incomplete_ends_no_link() -> None:
    rig = member(2)
    others = [Topic(f"/{number}") for number in range(LIST_MAX)]
    rig.hear(2, LinkList(others, first=False))
    assert linked(rig) == [2]


# --- what is expected ---------------------------------------------------------------------------


def test_a_linked_peer_that_an_event_went_to_is_noticed_dead_within_five_seconds() -> None:
    rig = member(2, 3)
    rig.publish()
    effects = []
    for _ in range(49):
        effects += rig.wait(100)
        rig.hear(3, LookupMiss(77))
    assert told(effects, Ping) == [2, 2, 2]
    assert linked(rig) == [3]


def test_a_linked_peer_that_an_event_came_from_is_noticed_dead_within_five_seconds() -> None:
    rig = member(2, 3)
    rig.hear(2, Payload(T, event(2, 1), 1))
    for _ in range(55):
        rig.wait(100)
        rig.hear(3, LookupMiss(77))
    assert linked(rig) == [3]


def test_events_that_go_on_coming_are_signs_of_life() -> None:
    rig = member(2)
    for number in range(1, 20):
        rig.hear(2, Payload(T, event(2, number), 1))
        assert told(rig.wait(1_000), Ping) == []


def test_an_event_to_a_peer_that_speaks_costs_no_ping() -> None:
    rig = member(2)
    pings = []
    for _ in range(20):
        rig.publish()
        pings += told(rig.wait(500), Ping)
        rig.hear(2, LookupMiss(77))
    assert pings == []


def test_a_peer_that_does_not_answer_a_request_is_lost_for_every_layer() -> None:
    rig = Rig(1, pings=True)
    rig.meet(2, 3)
    [(asked, _)] = sent(rig.cycle(), ShuffleRequest)
    other = 5 - asked
    for _ in range(50):
        effects = rig.wait(100)
        rig.hear(other, LookupMiss(77))
        assert not any(isinstance(e, seam.Disconnect) for e in effects)  # no link, no connection
    assert rig.peer.counters["peers_silent"] == 1
    assert [number_of(one) for one in rig.peer.general.peers] == [other]


def test_answers_that_are_always_late_are_waited_for() -> None:
    rig = Rig(1, pings=True)
    rig.meet(2)
    for _ in range(30):  # each answer takes 1.4 s
        [(_, request)] = sent(rig.cycle(), ShuffleRequest)
        rig.wait(1_400)
        rig.hear(2, ShuffleReply(GENERAL, request.tick, []))
    assert told(rig.cycle(), ShuffleRequest) == [2]
    assert told(rig.wait(4_000), Ping) == []


def test_a_peer_in_doubt_is_not_waited_for_where_another_will_do() -> None:
    rig = Rig(1, CALM, pings=True)
    rig.subscribe(T)
    for number in range(2, 9):
        rig.hear(number, JoinRequest(T))
    asked = [number_of(peer) for peer in rig.peer.tera.topics[T].links.linked]
    assert asked == []
    more = told(rig.wait(3_000), LinkRequest)
    assert len(more) == 2  # five were asked at once; none of them answers


def test_when_many_are_in_doubt_all_others_are_looked_at() -> None:
    rig = member(2, 3)
    rig.meet(5, 6, 7)
    rig.publish()
    assert set(told(rig.wait(3_000), Ping)) == {2, 3, 5, 6, 7}


def test_a_linked_peer_that_speaks_is_not_looked_at() -> None:
    """It has spoken since the others fell silent, so it did not die with them."""
    rig = member(2, 3, 4)
    rig.publish()
    pinged = []
    for _ in range(60):
        pinged += told(rig.wait(100), Ping)
        rig.hear(4, LookupMiss(77))
    assert set(pinged) == {2, 3}
    assert linked(rig) == [4]


def pings_of_5_as_names_are_lost(rig: Rig, names: int) -> int:
    """Two names that were never anybody's are lost every five seconds; peer 5 lives."""
    pings = 0
    for name in range(1_000, 1_000 + names):
        pings += told([*rig.lose(name), *rig.lose(2_000 + name)], Ping).count(5)
        rig.hear(5, LookupMiss(77))
        rig.wait(5_000)
    return pings


def test_names_that_are_nobodys_do_not_have_all_others_pinged_again_and_again() -> None:
    rig = member()
    rig.meet(5)
    assert 1 <= pings_of_5_as_names_are_lost(rig, 20) <= 5


def test_a_linked_peer_that_is_lost_has_all_others_looked_at_at_once() -> None:
    rig = member()
    rig.meet(5)
    pings_of_5_as_names_are_lost(rig, 20)
    rig.link(6)
    assert told([*rig.lose(6), *rig.lose(7)], Ping).count(5) == 1


def test_one_in_doubt_is_not_many() -> None:
    rig = member(2)
    rig.meet(5, 6, 7, 8)
    rig.publish()
    pinged = []
    for _ in range(40):
        for to, ping in sent(rig.wait(100), Ping):
            pinged.append(to)
            if to != 2:
                rig.hear(to, Pong(ping.nonce, 0))
    assert len(set(pinged)) == 3  # it, and two others, which live


def test_a_peer_that_fell_silent_and_speaks_again_is_met_again() -> None:
    rig = member(2)
    rig.publish()
    rig.wait(5_000)
    assert linked(rig) == []
    effects = []
    while not (pings := sent(effects := rig.wait(1_000), Ping)):
        assert rig.now < 20_000
    effects = rig.hear(2, Pong(pings[0][1].nonce, 0))
    assert told(effects, ShuffleRequest) == [2]


def test_a_linked_peer_whose_connection_broke_is_met_again_when_it_answers() -> None:
    """A cut between the two breaks it as a death does."""
    rig = member(2)
    rig.lose(2)
    assert linked(rig) == []
    [(to, ping)] = sent(rig.wait(5_000), Ping)
    assert to == 2
    effects = rig.hear(2, Pong(ping.nonce, 0))
    assert told(effects, ShuffleRequest) == [2]
    assert told(effects, LinkRequest) == [2]


def test_when_one_of_the_silent_peers_is_back_the_others_are_tried_at_once() -> None:
    rig = member(2, 3)
    rig.lose(2)
    rig.lose(3)
    rig.wait(3_600_000)
    assert 3 not in told(rig.wait(5_000), Ping)  # its next turn is minutes away
    rig.hear(2, LookupMiss(77))
    assert 3 in told(rig.wait(5_000), Ping)


def test_a_linked_peer_that_said_goodbye_is_not_looked_for() -> None:
    rig = member(2)
    rig.hear(2, LeaveNotice(GENERAL))
    assert linked(rig) == []
    assert told(rig.wait(60_000), Ping) == []


@pytest.mark.parametrize("scheme", ["tree", "gossip", "flood"])
def test_a_member_that_was_lost_from_the_view_alone_is_met_again(scheme: seam.Scheme) -> None:
    """It was linked in no topic: where events spread over the view, no peer ever is."""
    rig = Rig(1, pings=True)
    rig.subscribe(scheme=scheme)
    rig.hear(2, JoinGift(T, Descriptor(contact(2), 0)))
    while not rig.peer.counters["peers_silent"]:
        assert rig.now < 200_000
        rig.wait(1_000)
    met = [request.topic for _, request in sent(rig.hear(2, LookupMiss(77)), ShuffleRequest)]
    assert met.count(T) == 1
    assert T not in [r.topic for _, r in sent(rig.hear(2, LookupMiss(77)), ShuffleRequest)]


def test_the_longer_a_peer_is_silent_the_rarer_it_is_pinged() -> None:
    rig = member(2)
    rig.publish()
    rig.wait(5_000)
    assert linked(rig) == []
    pings = [len(told(rig.wait(20_000), Ping)) for _ in range(5)]
    assert pings[0] >= 3
    assert pings == sorted(pings, reverse=True)
    assert 0 < pings[-1] < pings[0]


def test_a_peer_that_is_silent_for_hours_is_hardly_pinged() -> None:
    """Whatever else asks it meanwhile: a peer that knows no other tries it again and again."""
    hour_ms = 3_600_000
    rig = member(2)
    rig.publish()
    first = len(told(rig.wait(hour_ms), Ping))
    rig.wait(10 * hour_ms)
    assert 0 < len(told(rig.wait(10 * hour_ms), Ping)) < 2 * first


def test_where_messages_get_lost_a_death_is_believed_in_later() -> None:
    rig = member(2, 3)
    rig.publish()
    rig.wait(3_000)
    for number in (2, 3):  # both were in doubt, and live
        rig.hear(number, LookupMiss(77))
    rig.publish()
    effects = []
    for _ in range(7):
        effects += rig.wait(1_000)
        rig.hear(3, LookupMiss(77))
    assert linked(rig) == [2, 3]
    for _ in range(2):
        effects += rig.wait(1_000)
        rig.hear(3, LookupMiss(77))
    assert linked(rig) == [3]


# --- what has not left --------------------------------------------------------------------------


def stall(rig: Rig, number: int) -> None:
    rig.do(seam.Stalled(contact(number).peer))


def resume(rig: Rig, number: int) -> None:
    rig.do(seam.Resumed(contact(number).peer))


def test_a_peer_is_not_silent_while_the_request_to_it_waits_on_this_side() -> None:
    rig = Rig(1, CALM, join=(2,), pings=True)
    stall(rig, 2)
    assert told(rig.wait(60_000), Ping) == []
    resume(rig, 2)
    assert told(rig.wait(rig.peer.config.links.answer_ms - 1), Ping) == []
    rig.wait(5_000)
    assert rig.peer.counters["peers_silent"] == 1  # now it had its time


def test_a_peer_that_was_lost_while_it_waited_has_the_usual_time_when_it_is_met_again() -> None:
    rig = Rig(1, CALM, join=(2,), pings=True)
    stall(rig, 2)
    rig.lose(2)
    rig.hear(3, JoinRequest(GENERAL))
    rig.wait(1_000)
    rig.do(seam.Join((contact(2),)))
    assert 2 in told(rig.wait(3_000), Ping)


def test_a_peer_that_looks_late_itself_takes_no_answer_for_late() -> None:
    rig = Rig(1, CALM, join=(2,), pings=True)
    [look] = [timer for _, _, timer in rig.waiting if timer.kind == ANSWERS]
    rig.now = 30_000  # its process had no time for half a minute
    assert everything_sent(rig.do(seam.TimerFired(look))) == []
    rig.wait(1_000)
    assert rig.peer.counters["peers_silent"] == 0
