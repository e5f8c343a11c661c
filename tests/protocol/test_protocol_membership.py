"""View exchange, joining and leaving, as one peer of the general overlay sees them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from protocol_kit import (
    Group,
    Rig,
    T,
    contact,
    everything_sent,
    number_of,
    sent,
    told,
)
from weft.ids import GENERAL, Contact
from weft.protocol import config as c
from weft.protocol import seam
from weft.protocol.liveness import Ping, Pong
from weft.protocol.membership import (
    NO_NEWS,
    Advert,
    Descriptor,
    JoinGift,
    JoinReply,
    JoinRequest,
    JoinWalk,
    LeaveNotice,
    ShuffleReply,
    ShuffleRequest,
)
from weft.protocol.tera.access_points import Advertisement, Hint, LookupWalk

SMALL = c.Config(cyclon=c.Cyclon(view_size=4, shuffle_length=3, join_walk_steps=2))


def view(rig: Rig) -> list[int]:
    return sorted(number_of(peer) for peer in rig.peer.general.peers)


def entry(number: int, age: int = 0) -> Descriptor:
    return Descriptor(contact(number), age)


# --- entering the network -----------------------------------------------------------------------


def test_a_newcomer_takes_over_what_the_reply_brings() -> None:
    rig = Rig(1, SMALL, join=(2,))
    given = [entry(2), entry(3, 5), entry(1), entry(3), entry(4), entry(5)]
    rig.hear(2, JoinReply(GENERAL, True, NO_NEWS, given))
    assert view(rig) == [2, 3, 4, 5]


def test_a_member_answers_at_once_and_walks_the_newcomer_in() -> None:
    rig = Rig(1, SMALL)
    rig.meet(2, 3)
    effects = rig.hear(9, JoinRequest(GENERAL))
    [(to, reply)] = sent(effects, JoinReply)
    assert to == 9
    assert reply.member
    assert [number_of(d.contact) for d in reply.descriptors] == [1, 2, 3]
    walks = [JoinWalk(GENERAL, contact(9), 2)] * 2
    assert sent(effects, JoinWalk) == list(zip((2, 3), walks, strict=True))
    assert view(rig) == [2, 3, 9]


def test_a_newcomer_with_room_exchanges_views_at_once_with_one_that_it_was_told_of() -> None:
    rig = Rig(1, SMALL, join=(2,))
    effects = rig.hear(2, JoinReply(GENERAL, True, NO_NEWS, [entry(2), entry(3, 5)]))
    assert told(effects, ShuffleRequest) == [3]
    full = Rig(1, SMALL, join=(2,))
    given = [entry(2), entry(3), entry(4), entry(5)]
    assert told(full.hear(2, JoinReply(GENERAL, True, NO_NEWS, given)), ShuffleRequest) == []


def test_a_newcomer_that_asks_again_is_answered_but_not_walked_in_twice() -> None:
    rig = Rig(1, SMALL)
    rig.meet(2, 3)
    assert told(rig.hear(9, JoinRequest(GENERAL)), JoinWalk) == [2, 3]
    again = rig.hear(9, JoinRequest(GENERAL))
    assert told(again, JoinReply) == [9]
    assert told(again, JoinWalk) == []
    rig.now += rig.peer.config.cyclon.cycle_ms
    assert told(rig.hear(9, JoinRequest(GENERAL)), JoinWalk)  # it may have come back


def test_a_walk_goes_on_until_its_steps_are_used_up() -> None:
    rig = Rig(1, SMALL)
    rig.meet(2)
    effects = rig.hear(5, JoinWalk(GENERAL, contact(9), 2))
    assert everything_sent(effects) == [(2, JoinWalk(GENERAL, contact(9), 1))]
    assert view(rig) == [2]


def test_at_its_end_a_member_with_room_gives_itself() -> None:
    rig = Rig(1, SMALL)
    rig.meet(2)
    effects = rig.hear(5, JoinWalk(GENERAL, contact(9), 0))
    assert everything_sent(effects) == [(9, JoinGift(GENERAL, entry(1)))]
    assert view(rig) == [2, 9]


def test_at_its_end_a_member_without_room_swaps_an_entry() -> None:
    rig = Rig(1, SMALL)
    rig.meet(2, 3, 4, 5)
    effects = rig.hear(6, JoinWalk(GENERAL, contact(9), 0))
    [(to, gift)] = sent(effects, JoinGift)
    assert to == 9
    given = number_of(gift.descriptor.contact)
    assert view(rig) == sorted({2, 3, 4, 5, 9} - {given})


def topic_view(rig: Rig) -> list[int]:
    return sorted(number_of(peer) for peer in rig.peer.tera.topics[T].view.peers)


def walked_in_topic() -> tuple[Rig, ShuffleRequest]:
    """A member that a walk in its topic told of peer 9, and what it asks peer 9."""
    rig = Rig(1)
    rig.subscribe()
    rig.link(2)
    before = topic_view(rig)
    effects = rig.hear(5, JoinWalk(T, contact(9), 0))
    [(to, question)] = everything_sent(effects)
    assert to == 9 and isinstance(question, ShuffleRequest) and question.topic == T
    assert topic_view(rig) == before
    return rig, question


def test_in_a_topic_the_newcomer_of_a_walk_is_taken_in_when_it_says_that_it_is_a_member() -> None:
    rig, question = walked_in_topic()
    rig.hear(9, ShuffleReply(T, question.tick, [entry(8)], NO_NEWS))
    assert {8, 9} <= {*topic_view(rig)}


def test_in_a_topic_the_newcomer_of_a_walk_is_left_out_when_it_says_that_it_is_none() -> None:
    rig, question = walked_in_topic()
    rig.hear(9, ShuffleReply(T, question.tick, [], NO_NEWS, member=False))
    assert 9 not in topic_view(rig)


def test_forced_exchanges_do_not_shorten_the_time_for_which_a_leave_counts() -> None:
    """Other members' entries of the peer that left are as old as before."""
    rig = Rig(1, SMALL)
    rig.subscribe()
    rig.link(2, 3, 4)
    rig.hear(4, LeaveNotice(T))
    for serial in range(3 * rig.peer.config.cyclon.view_size):
        effects = rig.hear(3, Advertisement([Advert(T, 2**63 + serial, 4)]))
        [(to, request)] = sent(effects, ShuffleRequest)
        assert to == 3
        rig.hear(3, ShuffleReply(T, request.tick, [], NO_NEWS))
    rig.hear(2, ShuffleRequest(T, 1, [entry(4), entry(2)], NO_NEWS))
    assert topic_view(rig) == [2, 3]


def test_walks_in_a_topic_have_few_asked_between_two_exchanges() -> None:
    rig = Rig(1, c.Config(cyclon=c.Cyclon(view_size=8, shuffle_length=4)))
    rig.subscribe()
    rig.link(2, 3, 4, 5)
    rig.wait(30_000)
    asked = [
        told(rig.hear(2, JoinWalk(T, contact(one), 0)), ShuffleRequest) for one in range(9, 40)
    ]
    assert 0 < sum(map(len, asked)) <= 8


@pytest.mark.parametrize("joiner", [1, 2])
def test_a_walk_for_oneself_or_a_neighbour_changes_nothing(joiner: int) -> None:
    rig = Rig(1, SMALL)
    rig.meet(2, 3)
    assert rig.hear(5, JoinWalk(GENERAL, contact(joiner), 0)) == []
    assert view(rig) == [2, 3]


def test_a_gift_is_taken_while_there_is_room() -> None:
    rig = Rig(1, SMALL)
    for number in (2, 3, 4, 5, 6, 1):
        rig.hear(2, JoinGift(GENERAL, entry(number)))
    assert view(rig) == [2, 3, 4, 5]


# --- exchanges: asking --------------------------------------------------------------------------


def test_each_cycle_asks_the_oldest_and_sends_itself_afresh() -> None:
    rig = Rig(1, SMALL)
    rig.meet(2, 3, 4)
    rig.hear(5, ShuffleRequest(GENERAL, 1, [entry(5, 7)]))
    [(to, request)] = sent(rig.cycle(), ShuffleRequest)
    assert to == 5
    assert len(request.descriptors) == 3
    assert request.descriptors[-1] == entry(1)
    assert {number_of(d.contact) for d in request.descriptors[:-1]} <= {2, 3, 4}
    assert all(d.age == 1 for d in request.descriptors[:-1])
    assert view(rig) == [2, 3, 4]


def test_the_reply_fills_the_view() -> None:
    rig = Rig(1, SMALL)
    rig.meet(2, 3, 4, 5)
    [(to, request)] = sent(rig.cycle(), ShuffleRequest)
    rest = view(rig)
    rig.hear(to, ShuffleReply(GENERAL, request.tick, [entry(8, 3), entry(9), entry(1)]))
    after = view(rig)
    assert {8, 9} <= set(after)
    lost = set(rest) - set(after)
    assert lost <= {number_of(d.contact) for d in request.descriptors}
    assert len(after) == 4


def test_a_peer_that_answered_comes_back_while_there_is_room() -> None:
    rig = Rig(1, SMALL)
    rig.meet(2)
    [(to, request)] = sent(rig.cycle(), ShuffleRequest)
    assert (to, view(rig)) == (2, [])
    rig.hear(2, ShuffleReply(GENERAL, request.tick, [entry(1)]))
    assert view(rig) == [2]


def test_a_peer_that_is_being_asked_still_counts_as_a_neighbour_in_an_overlay_of_two() -> None:
    rig = Rig(1, SMALL)
    rig.meet(2)
    rig.cycle()
    assert not rig.peer.isolated
    assert told(rig.publish(), LookupWalk) == [2]


def test_a_peer_that_does_not_answer_is_dropped() -> None:
    rig = Rig(1, SMALL)
    rig.meet(2, 3)
    [(silent, request)] = sent(rig.cycle(), ShuffleRequest)
    rig.cycle()
    assert silent not in view(rig)
    assert rig.peer.counters["exchanges_unanswered"] == 1
    rig.hear(silent, ShuffleReply(GENERAL, request.tick, [entry(9)]))  # too late
    assert 9 not in view(rig)


@pytest.mark.parametrize(("sender", "tick"), [(3, 0), (2, 1), (2, -1)])
def test_only_the_answer_to_its_question_is_merged(sender: int, tick: int) -> None:
    rig = Rig(1, SMALL)
    rig.meet(2)
    [(_, request)] = sent(rig.cycle(), ShuffleRequest)
    rig.hear(sender, ShuffleReply(GENERAL, max(0, request.tick + tick), [entry(9)]))
    assert view(rig) == []


def test_an_answer_counts_once() -> None:
    rig = Rig(1, SMALL)
    rig.meet(2)
    [(_, request)] = sent(rig.cycle(), ShuffleRequest)
    rig.hear(2, ShuffleReply(GENERAL, request.tick, [entry(8)]))
    rig.hear(2, ShuffleReply(GENERAL, request.tick, [entry(9)]))
    assert view(rig) == [2, 8]


def test_an_exchange_that_has_not_left_is_waited_for_and_no_other_begun() -> None:
    rig = Rig(1, SMALL)
    rig.meet(2, 3)
    [(first, request)] = sent(rig.cycle(), ShuffleRequest)
    rig.do(seam.Stalled(contact(first).peer))
    for _ in range(3):
        assert told(rig.cycle(), ShuffleRequest) == []
    assert rig.peer.counters["exchanges_put_off"] == 3
    rig.do(seam.Resumed(contact(first).peer))
    rig.wait(rig.peer.config.cyclon.reply_timeout_ms - 1)
    rig.hear(first, ShuffleReply(GENERAL, request.tick, [entry(7)]))
    assert view(rig) == [2, 3, 7]  # the answer counts, as the peer had its time from then on
    assert rig.peer.counters["exchanges_unanswered"] == 0


# --- exchanges: answering -----------------------------------------------------------------------


def test_a_request_is_answered_from_the_view_as_it_was() -> None:
    rig = Rig(1, SMALL)
    rig.meet(2, 3, 4, 5)
    effects = rig.hear(6, ShuffleRequest(GENERAL, 41, [entry(7, 2), entry(6)]))
    [(to, reply)] = sent(effects, ShuffleReply)
    assert (to, reply.tick) == (6, 41)
    given = {number_of(d.contact) for d in reply.descriptors}
    assert len(given) == 3
    assert given <= {2, 3, 4, 5}
    assert {6, 7} <= set(view(rig))
    assert {2, 3, 4, 5} - given <= set(view(rig))


def test_the_same_question_is_answered_the_same_way() -> None:
    """An exchange is decided by the order of the requests, in any driver."""
    replies = []
    for _ in range(2):
        rig = Rig(1, SMALL)
        rig.meet(2, 3, 4, 5)
        replies.append(sent(rig.hear(6, ShuffleRequest(GENERAL, 41, [])), ShuffleReply))
    assert replies[0] == replies[1]


def test_ages_beyond_a_byte_are_cut() -> None:
    rig = Rig(1, SMALL)
    rig.hear(2, ShuffleRequest(GENERAL, 1, [entry(3, 60_000)]))
    assert rig.peer.general.ages == [255]


def test_a_peer_that_moved_is_known_by_its_new_address() -> None:
    rig = Rig(1, SMALL)
    rig.meet(2)
    moved = Contact(contact(2).peer, "/ip4/127.0.0.1/tcp/9999")
    rig.do(seam.Received(moved, ShuffleRequest(GENERAL, 1, [Descriptor(moved, 0)])))
    assert rig.peer.general.contacts() == [moved]


# --- losing and finding neighbours --------------------------------------------------------------


def test_a_peer_that_said_goodbye_or_broke_off_is_dropped() -> None:
    rig = Rig(1, SMALL)
    rig.meet(2, 3, 4)
    rig.lose(2)
    rig.hear(3, LeaveNotice(GENERAL))
    assert view(rig) == [4]


# --- forced exchanges (partition merging) -------------------------------------------------------


def test_strangers_cannot_make_a_member_ask_very_many() -> None:
    rig = Rig(1, SMALL)
    rig.subscribe()
    asked = []
    for number in range(100):
        asked += told(rig.hear(2, Hint(T, 0, contact(10 + number))), ShuffleRequest)
    assert len(asked) == 4


def test_one_peer_is_asked_once_at_a_time() -> None:
    rig = Rig(1, SMALL)
    rig.subscribe()
    adverts = [Advert(T, overlay, 1) for overlay in range(50)]
    assert told(rig.hear(2, Advertisement(adverts)), ShuffleRequest) == [2]
    assert told(rig.hear(2, Hint(T, 0, contact(2))), ShuffleRequest) == []
    rig.wait(6_000)
    assert told(rig.hear(2, Hint(T, 0, contact(2))), ShuffleRequest) == [2]


# --- small overlays -----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 10])
def test_in_a_small_overlay_everybody_knows_everybody(size: int) -> None:
    group = Group(size)
    group.run(200_000)
    group.run(5_000)  # let the last exchanges be answered
    for number, peer in group.peers.items():
        known = {number_of(c) for c in peer.general.contacts()}
        assert known == set(group.peers) - {number}


# --- hostile neighbours -------------------------------------------------------------------------

PEERS = c.Config(cyclon=c.Cyclon(view_size=20))


def crowd(config: c.Config) -> Rig:
    """A peer whose view is full of honest ones."""
    rig = Rig(1, config)
    rig.meet(*range(2, 22))
    assert view(rig) == [*range(2, 22)]
    return rig


@pytest.mark.parametrize(("defended", "expected"), [(True, range(1, 5)), (False, [20])])
def test_stuffed_views_displace_few(defended: bool, expected: Sequence[int]) -> None:
    rig = crowd(replace(PEERS, defence=c.Defence(views=defended)))
    rig.cycle()
    for tick in range(20):
        stuffing = [entry(number) for number in range(100 + 40 * tick, 140 + 40 * tick)]
        rig.hear(90 + tick % 5, ShuffleRequest(GENERAL, tick, stuffing))
        rig.hear(90, JoinWalk(GENERAL, contact(2_000 + tick), 0))
        rig.hear(90, JoinGift(GENERAL, entry(3_000 + tick)))
    assert sum(number >= 90 for number in view(rig)) in expected


def test_an_exchange_that_is_not_taken_takes_nothing_away() -> None:
    """Otherwise the entries that the asked peer did not take would be in no view any more."""
    rig = crowd(PEERS)
    [(asked, request)] = sent(rig.cycle(), ShuffleRequest)
    brought = [entry(number) for number in range(50, 58)]
    rig.hear(asked, ShuffleReply(GENERAL, request.tick, brought, taken=0))
    assert view(rig) == [*range(2, 22)]
    [(asked, request)] = sent(rig.cycle(), ShuffleRequest)
    given = [number_of(one.contact) for one in request.descriptors]
    rig.hear(asked, ShuffleReply(GENERAL, request.tick, brought, taken=3))  # this peer and two more
    lost = {*range(2, 22)} - {*view(rig)}
    assert lost == {asked, *given[-3:-1]} and len(view(rig)) == 20


def test_several_askers_in_a_cycle_have_their_own_entry_taken() -> None:
    rig = crowd(PEERS)
    rig.cycle()
    taken = []
    for number in range(90, 94):
        theirs = [entry(one) for one in range(10 * number, 10 * number + 7)]
        effects = rig.hear(number, ShuffleRequest(GENERAL, 1, [*theirs, entry(number)]))
        taken += [reply.taken for _, reply in sent(effects, ShuffleReply)]
    assert taken == [2, 1, 1, 0]
    assert [number for number in view(rig) if 90 <= number < 100] == [90, 91, 92]


def test_a_sample_of_those_that_spoke_is_asked_by_turns() -> None:
    """However often hostile peers speak, each is in it no more likely than an honest one."""
    rig = Rig(1, PEERS)
    for number in range(2, 32):
        rig.hear(number, ShuffleRequest(GENERAL, 1, [entry(number)]))
    for tick in range(200):
        hostile = 40 + tick % 10
        rig.hear(hostile, ShuffleRequest(GENERAL, tick, [entry(hostile)]))
    known = {number_of(one.peer) for one in rig.peer.general.known()}
    sampled = known - set(view(rig))
    assert sampled and sum(number < 32 for number in known) > len(known) / 2


@pytest.mark.parametrize(("defended", "most"), [(True, 0), (False, 63)])
def test_a_strangers_walk_goes_no_farther_than_ones_own(defended: bool, most: int) -> None:
    rig = Rig(1, c.Config(defence=c.Defence(rates=defended)))
    rig.meet(2)
    effects = rig.hear(66, JoinWalk(GENERAL, contact(9), 64))
    assert everything_sent(effects) == [(2, JoinWalk(GENERAL, contact(9), most))]


# --- names that are nobody's ----------------------------------------------------------------------


def pinged(effects: Sequence[seam.Effect]) -> list[int]:
    return sorted(number for number, _ in sent(effects, Ping))


def doubting(config: c.Config | None = None) -> Rig:
    """A peer that was told by peer 2 of two others, neither of which was there."""
    rig = Rig(1, config, pings=True)
    rig.meet(2, 3, 4)
    rig.cycle()
    rig.hear(2, ShuffleRequest(GENERAL, 1, [entry(100), entry(101), entry(2)]))
    assert {100, 101} <= set(view(rig))
    rig.lose(100)
    rig.lose(101)
    return rig


def test_after_names_that_nobody_answered_to_a_peer_enters_a_view_by_its_answer() -> None:
    rig = doubting()
    effects = rig.hear(3, ShuffleRequest(GENERAL, 1, [entry(102), entry(3)]))
    assert 102 not in view(rig)
    assert pinged(effects) == [102]
    rig.hear(102, Pong(0, 0))
    assert 102 in view(rig)


def test_without_that_defence_every_name_is_believed() -> None:
    rig = doubting(c.Config(defence=c.Defence(views=False)))
    rig.hear(3, ShuffleRequest(GENERAL, 1, [entry(102), entry(3)]))
    assert 102 in view(rig)


def test_a_name_with_a_false_address_is_not_its_peers() -> None:
    rig = doubting()
    elsewhere = Contact(contact(4).peer, contact(77).address)
    rig.hear(4, LeaveNotice(GENERAL))
    rig.hear(3, JoinGift(GENERAL, Descriptor(elsewhere, 0)))
    assert 4 not in view(rig)


def test_in_doubt_nobody_is_told_of_peers_that_have_not_spoken() -> None:
    rig = Rig(1, pings=True)
    rig.meet(2, 3, 4)
    rig.cycle()
    named = [entry(100), entry(101), entry(102), entry(2)]
    rig.hear(2, ShuffleRequest(GENERAL, 1, named))
    rig.lose(100)
    rig.lose(101)
    assert 102 in view(rig)  # it may be there: a view gives up a peer that does not answer
    ((_, reply),) = sent(rig.hear(9, JoinRequest(GENERAL)), JoinReply)
    assert {number_of(one.contact) for one in reply.descriptors} == {1, 2, 3, 4}


def test_an_informant_whose_names_did_not_answer_has_fewer_of_them_looked_up() -> None:
    rig = doubting()
    others = [entry(number) for number in range(200, 208)]
    assert len(pinged(rig.hear(3, JoinReply(GENERAL, True, NO_NEWS, others)))) == 4
    others = [entry(number) for number in range(300, 308)]
    assert len(pinged(rig.hear(2, JoinReply(GENERAL, True, NO_NEWS, others)))) == 1


def test_all_informants_together_have_a_bounded_number_of_names_looked_up() -> None:
    rig = doubting()
    asked = 0
    for informant in range(400, 440):
        others = [entry(1_000 + 8 * informant + number) for number in range(8)]
        asked += len(pinged(rig.hear(informant, JoinReply(GENERAL, True, NO_NEWS, others))))
    assert 16 <= asked <= 32


def test_one_that_left_with_a_goodbye_casts_no_doubt() -> None:
    rig = Rig(1, pings=True)
    rig.meet(2, 3, 4)
    rig.cycle()
    rig.hear(2, ShuffleRequest(GENERAL, 1, [entry(100), entry(101), entry(2)]))
    rig.hear(100, LeaveNotice(GENERAL))
    rig.hear(101, LeaveNotice(GENERAL))
    rig.hear(3, ShuffleRequest(GENERAL, 1, [entry(102), entry(3)]))
    assert 102 in view(rig)


def test_doubt_ends_when_names_answer() -> None:
    rig = doubting()
    rig.now += 120_000
    rig.hear(3, ShuffleRequest(GENERAL, 1, [entry(102), entry(3)]))
    assert 102 in view(rig)


# --- many peers at one address --------------------------------------------------------------------

EVERY_ADDRESS = c.Config(defence=c.Defence(local_addresses=True))


def at(number: int, host: int) -> Contact:
    """A peer at one of the addresses of this machine."""
    return Contact(contact(number).peer, f"/ip4/127.0.0.{host}/tcp/{number}")


def hosts(rig: Rig) -> Counter[int]:
    return Counter(
        int(one.address.split("/")[2].split(".")[3]) for one in rig.peer.general.contacts()
    )


@pytest.mark.parametrize("cap", [5, 2])
def test_a_view_holds_a_few_peers_of_one_address(cap: int) -> None:
    rig = Rig(1, c.Config(defence=c.Defence(address_peers=cap, local_addresses=True)))
    for number in range(100, 130):
        rig.do(seam.Received(at(number, 9), JoinRequest(GENERAL)))
        stuffing = [Descriptor(at(number + 100 * step, 9), 0) for step in range(1, 9)]
        rig.do(seam.Received(at(number, 9), ShuffleRequest(GENERAL, number, stuffing)))
    assert hosts(rig) == {9: cap}
    for number in range(2, 17):
        rig.do(seam.Received(at(number, number + 10), JoinRequest(GENERAL)))
    assert len(hosts(rig)) == 16 and hosts(rig)[9] == cap


def test_peers_of_this_machine_are_many_by_default() -> None:
    rig = Rig(1)
    for number in range(100, 130):
        rig.do(seam.Received(at(number, 9), JoinRequest(GENERAL)))
    assert hosts(rig) == {9: 20}


def test_a_peer_is_not_kept_out_by_others_that_are_said_to_be_where_it_is() -> None:
    rig = Rig(1, EVERY_ADDRESS)
    rig.do(seam.Received(at(2, 2), JoinRequest(GENERAL)))
    named = [Descriptor(at(number, 9), 0) for number in range(100, 108)]
    rig.do(seam.Received(at(2, 2), ShuffleRequest(GENERAL, 1, named)))
    assert hosts(rig) == {2: 1, 9: 5}
    rig.do(seam.Received(at(50, 9), JoinRequest(GENERAL)))
    assert at(50, 9) in rig.peer.general.contacts()
