"""Entering and leaving a topic."""

from __future__ import annotations

import pytest

from protocol_kit import (
    Group,
    Rig,
    T,
    answers,
    contact,
    delivered,
    event,
    everything_sent,
    number_of,
    proven_run,
    sent,
    span,
    told,
)
from weft.ids import GENERAL, Contact, OverlayId
from weft.protocol import seam
from weft.protocol.config import Config, Routing
from weft.protocol.membership import (
    Advert,
    Descriptor,
    JoinGift,
    JoinReply,
    JoinRequest,
    LeaveNotice,
    OverlayNews,
    ShuffleReply,
    ShuffleRequest,
)
from weft.protocol.recent import Offer, Repair, Want
from weft.protocol.tera.access_points import (
    Advertisement,
    LookupHit,
    LookupMiss,
    LookupWalk,
)
from weft.protocol.tera.links import LinkRequest
from weft.protocol.wire import Payload, Span
from weft.rules.tera import keeps_overlay


def joining() -> Rig:
    """A peer that has asked peer 5 to let it into the topic."""
    rig = Rig(1)
    rig.meet(2)
    rig.hear(5, Advertisement([Advert(T, 70, 1)]))
    assert told(rig.subscribe(), JoinRequest) == [5]
    return rig


def welcome(*others: int, seen: list[Span] | None = None) -> JoinReply:
    entries = [Descriptor(contact(number), 0) for number in others]
    return JoinReply(T, True, OverlayNews(0, 0, 0, 0), entries, seen or [])


# --- entering -----------------------------------------------------------------------------------


def test_a_subscriber_joins_through_an_access_point() -> None:
    rig = joining()
    state = rig.peer.tera.topics[T]
    own, theirs = state.overlay, OverlayId(0)
    effects = rig.hear(5, welcome(6, 7))
    assert answers(effects) == [(1, "joined")]
    assert sorted(number_of(peer) for peer in state.view.peers) == [5, 6, 7]
    assert state.overlay == (own if keeps_overlay(T, own, theirs) else theirs)
    assert told(effects, LinkRequest) == [5, 6, 7]


def test_a_member_lets_others_in() -> None:
    rig = Rig(1)
    rig.subscribe()
    rig.publish()
    rig.publish()
    effects = rig.hear(5, JoinRequest(T))
    [(to, reply)] = sent(effects, JoinReply)
    assert to == 5
    assert reply.member
    assert reply.news.overlay == rig.peer.tera.topics[T].overlay
    assert reply.descriptors == [Descriptor(contact(1), 0)]
    assert [(number_of(one.publisher), one.last) for one in reply.seen] == [(1, 2)]
    assert rig.peer.tera.topics[T].view.peers == [contact(5).peer]


def test_a_peer_outside_of_the_topic_lets_nobody_in() -> None:
    rig = Rig(1)
    assert everything_sent(rig.hear(5, JoinRequest(T))) == [(5, JoinReply(T, False))]


def test_nobody_found_means_an_overlay_of_ones_own() -> None:
    rig = Rig(1)
    rig.meet(2)
    [(_, walk)] = sent(rig.subscribe(), LookupWalk)
    assert answers(rig.hear(2, LookupMiss(walk.lookup))) == [(1, "instantiated")]
    assert rig.peer.tera.topics[T].alone


def test_without_neighbours_a_subscriber_has_its_own_overlay_at_once() -> None:
    assert answers(Rig(1).subscribe()) == [(1, "instantiated")]


def test_overlay_ids_differ_between_peers_and_topics() -> None:
    ids = set()
    for number in range(1, 30):
        rig = Rig(number)
        rig.subscribe()
        ids.add(rig.peer.tera.topics[T].overlay)
    assert len(ids) == 29
    assert all(0 <= one < 1 << 63 for one in ids)


def test_a_new_subscription_is_advertised_soon() -> None:
    rig = joining()
    rig.hear(5, welcome())
    [(to, message)] = sent(rig.wait(100), Advertisement)
    assert to == 2
    assert [advert.topic for advert in message.adverts] == [T]


# --- stale access points ------------------------------------------------------------------------


def test_an_access_point_that_left_is_replaced() -> None:
    rig = joining()
    effects = rig.hear(5, JoinReply(T, False))
    [(to, walk)] = sent(effects, LookupWalk)
    assert to == 2
    assert rig.peer.tera.table.find(T) is None
    assert told(rig.hear(2, LookupHit(walk.lookup, contact(6))), JoinRequest) == [6]
    assert answers(rig.hear(6, welcome())) == [(1, "joined")]


def test_a_subscriber_asks_none_twice_that_failed() -> None:
    rig = joining()
    [(_, walk)] = sent(rig.hear(5, JoinReply(T, False)), LookupWalk)
    assert walk.avoid == [contact(5).peer]
    rig.hear(2, LookupHit(walk.lookup, contact(6)))
    [(_, walk)] = sent(rig.hear(6, JoinReply(T, False)), LookupWalk)
    assert walk.avoid == [contact(5).peer, contact(6).peer]


def test_an_access_point_that_failed_is_known_by_its_id_not_by_its_address() -> None:
    rig = joining()
    moved = Contact(contact(5).peer, "/ip4/127.0.0.1/tcp/9999")
    effects = rig.do(seam.Received(moved, JoinReply(T, False)))
    assert told(effects, LookupWalk) == [2]


def test_an_access_point_that_is_silent_or_gone_is_replaced() -> None:
    rig = joining()
    assert told(rig.wait_for("join"), LookupWalk) == [2]
    rig = joining()
    assert told(rig.lose(5), LookupWalk) == [2]


def test_after_a_few_stale_ones_an_overlay_of_ones_own_will_do() -> None:
    rig = joining()
    effects = rig.hear(5, JoinReply(T, False))
    for number in range(10, 30):
        if answers(effects):
            break
        [(_, walk)] = sent(effects, LookupWalk)
        rig.hear(2, LookupHit(walk.lookup, contact(number)))
        effects = rig.hear(number, JoinReply(T, False))
    assert answers(effects) == [(1, "instantiated")]


def test_walks_that_died_are_no_answer_about_subscribers() -> None:
    rig = Rig(1)
    rig.meet(2, 3, 4, 5)
    walks = sent(rig.subscribe(), LookupWalk)
    for _ in range(3):  # the times that a lookup walks again by itself
        effects = rig.wait_for("lookup")
        assert answers(effects) == []
        walks = sent(effects, LookupWalk)
        assert walks
    to, walk = walks[0]
    assert told(rig.hear(to, LookupHit(walk.lookup, contact(6))), JoinRequest) == [6]
    assert answers(rig.hear(6, welcome())) == [(1, "joined")]


def test_where_all_walks_die_the_user_is_answered_in_the_end() -> None:
    rig = Rig(1)
    rig.meet(*range(2, 12))
    effects = rig.subscribe()
    lookups = {walk.lookup for _, walk in sent(effects, LookupWalk)}
    while not answers(effects):
        effects = rig.wait_for("lookup")
        lookups |= {walk.lookup for _, walk in sent(effects, LookupWalk)}
    assert answers(effects) == [(1, "instantiated")]
    assert len(lookups) == 4


def test_a_reply_that_comes_late_is_still_good() -> None:
    rig = joining()
    rig.wait_for("join")
    assert answers(rig.hear(5, welcome())) == [(1, "joined")]
    assert rig.hear(6, welcome()) != []  # a second one brings more neighbours
    assert len(rig.peer.tera.topics[T].view) == 2


# --- once, twice, never -------------------------------------------------------------------------


def test_subscribing_twice() -> None:
    rig = joining()
    assert answers(rig.subscribe(token=2)) == []
    assert answers(rig.hear(5, welcome())) == [(1, "joined"), (2, "joined")]
    assert answers(rig.subscribe(token=3)) == [(3, "already")]


def test_unsubscribing_tells_the_links_and_forgets_the_topic() -> None:
    rig = Rig(1)
    rig.subscribe()
    rig.link(2, 3)
    effects = rig.do(seam.Unsubscribe(2, T))
    assert answers(effects) == [(2, "left")]
    assert told(effects, LeaveNotice) == [2, 3]
    assert rig.peer.tera.topics == {}
    assert answers(rig.do(seam.Unsubscribe(3, T))) == [(3, "already")]
    assert delivered(rig.hear(2, Payload(T, event(9, 1), 1))) == []


def test_unsubscribing_in_the_midst_of_a_join() -> None:
    rig = joining()
    effects = rig.do(seam.Unsubscribe(2, T))
    assert answers(effects) == [(1, "left"), (2, "left")]
    assert rig.hear(5, welcome(6)) == []
    assert told(rig.hear(6, JoinGift(T, Descriptor(contact(6), 0))), LeaveNotice) == [6]
    assert rig.peer.tera.topics == {}
    assert answers(rig.wait(60_000)) == []


def test_subscribing_again_before_the_lookup_has_ended() -> None:
    rig = Rig(1)
    rig.meet(2)
    [(_, first)] = sent(rig.subscribe(token=1), LookupWalk)
    rig.do(seam.Unsubscribe(2, T))
    [(_, second)] = sent(rig.subscribe(token=3), LookupWalk)
    rig.hear(2, LookupHit(first.lookup, contact(5)))
    rig.hear(2, LookupHit(second.lookup, contact(6)))
    assert answers(rig.hear(5, welcome())) == [(3, "joined")]


def test_a_peer_that_subscribes_again_is_not_handed_the_same_events_again() -> None:
    rig = Rig(1)
    rig.subscribe()
    assert delivered(rig.hear(2, Payload(T, event(9, 1), 1))) == [(9, 1)]
    rig.do(seam.Unsubscribe(2, T))
    rig.subscribe(token=3)
    effects = rig.hear(2, Repair(T, [event(9, 1), event(9, 2)]))
    assert delivered(effects) == [(9, 2)]


# --- what was published before ------------------------------------------------------------------


def test_a_newcomer_does_not_get_what_was_published_before() -> None:
    rig = joining()
    rig.hear(5, welcome(seen=[proven_run(9, 3).statement()]))
    assert sent(rig.hear(5, Offer(T, [span(9, 2, 3)], first=False)), Want) == []
    [(_, want)] = sent(rig.hear(5, Offer(T, [span(9, 2, 4)], first=False)), Want)
    assert want.spans == [span(9, 4, 4)]


def test_a_member_that_was_alone_gets_what_it_missed_when_it_finds_the_others() -> None:
    """Only a new subscriber starts after what came before."""
    rig = Rig(1)
    rig.subscribe()
    [(_, walk)] = sent(rig.hear(2, JoinRequest(GENERAL)), LookupWalk)
    rig.hear(2, LookupHit(walk.lookup, contact(5)))
    rig.hear(5, welcome(seen=[proven_run(9, 3).statement()]))
    [(_, want)] = sent(rig.hear(5, Offer(T, [span(9, 2, 3)], first=False)), Want)
    assert want.spans == [span(9, 2, 3)]


def test_a_member_that_was_alone_gets_what_it_missed_though_its_user_subscribes_again() -> None:
    rig = Rig(1)
    rig.subscribe()
    [(_, walk)] = sent(rig.hear(2, JoinRequest(GENERAL)), LookupWalk)
    rig.hear(2, LookupHit(walk.lookup, contact(5)))
    assert answers(rig.subscribe(token=2)) == []
    assert answers(rig.hear(5, welcome(seen=[span(9, 1, 3)]))) == [(2, "joined")]
    [(_, want)] = sent(rig.hear(5, Offer(T, [span(9, 2, 3)], first=False)), Want)
    assert want.spans == [span(9, 2, 3)]


# --- several ------------------------------------------------------------------------------------


def test_peers_that_subscribe_at_the_same_moment_end_in_one_overlay() -> None:
    group = Group(12)
    group.run(2_000)
    group.subscribe_all()
    group.run(120_000)
    assert len({peer.tera.topics[T].overlay for peer in group.peers.values()}) == 1
    for number in group.peers:
        assert next(outcome for _, outcome in answers(group.effects[number])) in (
            "joined",
            "instantiated",
        )


def test_a_member_alone_keeps_looking_but_ever_more_seldom() -> None:
    rig = Rig(1)
    rig.meet(2)
    rig.subscribe()
    walks = []
    for cycle in range(64):
        for to, message in everything_sent(rig.cycle()):
            if isinstance(message, LookupWalk):
                walks.append(cycle)
                rig.hear(to, LookupMiss(message.lookup))
            elif isinstance(message, ShuffleRequest):
                rig.hear(to, ShuffleReply(message.topic, message.tick, []))
    assert 4 <= len(walks) <= 12


# --- a scheme of the subscription's own ---------------------------------------------------------


@pytest.mark.parametrize("routing", ["topic-dht", "pulsarcast", "flood"])
def test_a_routing_without_a_choice_refuses_a_scheme(routing: Routing) -> None:
    rig = Rig(1, Config(routing=routing))
    (answer,) = rig.subscribe(scheme="tree")
    assert isinstance(answer, seam.Answer) and answer.outcome == "refused"
    assert f"cannot choose a scheme with the routing {routing}" in answer.reason
    assert ("protocol.topic_dht.scheme" in answer.reason) == (routing == "topic-dht")
    assert not rig.peer.routing.is_subscribed(T)


def test_a_peer_has_one_scheme_per_topic() -> None:
    rig = Rig(1)
    rig.subscribe(scheme="gossip")
    assert answers(rig.subscribe(token=2, scheme="flood")) == [(2, "refused")]
    assert answers(rig.subscribe(token=3, scheme="gossip")) == [(3, "already")]
    assert answers(rig.subscribe(token=4)) == [(4, "already")]
    assert rig.peer.tera.topics[T].scheme == "gossip"
