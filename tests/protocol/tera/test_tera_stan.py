"""StaN in a peer: walks, what they bring, which peers are kept; and how links follow."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from protocol_kit import Group, Rig, T, contact, event, number_of, sent, told
from weft.ids import Contact, PeerId, Topic
from weft.protocol import config as c
from weft.protocol import seam
from weft.protocol.liveness import Ping
from weft.protocol.membership import Advert, Descriptor, JoinReply, LeaveNotice, OverlayNews
from weft.protocol.seam import Collect
from weft.protocol.tera.access_points import Advertisement
from weft.protocol.tera.links import LinkRelease, LinkRequest, Unlink
from weft.protocol.tera.stan import AdoptMe, Candidate, CollectReply, CollectWalk, InLink
from weft.protocol.wire import Payload
from weft.rules import stan as rules

PLAIN = c.Config(
    stan=c.Stan(
        True, view_size=3, walk_steps=2, overhear=False, sample=False, adopt=False, period_max=1
    )
)
ADOPTING = replace(PLAIN, stan=replace(PLAIN.stan, adopt=True))


def weight(at: int, other: int) -> int:
    return rules.weight(rules.number_of(contact(at).peer), rules.number_of(contact(other).peer))


def ranked(at: int, others: list[int]) -> list[int]:
    return sorted(others, key=lambda other: weight(at, other))


def member(*known: int, config: c.Config = PLAIN) -> Rig:
    """A subscriber that learnt of these members when it joined."""
    rig = Rig(1, config)
    rig.meet(50)
    rig.subscribe()
    rig.hear(50, Advertisement([Advert(T, 1, 9)]))
    descriptors = [Descriptor(contact(number), 0) for number in known]
    rig.hear(known[0], JoinReply(T, True, OverlayNews(1), descriptors))
    return rig


def view(rig: Rig) -> list[int]:
    return [number_of(peer) for peer in rig.peer.tera.topics[T].stan.entries]


def cycle(rig: Rig) -> list[seam.Effect]:
    """A cycle in which member 9, which is linked, gives a sign of life."""
    rig.hear(9, Ping(1, 0))
    return rig.cycle()


def candidates(*numbers: int) -> list[Candidate]:
    return [Candidate(contact(number)) for number in numbers]


# --- one peer -----------------------------------------------------------------------------------


def test_a_walk_goes_to_a_neighbour_and_what_it_brings_is_ranked() -> None:
    rig = member(2, 3, 4)
    assert sorted(view(rig)) == [2, 3, 4]
    [(to, walk)] = sent(rig.do(Collect()), CollectWalk)
    assert to in (2, 3, 4)
    assert (walk.origin, walk.steps, walk.wanted, walk.found) == (contact(1), 2, 3, [])
    rig.hear(to, CollectReply(T, walk.walk, candidates(5, 6, 7, 8)))
    assert view(rig) == ranked(1, [2, 3, 4, 5, 6, 7, 8])[:3]


def test_the_view_never_holds_this_peer_and_never_more_than_wanted() -> None:
    rig = member(2, 3, 4)
    [(to, walk)] = sent(rig.do(Collect()), CollectWalk)
    rig.hear(to, CollectReply(T, walk.walk, candidates(1, 1, 2, 5, 5, 6)))
    assert len(view(rig)) == 3
    assert 1 not in view(rig)


def test_a_walk_is_passed_on_with_those_that_rank_first_at_its_origin() -> None:
    rig = member(2, 3, 4)
    others = [1, 2, 3, 4, 20, 21, 22]
    walk = CollectWalk(T, contact(9), 77, 1, 4, candidates(20, 21, 22))
    [(to, passed)] = sent(rig.hear(20, walk), CollectWalk)
    assert to in (2, 3, 4)
    assert (passed.walk, passed.steps, passed.origin) == (77, 0, contact(9))
    assert [number_of(one.contact) for one in passed.found] == ranked(9, others)[:4]


def test_a_walk_of_many_steps_takes_no_more_than_one_of_this_peer() -> None:
    """Or one message of a stranger would make 64 of others, each with 64 members in it."""
    rig = member(2)
    walk = CollectWalk(T, contact(9), 77, 64, 4, [])
    [(_, passed)] = sent(rig.hear(9, walk), CollectWalk)
    assert passed.steps == PLAIN.stan.walk_steps - 1


def test_the_last_one_answers_the_origin() -> None:
    rig = member(2, 3, 4)
    walk = CollectWalk(T, contact(9), 77, 0, 2, candidates(20))
    [(to, reply)] = sent(rig.hear(20, walk), CollectReply)
    assert (to, reply.walk) == (9, 77)
    assert [number_of(one.contact) for one in reply.found] == ranked(9, [1, 2, 3, 4, 20])[:2]


def test_a_walk_that_ends_where_it_began_is_taken_in_without_a_message() -> None:
    rig = member(2, 3, 4)
    [(_, walk)] = sent(rig.do(Collect()), CollectWalk)
    back = replace_walk(walk, steps=0, found=candidates(5, 6))
    effects = rig.hear(3, back)
    assert sent(effects, CollectReply) == []
    assert view(rig) == ranked(1, [2, 3, 4, 5, 6])[:3]


def replace_walk(walk: CollectWalk, steps: int, found: list[Candidate]) -> CollectWalk:
    return CollectWalk(walk.topic, walk.origin, walk.walk, steps, walk.wanted, found)


def test_walks_that_pass_are_read_only_where_that_is_wanted() -> None:
    walk = CollectWalk(T, contact(9), 77, 1, 4, candidates(20, 21, 22))
    deaf = member(2, 3, 4)
    deaf.hear(2, walk)
    assert sorted(view(deaf)) == [2, 3, 4]
    keen = member(2, 3, 4, config=replace(PLAIN, stan=replace(PLAIN.stan, overhear=True)))
    keen.hear(2, walk)
    assert view(keen) == ranked(1, [2, 3, 4, 9, 20, 21, 22])[:3]


def test_an_answer_to_no_question_changes_nothing() -> None:
    rig = member(2, 3, 4)
    rig.hear(2, CollectReply(T, 1_000_000, candidates(5, 6, 7)))
    assert sorted(view(rig)) == [2, 3, 4]


def test_only_a_peer_itself_can_change_its_address() -> None:
    rig = member(2, 3, 4)
    [(to, walk)] = sent(rig.do(Collect()), CollectWalk)
    lie = Candidate(Contact(contact(2).peer, "/ip4/127.0.0.1/tcp/6666"))
    rig.hear(to, CollectReply(T, walk.walk, [lie]))
    assert rig.peer.tera.topics[T].stan.entries[contact(2).peer].contact == contact(2)


def test_a_member_that_left_is_not_brought_back_by_others() -> None:
    rig = member(2, 3, 4)
    rig.hear(2, LeaveNotice(T))
    [(to, walk)] = sent(rig.do(Collect()), CollectWalk)
    rig.hear(to, CollectReply(T, walk.walk, candidates(2, 5)))
    assert 2 not in view(rig)
    assert 5 in view(rig)


def test_a_silent_neighbour_is_asked_twice_and_dropped() -> None:
    settings = replace(PLAIN.stan, confirm_ms=20_000)
    rig = member(2, 3, 4, config=replace(PLAIN, stan=settings))
    rig.link(9)
    asked: list[int] = []
    for _ in range(40):
        asked += [to for to, walk in sent(cycle(rig), CollectWalk) if walk.steps == 0]
    assert sorted(asked) == [2, 2, 3, 3, 4, 4]
    assert not {2, 3, 4} & set(view(rig))


def test_the_period_grows_while_walks_bring_nothing_and_shrinks_with_news() -> None:
    rig = member(2, 3, 4, config=replace(PLAIN, stan=replace(PLAIN.stan, period_max=4)))
    rig.link(9)
    when: list[int] = []
    for number in range(40):
        for to, walk in sent(cycle(rig), CollectWalk):
            when.append(number)
            news = candidates(*range(100, 160)) if len(when) == 5 else []
            rig.hear(to, CollectReply(T, walk.walk, news))
    pauses = [later - sooner for sooner, later in pairwise(when)]
    assert pauses[1:4] == sorted(pauses[1:4])
    assert pauses[3] == 4
    assert pauses[5] < 4  # sooner again, from the next time on that the topic is due


def test_a_member_that_no_walk_from_afar_passes_asks_to_be_adopted() -> None:
    rig = member(2, 3, 4, config=ADOPTING)
    rig.link(9)
    rig.hear(2, InLink(T, True, True))
    asked: list[list[int]] = []
    for number in range(2 * rules.PATIENCE + 1):
        if number < 2:  # comes straight from its origin, which may not be found either
            rig.hear(2, CollectWalk(T, contact(2), 70 + number, 0, 3, []))
        asked.append(told(cycle(rig), AdoptMe))
    assert asked[0] == []
    assert any(asked)
    assert {number for some in asked for number in some} <= {2, 3, 4, 9}


def test_a_walk_from_afar_tells_that_one_can_be_found() -> None:
    rig = member(2, 3, 4, config=ADOPTING)
    rig.link(9)
    rig.hear(2, InLink(T, True, True))
    for number in range(2 * rules.PATIENCE + 1):
        rig.hear(2, CollectWalk(T, contact(30), 70 + number, 0, 3, []))
        assert told(cycle(rig), AdoptMe) == []


def test_a_member_that_is_taken_in_or_dropped_is_told() -> None:
    rig = member(2, 3, 4, config=ADOPTING)
    [(to, walk)] = sent(rig.do(Collect()), CollectWalk)
    before = view(rig)
    effects = rig.hear(to, CollectReply(T, walk.walk, candidates(5, 6, 7, 8)))
    notices = {number: notice.held for number, notice in sent(effects, InLink)}
    after = view(rig)
    assert notices == {
        **{number: False for number in before if number not in after},
        **{number: True for number in after if number not in before},
    }
    assert notices


def test_a_member_without_in_links_asks_one_after_the_other_the_lightest_first() -> None:
    rig = member(2, 3, 4, config=ADOPTING)
    rig.hear(20, InLink(T, True, True))
    rig.hear(21, InLink(T, True, True))
    assert told(rig.hear(20, InLink(T, False, True)), AdoptMe) == []
    first, second, third = ranked(1, [2, 3, 4])
    assert told(rig.hear(21, InLink(T, False, True)), AdoptMe) == [first]
    assert told(rig.hear(first, InLink(T, False, True)), AdoptMe) == [second]
    assert told(rig.hear(second, InLink(T, False, False)), AdoptMe) == [third]
    assert told(rig.hear(third, InLink(T, False, False)), AdoptMe) == []  # all were asked
    assert told(rig.hear(second, InLink(T, True, True)), AdoptMe) == []


def test_an_adopted_member_asks_nobody_else() -> None:
    rig = member(2, 3, 4, config=ADOPTING)
    rig.hear(20, InLink(T, True, True))
    [asked] = told(rig.hear(20, InLink(T, False, True)), AdoptMe)
    assert told(rig.hear(asked, InLink(T, True, True)), AdoptMe) == []
    assert told(rig.hear(33, InLink(T, False, True)), AdoptMe) == []


def test_a_member_that_cannot_be_found_without_the_asker_refuses() -> None:
    rig = member(2, 3, 4, config=ADOPTING)
    [(to, answer)] = sent(rig.hear(30, AdoptMe(T)), InLink)
    assert (to, answer.held, answer.found) == (30, False, False)
    rig.hear(30, InLink(T, True, True))
    assert not sent(rig.hear(30, AdoptMe(T)), InLink)[0][1].held
    rig.hear(2, InLink(T, True, True))
    notices = dict(sent(rig.hear(30, AdoptMe(T)), InLink))
    assert (notices[30].held, notices[30].found) == (True, True)
    assert 30 in view(rig)


def test_a_member_that_leaves_tells_those_it_held() -> None:
    rig = member(2, 3, 4, config=ADOPTING)
    held = sorted(view(rig))
    effects = rig.do(seam.Unsubscribe(7, T))
    assert sorted(n for n, notice in sent(effects, InLink) if not notice.held) == held


def test_the_adopted_stays_whatever_its_weight_and_the_view_keeps_its_size() -> None:
    rig = member(2, 3, 4)
    rig.hear(2, InLink(T, True, True))  # so this peer can be found itself
    worst = ranked(1, list(range(10, 40)))[-1]
    rig.hear(worst, AdoptMe(T))
    assert worst in view(rig)
    assert len(view(rig)) == 3
    [(to, walk)] = sent(rig.do(Collect()), CollectWalk)
    rig.hear(to, CollectReply(T, walk.walk, candidates(*range(40, 60))))
    assert worst in view(rig)
    rig.hear(ranked(1, list(range(60, 90)))[-1], AdoptMe(T))
    assert len(view(rig)) == 3  # there is room for one only
    assert worst in view(rig)


def test_a_leaning_walk_tells_its_topics_and_prefers_those_that_share_them() -> None:
    lean = replace(PLAIN, stan=replace(PLAIN.stan, lean=True))
    rig = member(2, 3, 4, config=lean)
    rig.subscribe(Topic("/u"), token=2)
    [(to, walk)] = [(n, w) for n, w in sent(rig.do(Collect()), CollectWalk) if w.topic == T]
    assert len(walk.topics) == 2
    sharing = [Candidate(contact(number), 60_000) for number in (30, 31, 32)]
    rig.hear(to, CollectReply(T, walk.walk, [*candidates(*range(40, 60)), *sharing]))
    assert sorted(view(rig)) == [30, 31, 32]


# --- links --------------------------------------------------------------------------------------


def test_links_go_to_the_first_of_the_ranking() -> None:
    config = replace(PLAIN, links=c.Links(wanted=2, most=4))
    rig = Rig(1, config)
    rig.meet(50)
    rig.subscribe()
    rig.hear(50, Advertisement([Advert(T, 1, 9)]))
    known = list(range(2, 9))
    descriptors = [Descriptor(contact(number), 0) for number in known]
    effects = rig.hear(2, JoinReply(T, True, OverlayNews(1), descriptors))
    pair = sorted(known, key=lambda other: min(weight(1, other), weight(other, 1)))
    assert told(effects, LinkRequest) == sorted(pair[:2])


def test_a_link_is_given_up_only_when_neither_end_needs_it() -> None:
    config = replace(PLAIN, links=c.Links(wanted=1, most=4))
    rig = member(2, 3, 4, config=config)
    rig.link(2, 3, 4)
    pair = sorted([2, 3, 4], key=lambda other: min(weight(1, other), weight(other, 1)))
    first, last = pair[0], pair[-1]
    assert sent(rig.hear(first, LinkRelease(T)), Unlink) == []
    assert told(rig.hear(last, LinkRelease(T)), Unlink) == [last]
    assert contact(last).peer not in rig.peer.tera.topics[T].links.linked


def test_a_link_that_carries_events_is_not_given_up() -> None:
    config = replace(PLAIN, links=c.Links(wanted=1, most=4))
    rig = member(2, 3, 4, config=config)
    rig.link(2, 3, 4)
    rig.hear(2, Payload(T, event(9, 1, b"x"), 1))
    tree = rig.peer.tera.topics[T].tree
    assert tree is not None
    for number in list(tree.eager):
        assert sent(rig.hear(number_of(number), LinkRelease(T)), Unlink) == []


def test_a_release_of_no_link_is_answered_so_that_it_ends() -> None:
    rig = member(2, 3, 4)
    assert told(rig.hear(33, LinkRelease(T)), Unlink) == [33]


# --- several members ----------------------------------------------------------------------------


@pytest.mark.parametrize("lean", [False, True])
def test_views_of_two_topics_converge_to_the_same_peers(lean: bool) -> None:
    settings = c.Stan(True, view_size=4, lean=lean, adopt=False)
    group = Group(16, replace(c.Config(), stan=settings))
    group.run(2_000)
    group.subscribe_all()
    group.subscribe_all(Topic("/u"))
    group.run(200_000)
    for number, peer in group.peers.items():
        views = [list(state.stan.entries) for state in peer.tera.topics.values()]
        best = ranked(number, [other for other in group.peers if other != number])[:4]
        assert [sorted(number_of(p) for p in one) for one in views] == [sorted(best)] * 2


def test_with_adoption_everybody_is_held_and_knows_by_whom() -> None:
    group = Group(40, replace(c.Config(), stan=c.Stan(True, view_size=3)))
    group.run(2_000)
    group.subscribe_all()
    group.run(1_000_000)
    ranks = {number: peer.tera.topics[T].stan for number, peer in group.peers.items()}
    assert any(entry.adopted for stan in ranks.values() for entry in stan.entries.values())
    for number, stan in ranks.items():
        holders = [n for n, other in ranks.items() if contact(number).peer in other.entries]
        assert holders
        assert sorted(number_of(peer) for peer in stan.in_links.holders) == holders
        own = [number_of(peer) for peer, entry in stan.entries.items() if not entry.adopted]
        taken = {number_of(peer) for peer in stan.entries} - set(own)
        others = [other for other in group.peers if other != number and other not in taken]
        assert own == ranked(number, others)[: len(own)]


def test_links_of_two_topics_fall_on_the_same_peers_and_hold() -> None:
    group = Group(20, replace(c.Config(), stan=c.Stan(True)))
    group.run(2_000)
    group.subscribe_all()
    group.subscribe_all(Topic("/u"))
    group.run(400_000)
    before = {number: _links(peer) for number, peer in group.peers.items()}
    shared = sum(len(set(one) & set(two)) for one, two in before.values())
    assert shared >= 0.9 * sum(len(one) for one, _ in before.values())
    group.run(300_000)
    assert {number: _links(peer) for number, peer in group.peers.items()} == before


def _links(peer: object) -> tuple[list[PeerId], ...]:
    return tuple(sorted(state.links.linked) for state in peer.tera.topics.values())  # type: ignore[attr-defined]
