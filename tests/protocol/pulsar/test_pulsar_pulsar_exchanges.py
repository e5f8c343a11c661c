"""Trees message by message: one peer, and what it answers."""

from __future__ import annotations

from dataclasses import replace

from protocol_kit import (
    Rig,
    T,
    answers,
    contact,
    delivered,
    event,
    number_of,
    proven_run,
    sent,
    told,
)
from weft.ids import Topic
from weft.protocol import seam
from weft.protocol.config import Config, Cyclon, PulsarSettings, Stan
from weft.protocol.kademlia.rpc import PROVIDERS, FindReply, FindRequest, Neighbour
from weft.protocol.liveness import LinkList
from weft.protocol.publication import RouteCheck, RouteEvent, RouteResult
from weft.protocol.pulsar.attachment import TreeJoin, TreeJoinReply
from weft.protocol.pulsar.branch import Branch, RendezvousSync, TreeFamily, TreeLeave
from weft.protocol.pulsar.pulsar import Pulsar as Trees
from weft.protocol.recent import Offer, Recent, Repair, Want
from weft.protocol.wire import Payload, Span
from weft.rules.multicast import tree_key, tree_location
from weft.rules.prefix import location_of

# Cycles so short that pings are not due when something is to be seen after some of them.
CONFIG = Config(
    routing="pulsarcast", pulsar=PulsarSettings(children_max=2), cyclon=Cyclon(cycle_ms=2_000)
)


def branch_of(rig: Rig, topic: Topic = T) -> Branch:
    assert isinstance(rig.peer.routing, Trees)
    return rig.peer.routing.trees.by_topic[topic]


def trees_of(rig: Rig) -> dict[Topic, Branch]:
    assert isinstance(rig.peer.routing, Trees)
    return rig.peer.routing.trees.by_topic


def child_of(parent: int, *above: int, roots: tuple[int, ...] = ()) -> Rig:
    """A subscriber below `parent`, which is below the others."""
    rig = Rig(1, CONFIG)
    rig.meet(parent)
    asked = rig.subscribe()
    request = sent(asked, FindRequest)[0][1]
    joins = rig.hear(parent, FindReply(request.request, True, providers=[contact(parent)]))
    assert sent(joins, TreeJoin) == [(parent, TreeJoin(T, True, False, True))]
    done = rig.hear(parent, TreeJoinReply(T, True, True))
    assert answers(done) == [(1, "joined")]
    rig.hear(parent, family(above, roots))
    return rig


def family(
    above: tuple[int, ...] = (), roots: tuple[int, ...] = (), beat: int = 1, age: int = 0
) -> TreeFamily:
    path, rendezvous = [contact(one) for one in above], [contact(one) for one in roots]
    return TreeFamily(T, beat, age, True, path, rendezvous, [])


def sync(*roots: int, answer: bool = False, children: int = 1) -> RendezvousSync:
    return RendezvousSync(T, 1, True, children, [contact(one) for one in roots], [], answer)


def test_the_first_of_all_is_a_rendezvous() -> None:
    rig = Rig(1, CONFIG)
    assert answers(rig.subscribe()) == [(1, "instantiated")]
    assert branch_of(rig).rendezvous
    assert delivered(rig.publish(b"x")) == [(1, 1)]


def test_the_lookup_asks_for_members_on_the_way() -> None:
    rig = Rig(1, CONFIG)
    rig.meet(2)
    request = sent(rig.subscribe(), FindRequest)[0][1]
    assert (request.want, request.key) == (PROVIDERS, tree_key(T))


def test_members_answer_to_lookups() -> None:
    rig = Rig(1, CONFIG)
    request = FindRequest(5, 0, Topic(""), Topic(""), tree_key(T)[1:], PROVIDERS, tree_key(T))
    assert sent(rig.hear(3, request), FindReply)[0][1].providers == []
    rig.do(seam.Subscribe(1, T))
    rig.wait(60_000)  # what else it waits for has failed by then
    assert sent(rig.hear(3, request), FindReply)[0][1].providers == [contact(1)]


def test_nobody_in_the_tree_and_another_is_closer() -> None:
    """With one rendezvous per tree, the closer of the two is asked to be it."""
    rig = Rig(1, Config(routing="pulsarcast", pulsar=PulsarSettings(rendezvous=1)))
    closer = next(number for number in range(2, 99) if _distance(number) < _distance(1))
    rig.meet(closer)
    request = sent(rig.subscribe(), FindRequest)[0][1]
    joins = rig.hear(closer, FindReply(request.request, True))
    assert sent(joins, TreeJoin) == [(closer, TreeJoin(T, True, True, True))]


def _distance(number: int) -> int:
    return location_of(contact(number).peer) ^ tree_location(T)


def test_a_peer_that_is_asked_as_rendezvous_begins_a_tree() -> None:
    rig = Rig(1, CONFIG)
    effects = rig.hear(2, TreeJoin(T, True, root=True))
    assert sent(effects, TreeJoinReply) == [(2, TreeJoinReply(T, True, False))]
    assert branch_of(rig).rendezvous and not branch_of(rig).subscribed
    assert rig.peer.subscribed == []
    forwarded = rig.hear(2, Payload(T, event(2, 1), 1))
    assert delivered(forwarded) == []
    assert rig.peer.counters["parasites"] == 1


def test_a_peer_that_is_asked_as_a_member_and_is_none_refuses() -> None:
    rig = Rig(1, CONFIG)
    assert sent(rig.hear(2, TreeJoin(T, True)), TreeJoinReply) == [(2, TreeJoinReply(T, False))]
    assert trees_of(rig) == {}


def test_children_are_bounded_and_newcomers_sent_on() -> None:
    rig = child_of(9)
    for number in (2, 3):
        assert sent(rig.hear(number, TreeJoin(T, True)), TreeJoinReply)[0][1].accepted
    refused = sent(rig.hear(4, TreeJoin(T, True)), TreeJoinReply)[0][1]
    assert not refused.accepted
    assert sorted(one.address for one in refused.instead) == [
        contact(2).address,
        contact(3).address,
    ]
    assert sent(rig.hear(2, TreeJoin(T, True)), TreeJoinReply)[0][1].accepted  # it is one already


def test_a_newcomer_follows_where_it_is_sent() -> None:
    rig = Rig(1, CONFIG)
    rig.meet(2)
    request = sent(rig.subscribe(), FindRequest)[0][1]
    rig.hear(2, FindReply(request.request, True, providers=[contact(2)]))
    effects = rig.hear(2, TreeJoinReply(T, False, False, [contact(5), contact(6)]))
    assert sent(effects, TreeJoin) == [(5, TreeJoin(T, True, False, True))]
    late = rig.wait(3_000)  # no answer: the next one
    assert sent(late, TreeJoin)[0] == (6, TreeJoin(T, True, False, True))
    assert answers(rig.hear(5, TreeJoinReply(T, True, True))) == [(1, "joined")]  # late, but fine
    assert sent(rig.hear(6, TreeJoinReply(T, True, True)), TreeLeave) == [(6, TreeLeave(T))]


def test_an_event_goes_up_and_down_once() -> None:
    rig = child_of(9)
    rig.hear(2, TreeJoin(T, True))
    rig.hear(3, TreeJoin(T, True))
    assert told(rig.publish(b"own"), Payload) == [2, 3, 9]
    from_child = rig.hear(2, Payload(T, event(7, 1), 4))
    assert delivered(from_child) == [(7, 1)]
    assert told(from_child, Payload) == [3, 9]
    assert sent(from_child, Payload)[0][1].hops == 5
    again = rig.hear(9, Payload(T, event(7, 1), 4))
    assert told(again, Payload) == [] and delivered(again) == []
    assert rig.peer.counters["duplicates"] == 1


def test_a_sender_that_is_not_linked_is_told_to_stop() -> None:
    rig = child_of(9)
    effects = rig.hear(5, Payload(T, event(7, 1), 1))
    assert delivered(effects) == [(7, 1)]
    assert sent(effects, TreeLeave) == [(5, TreeLeave(T))]
    other = rig.hear(5, Payload(Topic("/other"), event(7, 1), 1))
    assert sent(other, TreeLeave) == [(5, TreeLeave(Topic("/other")))]


def test_an_orphan_asks_the_levels_above() -> None:
    """Several at once, since where one is lost, others may be."""
    rig = child_of(9, 8, 7, roots=(7, 6, 5))
    first = sent(rig.lose(9), TreeJoin)
    assert first == [(number, TreeJoin(T, True, False)) for number in (8, 7, 6)]
    assert sent(rig.lose(8), TreeJoin) == [(5, TreeJoin(T, True, False))]
    assert sent(rig.hear(7, TreeJoinReply(T, False)), TreeJoin) == []
    own = rig.publish(b"meanwhile")
    assert delivered(own) == [(1, 1)] and told(own, Payload) == []
    [(to, offer)] = sent(rig.hear(6, TreeJoinReply(T, True, True)), Offer)
    assert to == 6 and offer.first and len(offer.spans) == 1
    [(_, repair)] = sent(rig.hear(6, Want(T, offer.spans)), Repair)
    assert [one.payloads for one in repair.runs] == [(b"meanwhile",)]


def test_an_orphan_gets_what_it_missed_and_passes_it_on() -> None:
    rig = child_of(9, 8)
    rig.hear(2, TreeJoin(T, True))
    rig.lose(9)
    proven = proven_run(5, 1, b"missed")
    missed = proven.run
    known = Recent(T, CONFIG.dissemination)
    known.admit(proven, 0, 0, 0)
    back = rig.hear(8, TreeJoinReply(T, True, True, [], known.fingerprint()))
    assert [to for to, _ in sent(back, Offer)] == [8]
    answer = rig.hear(8, Offer(T, known.offer(0, contact(8).peer), False))
    [(to, want)] = sent(answer, Want)
    assert to == 8 and want.spans == known.offer(0, contact(8).peer)
    effects = rig.hear(8, Repair(T, [missed]))
    assert delivered(effects) == [(5, 1)]
    assert [(to, one.run) for to, one in sent(effects, Payload)] == [(2, missed)]
    assert rig.peer.counters["repaired"] == 1


def test_ends_of_a_link_that_have_seen_the_same_offer_nothing() -> None:
    rig = child_of(9)
    known = Recent(T, CONFIG.dissemination)
    for number in (1, 2):
        rig.hear(9, Payload(T, event(5, number), 1))
        known.admit(proven_run(5, number), 0, 0, 0)
    same = TreeFamily(T, 2, 0, True, [], [], [], known.fingerprint())
    assert told(rig.hear(9, same), Offer) == []
    other = TreeFamily(T, 3, 0, True, [], [], [], known.fingerprint() ^ 1)
    assert told(rig.hear(9, other), Offer) == [9]


def test_a_new_subscriber_does_not_get_what_came_before() -> None:
    rig = Rig(1, CONFIG)
    rig.meet(9)
    request = sent(rig.subscribe(), FindRequest)[0][1]
    rig.hear(9, FindReply(request.request, True, providers=[contact(9)]))
    before = Span(contact(5).peer, 1, 1, 3)
    rig.hear(9, TreeJoinReply(T, True, True, [], 7, [proven_run(5, 3).statement()]))
    assert told(rig.hear(9, Offer(T, [before], True)), Want) == []
    assert not delivered(rig.hear(9, Payload(T, event(5, 3), 1)))
    assert delivered(rig.hear(9, Payload(T, event(5, 4), 1))) == [(5, 4)]


def test_what_the_parent_does_not_hold_is_asked_of_others() -> None:
    """The parent has seen more, and holds nothing of it: it joined later."""
    rig = child_of(9, 8, roots=(7,))
    asked = []
    for beat in range(2, 6):
        message = TreeFamily(T, beat, 0, True, [contact(8)], [contact(7)], [], 12345)
        asked.append(told(rig.hear(9, message), Offer))
    assert asked[0] == [9]
    assert all(len(to) == 2 and 9 in to and {*to} <= {7, 8, 9} for to in asked[1:])
    same = TreeFamily(T, 6, 0, True, [contact(8)], [contact(7)], [])
    assert told(rig.hear(9, same), Offer) == []  # fingerprint 0: nothing seen at either end
    held = [Span(contact(5).peer, 1, 1, 1)]
    assert told(rig.hear(7, Offer(T, held, False)), Want) == [7]


def shown_after_publishing(rig: Rig, roots: list[int]) -> list[list[tuple[int, Offer]]]:
    """What a member offers in each cycle after it published, while its parent names these roots,
    which answer where they are asked."""
    rig.publish(b"own")
    shown = []
    for beat in range(2, 8):
        rig.hear(9, TreeFamily(T, beat, 0, True, [], [contact(one) for one in roots], []))
        shown.append(sent(rig.wait(CONFIG.cyclon.cycle_ms), Offer))
        for to, offer in shown[-1]:
            if offer.first:
                rig.hear(to, Offer(T, [], False))
    return shown


def test_what_a_member_publishes_is_shown_to_roots_beside_its_parent() -> None:
    """The parent may pass nothing on, and says that it has seen the same."""
    rig = child_of(9)
    shown = shown_after_publishing(rig, [7, 6, 5])
    assert [len(offers) for offers in shown] == [0, 2, 0, 0, 0, 0]  # once it should have spread
    [(other, asked), (to, offer)] = shown[1]
    assert {to, other} < {7, 6, 5} and not offer.first  # it answers only if it lacks something
    assert asked.first and asked.spans == offer.spans  # and the other one in any case
    [(_, repair)] = sent(rig.hear(to, Want(T, offer.spans)), Repair)
    assert [one.payloads for one in repair.runs] == [(b"own",)]


def looks_after_publishing(rig: Rig, silent: tuple[int, ...]) -> list[int]:
    """How many questions of lookups a member asks in each cycle after it published, below a parent
    that names three roots; a silent one does not say what it has seen."""
    rig.publish(b"own")
    looks = []
    for beat in range(2, 9):
        rig.hear(9, TreeFamily(T, beat, 0, True, [], [contact(one) for one in (7, 6, 5)], []))
        effects = rig.wait(CONFIG.cyclon.cycle_ms)
        for to, offer in sent(effects, Offer):
            if offer.first and to not in silent:
                rig.hear(to, Offer(T, [], False))
        key = tree_key(T)
        looks.append(sum(request.key == key for _, request in sent(effects, FindRequest)))
    return looks


def test_a_publisher_whose_roots_are_silent_looks_for_members() -> None:
    """Black holes take what they are shown; nobody below another of them would hear of it."""
    assert looks_after_publishing(child_of(9), (7, 6, 5))[:4] == [0, 0, 0, 1]
    assert not any(looks_after_publishing(child_of(9), ()))


def test_a_parent_cannot_make_up_the_roots_that_events_are_shown_to() -> None:
    """They are the closest to the topic's id of all that the member knows."""
    by_distance = sorted(range(10, 60), key=_distance)
    near, far = by_distance[:3], by_distance[-3:]
    rig = child_of(9)
    for number in near:  # they speak for themselves, and so are in its table
        key = tree_key(Topic("/other"))
        rig.hear(number, FindRequest(5, 0, Topic(""), Topic(""), key[1:], PROVIDERS, key))
    shown = [to for offers in shown_after_publishing(rig, far) for to, _ in offers]
    assert len(shown) == 2 and {*shown} < {*near}


def beat_from_root(beat: int, seen: int, root_seen: int) -> TreeFamily:
    roots = [contact(one) for one in (7, 6, 5)]
    return TreeFamily(T, beat, 0, True, [contact(8)], roots, [], seen, root_seen)


def test_a_member_that_stays_behind_the_root_compares_with_it() -> None:
    """Its parent lacks what it lacks: both got nothing."""
    rig = child_of(9, 8)
    rig.hear(9, beat_from_root(2, 0, 0))
    assert told(rig.hear(9, beat_from_root(3, 0, 12345)), Offer) == []
    assert told(rig.hear(9, beat_from_root(3, 0, 12345)), Offer) == []  # the same beat once more
    [(to, offer)] = sent(rig.hear(9, beat_from_root(4, 0, 12345)), Offer)
    assert to in (7, 6, 5) and offer.first  # and it offers in return


def test_where_roots_bring_nothing_members_are_looked_for() -> None:
    """All of them may be black holes, as may the parent: a lookup meets a member of its own."""
    rig = child_of(9, 8)
    rig.hear(9, beat_from_root(2, 0, 0))
    compared: dict[int, list[int]] = {}
    for beat in range(1, 18):
        effects = rig.hear(9, beat_from_root(beat + 2, 0, 12345))
        asked = sent(effects, FindRequest)
        for to, request in asked:  # on the way of a lookup, which goes on while it runs
            says = [contact(4)] if to == 4 else []
            found = FindReply(request.request, True, [Neighbour(contact(4))], providers=says)
            effects = rig.hear(to, found)
            asked += sent(effects, FindRequest)
            compared.setdefault(beat, []).extend(told(effects, Offer))
    assert compared == {4: [4], 8: [4], 16: [4]}  # ever more rarely


def test_while_events_come_a_root_that_has_seen_others_says_nothing() -> None:
    rig = child_of(9, 8)
    known = Recent(T, CONFIG.dissemination)
    for number in range(1, 7):
        rig.hear(9, Payload(T, event(5, number), 1))
        known.admit(proven_run(5, number), 0, 0, 0)
        beat = beat_from_root(number + 1, known.fingerprint(), 12345)
        assert told(rig.hear(9, beat), Offer) == []


def test_a_root_tells_what_it_has_seen_and_members_pass_it_on() -> None:
    rig = child_of(9, 8)
    rig.hear(2, TreeJoin(T, True))
    passed = sent(rig.hear(9, beat_from_root(2, 0, 12345)), TreeFamily)
    assert [(to, one.root_recent) for to, one in passed] == [(2, 12345)]
    root = Rig(1, CONFIG)
    root.hear(2, TreeJoin(T, True, root=True))
    root.hear(2, Payload(T, event(5, 1), 1))
    told_down = sent(root.wait(CONFIG.cyclon.cycle_ms), TreeFamily)
    assert told_down and all(one.root_recent == one.recent != 0 for _, one in told_down)


def test_a_parent_that_leaves_says_where_to_go() -> None:
    rig = child_of(9, roots=(7,))
    effects = rig.hear(9, TreeLeave(T, [contact(5)]))
    assert sent(effects, TreeJoin)[0] == (5, TreeJoin(T, True, False))


def test_a_member_that_unsubscribes_hands_its_children_on() -> None:
    rig = child_of(9, roots=(7,))
    rig.hear(2, TreeJoin(T, True))
    effects = rig.do(seam.Unsubscribe(3, T))
    assert answers(effects) == [(3, "left")]
    assert sorted(sent(effects, TreeLeave), key=lambda one: one[0]) == [
        (2, TreeLeave(T, [contact(9), contact(7)])),
        (9, TreeLeave(T)),
    ]
    assert trees_of(rig) == {}
    assert sorted(e.peer for e in effects if isinstance(e, seam.Release)) == [
        contact(2).peer,
        contact(9).peer,
    ]


def test_the_family_is_passed_down_when_it_changes() -> None:
    rig = child_of(9)
    rig.hear(2, TreeJoin(T, True))
    passed = sent(rig.hear(9, family((8,), (8,), beat=2)), TreeFamily)
    assert [(to, one.path, one.rendezvous) for to, one in passed] == [
        (2, [contact(9), contact(8)], [contact(8)])
    ]
    assert sent(rig.hear(9, family((8,), (8,), beat=2)), TreeFamily) == []


def test_a_circle_is_left() -> None:
    """By the closest to the topic's id alone: if all left it, the tree fell to pieces."""
    by_distance = sorted((2, 3, 4, 5, 6, 7, 8, 9), key=_distance)
    farther = [number for number in by_distance if _distance(number) > _distance(1)]
    closer = [number for number in by_distance if _distance(number) < _distance(1)]
    rig = child_of(farther[0])
    effects = rig.hear(farther[0], family((farther[1], 1, farther[0])))
    assert sent(effects, TreeLeave) == [(farther[0], TreeLeave(T))]
    assert branch_of(rig).parent is None
    rig = child_of(farther[0])
    effects = rig.hear(farther[0], family((closer[0], 1, farther[0])))
    assert sent(effects, TreeLeave) == []
    assert branch_of(rig).path == (contact(closer[0]),)


def test_a_joiner_above_is_refused() -> None:
    rig = child_of(9, 8, 7)
    for above in (9, 8, 7):
        assert not sent(rig.hear(above, TreeJoin(T, True)), TreeJoinReply)[0][1].accepted
    assert sent(rig.hear(6, TreeJoin(T, True)), TreeJoinReply)[0][1].accepted


def test_without_a_beat_the_way_up_is_broken() -> None:
    rig = child_of(9)
    patience = rig.peer.config.pulsar.patience_cycles
    for _ in range(patience):
        rig.cycle()
    assert branch_of(rig).parent is not None
    assert not sent(rig.hear(6, TreeJoin(T, True)), TreeJoinReply)[0][1].accepted
    assert told(rig.cycle(), TreeLeave) == [9]
    assert branch_of(rig).parent is None


def test_a_beat_that_did_not_come_is_asked_for() -> None:
    rig = child_of(9)
    assert sent(rig.cycle(), TreeJoin) == []
    assert sent(rig.cycle(), TreeJoin) == [(9, TreeJoin(T, True))]
    rig.hear(9, TreeJoinReply(T, True, True))
    rig.hear(9, family(beat=2))
    assert branch_of(rig).parent == contact(9)
    assert sent(rig.cycle(), TreeJoin) == []


def test_a_child_that_asks_for_its_place_gets_the_beat_and_stays() -> None:
    rig = child_of(9)
    rig.hear(2, TreeJoin(T, True))
    effects = rig.hear(2, TreeJoin(T, True))
    assert sent(effects, TreeJoinReply)[0][1].accepted
    assert [to for to, _ in sent(effects, TreeFamily)] == [2]
    assert list(branch_of(rig).children) == [contact(2).peer]


def test_a_rendezvous_asks_a_fellow_that_was_silent_for_an_answer() -> None:
    rig = Rig(1, CONFIG)
    rig.subscribe()
    rig.hear(2, sync())
    asked = [sent(rig.cycle(), RendezvousSync)[-1][1].answer for _ in range(3)]
    assert asked == [False, True, True]


def test_a_peer_far_from_the_topics_id_is_no_fellow() -> None:
    """Whatever it says: all events would go to it."""
    rig = Rig(1, CONFIG)
    rig.subscribe()
    by_distance = sorted(range(2, 30), key=_distance)
    asked = FindRequest(5, 0, Topic(""), Topic(""), bytes(32), PROVIDERS, bytes(33))
    for number in by_distance[:12]:
        rig.hear(number, asked)  # so it is known to be there
    near, far = by_distance[0], by_distance[-1]
    assert told(rig.hear(far, sync()), TreeLeave) == [far]
    assert told(rig.hear(near, sync()), TreeLeave) == []
    assert list(branch_of(rig).fellows) == [contact(near).peer]


def test_a_fellow_does_not_keep_events_from_children() -> None:
    rig = Rig(1, CONFIG)
    rig.subscribe()
    rig.hear(2, sync(3, 8))  # it says that it is joined to the child, too
    rig.hear(3, sync(2))
    rig.hear(8, TreeJoin(T, True))
    assert told(rig.hear(2, Payload(T, event(7, 1), 1)), Payload) == [8]


def test_a_peer_that_may_be_a_parent_unknown_to_its_child_is_left() -> None:
    """The answer of one that was asked first may be lost."""
    rig = child_of(9, 8, 7)
    assert told(rig.lose(9), TreeJoin) == [7, 8]
    effects = rig.hear(7, TreeJoinReply(T, True, True))
    assert sent(effects, TreeLeave) == [(8, TreeLeave(T))]


def test_a_root_steps_down_when_another_has_taken_it() -> None:
    """Closer peers were found: this one asks them as roots, and is one until one has a place."""
    rig = Rig(1, Config(routing="pulsarcast", pulsar=PulsarSettings(rendezvous=1)))
    closer = next(number for number in range(2, 99) if _distance(number) < _distance(1))
    rig.subscribe()
    rig.hear(50, TreeJoin(T, True))
    assert branch_of(rig).rendezvous
    rig.meet(closer)
    effects = rig.cycle()
    [request] = [one for to, one in sent(effects, FindRequest) if to == closer and one.want == 0]
    asked = rig.hear(closer, FindReply(request.request, True))
    assert sent(asked, TreeJoin) == [(closer, TreeJoin(T, True, True))]
    assert branch_of(rig).rendezvous
    rig.hear(closer, TreeJoinReply(T, False))
    assert branch_of(rig).rendezvous  # it does not: nothing has changed
    [request] = [one for to, one in sent(rig.cycle(), FindRequest) if to == closer]
    rig.hear(closer, FindReply(request.request, True))
    assert branch_of(rig).rendezvous
    rig.hear(closer, TreeJoinReply(T, True, True))
    assert not branch_of(rig).rendezvous
    assert branch_of(rig).parent == contact(closer)
    assert list(branch_of(rig).children) == [contact(50).peer]


def test_a_member_that_is_asked_as_a_root_becomes_one() -> None:
    """Though it is below the asker. It stays linked to its parent until other roots are known."""
    rig = child_of(9, 8)
    effects = rig.hear(8, TreeJoin(T, True, root=True))
    assert sent(effects, TreeJoinReply)[0][1].accepted
    assert branch_of(rig).rendezvous and told(effects, TreeLeave) == []
    assert told(rig.publish(b"x"), Payload) == [8, 9]
    rig.hear(7, sync())
    assert told(rig.cycle(), TreeLeave) == [9]


def test_a_silent_parent_is_replaced_before_it_counts_as_lost() -> None:
    """Others near by are warned, and asked for a place; the parent is left when one has it."""
    rig = child_of(9, 8)
    near = TreeFamily(T, 2, 0, True, [contact(8)], [], [contact(4)])
    rig.hear(9, near)
    rig.pings = True  # and no peer answers them
    rig.publish(b"x")
    effects = [effect for _ in range(7) for effect in rig.wait(500)]
    assert 8 in told(effects, TreeJoin) and told(effects, Offer) == [4]
    assert branch_of(rig).parent == contact(9)
    done = rig.hear(8, TreeJoinReply(T, True, True))
    assert branch_of(rig).parent == contact(8)
    assert 9 in told(done, TreeLeave)


def test_a_member_that_is_warned_sees_to_its_parent() -> None:
    rig = child_of(9, 8)
    held = [Span(contact(5).peer, 1, 1, 1)]
    effects = rig.hear(4, Offer(T, held, True))
    assert told(effects, TreeJoin) == [9] and told(effects, Want) == [4]
    linked = rig.hear(9, Offer(T, held, True))
    assert told(linked, TreeJoin) == []


def test_a_fellow_that_still_takes_this_root_for_its_child_is_not_left() -> None:
    rig = child_of(9, 8)
    rig.hear(9, sync(answer=True))
    assert branch_of(rig).rendezvous and contact(9).peer in branch_of(rig).fellows
    assert told(rig.hear(9, family((8,), beat=3)), TreeLeave) == []


def test_members_without_a_place_find_each_other() -> None:
    """One that has lost its parent takes those that lie farther from the topic's id."""
    by_distance = sorted(range(10, 30), key=_distance)
    rig = child_of(9, roots=(7,))
    assert told(rig.lose(9), TreeJoin) == [7]
    farther, closer = by_distance[-1], by_distance[0]
    assert not sent(rig.hear(closer, TreeJoin(T, True)), TreeJoinReply)[0][1].accepted
    assert sent(rig.hear(farther, TreeJoin(T, True)), TreeJoinReply)[0][1].accepted


def test_a_member_without_a_place_takes_events_from_outside() -> None:
    rig = child_of(9)
    rig.lose(9)
    taken = rig.hear(5, RouteEvent(T, event(5, 1)))
    assert sent(taken, RouteResult) == [(5, RouteResult(T, 1, 1, True))]


def test_a_stale_beat_does_not_help() -> None:
    """Members that lost all roots must not take each other's old beats for new ones."""
    rig = child_of(9)
    patience = rig.peer.config.pulsar.patience_cycles
    for beat in range(patience):
        rig.cycle()
        rig.hear(9, family(beat=beat + 2, age=beat + 1))
    assert told(rig.cycle(), TreeLeave) == [9]


def test_rendezvous_are_joined_to_each_other() -> None:
    rig = Rig(1, CONFIG)
    rig.subscribe()
    effects = rig.hear(2, sync(answer=True))
    assert sent(effects, RendezvousSync)[0][0] == 2
    rig.hear(3, sync(2))
    assert list(branch_of(rig).fellows) == [contact(2).peer, contact(3).peer]
    assert told(rig.publish(b"x"), Payload) == [2, 3]
    # 3 is joined to 2 and has sent it there itself; 2 has not said so of 3.
    assert told(rig.hear(3, Payload(T, event(7, 1), 1)), Payload) == []
    assert told(rig.hear(2, Payload(T, event(7, 2), 1)), Payload) == [3]


def test_a_rendezvous_names_its_fellows_to_its_children() -> None:
    rig = Rig(1, CONFIG)
    rig.subscribe()
    rig.hear(2, sync())
    told_child = sent(rig.hear(4, TreeJoin(T, True)), TreeFamily)
    assert [(to, one.path, one.rendezvous) for to, one in told_child] == [
        (4, [], [contact(1), contact(2)])
    ]


def test_a_rendezvous_that_serves_nobody_lets_go() -> None:
    rig = Rig(1, CONFIG)
    rig.hear(2, TreeJoin(T, True, root=True))
    rig.hear(2, TreeLeave(T))
    for _ in range(rig.peer.config.pulsar.patience_cycles):
        rig.cycle()
        assert T in trees_of(rig)
    rig.cycle()
    assert trees_of(rig) == {}


def test_from_outside_an_event_is_taken_by_members_only() -> None:
    rig = Rig(1, CONFIG)
    refused = sent(rig.hear(5, RouteEvent(T, event(5, 1))), RouteResult)
    assert refused == [(5, RouteResult(T, 1, 1, False))]
    rig.subscribe()
    taken = rig.hear(5, RouteEvent(T, event(5, 1)))
    assert sent(taken, RouteResult) == [(5, RouteResult(T, 1, 1, True))]
    assert delivered(taken) == [(5, 1)]


def test_outside_the_tree_a_publisher_looks_for_a_member() -> None:
    rig = Rig(1, CONFIG)
    rig.meet(2)
    request = sent(rig.publish(b"x"), FindRequest)[0][1]
    routed = rig.hear(2, FindReply(request.request, True, providers=[contact(2)]))
    assert told(routed, RouteEvent) == [2]
    further = rig.hear(2, RouteResult(T, 1, 1, True))
    assert answers(further) == []  # it may lie: another member is looked for
    request = sent(further, FindRequest)[0][1]
    nobody_else = rig.hear(2, FindReply(request.request, True, providers=[contact(2)]))
    assert answers(nobody_else) == [(9, "delivered")]


def test_where_there_is_no_tree_a_publisher_is_told() -> None:
    rig = Rig(1, CONFIG)
    rig.meet(2)
    request = sent(rig.publish(b"x"), FindRequest)[0][1]
    assert answers(rig.hear(2, FindReply(request.request, True))) == [(9, "no_subscriber")]


def test_links_that_one_end_believes_in_are_settled() -> None:
    rig = child_of(9)
    effects = rig.hear(9, LinkList([Topic("/other")], True))
    assert sent(effects, TreeLeave) == [(9, TreeLeave(Topic("/other")))]
    assert branch_of(rig).parent is None  # 9 does not think that it is the parent


def test_peers_that_route_otherwise_say_so() -> None:
    rig = Rig(1)
    assert sent(rig.hear(2, TreeJoin(T, True, True)), TreeJoinReply) == [
        (2, TreeJoinReply(T, False))
    ]
    assert sent(rig.hear(2, sync()), TreeLeave) == [(2, TreeLeave(T))]
    assert rig.hear(2, TreeLeave(T)) == []


def test_a_member_that_subscribes_again_does_not_get_the_same_events() -> None:
    rig = child_of(9)
    rig.hear(9, Payload(T, event(7, 1), 1))
    rig.do(seam.Unsubscribe(2, T))
    rig.subscribe(token=3)
    assert delivered(rig.hear(9, Payload(T, event(7, 1), 1))) == []
    assert delivered(rig.hear(9, Payload(T, event(7, 2), 1))) == [(7, 2)]


# --- publishing from outside ----------------------------------------------------------------------


def test_a_publisher_from_outside_finds_other_members_by_one_lookup() -> None:
    members = [5, 6, 7, 8]
    rig = Rig(1, Config(routing="pulsarcast"))
    rig.meet(2, 3)
    said = new = rig.publish(b"x")
    checked: list[list[int]] = []
    while new:
        asked, taking, new = sent(new, FindRequest), told(new, RouteEvent), []
        for to, question in asked:
            closer = [Neighbour(contact(number)) for number in members]
            own = [contact(to)] if to in members else []
            effects = rig.hear(to, FindReply(question.request, True, closer, providers=own))
            checked += [told(effects, RouteCheck)] if told(effects, RouteCheck) else []
            new += effects
        for to in taking:
            new += rig.hear(to, RouteResult(T, 1, 1, True))
        said = [*said, *new]
    [first] = told(said, RouteEvent)
    assert [sorted([first, *others]) for others in checked] == [members]


def test_a_stranger_has_a_share_of_long_answers_and_a_link_has_all() -> None:
    rig = child_of(9)
    size = 64 << 10
    rig.hear(9, Payload(T, event(5, 1, bytes(size)), 1))
    asked = 300
    want = Want(T, [Span(contact(5).peer, 1, 1, 1)])
    answered = [told(rig.hear(7, want), Repair) for _ in range(asked)]
    assert answered[0] == [7] and sum(map(len, answered)) * size <= 8 << 20
    assert sum(len(told(rig.hear(9, want), Repair)) for _ in range(asked)) == asked
    offers = [told(rig.hear(7, Offer(T, [], first=True)), Offer) for _ in range(asked)]
    assert offers[0] == [7] and sum(map(len, offers)) < asked // 5
    joins = [sent(rig.hear(7, TreeJoin(T, True, False, True)), TreeJoinReply) for _ in range(asked)]
    told_at_length = [reply for [(_, reply)] in joins if reply.seen]
    assert 0 < len(told_at_length) < asked // 10


# --- sharing --------------------------------------------------------------------------------------

OTHER = Topic("/other")
SHARING = replace(CONFIG, stan=Stan(enabled=True))


def leaf_of_two(parent: int, other: int) -> Rig:
    """A leaf of two trees, below one peer in each."""
    rig = Rig(1, SHARING)
    rig.meet(parent, other)
    rig.do(seam.Subscribe(1, T))
    rig.do(seam.Subscribe(2, OTHER))
    rig.wait(20_000)  # nobody answers, so it is a root of both
    branch_of(rig).take_parent(contact(parent), True)
    branch_of(rig, OTHER).take_parent(contact(other), True)
    return rig


def joins(rig: Rig, beat: int) -> list[tuple[int, TreeJoin]]:
    """What is asked in one more cycle, in which a beat comes down both trees."""
    asked = sent(rig.cycle(), TreeJoin)
    for topic, branch in trees_of(rig).items():
        assert branch.parent is not None
        rig.hear(number_of(branch.parent), TreeFamily(topic, beat, 0, True, [], [], []))
    return asked


def test_a_leaf_asks_a_peer_it_is_linked_to_elsewhere_and_moves_for_a_place_alone() -> None:
    rig = leaf_of_two(5, 6)
    [(to, first)] = joins(rig, beat=1)
    assert (to, first.topic) in ((6, T), (5, OTHER))
    refused = rig.hear(to, TreeJoinReply(first.topic, False, False, [contact(9)]))
    assert sent(refused, TreeJoin) == []  # a stranger in the parent's place would save nothing
    [(to, join)] = joins(rig, beat=2)
    assert join.topic != first.topic  # the same is not asked again at once
    moved = rig.hear(to, TreeJoinReply(join.topic, True, True))
    assert sent(moved, TreeLeave) == [({T: 5, OTHER: 6}[join.topic], TreeLeave(join.topic))]
    linked = {peer for branch in trees_of(rig).values() for peer in branch.links()}
    assert linked == {contact(to).peer}
    assert joins(rig, beat=3) == []  # nothing is left to share


def test_a_member_that_has_children_stays_where_it_is() -> None:
    rig = leaf_of_two(5, 6)
    for topic in (T, OTHER):
        assert sent(rig.hear(7, TreeJoin(topic, True)), TreeJoinReply)[0][1].accepted
    assert joins(rig, beat=1) == []


def test_two_leaves_that_ask_each_other_both_refuse() -> None:
    rig = leaf_of_two(5, 6)
    [(to, join)] = sent(rig.cycle(), TreeJoin)
    answer = sent(rig.hear(to, TreeJoin(join.topic, True)), TreeJoinReply)
    assert [one.accepted for _, one in answer] == [False]
    rig.hear(to, TreeJoinReply(join.topic, False))
    answer = sent(rig.hear(to, TreeJoin(join.topic, True)), TreeJoinReply)
    assert [one.accepted for _, one in answer] == [True]


def test_a_peer_that_answers_too_late_is_told_that_there_is_no_link() -> None:
    rig = leaf_of_two(5, 6)
    [(to, join)] = sent(rig.cycle(), TreeJoin)
    late = rig.wait(1_000)
    assert sent(late, TreeLeave) == [(to, TreeLeave(join.topic))]
    assert sent(rig.hear(to, TreeJoinReply(join.topic, True)), TreeLeave)[0][0] == to


def test_a_leaf_that_loses_its_parent_does_not_wait_for_the_peer_it_asked_to_share() -> None:
    rig = leaf_of_two(5, 6)
    [(_, join)] = sent(rig.cycle(), TreeJoin)
    rig.lose({T: 5, OTHER: 6}[join.topic])
    assert branch_of(rig, join.topic).rendezvous  # it knows nobody else
