"""The four schemes message by message: one peer, and what it says."""

from __future__ import annotations

import pytest

from protocol_kit import Rig, T, answers, contact, delivered, event, proven_run, sent, span, told
from topic_dht_rig import OTHERS, child_of_2, config, forwarder, level, parent, place, routing
from weft.ids import Topic
from weft.protocol import messages as m
from weft.protocol import seam
from weft.protocol.kademlia.rpc import PROVIDERS, FindReply, FindRequest, Neighbour
from weft.protocol.membership import LeaveNotice
from weft.protocol.publication import RouteCheck, RouteEvent, RouteResult
from weft.protocol.recent import IHave, Offer, Repair, Want
from weft.protocol.topic_dht.events import Beat, Cast, SeenReply, SeenRequest
from weft.protocol.topic_dht.roles import (
    ABSENT,
    JOIN,
    LOBBY,
    TOPICS,
    Appeared,
    Forget,
    RoleReply,
    RoleRequest,
    Vanished,
    location,
    position,
)
from weft.protocol.wire import Payload
from weft.rules.multicast import tree_key
from weft.rules.prefix import BITS, as_bytes
from weft.rules.treecast import tree_of

# --- trees ----------------------------------------------------------------------------------------


def test_a_root_puts_one_member_in_charge_of_each_half() -> None:
    effects = forwarder().publish(b"x")
    assert delivered(effects) == [(1, 1)]
    casts = sent(effects, Cast)
    halves = sorted({level(number) for number in OTHERS})
    assert [cast.charge for _, cast in casts] == [half + 1 for half in halves]
    assert all(cast.charge == level(to) + 1 and cast.hops == 1 for to, cast in casts)


@pytest.mark.parametrize("charge", range(5))
def test_a_receiver_serves_its_own_charge_only(charge: int) -> None:
    rig = forwarder()
    effects = rig.hear(2, Cast(T, event(7, 1), 3, charge))
    assert delivered(effects) == [(7, 1)]
    halves = sorted({level(number) for number in OTHERS if level(number) >= charge})
    assert [cast.charge for _, cast in sent(effects, Cast)] == [half + 1 for half in halves]
    assert {cast.hops for _, cast in sent(effects, Cast)} <= {4}


def test_the_same_event_is_passed_on_once_per_tree_and_delivered_once() -> None:
    rig = forwarder(roots=3)
    first = rig.hear(2, Cast(T, event(7, 1), 1, 0))
    again = rig.hear(3, Cast(T, event(7, 1), 2, 0))
    assert told(first, Cast) and not told(again, Cast)
    other_tree = rig.hear(4, Cast(T, event(7, 1), 2, 0, 1))
    assert delivered(again) == delivered(other_tree) == []
    assert {cast.tree for _, cast in sent(other_tree, Cast)} == {1}
    assert rig.peer.counters["duplicates"] == 2


def test_what_came_as_repair_is_still_passed_on_by_the_tree() -> None:
    """Others depend on it."""
    rig = forwarder()
    assert delivered(rig.hear(2, Repair(T, [event(7, 1)]))) == [(7, 1)]
    effects = rig.hear(3, Cast(T, event(7, 1), 1, 0))
    assert delivered(effects) == [] and told(effects, Cast)


def test_a_peer_that_subscribes_again_is_not_handed_the_same_events_again() -> None:
    rig = Rig(1, config())
    rig.subscribe()
    assert delivered(rig.hear(2, Payload(T, event(7, 1), 1))) == [(7, 1)]
    rig.do(seam.Unsubscribe(2, T))
    assert routing(rig).status()["routing"] == {}  # the role is given up, too
    rig.subscribe(token=3)
    assert delivered(rig.hear(2, Repair(T, [event(7, 1), event(7, 2)]))) == [(7, 2)]


def test_children_are_handed_the_event_but_not_its_publisher() -> None:
    rig = parent()
    assert told(rig.publish(b"x"), Payload) == [8, 9]
    from_child = rig.hear(8, Cast(T, event(8, 1), 1, 0))
    assert told(from_child, Payload) == [9]
    assert told(rig.hear(8, Cast(T, event(8, 1), 1, 0)), Payload) == []


def test_several_roots_are_named_and_left_in_peace() -> None:
    """A member is put in charge of others only in its own tree, so roots never are in another."""
    rig = forwarder(roots=3)
    casts = sent(rig.publish(b"x"), Cast)
    roots = [(to, cast) for to, cast in casts if cast.charge == 0]
    assert sorted(cast.tree for _, cast in roots) == [1, 2]
    names = [contact(1).peer, *(contact(to).peer for to, _ in roots)]
    assert all(cast.roots == names for _, cast in casts)
    places = [position(location(T, peer)) for peer in names]
    own = [(to, cast) for to, cast in casts if cast.tree == 0]
    inside = {to for to, cast in own if cast.charge < BITS}
    assert all(tree_of(place(to), places, BITS) == 0 for to in inside)
    assert {to for to, _ in roots} <= {to for to, cast in own if cast.charge == BITS}


@pytest.mark.parametrize("failed", [False, True])
def test_roots_that_come_with_an_event_reveal_a_tree_that_failed(failed: bool) -> None:
    """Then a forwarder looks for its own place, whose neighbours had to send to it (5.2), and
    tells of each event once."""
    rig = forwarder(roots=2)
    roots = [contact(2).peer, contact(3).peer]
    rig.hear(2, Cast(T, event(7, 1), 1, BITS, 0, roots))
    if not failed:
        rig.hear(3, Cast(T, event(7, 1), 1, BITS, 1, roots))
    later = rig.wait(6_000)
    assert rig.peer.counters["trees_failed"] == failed
    own = location(T, contact(1).peer)
    sought = [one.target for _, one in sent(later, FindRequest)]
    assert (own.to_bytes(64, "big") in sought) == failed
    rig.wait(6_000)
    assert rig.peer.counters["trees_failed"] == failed


# --- gossip ---------------------------------------------------------------------------------------


def test_gossip_goes_to_some_at_first_receipt() -> None:
    rig = forwarder("full-gossip", gossip_mode="push-pull")
    effects = rig.hear(2, Payload(T, event(7, 1), 4))
    assert delivered(effects) == [(7, 1)]
    assert len(told(effects, Payload)) == 3 and not {2, 7} & set(told(effects, Payload))
    assert {one.hops for _, one in sent(effects, Payload)} == {5}
    assert told(rig.hear(3, Payload(T, event(7, 1), 4)), Payload) == []
    calls = rig.wait(1_000)
    assert len(told(calls, Beat)) == 1 and sent(calls, Beat)[0][1].fresh


def test_push_goes_to_the_logarithm_and_some_more() -> None:
    rig = forwarder("full-gossip")
    assert len(told(rig.publish(b"x"), Payload)) == 5  # of six others: ⌈ln 7⌉ + 3


# --- members, and others --------------------------------------------------------------------------


@pytest.mark.parametrize("message", [Cast(T, event(7, 1), 1, 0), Payload(T, event(7, 1), 1)])
def test_a_peer_that_is_not_subscribed_says_so(message: m.AnyMessage) -> None:
    rig = Rig(1, config())
    effects = rig.hear(2, message)
    assert delivered(effects) == [] and rig.peer.counters["parasites"] == 1
    assert sent(effects, Vanished) == [(2, Vanished(T))]
    assert sent(effects, Forget) == [(2, Forget(T))]
    assert told(rig.hear(2, Beat(T, 5)), Vanished) == [2]


def test_a_peer_that_vanished_is_no_link_any_more() -> None:
    rig = forwarder()
    for number in OTHERS[1:]:
        rig.hear(number, Vanished(T))
    assert told(rig.publish(b"x"), Cast) == [2]
    rig.lose(2)
    assert told(rig.publish(b"y"), Cast) == []
    assert routing(rig).links() == {T: []}


def test_peers_that_route_otherwise_say_so() -> None:
    rig = Rig(1)
    assert sent(rig.hear(2, RoleRequest(5, T, JOIN)), RoleReply) == [(2, RoleReply(5, ABSENT))]
    assert told(rig.hear(2, Cast(T, event(7, 1), 1, 0)), Vanished) == [2]
    assert sent(rig.hear(2, SeenRequest(6, T)), SeenReply) == [(2, SeenReply(6, False))]
    assert rig.hear(2, Vanished(T)) == []


def test_a_newcomer_is_told_what_there_has_been() -> None:
    rig = forwarder()
    said = proven_run(7, 3)
    rig.hear(2, Cast(T, said.run, 1, 0))
    asked = rig.hear(9, SeenRequest(4, T))
    assert sent(asked, SeenReply) == [(9, SeenReply(4, True, [said.statement()]))]
    other = rig.hear(9, SeenRequest(5, Topic("/other")))
    assert sent(other, SeenReply) == [(9, SeenReply(5, False))]


def test_a_stranger_has_a_share_of_long_answers() -> None:
    rig = forwarder()
    size = 64 << 10
    rig.hear(2, Cast(T, event(7, 1, bytes(size)), 1, 0))
    asked = 300
    seen = [sent(rig.hear(9, SeenRequest(4, T)), SeenReply)[0][1].seen for _ in range(asked)]
    assert seen[0] and sum(map(bool, seen)) < asked // 10
    offers = [told(rig.hear(9, Offer(T, [], first=True)), Offer) for _ in range(asked)]
    assert offers[0] == [9] and sum(map(len, offers)) < asked // 5
    want = Want(T, [span(7, 1, 1)])
    answered = [told(rig.hear(9, want), Repair) for _ in range(asked)]
    assert answered[0] == [9] and sum(map(len, answered)) * size <= 8 << 20


def test_from_outside_an_event_is_taken_by_subscribers_only() -> None:
    rig = Rig(1, config())
    refused = sent(rig.hear(5, RouteEvent(T, event(5, 1))), RouteResult)
    assert refused == [(5, RouteResult(T, 1, 1, False))]
    rig = forwarder()
    taken = rig.hear(9, RouteEvent(T, event(9, 1)))
    assert sent(taken, RouteResult) == [(9, RouteResult(T, 1, 1, True))]
    assert delivered(taken) == [(9, 1)] and told(taken, Cast)


def test_an_event_of_this_peer_that_it_never_published_is_forged() -> None:
    rig = forwarder()
    effects = rig.hear(2, Cast(T, event(1, 9), 1, 0))
    assert delivered(effects) == [] and told(effects, Cast) == []


# --- repair ---------------------------------------------------------------------------------------


def test_beats_tell_what_was_seen_and_differences_are_made_up_for() -> None:
    rig = forwarder()
    assert sent(rig.hear(2, Beat(T, 0)), Offer) == []  # nothing seen here, nothing there
    offered = sent(rig.hear(2, Beat(T, 77, fresh=True)), Offer)
    assert offered == [(2, Offer(T, [], True, 0))]
    wanted = rig.hear(3, IHave(T, [span(7, 1, 1)]))
    assert sent(wanted, Want) == [(3, Want(T, [span(7, 1, 1)]))]
    repaired = rig.hear(3, Repair(T, [event(7, 1)]))
    assert delivered(repaired) == [(7, 1)]
    assert 3 not in told(repaired, IHave) and len(told(repaired, IHave)) == len(OTHERS) - 1
    assert told(rig.cycle(), Beat) == list(OTHERS)
    assert told(rig.cycle(), Beat) == []  # nothing new


def test_a_member_that_differs_is_compared_with_again() -> None:
    """It cannot offer at once what has just reached it, and may be the only one that has it."""
    for number in OTHERS:
        rig = forwarder()
        rig.hear(number, Offer(T, [], False))
        assert number in told(rig.cycle(), Beat)


def test_a_new_link_is_compared_at_once() -> None:
    rig = forwarder()
    rig.hear(2, Cast(T, event(7, 1), 1, 0))
    came = rig.hear(20, Appeared(50, T))
    assert [(to, beat.fresh) for to, beat in sent(came, Beat)] == [(20, True)]


# --- subscriptions --------------------------------------------------------------------------------


def test_answers() -> None:
    rig = forwarder()
    assert answers(rig.subscribe(token=2)) == [(2, "already")]
    assert (3, "left") in answers(rig.do(seam.Unsubscribe(3, T)))
    assert answers(rig.do(seam.Unsubscribe(4, T))) == [(4, "already")]
    assert rig.peer.subscribed == []


def test_a_peer_that_comes_back_before_it_has_left_is_answered() -> None:
    rig = forwarder()
    rig.do(seam.Unsubscribe(2, T))
    assert T in routing(rig).links()  # it looks for somebody to take over
    effects = rig.subscribe(token=3) + rig.wait(60_000)
    assert answers(effects) == [(3, "instantiated")]  # nobody else has answered anything


def test_a_peer_that_leaves_the_network_tells_those_it_is_not_linked_to() -> None:
    rig = forwarder(links_per_level=1)
    linked = {contact(n).peer for n in OTHERS if contact(n).peer in routing(rig).links()[T]}
    effects = rig.do(seam.Leave())
    assert {contact(n).peer for n in told(effects, Vanished)} | linked == {
        contact(n).peer for n in OTHERS
    }
    assert {contact(n).peer for n in told(effects, LeaveNotice)} >= linked


def test_a_child_hands_its_event_to_its_parent() -> None:
    rig = child_of_2()
    assert [(to, cast.charge) for to, cast in sent(rig.publish(b"x"), Cast)] == [(2, 0)]
    taken = rig.hear(2, Payload(T, event(7, 1), 2))
    assert delivered(taken) == [(7, 1)] and not told(taken, Payload) and not told(taken, Cast)
    stale = rig.hear(5, Cast(T, event(7, 2), 2, 0))  # it was a forwarder a while ago
    assert [(to, cast.charge) for to, cast in sent(stale, Cast)] == [(2, 0)]
    outside = rig.hear(5, Cast(T, event(7, 3), 2, level(2) + 1))  # its parent is not in there
    assert delivered(outside) == [(7, 3)] and told(outside, Cast) == []


# --- publishing from outside ----------------------------------------------------------------------


def answered(
    rig: Rig,
    effects: list[seam.Effect],
    knows: dict[int, list[int]],
    members: tuple[int, ...] = (),
) -> list[seam.Effect]:
    """All that is said while others, which know these forwarders, answer lookups. Where they are
    asked for members, these of them say that they are."""
    said, new = [*effects], effects
    while new:
        asked, new = sent(new, FindRequest), []
        for to, question in asked:
            closer = [Neighbour(contact(number), T) for number in knows[to]]
            asks = question.want == PROVIDERS and question.key == tree_key(T)
            named = [contact(to)] if asks and to in members else []
            new += rig.hear(to, FindReply(question.request, True, closer, providers=named))
        said += new
    return said


def test_a_forwarder_that_names_no_other_is_passed_by() -> None:
    """Peer 6 takes what it is handed, and answers as if it were the topic's only forwarder."""
    knows = {2: [5, 6], 3: [5, 6], 5: [5, 7], 6: [], 7: [5, 7]}
    rig = Rig(1, config())
    rig.meet(2, 3)
    [first] = told(answered(rig, rig.publish(b"x"), knows), RouteEvent)
    said = answered(rig, rig.hear(first, RouteResult(T, 1, 1, True)), knows)
    assert first == 6
    assert set(told(said, RouteCheck)) & {5, 7}


def test_where_all_forwarders_lie_members_are_met_that_speak_for_themselves() -> None:
    """Peer 6 is the only forwarder; peer 3 is a child, and no forwarder names it."""
    knows: dict[int, list[int]] = {2: [6], 3: [6], 6: []}
    rig = Rig(1, config())
    rig.meet(2, 3)
    [first] = told(answered(rig, rig.publish(b"x"), knows, (3,)), RouteEvent)
    said = answered(rig, rig.hear(first, RouteResult(T, 1, 1, True)), knows, (3,))
    assert first == 6
    assert told(said, RouteCheck) == [3]


def test_a_child_says_that_it_is_a_member() -> None:
    rig = child_of_2()
    rig.wait(10_000)  # until its subscription stands
    for topic, named in ((T, [contact(1)]), (Topic("/other"), [])):
        where = as_bytes(location(LOBBY, contact(5).peer), TOPICS.bits)
        ask = FindRequest(5, TOPICS.number, LOBBY, LOBBY, where, PROVIDERS, tree_key(topic))
        [(_, reply)] = sent(rig.hear(4, ask), FindReply)
        assert reply.providers == named


# --- children of nobody ---------------------------------------------------------------------------


@pytest.mark.parametrize("fed", [False, True])
def test_a_child_that_nobody_brings_anything_asks_strangers(fed: bool) -> None:
    """All forwarders that it knows may be hostile, and other children are found by none of them."""
    rig = child_of_2()
    rig.wait(10_000)  # until its subscription stands
    rig.meet(4, 5)
    rig.publish(b"x")
    if fed:
        rig.hear(2, Payload(T, event(7, 1), 1))
    knows: dict[int, list[int]] = {2: [], 3: [], 4: [], 5: []}
    said = [one for _ in range(3) for one in answered(rig, rig.cycle(), knows, (5,))]
    beats = [beat for to, beat in sent(said, Beat) if to == 5]
    assert bool(beats) is not fed and all(beat.fresh for beat in beats)
    assert not [to for to in told(said, Beat) if to == 4]
