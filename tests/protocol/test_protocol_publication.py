"""Publishing where one is not subscribed: every event ends with an answer that is true."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

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
    sent,
    told,
)
from weft.ids import GENERAL, PeerId, Topic
from weft.protocol import config as c
from weft.protocol import seam
from weft.protocol.membership import (
    NO_NEWS,
    Advert,
    Descriptor,
    JoinGift,
    JoinReply,
    JoinRequest,
)
from weft.protocol.publication import RouteCheck, RouteEvent, RouteKnown, RouteResult
from weft.protocol.tera.access_points import (
    Advertisement,
    LookupHit,
    LookupMiss,
    LookupWalk,
)
from weft.protocol.wire import Payload

BELIEVES = c.Config(defence=c.Defence(access=False))
"""One access point is enough."""


def publisher(config: c.Config = BELIEVES) -> Rig:
    """A peer with one neighbour and one known access point, peer 5."""
    rig = Rig(1, config)
    rig.meet(2)
    rig.hear(5, Advertisement([Advert(T, 1, 1)]))
    return rig


def result(number: int, accepted: bool) -> RouteResult:
    return RouteResult(T, 1, number, accepted)


def lookup_number(effects: list[seam.Effect]) -> int:
    return sent(effects, LookupWalk)[0][1].lookup


# --- it works -----------------------------------------------------------------------------------


def test_an_event_goes_to_the_access_point_which_says_it_took_it() -> None:
    rig = publisher()
    effects = rig.publish(b"goal")
    assert everything_sent(effects) == [(5, RouteEvent(T, event(1, 1, b"goal")))]
    assert answers(effects) == []
    [answer] = [e for e in rig.hear(5, result(1, True)) if isinstance(e, seam.Answer)]
    assert answer == seam.Answer(9, "delivered", contact(5), event(1, 1, b"goal"))
    assert rig.peer.publishing.waiting == 0


def test_the_access_point_diffuses_it_and_says_so() -> None:
    rig = Rig(1)
    rig.subscribe()
    rig.link(2, 3)
    effects = rig.hear(7, RouteEvent(T, event(7, 1)))
    assert delivered(effects) == [(7, 1)]
    assert told(effects, Payload) == [2, 3]
    assert sent(effects, RouteResult) == [(7, RouteResult(T, 1, 1, True))]


def test_an_event_routed_twice_is_taken_once_and_confirmed_twice() -> None:
    rig = Rig(1)
    rig.subscribe()
    rig.hear(7, RouteEvent(T, event(7, 1)))
    effects = rig.hear(7, RouteEvent(T, event(7, 1)))
    assert delivered(effects) == []
    assert sent(effects, RouteResult) == [(7, RouteResult(T, 1, 1, True))]


def test_a_subscriber_is_its_own_access_point() -> None:
    rig = Rig(1)
    rig.subscribe()
    effects = rig.publish()
    assert answers(effects) == [(9, "delivered")]
    assert delivered(effects) == [(1, 1)]


def test_a_member_whose_links_do_not_stand_yet_hands_its_event_to_members() -> None:
    """It may leave before the first link does: its receipt says that the event was sent."""
    rig = publisher()
    rig.subscribe()
    rig.hear(5, JoinReply(T, True, NO_NEWS, [Descriptor(contact(6), 0)], []))
    effects = rig.publish()
    assert answers(effects) == [(9, "delivered")]
    assert set(told(effects, RouteEvent)) == {5, 6} and told(effects, Payload) == []
    rig.link(5)
    assert told(rig.publish(), Payload) == [5]
    assert told(rig.publish(), RouteEvent) == []


def test_events_are_numbered_per_topic() -> None:
    rig = publisher()
    other = Topic("/other")
    rig.hear(5, Advertisement([Advert(other, 1, 1)]))
    routed = []
    for topic in (T, other, T):
        routed += [r.run.first for _, r in sent(rig.publish(topic=topic), RouteEvent)]
    assert routed == [1, 1, 2]


# --- access points that lie ---------------------------------------------------------------------


CHECK_MS, SPREAD_MS = 50, 300
"""Questions are gathered for so long; after so long a run has spread."""


def known(taken: list[int], lacking: list[int], member: bool = True) -> RouteKnown:
    return RouteKnown(T, 1, taken, lacking, member)


def with_others(*others: int, config: c.Config | None = None) -> Rig:
    """A publisher whose first run peer 5 took, and that knows these other access points."""
    rig = publisher(config or c.Config())
    rig.publish()
    effects = rig.hear(5, result(1, True))
    for number in others:
        effects = rig.hear(2, LookupHit(lookup_number(effects), contact(number)))
    if len(others) < 3:
        rig.hear(2, LookupMiss(lookup_number(effects)))
    return rig


def test_another_access_point_is_asked_whether_the_event_came_to_it() -> None:
    rig = publisher(c.Config())
    rig.publish()
    effects = rig.hear(5, result(1, True))
    assert answers(effects) == []  # it may say so and drop it
    [(_, walk)] = sent(effects, LookupWalk)
    assert walk.avoid == [contact(5).peer]
    effects = rig.hear(2, LookupHit(walk.lookup, contact(6)))
    assert sent(effects, RouteCheck) == [(6, RouteCheck(T, 1, [1]))]
    assert told(effects, RouteEvent) == []  # no payload crosses twice
    assert answers(rig.hear(6, known([1], []))) == [(9, "delivered")]
    assert rig.peer.publishing.waiting == 0


def test_one_that_lacks_it_after_it_should_have_spread_gets_it() -> None:
    rig = with_others(6)
    rig.wait(CHECK_MS)
    assert told(rig.hear(6, known([], [1])), RouteEvent) == []  # it may be on its way
    assert told(rig.wait(SPREAD_MS), RouteCheck) == [6]
    effects = rig.hear(6, known([], [1]))
    assert sent(effects, RouteEvent) == [(6, RouteEvent(T, event(1, 1)))]
    assert answers(rig.hear(6, result(1, True))) == [(9, "delivered")]
    assert told(rig.hear(6, known([], [1])), RouteEvent) == []  # once is enough


def test_those_that_lack_it_get_it_one_at_a_time() -> None:
    """One that enters at several places at once comes from several sides and tears the tree."""
    rig = with_others(6, 7)
    rig.wait(CHECK_MS + SPREAD_MS)
    assert told(rig.hear(6, known([], [1])), RouteEvent) == [6]
    assert told(rig.hear(7, known([], [1])), RouteEvent) == []
    assert told(rig.wait(SPREAD_MS), RouteCheck) == [7]
    assert told(rig.hear(7, known([], [1])), RouteEvent) == [7]  # 6 does not spread it, either


def test_later_events_go_to_the_one_that_spread_what_the_first_one_kept() -> None:
    rig = with_others(6, 7)
    rig.wait(CHECK_MS)
    for peer in (6, 7):
        rig.hear(peer, known([], [1]))
    rig.wait(SPREAD_MS)
    rig.hear(6, known([], [1]))
    rig.hear(7, known([], [1]))
    assert told(rig.publish(), RouteEvent) == [5]  # 6 may not spread it, either
    rig.hear(6, result(1, True))
    rig.hear(7, known([1], [2]))
    assert told(rig.publish(), RouteEvent) == [6]


def test_a_run_that_may_be_queued_behind_others_is_waited_for() -> None:
    rig = with_others(6)
    for number in (2, 3):
        rig.publish()
        rig.hear(5, result(number, True))
    rig.wait(CHECK_MS)
    rig.hear(6, known([], [1, 2, 3]))
    rig.wait(SPREAD_MS)
    assert told(rig.hear(6, known([1], [2, 3])), RouteEvent) == []  # they come, one by one
    rig.wait(SPREAD_MS)
    effects = rig.hear(6, known([3], [2]))  # a hole
    assert [message.run.first for _, message in sent(effects, RouteEvent)] == [2]


def test_one_that_is_no_member_is_replaced() -> None:
    rig = with_others(6, 7, 8)
    rig.wait(CHECK_MS)
    effects = rig.hear(6, known([], [], member=False))
    assert sent(effects, LookupWalk)
    rig.publish()
    rig.hear(5, result(2, True))
    assert told(rig.wait(CHECK_MS), RouteCheck) == [7, 8]


def test_where_there_is_no_other_one_is_enough() -> None:
    rig = publisher(c.Config())
    rig.publish()
    number = lookup_number(rig.hear(5, result(1, True)))
    assert answers(rig.hear(2, LookupMiss(number))) == [(9, "delivered")]
    rig.publish()
    effects = rig.hear(5, result(2, True))
    assert answers(effects) == [(9, "delivered")]
    assert sent(effects, LookupWalk) == []  # nobody was found just now


def test_all_that_are_known_are_asked_about_later_events() -> None:
    rig = with_others(6, 7, 8)
    rig.wait(CHECK_MS)
    assert told(rig.publish(), RouteEvent) == [5]
    rig.hear(5, result(2, True))
    effects = rig.wait(CHECK_MS)
    checks = [(to, message.numbers) for to, message in sent(effects, RouteCheck)]
    assert checks == [(6, [2]), (7, [2]), (8, [2])]
    assert told(effects, RouteEvent) == []


def test_others_are_asked_later_and_again() -> None:
    rig = with_others()
    asked = []
    for other in (10, 11):
        [(_, walk)] = sent(rig.wait(5_000), LookupWalk)
        assert contact(5).peer in walk.avoid
        effects = rig.hear(2, LookupHit(walk.lookup, contact(other)))
        asked += told(effects, RouteCheck)
        rig.hear(other, known([1], []))
        rig.hear(2, LookupMiss(lookup_number(effects)))
    assert asked == [10, 11]
    assert lookups_s(rig) == []  # that was enough


def lookups_s(rig: Rig, until_s: int = 300) -> list[int]:
    """When others are looked for from now on; none is found."""
    asked_s = []
    for second in range(1, until_s + 1):
        rig.meet(2)
        for _, walk in sent(rig.wait(1_000), LookupWalk):
            asked_s.append(second)
            rig.hear(2, LookupMiss(walk.lookup))
    return asked_s


@pytest.mark.parametrize("second", [True, False])
def test_after_losses_others_are_asked_for_some_minutes_more(second: bool) -> None:
    """Those that took the event may have been liars, or all that a cut had left to ask."""
    rig = with_others(*([10] if second else []))
    if second:
        rig.hear(10, known([1], []))
    rig.lose(77)
    assert lookups_s(rig) == [5, 10, 40, 100, 220]


def test_others_are_asked_for_some_minutes_more_if_no_second_one_has_it() -> None:
    """A liar was all that a cut left to ask, and no peer counted as lost yet."""
    rig = with_others()
    assert lookups_s(rig) == [5, 10, 40, 100, 220]


def test_others_are_asked_for_as_long_as_members_hold_events() -> None:
    """Campaign seed 271167848396259: a cut of eleven minutes left a liar and a member that crashed
    during it, so that members beyond the cut never got the event."""
    spread = replace(c.Config().dissemination, recent_ms=900_000)
    rig = with_others(config=replace(c.Config(), dissemination=spread))
    rounds = lookups_s(rig, 1_500)
    assert rounds == [5, 10, 40, 100, 220, 460, 700]


def round_of(rig: Rig, found: Iterator[int]) -> tuple[list[int], list[list[PeerId]]]:
    """Those that are asked, and say that they have the first run, in the next five seconds; and the
    peers that each lookup passes by. A lookup finds the next of these, if there is one."""
    asked, passed_by = [], []
    effects = rig.wait(5_000)
    while effects:
        answered: list[seam.Effect] = []
        for to, check in sent(effects, RouteCheck):
            asked.append(to)
            answered += rig.hear(to, known(check.numbers, []))
        for _, walk in sent(effects, LookupWalk):
            passed_by.append([*walk.avoid, *walk.avoid_too])
            one = next(found, None)
            hit = LookupHit(walk.lookup, contact(one)) if one is not None else None
            answered += rig.hear(2, hit or LookupMiss(walk.lookup))
        effects = answered
    return asked, passed_by


def test_in_a_small_topic_all_are_asked() -> None:
    """Campaign seed 169304113498289: of thirteen that said they were in a topic eleven lied, and
    were all that a publisher asked."""
    rig = with_others(6, 7, 8)
    for number in (6, 7, 8):
        rig.hear(number, known([1], []))
    members = iter(range(9, 19))
    assert round_of(rig, members)[0] == [9, 10, 11]
    asked, passed_by = round_of(rig, members)
    assert asked == [12, 13, 14, 15, 16, 17, 18]
    assert set(passed_by[-1]) == {contact(number).peer for number in range(5, 19)}
    assert round_of(rig, members) == ([], [])  # nobody else was found
    assert lookups_s(rig) == []


def test_in_a_large_topic_twenty_are_asked() -> None:
    rig = with_others(6, 7, 8)
    for number in (6, 7, 8):
        rig.hear(number, known([1], []))
    members = iter(range(9, 200))
    assert round_of(rig, members)[0] == [9, 10, 11]
    assert len(round_of(rig, members)[0]) == 24 - 6
    assert round_of(rig, members) == ([], [])


def test_all_that_are_known_are_asked_about_an_event_that_only_the_first_few_were() -> None:
    rig = with_others(6, 7, 8)
    members = iter(range(9, 15))
    for number in (6, 7, 8):
        rig.hear(number, known([1], []))
    for _ in range(4):
        round_of(rig, members)
    rig.publish()
    rig.hear(5, result(2, True))
    assert told(rig.wait(CHECK_MS), RouteCheck) == [12, 13, 14]
    for number in (12, 13, 14):
        rig.hear(number, known([2], []))
    assert round_of(rig, members)[0] == []
    assert sorted(round_of(rig, members)[0]) == [6, 7, 8, 9, 10, 11]


def test_one_that_is_gone_is_asked_no_more() -> None:
    rig = with_others(6, 7, 8)
    rig.hear(6, known([1], []))
    rig.lose(7)
    assert told(rig.wait(10_000), RouteCheck) == [8, 8]


def test_what_one_peer_says_twice_counts_once() -> None:
    rig = with_others()
    rig.hear(5, known([1], []))
    rig.hear(5, result(1, True))
    rig.hear(66, result(1, True))  # nobody asked this one
    assert lookups_s(rig) == [5, 10, 40, 100, 220]


def test_one_that_lacked_it_and_took_it_is_a_second_one() -> None:
    rig = with_others(6)
    rig.wait(SPREAD_MS)
    assert told(rig.hear(6, known([], [1])), RouteEvent) == [6]
    rig.hear(6, result(1, True))
    assert lookups_s(rig) == [5, 10]


def test_one_that_lacks_it_does_not_give_way_to_one_that_is_found() -> None:
    rig = with_others(6, 7, 8)
    for number in (6, 7, 8):
        rig.hear(number, known([1], []))
    assert lookups_s(rig) == [5, 10]
    rig.publish()
    number = lookup_number(rig.hear(5, result(2, True)))
    assert told(rig.wait(CHECK_MS), RouteCheck) == [6, 7, 8]
    rig.hear(6, known([], [2]))  # it may be on its way
    rig.hear(2, LookupHit(number, contact(9)))
    assert 6 in told(rig.wait(SPREAD_MS), RouteCheck)
    assert told(rig.hear(6, known([], [2])), RouteEvent) == [6]


def test_a_lost_answer_is_asked_for_again() -> None:
    """Campaign seed 51003: two liars had said that they have the event, and the answers of members
    that lacked it were lost."""
    rig = with_others(6, 7, 8)
    for number in (6, 7):
        rig.hear(number, known([1], []))
    effects = rig.wait(5_000)
    assert sent(effects, RouteCheck) == [(8, RouteCheck(T, 1, [1]))]
    effects = rig.hear(8, known([], [1]))
    assert told(effects, RouteEvent) == [8]
    assert (8, RouteCheck(T, 1, [1])) in sent(rig.wait(5_000), RouteCheck)  # what it was sent, too
    assert told(rig.hear(8, known([], [1])), RouteEvent) == [8]
    rig.hear(8, known([1], []))
    assert told(rig.wait(60_000), RouteCheck) == []


def test_a_round_without_any_answer_does_not_count() -> None:
    """Walks died, or went to liars that answer nothing: those that have spoken may all lie."""
    rig = with_others(6)
    rig.hear(6, known([1], []))
    asked_s = []
    for second in range(1, 301):
        rig.meet(2)
        walks = [walk for _, walk in sent(rig.wait(1_000), LookupWalk) if not walk.attempt]
        asked_s += [second] * len(walks)
    assert asked_s == [5, 25, 60, 120, 240]  # the first round's walks go on until the fourth


def test_one_that_lacked_it_and_never_said_that_it_has_it_leaves_doubt() -> None:
    rig = with_others(6, 7, 8)
    for number in (6, 7):
        rig.hear(number, known([1], []))
    rig.wait(SPREAD_MS)
    assert told(rig.hear(8, known([], [1])), RouteEvent) == [8]
    assert len(lookups_s(rig)) == 5


def test_a_member_says_what_has_come_to_it() -> None:
    rig = Rig(1)
    rig.subscribe()
    rig.hear(7, RouteEvent(T, event(7, 1)))
    assert sent(rig.hear(7, RouteCheck(T, 1, [1, 2])), RouteKnown) == [(7, known([1], [2]))]


def test_a_peer_that_is_no_member_says_so() -> None:
    rig = publisher()
    assert sent(rig.hear(7, RouteCheck(T, 1, [1])), RouteKnown) == [(7, known([], [], False))]


# --- many on their way --------------------------------------------------------------------------


def test_a_caller_that_goes_on_is_told_at_once_and_again() -> None:
    rig = publisher()
    assert not rig.peer.publishing.streams(T)
    rig.publish()
    rig.hear(5, result(1, True))
    assert rig.peer.publishing.streams(T)
    effects = rig.do(seam.Publish(10, T, (b"",), 0, goes_on=True))
    assert told(effects, RouteEvent) == [5]
    assert answers(effects) == [(10, "queued")]
    assert answers(rig.hear(5, result(2, True))) == [(10, "delivered")]


def test_runs_behind_one_that_failed_go_with_it_in_their_order() -> None:
    rig = publisher()
    for token in (1, 2, 3):
        rig.publish(token=token)
    effects = rig.hear(5, result(1, False))
    assert not rig.peer.publishing.streams(T)
    effects += rig.publish(token=4)
    [(_, walk)] = sent(effects, LookupWalk)
    effects = rig.hear(2, LookupHit(walk.lookup, contact(6)))
    assert told(effects, RouteEvent) == [6] * 4
    assert [message.run.first for _, message in sent(effects, RouteEvent)] == [1, 2, 3, 4]


# --- the access point is stale ------------------------------------------------------------------


def test_a_refusal_leads_to_another_access_point() -> None:
    rig = publisher()
    rig.publish()
    effects = rig.hear(5, result(1, False))
    [(to, walk)] = sent(effects, LookupWalk)
    assert (to, walk.avoid) == (2, [contact(5).peer])
    assert rig.peer.tera.table.find(T) is None
    effects = rig.hear(2, LookupHit(walk.lookup, contact(6)))
    assert told(effects, RouteEvent) == [6]
    assert answers(rig.hear(6, result(1, True))) == [(9, "delivered")]


def test_silence_leads_to_another_access_point() -> None:
    rig = publisher()
    rig.publish()
    rig.hear(2, JoinRequest(GENERAL))
    assert told(rig.wait(4_999), LookupWalk) == []
    assert told(rig.wait(1), LookupWalk) == [2]


def test_a_broken_connection_leads_to_another_access_point() -> None:
    rig = publisher()
    rig.publish()
    assert told(rig.lose(5), LookupWalk) == [2]


def test_a_late_yes_still_counts() -> None:
    rig = publisher()
    rig.publish()
    rig.lose(5)
    assert answers(rig.hear(5, result(1, True))) == [(9, "delivered")]
    assert rig.peer.publishing.waiting == 0


def test_the_refusal_of_somebody_else_is_ignored() -> None:
    rig = publisher()
    rig.publish()
    assert rig.hear(6, result(1, False)) == []
    assert rig.hear(5, RouteResult(T, 2, 1, False)) == []  # of another life
    assert rig.hear(5, result(2, True)) == []


def test_after_several_stale_ones_it_waits_and_tries_again_until_its_time_is_up() -> None:
    rig = publisher()
    effects = rig.publish()
    tried = []
    for number in range(10, 30):
        routed = told(effects, RouteEvent)
        if not routed:
            break
        tried += routed
        effects = rig.hear(tried[-1], result(1, False))
        if sent(effects, LookupWalk):
            effects = rig.hear(2, LookupHit(lookup_number(effects), contact(number)))
    assert len(tried) == rig.peer.config.tera.route_attempts
    assert answers(effects) == [(9, "queued")]
    effects = rig.wait(500)
    effects = rig.hear(2, LookupHit(lookup_number(effects), contact(40)))
    assert told(effects, RouteEvent) == [40]
    effects = rig.hear(40, result(1, False))
    outcomes: list[tuple[int, str]] = []
    while not outcomes:
        assert rig.now <= rig.peer.config.tera.pending_ms_max + 10_000
        for _, walk in sent(effects, LookupWalk):
            rig.hear(2, LookupHit(walk.lookup, contact(41)))
            rig.lose(41)
        effects = rig.wait(100)
        outcomes = answers(effects)
    assert outcomes == [(9, "dropped")]
    assert rig.now >= rig.peer.config.tera.pending_ms_max
    assert rig.peer.publishing.waiting == 0


def test_what_all_refuse_is_given_up() -> None:
    rig = publisher()
    effects = rig.publish()
    tried = 0
    while not any(outcome == "dropped" for _, outcome in answers(effects)):
        if sent(effects, LookupWalk):
            effects = rig.hear(2, LookupHit(lookup_number(effects), contact(10 + tried)))
        elif told(effects, RouteEvent):
            tried += 1
            effects = rig.hear(told(effects, RouteEvent)[0], result(1, False))
        else:
            effects = rig.wait(100)
    assert tried == 16
    assert rig.now < 10_000


def refused_once() -> tuple[Rig, list[seam.Effect]]:
    """The only member of the topic refuses an event with a reason, and is found again later."""
    rig = publisher()
    rig.publish()
    effects = rig.hear(5, RouteResult(T, 1, 1, False, "not allowed"))
    assert answers(rig.hear(2, LookupMiss(lookup_number(effects)))) == []  # not even "queued"
    effects = rig.wait(500)
    effects = rig.hear(2, LookupHit(lookup_number(effects), contact(5)))
    assert told(effects, RouteEvent) == [5]
    return rig, effects


def test_a_refusal_by_all_members_is_told_soon_and_with_its_reason() -> None:
    rig, _ = refused_once()
    effects = rig.hear(5, RouteResult(T, 1, 1, False, "not allowed"))
    effects = rig.hear(2, LookupMiss(lookup_number(effects)))
    [answer] = [effect for effect in effects if isinstance(effect, seam.Answer)]
    assert (answer.outcome, answer.reason) == ("refused", "not allowed")
    assert rig.peer.publishing.waiting == 0 and rig.now < 1_000


def test_news_that_it_may_publish_can_be_on_its_way_to_the_members() -> None:
    rig, _ = refused_once()
    assert answers(rig.hear(5, result(1, True))) == [(9, "delivered")]


# --- nobody is there ----------------------------------------------------------------------------


def test_no_subscriber_is_said_so() -> None:
    rig = Rig(1)
    rig.meet(2)
    effects = rig.publish()
    assert answers(rig.hear(2, LookupMiss(lookup_number(effects)))) == [(9, "no_subscriber")]


def test_one_lookup_serves_all_events_that_wait_for_it() -> None:
    rig = Rig(1)
    rig.meet(2)
    number = lookup_number(rig.publish(token=1))
    assert everything_sent(rig.publish(token=2)) == []
    assert told(rig.hear(2, LookupHit(number, contact(6))), RouteEvent) == [6, 6]


def test_an_access_point_that_failed_once_is_found_again_later() -> None:
    """The only subscriber was out of reach for a moment."""
    rig = publisher()
    rig.publish(token=1)
    [(_, walk)] = sent(rig.lose(5), LookupWalk)
    assert walk.avoid == [contact(5).peer]
    [(_, walk)] = sent(rig.hear(2, LookupMiss(walk.lookup)), LookupWalk)
    assert walk.avoid == []
    assert told(rig.hear(2, LookupHit(walk.lookup, contact(5))), RouteEvent) == [5]
    assert answers(rig.hear(5, result(1, True))) == [(1, "delivered")]


def test_one_that_was_passed_over_and_took_another_run_meanwhile_is_a_subscriber() -> None:
    """Slow under a burst: nobody else was found, and that is not nobody at all."""
    rig = publisher()
    for token in (1, 2):
        rig.publish(token=token)
    [(_, walk)] = sent(rig.lose(5), LookupWalk)
    assert answers(rig.hear(5, result(1, True))) == [(1, "delivered")]
    effects = rig.hear(2, LookupMiss(walk.lookup))
    assert answers(effects) == []
    [(_, walk)] = sent(effects, LookupWalk)
    assert walk.avoid == []
    assert told(rig.hear(2, LookupHit(walk.lookup, contact(5))), RouteEvent) == [5]


def test_nobody_else_and_not_that_one_either_is_no_subscriber() -> None:
    rig = publisher()
    rig.publish(token=1)
    effects = rig.lose(5)
    for _ in range(2):
        effects = rig.hear(2, LookupMiss(lookup_number(effects)))
    assert answers(effects) == [(1, "no_subscriber")]


def test_a_lookup_whose_walks_died_is_no_answer() -> None:
    rig = Rig(1)
    rig.meet(2, 3)
    effects = rig.publish(token=1)
    assert sorted(told(effects, LookupWalk)) == [2, 3]
    rig.lose(3)
    effects = rig.lose(2)
    assert answers(effects) == [(1, "queued")]
    effects = rig.hear(4, JoinRequest(GENERAL))  # a neighbour again
    assert told(effects, LookupWalk) == [4]
    assert answers(rig.hear(4, LookupMiss(lookup_number(effects)))) == [(1, "no_subscriber")]


def test_a_lookup_hears_of_lost_peers_at_once() -> None:
    rig = Rig(1, c.Config(tera=c.Tera(walks=1)))
    rig.meet(2, 3)
    effects = rig.publish(token=1)
    [first] = told(effects, LookupWalk)
    assert told(rig.lose(first), LookupWalk) == [5 - first]


def test_an_access_point_in_doubt_is_replaced_before_it_is_lost() -> None:
    rig = Rig(1, pings=True)
    rig.meet(2)
    number = lookup_number(rig.publish())
    assert told(rig.hear(2, LookupHit(number, contact(5))), RouteEvent) == [5]
    assert told(rig.wait(3_000), LookupWalk) == [2]


# --- without a network --------------------------------------------------------------------------


def test_an_isolated_peer_queues_and_sends_once_it_has_a_neighbour() -> None:
    rig = Rig(1, BELIEVES)
    assert answers(rig.publish(token=1)) == [(1, "queued")]
    effects = rig.hear(2, JoinRequest(GENERAL))
    number = lookup_number(effects)
    effects = rig.hear(2, LookupHit(number, contact(5)))
    assert told(effects, RouteEvent) == [5]
    assert answers(rig.hear(5, result(1, True))) == [(1, "delivered")]


def test_being_alone_for_long_does_not_look_like_having_neighbours() -> None:
    """Looking up peers of earlier days, unanswered, is not knowing anybody."""
    rig = Rig(1, join=(2,))
    rig.publish(token=1)
    rig.wait(60_000)
    assert rig.peer.isolated
    assert answers(rig.publish(token=2)) == [(2, "queued")]
    effects = rig.hear(2, JoinGift(GENERAL, Descriptor(contact(3), 0)))
    assert told(effects, LookupWalk) == [3]


def test_a_last_neighbour_that_fell_silent_is_one_no_more() -> None:
    rig = Rig(1)
    rig.meet(2)
    rig.cycle()
    assert not rig.peer.isolated
    rig.cycle()
    assert rig.peer.isolated
    assert answers(rig.publish(token=1)) == [(1, "queued")]


def test_what_waited_too_long_is_dropped() -> None:
    rig = Rig(1)
    rig.publish(token=1)
    effects = rig.wait(rig.peer.config.tera.pending_ms_max - 1)
    assert answers(effects) == []
    effects = rig.wait(2 * rig.peer.config.cyclon.cycle_ms)
    assert answers(effects) == [(1, "dropped")]
    assert rig.peer.publishing.waiting == 0


def test_a_full_queue_refuses_at_once() -> None:
    rig = Rig(1, c.Config(tera=c.Tera(pending_max=2)))
    outcomes = [answers(rig.publish(token=token)) for token in (1, 2, 3)]
    assert outcomes == [[(1, "queued")], [(2, "queued")], [(3, "dropped")]]
    assert rig.peer.counters["publishes_refused"] == 1


# --- end to end ---------------------------------------------------------------------------------


def test_events_of_a_stranger_reach_all_subscribers() -> None:
    group = Group(10)
    group.run(2_000)
    for number in range(2, 11):
        group.do(number, seam.Subscribe(1, T))
    group.run(60_000)
    for token in range(5):
        group.do(1, seam.Publish(100 + token, T, (b"",), 0))
        group.run(2_000)
    finals = [a for a in answers(group.effects[1]) if a[0] >= 100]
    assert finals == [(100 + token, "delivered") for token in range(5)]
    for number in range(2, 11):
        assert sorted(group.delivered(number)) == [(1, n) for n in range(1, 6)]


def test_a_gateway_of_a_thousand_topics_finds_each_of_them_once() -> None:
    """The access points of all of them are remembered, not those of the latest ones alone."""
    topics = [Topic(f"/sensors/{number}") for number in range(1_000)]
    rig = Rig(1, BELIEVES)
    rig.meet(2)
    for topic in topics:
        found = rig.publish(topic=topic)
        taken = rig.hear(2, LookupHit(lookup_number(found), contact(5)))
        assert told(taken, RouteEvent) == [5]
        rig.hear(5, RouteResult(topic, 1, 1, True))
    for topic in topics:
        assert told(rig.publish(topic=topic), LookupWalk) == []
