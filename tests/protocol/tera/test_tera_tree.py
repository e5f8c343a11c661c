"""The push tree: eager and lazy links, announcements, grafts, and the tree that comes of it."""

from __future__ import annotations

import pytest

from protocol_kit import (
    Group,
    Rig,
    T,
    contact,
    delivered,
    event,
    everything_sent,
    member,
    number_of,
    proven_run,
    sent,
    signer,
    span,
    timers,
    told,
)
from weft.documents.run import NOTHING_BEFORE, Run, sign_run
from weft.ids import PeerId
from weft.protocol import config as c
from weft.protocol import seam
from weft.protocol.membership import JoinRequest
from weft.protocol.recent import IHave, Offer, Repair, Want
from weft.protocol.tera.links import Unlink
from weft.protocol.tera.questions import Overdue, Passed
from weft.protocol.tera.tree import Behind, Graft, Level, Prune, Tree
from weft.protocol.wire import HOPS_MAX, LIST_MAX, Payload


def tree(rig: Rig) -> Tree:
    found = rig.peer.tera.topics[T].tree
    assert found is not None
    return found


def eager(rig: Rig) -> list[int]:
    return sorted(number_of(peer) for peer in tree(rig).eager)


def lazy(rig: Rig) -> list[int]:
    return sorted(number_of(peer) for peer in tree(rig).lazy)


def make_lazy(rig: Rig, *numbers: int) -> None:
    for number in numbers:
        rig.hear(number, Prune(T))


# --- payloads -----------------------------------------------------------------------------------


def test_a_new_link_is_eager() -> None:
    assert eager(member(2, 3)) == [2, 3]


def test_an_event_goes_to_all_eager_links_but_where_it_came_from() -> None:
    rig = member(2, 3, 4)
    first = event(9, 1)
    effects = rig.hear(2, Payload(T, first, 5))
    assert delivered(effects) == [(9, 1)]
    assert everything_sent(effects) == [(3, Payload(T, first, 6)), (4, Payload(T, first, 6))]


def test_an_own_event_goes_to_all_eager_links() -> None:
    rig = member(2, 3)
    effects = rig.publish(b"x")
    assert told(effects, Payload) == [2, 3]
    assert sent(effects, Payload)[0][1].hops == 1
    assert delivered(effects) == [(1, 1)]


def test_hops_never_grow_past_what_the_wire_allows() -> None:
    rig = member(2, 3)
    [(_, passed_on)] = sent(rig.hear(2, Payload(T, event(9, 1), HOPS_MAX)), Payload)
    assert passed_on.hops == HOPS_MAX


def test_a_second_copy_prunes_its_link_on_both_ends() -> None:
    rig = member(2, 3, 4)
    rig.hear(2, Payload(T, event(9, 1), 1))
    effects = rig.hear(3, Payload(T, event(9, 1), 4))
    assert everything_sent(effects) == [(3, Prune(T))]
    assert delivered(effects) == []
    assert (eager(rig), lazy(rig)) == ([2, 4], [3])
    rig.hear(4, Prune(T))
    assert (eager(rig), lazy(rig)) == ([2], [3, 4])


def test_the_link_that_brought_the_first_copy_is_not_given_up() -> None:
    """The other end goes by another event, and would cut this member off."""
    rig = member(2, 3)
    rig.hear(2, Payload(T, event(9, 1), 1))
    assert everything_sent(rig.hear(2, Prune(T))) == [(2, Graft(T, []))]
    assert eager(rig) == [2, 3]


def test_a_member_that_was_fed_over_no_link_keeps_the_link_of_the_next_copy() -> None:
    """Links may be believed in by one end only; that end is told, and sends nothing any more."""
    rig = Rig(1, c.Config(links=c.Links(wanted=2, most=2)))
    rig.subscribe()
    rig.link(2)
    rig.link(3)
    effects = rig.hear(4, Payload(T, event(9, 1), 1))
    assert told(effects, Unlink) == [4]
    assert everything_sent(rig.hear(2, Payload(T, event(9, 1), 1))) == []
    assert told(rig.hear(3, Payload(T, event(9, 1), 1)), Prune) == [3]
    assert told(rig.hear(2, Prune(T)), Graft) == [2]


def test_of_one_publishers_events_one_a_second_shapes_the_tree() -> None:
    """By its own clock, so that all members agree."""
    rig = member(2, 3, 4)
    for number, published_ms in ((1, 1_500), (2, 1_999), (3, 2_000)):
        rig.hear(2, Payload(T, event(9, number, published_ms=published_ms), 1))
    assert sent(rig.hear(3, Payload(T, event(9, 2, published_ms=1_999), 1)), Prune) == []
    late = rig.hear(3, Payload(T, event(9, 1, published_ms=1_500), 1))
    assert sent(late, Prune) == []  # the second after it has begun
    assert told(rig.hear(4, Payload(T, event(9, 3, published_ms=2_000), 1)), Prune) == [4]


def test_a_member_that_cannot_tell_whether_an_event_shapes_the_tree_prunes_nothing() -> None:
    rig = member(2, 3)
    rig.hear(2, Payload(T, event(9, 7, published_ms=7_000), 1))  # nothing is known of the sixth
    again = rig.hear(3, Payload(T, event(9, 7, published_ms=7_000), 1))
    assert sent(again, Prune) == []


def test_the_same_copy_again_from_the_same_peer_prunes_nothing() -> None:
    rig = member(2, 3)
    rig.hear(2, Payload(T, event(9, 1), 1))
    assert everything_sent(rig.hear(2, Payload(T, event(9, 1), 1))) == []
    assert eager(rig) == [2, 3]


def test_no_prune_when_the_first_copy_came_by_repair() -> None:
    rig = member(2, 3)
    rig.hear(7, Repair(T, [event(9, 1)]))
    assert sent(rig.hear(2, Payload(T, event(9, 1), 1)), Prune) == []
    assert eager(rig) == [2, 3]


def test_no_prune_when_the_first_copys_link_is_gone() -> None:
    rig = member(2, 3)
    rig.hear(2, Payload(T, event(9, 1), 1))
    rig.hear(2, Unlink(T))
    assert sent(rig.hear(3, Payload(T, event(9, 1), 1)), Prune) == []
    assert eager(rig) == [3]


def test_a_copy_over_a_lazy_link_is_pruned_again() -> None:
    """The other end has not heard the first time."""
    rig = member(2, 3)
    make_lazy(rig, 3)
    rig.hear(2, Payload(T, event(9, 1), 1))
    assert everything_sent(rig.hear(3, Payload(T, event(9, 1), 1))) == [(3, Prune(T))]


def test_a_new_event_over_a_lazy_link_makes_it_eager() -> None:
    rig = member(2, 3)
    make_lazy(rig, 2)
    rig.hear(2, Payload(T, event(9, 2), 1))
    assert eager(rig) == [3]  # that one was on its way when the link was pruned
    rig.wait(rig.peer.config.dissemination.graft_timeout_ms)
    rig.hear(2, Payload(T, event(9, 3), 1))
    assert eager(rig) == [2, 3]


def test_an_event_that_shapes_the_tree_does_so_at_once() -> None:
    rig = member(2, 3)
    make_lazy(rig, 2)
    assert told(rig.hear(2, Payload(T, event(9, 1), 1)), Graft) == [2]
    assert eager(rig) == [2, 3]


def test_only_one_publisher_shapes_the_tree() -> None:
    """Two in flight at once could each prune another link of a cycle."""
    rig = member(2, 3, 4)
    for publisher in (8, 7, 9):  # the smallest id counts
        rig.hear(2, Payload(T, event(publisher, 1), 1))
    rig.now += rig.peer.config.dissemination.shaper_quiet_ms
    waves = {number: event(number, 2, published_ms=rig.now) for number in (8, 7, 9)}
    for run in waves.values():
        rig.hear(2, Payload(T, run, 1))
    for publisher in (8, 9):
        assert sent(rig.hear(3, Payload(T, waves[publisher], 1)), Prune) == []
    assert told(rig.hear(4, Payload(T, waves[7], 1)), Prune) == [4]


def test_another_publisher_takes_over_when_that_one_is_silent() -> None:
    rig = member(2, 3)
    quiet_ms = rig.peer.config.dissemination.shaper_quiet_ms
    for publisher in (7, 8):
        rig.hear(2, Payload(T, event(publisher, 1), 1))
    rig.now += quiet_ms + 1
    run = event(8, 2, published_ms=rig.now)
    rig.hear(2, Payload(T, run, 1))
    assert told(rig.hear(3, Payload(T, run, 1)), Prune) == [3]


def test_new_names_shape_no_tree_that_stands() -> None:
    """Each of them might be the smallest, and heard of in several places first: the wave would tear
    the tree where they meet."""
    rig = member(2, 3)
    rig.hear(2, Payload(T, event(7, 1), 1))
    rig.now += 60_000
    for number in (1, 2):
        rig.now += rig.peer.config.dissemination.shaper_quiet_ms + 1
        run = event(6, number, published_ms=rig.now)
        rig.hear(2, Payload(T, run, 1))
        assert told(rig.hear(3, Payload(T, run, 1)), Prune) == []


def test_a_repaired_event_is_announced_instead_of_pushed() -> None:
    """Most members have it already, and a push would tear the tree."""
    rig = member(2, 3)
    make_lazy(rig, 3)
    assert told(rig.hear(2, Repair(T, [event(9, 1)])), Payload) == []
    effects = rig.wait(rig.peer.config.dissemination.lazy_delay_ms)
    assert sorted(everything_sent(effects)) == [(n, IHave(T, [span(9, 1, 1)])) for n in (2, 3)]


# --- announcements ------------------------------------------------------------------------------


def test_lazy_links_hear_of_events_as_runs_after_a_while() -> None:
    rig = member(2, 3)
    make_lazy(rig, 3)
    for number in (1, 2, 3, 5):
        effects = rig.hear(2, Payload(T, event(9, number), 1))
        assert sent(effects, IHave) == []
    effects = rig.wait(rig.peer.config.dissemination.lazy_delay_ms)
    assert everything_sent(effects) == [(3, IHave(T, [span(9, 1, 3), span(9, 5, 5)]))]
    assert sent(rig.wait(1_000), IHave) == []


def test_what_was_announced_and_does_not_come_is_asked_for() -> None:
    rig = member(2, 3)
    make_lazy(rig, 3)
    effects = rig.hear(3, IHave(T, [span(9, 1, 2)]))
    timeout = rig.peer.config.dissemination.lazy_delay_ms  # no link has brought it anything yet
    assert [t.after_ms for t in timers(effects, "tree.missing")] == [timeout]
    assert everything_sent(rig.wait(timeout - 1)) == []
    assert everything_sent(rig.wait(1)) == [(3, Graft(T, [span(9, 1, 2)]))]
    assert eager(rig) == [2, 3]


def test_a_member_that_has_had_events_waits_longer_for_what_was_announced() -> None:
    rig = member(2, 3)
    make_lazy(rig, 3)
    rig.hear(2, Payload(T, event(9, 1), 1))
    effects = rig.hear(3, IHave(T, [span(8, 1, 2)]))
    timeout = rig.peer.config.dissemination.graft_timeout_ms
    assert [t.after_ms for t in timers(effects, "tree.missing")] == [timeout]
    assert sent(rig.wait(timeout - 1), Graft) == []


def test_what_came_in_time_is_not_asked_for() -> None:
    rig = member(2, 3)
    make_lazy(rig, 3)
    rig.hear(3, IHave(T, [span(9, 1, 2)]))
    rig.hear(2, Payload(T, event(9, 1), 1))
    rig.hear(7, Repair(T, [event(9, 2)]))
    assert sent(rig.wait(5_000), Graft) == []
    assert lazy(rig) == [3]


def test_what_is_known_is_not_waited_for() -> None:
    rig = member(2, 3)
    rig.hear(2, Payload(T, event(9, 1), 1))
    assert timers(rig.hear(3, IHave(T, [span(9, 1, 1)])), "tree.missing") == []


def test_the_next_announcer_is_asked_after_a_while() -> None:
    rig = member(2, 3, 4)
    make_lazy(rig, 2, 3, 4)
    for announcer in (3, 4, 3, 3):
        rig.hear(announcer, IHave(T, [span(9, 1, 1)]))
    config = rig.peer.config.dissemination
    assert told(rig.wait(config.lazy_delay_ms), Graft) == [3]
    assert everything_sent(rig.wait(config.graft_retry_ms)) == [(4, Want(T, [span(9, 1, 1)]))]
    assert lazy(rig) == [2, 4]  # the first one may only be slow, and a second link close a cycle


def test_one_graft_asks_an_announcer_for_the_events_of_all_publishers() -> None:
    rig = member(2)
    spans = [span(publisher, 1, 50) for publisher in range(10, 18)]
    rig.hear(2, IHave(T, spans))
    asked = sent(rig.wait(rig.peer.config.dissemination.lazy_delay_ms), Graft)
    assert asked == [(2, Graft(T, spans))]


def test_no_more_events_are_asked_for_by_one_graft_than_are_sent_for_it() -> None:
    rig = member(2)
    spans = [span(publisher, 1, LIST_MAX // 2) for publisher in range(10, 13)]
    rig.hear(2, IHave(T, spans[:2]))
    rig.hear(2, IHave(T, spans[2:]))
    asked = sent(rig.wait(rig.peer.config.dissemination.lazy_delay_ms), Graft)
    assert asked == [(2, Graft(T, spans[:2])), (2, Graft(T, spans[2:]))]


def test_a_member_that_announces_what_it_does_not_have_is_given_up_and_not_asked_again() -> None:
    rig = member(2, 3)
    rig.hear(2, IHave(T, [span(publisher, 1, 50) for publisher in range(10, 18)]))
    asked = []
    while 2 in eager(rig) + lazy(rig):
        assert rig.now < 5_000  # well within a cycle
        asked += told(rig.wait(100), Graft)
    assert asked
    assert 2 not in told(rig.wait(60_000), Graft)


# --- bursts: what was announced may be queued on the tree -----------------------------------------


def fed(*links: int) -> Rig:
    """A member that gets the events of publisher 9 over its link to 2, and has a lazy one to 3."""
    rig = member(*(links or (2, 3)))
    make_lazy(rig, 3)
    rig.hear(2, Payload(T, event(9, 1), 1))
    rig.hear(2, Payload(T, event(9, 2), 1))
    return rig


def test_while_the_feed_may_have_it_queued_no_announcer_is_asked() -> None:
    rig = fed()
    rig.hear(3, IHave(T, [span(9, 3, 70)]))
    effects = rig.wait(rig.peer.config.dissemination.graft_timeout_ms)
    assert sent(effects, Overdue) == [(2, Overdue(T, [span(9, 3, 3)]))]
    assert sent(effects, Graft) == []
    for number in range(3, 11):  # the feed goes on, slowly
        asked = rig.wait(400)
        asked += rig.hear(2, Payload(T, event(9, number), 1))
        assert sent(asked, Graft) == []
    assert lazy(rig) == [3]


def test_when_the_feed_has_passed_on_all_it_has_the_announcer_is_asked() -> None:
    rig = fed()
    rig.hear(3, IHave(T, [span(9, 3, 4)]))
    rig.wait(rig.peer.config.dissemination.graft_timeout_ms)
    effects = rig.hear(2, Passed(T, [span(9, 3, 3)]))
    assert everything_sent(effects) == [(3, Graft(T, [span(9, 3, 4)]))]


def test_only_the_feed_can_say_that_it_has_passed_on_all() -> None:
    rig = fed(2, 3, 4)
    rig.hear(3, IHave(T, [span(9, 3, 4)]))
    rig.wait(rig.peer.config.dissemination.graft_timeout_ms)
    assert everything_sent(rig.hear(4, Passed(T, [span(9, 3, 3)]))) == []


def test_a_feed_that_stays_silent_is_not_waited_for() -> None:
    rig = fed()
    rig.hear(3, IHave(T, [span(9, 3, 3)]))
    assert told(rig.wait(10 * rig.peer.config.dissemination.graft_timeout_ms), Graft)[0] == 3


def test_what_a_silent_feed_may_bring_is_fetched_on_the_side_before_a_link_is_grafted() -> None:
    """On a busy machine the other process may only wait for its turn."""
    rig = fed()
    rig.hear(3, IHave(T, [span(9, 3, 4)]))
    timeout = rig.peer.config.dissemination.graft_timeout_ms
    effects = rig.wait(5 * timeout)
    assert sent(effects, Want) == [(3, Want(T, [span(9, 3, 3)]))]
    assert sent(effects, Graft) == []
    rig.hear(3, Repair(T, [event(9, 3)]))
    rig.hear(2, Payload(T, event(9, 3), 1))  # it was slow, and is waited for longer from now on
    assert told(rig.wait(4 * timeout), Overdue) == [2]
    effects = rig.wait(7 * timeout)
    assert sent(effects, Want) + sent(effects, Graft) == []
    assert lazy(rig) == [3]


def test_a_silent_feed_is_doubted_for_all_that_it_should_bring() -> None:
    """Doubted for each publisher anew, one neighbour that fell silent made two events of each
    publisher late."""
    rig = fed()
    rig.hear(2, Payload(T, event(8, 1), 1))
    timeout = rig.peer.config.dissemination.graft_timeout_ms
    rig.hear(3, IHave(T, [span(9, 3, 3)]))
    rig.wait(4 * timeout)
    rig.hear(3, IHave(T, [span(8, 2, 2)]))
    assert sent(rig.wait(timeout + 1), Want) == [
        (3, Want(T, [span(9, 3, 3)])),
        (3, Want(T, [span(8, 2, 2)])),
    ]
    rig.hear(3, Repair(T, [event(9, 3), event(8, 2)]))
    rig.hear(3, IHave(T, [span(8, 3, 3)]))  # now it is not waited for
    assert sent(rig.wait(timeout // 2), Want) == [(3, Want(T, [span(8, 3, 3)]))]
    assert told(rig.wait(4 * timeout), Graft)[:1] == [3]


def test_lies_about_events_that_are_not_published_yet_make_nobody_patient() -> None:
    """Each seemed to come over the tree, late: a member that was lied to waited up to 8 s."""
    rig = fed()
    timeout = rig.peer.config.dissemination.graft_timeout_ms
    for number in range(3, 7):
        rig.hear(3, IHave(T, [span(9, number, number)]))
        assert told(rig.wait(10 * timeout), Graft)[:1] == [3]
        rig.hear(2, Payload(T, event(9, number, published_ms=rig.now), 1))
        make_lazy(rig, 3)


def test_an_announcer_is_asked_for_what_it_announced_alone() -> None:
    """A liar announces what is to come. Once it is given up, nobody else is asked for that."""
    rig = fed(2, 3, 4)
    make_lazy(rig, 4)
    timeout = rig.peer.config.dissemination.graft_timeout_ms
    rig.hear(3, IHave(T, [span(9, 3, 3)]))
    rig.hear(4, IHave(T, [span(9, 3, 50)]))
    rig.hear(2, Payload(T, event(9, 3), 1))
    asked = everything_sent(rig.wait(10 * timeout))
    assert [to for to, message in asked if isinstance(message, Want | Graft)][:1] == [4]
    tree(rig).forget_announcer(contact(4).peer)
    asked = everything_sent(rig.wait(30 * timeout))
    assert [to for to, message in asked if isinstance(message, Want | Graft)] == []


def test_a_feed_that_is_given_up_is_replaced_first() -> None:
    """It may be whole, and the only way to other members."""

    def grafted(given_up: int) -> list[int]:
        rig = fed(2, 3, 4)
        make_lazy(rig, 4)
        tree(rig).part_with(contact(given_up).peer)
        return sorted(told(rig.do(seam.TimerFired(seam.Timer("nothing"))), Graft))

    assert grafted(2) == [3, 4]
    assert grafted(4) == []


def test_what_the_feed_has_passed_over_is_lost_and_asked_for_at_once() -> None:
    rig = fed()
    rig.hear(2, Payload(T, event(9, 4), 1))
    effects = rig.hear(3, IHave(T, [span(9, 1, 4)]))
    assert everything_sent(effects) == [(3, Want(T, [span(9, 3, 3)]))]
    assert lazy(rig) == [3]  # the tree is whole
    later = fed()
    later.hear(3, IHave(T, [span(9, 3, 3)]))
    effects = later.hear(2, Payload(T, event(9, 4), 1))
    assert told(effects, Want) == [3]


def test_a_link_grafted_for_what_the_tree_brings_after_all_is_pruned_again() -> None:
    rig = fed()
    rig.hear(3, IHave(T, [span(9, 3, 3)]))
    rig.wait(rig.peer.config.dissemination.graft_timeout_ms)
    rig.hear(2, Passed(T, [span(9, 3, 3)]))
    assert eager(rig) == [2, 3]
    assert told(rig.hear(2, Payload(T, event(9, 3), 1)), Prune) == [3]
    assert lazy(rig) == [3]


def test_what_may_be_queued_is_not_fetched_by_repair_either() -> None:
    rig = fed()
    offer = Offer(T, [span(9, 1, 70)], first=False)
    assert sent(rig.hear(3, offer), Want) == []
    for number in range(3, 20):  # the feed goes on, slowly
        rig.wait(1_000)
        rig.hear(2, Payload(T, event(9, number), 1))
        assert sent(rig.hear(3, offer), Want) == []
    rig.wait(5_000)  # and no more
    assert sent(rig.hear(3, offer), Want) == [(3, Want(T, [span(9, 20, 70)]))]


def test_a_feed_that_brings_other_events_only_is_not_believed_for_ever() -> None:
    rig = fed()
    offer = Offer(T, [span(9, 3, 3)], first=False)
    asked_ms = 0
    for number in range(1, 40):
        rig.hear(2, Payload(T, event(8, number), 1))
        if sent(rig.hear(3, offer), Want):
            break
        rig.wait(500)
        asked_ms += 500
    assert 5_000 <= asked_ms <= 10_000


def test_a_member_that_is_asked_answers_behind_the_event_or_asks_its_own_feed() -> None:
    rig = member(2, 3)
    rig.hear(2, Payload(T, event(9, 1), 1))
    assert everything_sent(rig.hear(3, Overdue(T, [span(9, 1, 5)]))) == [
        (3, Passed(T, [span(9, 1, 1)]))
    ]
    assert everything_sent(rig.hear(3, Overdue(T, [span(9, 2, 2)]))) == [
        (2, Overdue(T, [span(9, 2, 2)]))
    ]
    assert everything_sent(rig.hear(2, Passed(T, [span(9, 2, 2)]))) == [
        (3, Passed(T, [span(9, 2, 2)]))
    ]


def test_a_member_that_the_events_do_not_reach_says_so() -> None:
    rig = member(2, 3)
    rig.hear(2, Payload(T, event(9, 1), 1))
    rig.hear(3, Overdue(T, [span(9, 2, 2)]))
    assert told(rig.hear(2, Unlink(T)), Passed) == [3]  # the feed is gone


def test_nobody_is_asked_for_ever() -> None:
    rig = member(2)
    rig.hear(2, IHave(T, [span(9, 1, 1)]))
    grafts = []
    while rig.now < 60_000:
        grafts += told(rig.wait(1_000), Graft)
    assert 1 <= len(grafts) <= 8
    assert timers(rig.wait(60_000), "tree.missing") == []


def test_a_graft_brings_the_events_and_pushes_from_then_on() -> None:
    rig = member(2, 3)
    make_lazy(rig, 3)
    for number in (1, 2):
        rig.hear(2, Payload(T, event(9, number), 4))
    effects = rig.hear(3, Graft(T, [span(9, 2, 7)]))
    assert everything_sent(effects) == [(3, Payload(T, event(9, 2), 5))]
    assert eager(rig) == [2, 3]


def test_a_graft_asking_again_and_again_for_one_event_gets_it_once() -> None:
    rig = member(2, 3)
    rig.hear(2, Payload(T, event(9, 1), 4))
    effects = rig.hear(3, Graft(T, [span(9, 1, 1)] * 512))
    assert told(effects, Payload) == [3]


def test_tree_messages_over_no_link_make_one_or_are_refused() -> None:
    rig = member(2)
    rig.hear(3, IHave(T, []))
    assert eager(rig) == [2, 3]
    full = Rig(1, c.Config(links=c.Links(wanted=1, most=1)))
    full.subscribe()
    full.link(2)
    effects = full.hear(3, Graft(T, []))
    assert everything_sent(effects) == [(3, Unlink(T))]


# --- the tree that comes of it ------------------------------------------------------------------


@pytest.fixture
def grown() -> Group:
    """Twelve members whose tree has settled."""
    group = Group(12)
    group.run(2_000)
    group.subscribe_all()
    group.run(60_000)
    for number in (1, 5, 9, 12, 3, 7):
        group.do(number, seam.Publish(1, T, (b"",), 0))
        group.run(3_000)
    return group


@pytest.mark.parametrize("members", [2, 3, 5, 7])
def test_in_a_small_topic_the_first_event_is_sent_once_to_each(members: int) -> None:
    """Before, it went over all links: 16 copies to four others."""
    group = Group(members)
    group.run(2_000)
    group.subscribe_all()
    group.run(60_000)
    for publisher in (members, 1):
        start = group.now
        group.do(publisher, seam.Publish(1, T, (b"",), 0))
        group.run(3_000)
        assert len(list(group.since(start, Payload))) == members - 1
    assert all(len(group.delivered(number)) == 2 for number in group.peers)


def meshed(members: int) -> Group:
    """Members of a topic so small that each is linked to all others; all know its tree."""
    group = Group(members)
    group.run(2_000)
    group.subscribe_all()
    group.run(60_000)
    group.do(members, seam.Publish(1, T, (b"",), 0))
    group.run(3_000)
    return group


@pytest.mark.parametrize("members", [3, 4, 6])
def test_in_a_small_topic_each_publisher_reaches_all_in_one_hop(members: int) -> None:
    """Before, only the first one did: all others went through the centre of its star."""
    group = meshed(members)
    for publisher in (members, 1, 3, members, 2):
        start, before = group.now, {number: len(group.effects[number]) for number in group.peers}
        for _ in range(3):
            group.do(publisher, seam.Publish(1, T, (b"",), 0))
            group.run(50)
        group.run(3_000)
        assert len(list(group.since(start, Payload))) == 3 * (members - 1)
        for number in group.peers:
            effects = group.effects[number][before[number] :]
            hops = [one.hops for one in effects if isinstance(one, seam.Deliver)]
            assert hops == [int(number != publisher)] * 3
        assert list(group.since(start, Graft)) + list(group.since(start, Prune)) == []


def test_publishers_that_take_turns_do_not_wear_the_star_down() -> None:
    """The tree of a small topic stays a star around its first publisher, from any publisher."""
    group = meshed(6)
    for publisher in (1, 3, 5, 2, 4):
        group.do(publisher, seam.Publish(1, T, (b"",), 0))
        group.run(3_000)
    links = {number: len(peer.tera.topics[T].tree.eager) for number, peer in group.peers.items()}  # type: ignore[union-attr]
    assert links == {1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 5}


def test_what_got_lost_of_a_straight_run_is_fetched_on_the_side() -> None:
    group = meshed(6)
    group.do(1, seam.Publish(1, T, (b"",), 0))
    group.run(3_000)
    start, victim = group.now, 3
    group.drop = lambda sender, to, message: isinstance(message, Payload) and to == victim
    group.do(1, seam.Publish(1, T, (b"",), 0))
    group.run(300)
    group.drop = lambda sender, to, message: False
    group.run(2_000)
    assert group.delivered(victim) == group.delivered(2)
    assert list(group.since(start, Graft)) == []
    assert [to for _, to, _ in group.since(start, Repair)] == [victim]


def test_a_straight_run_that_all_members_miss_is_asked_for_when_the_next_one_comes() -> None:
    """The publisher announces nothing to those that it pushes to."""
    group = meshed(6)
    group.do(1, seam.Publish(1, T, (b"",), 0))
    group.run(1_000)
    group.drop = lambda sender, to, message: isinstance(message, Payload)
    group.do(1, seam.Publish(1, T, (b"",), 0))
    group.run(100)
    group.drop = lambda sender, to, message: False
    group.do(1, seam.Publish(1, T, (b"",), 0))
    group.run(200)
    for number in group.peers:
        assert [one for one in group.delivered(number) if one[0] == 1] == [(1, 1), (1, 2), (1, 3)]


def test_a_publisher_that_only_says_that_it_pushes_to_all_does_not_keep_its_run_from_them() -> None:
    group = meshed(6)
    group.drop = lambda sender, to, message: isinstance(message, Payload) and sender == 1 and to > 2
    group.do(1, seam.Publish(1, T, (b"",), 0))
    group.run(2_000)
    assert all((1, 1) in group.delivered(number) for number in group.peers)


def in_small_topic(*links: int) -> Rig:
    """A member that is linked to these, and knows of no others."""
    rig = member(*links)
    for number in links:
        rig.hear(number, JoinRequest(T))
    return rig


def test_a_straight_run_goes_on_to_nobody_and_is_announced_over_all_links() -> None:
    rig = in_small_topic(2, 3, 4)
    rig.hear(2, Payload(T, event(2, 1), 1))
    assert told(rig.wait(300), IHave) == [3, 4]
    effects = rig.hear(3, Payload(T, event(3, 1), 1, reach=3))
    assert told(effects, Payload) == []
    assert delivered(effects) == [(3, 1)]
    assert (eager(rig), lazy(rig)) == ([2], [3, 4])
    assert told(rig.wait(300), IHave) == [2, 3, 4]


def test_a_member_with_more_links_than_the_publisher_passes_its_run_on() -> None:
    """It may be the only one that a newcomer is linked to."""
    rig = in_small_topic(2, 3, 4)
    rig.hear(2, Payload(T, event(2, 1), 1))
    assert told(rig.hear(3, Payload(T, event(3, 1), 1, reach=2)), Payload) == [2]


def test_only_the_publisher_says_how_far_its_run_goes() -> None:
    rig = in_small_topic(2, 3, 4)
    rig.hear(2, Payload(T, event(2, 1), 1))
    assert told(rig.hear(3, Payload(T, event(9, 1), 1, reach=9)), Payload) == [2]


def test_what_a_publisher_says_of_its_reach_counts_in_small_topics_alone() -> None:
    rig = member(2, 3, 4)  # it knows of no others, so it cannot tell how many they are
    rig.hear(2, Payload(T, event(2, 1), 1))
    assert told(rig.hear(3, Payload(T, event(3, 1), 1, reach=9)), Payload) == [2, 4]


def test_a_publisher_that_lacks_a_link_to_a_member_leaves_its_run_to_the_tree() -> None:
    group = meshed(6)
    linked = {number: peer.tera.topics[T].links.linked for number, peer in group.peers.items()}
    group.drop = lambda sender, to, message: {sender, to} == {1, 3}
    group.peers[1].tera.topics[T].links.lose(next(p for p in linked[1] if number_of(p) == 3))
    start = group.now
    group.do(1, seam.Publish(1, T, (b"",), 0))
    group.run(1_000)
    assert sorted(to for _, to, _ in group.since(start, Payload)) == [2, 3, 4, 5, 6]


@pytest.mark.parametrize("members", [9, 11])
def test_a_publisher_without_links_to_all_makes_a_star_with_those_that_it_has(members: int) -> None:
    """The others ask for the event when they hear of it, without delay. Before, it went over all
    links: some 50 copies to eight others."""
    group = Group(members)
    group.run(2_000)
    group.subscribe_all()
    group.run(60_000)
    start = group.now
    group.do(members, seam.Publish(1, T, (b"",), 0))
    group.run(2 * group.peers[1].config.dissemination.lazy_delay_ms + 100)
    assert all(len(group.delivered(number)) == 1 for number in group.peers)
    assert members - 1 <= len(list(group.since(start, Payload))) <= 1.5 * members


def test_in_steady_state_everybody_gets_one_copy(grown: Group) -> None:
    start = grown.now
    for number in range(1, 13):
        grown.do(number, seam.Publish(1, T, (b"",), 0))
        grown.run(1_000)
    copies = len(list(grown.since(start, Payload)))
    assert copies <= 1.05 * 12 * 11
    for number in grown.peers:
        assert len(grown.delivered(number)) == len(set(grown.delivered(number))) == 18


def test_eager_links_are_a_tree_that_both_ends_agree_on(grown: Group) -> None:
    edges = {
        (number, number_of(other))
        for number, peer in grown.peers.items()
        for other in peer.tera.topics[T].tree.eager  # type: ignore[union-attr]
    }
    assert all((other, number) in edges for number, other in edges)
    assert len(edges) == 2 * 11


def test_the_tree_heals_when_a_member_dies(grown: Group) -> None:
    most_needed = max(grown.peers, key=lambda n: len(grown.peers[n].tera.topics[T].tree.eager))  # type: ignore[union-attr]
    grown.kill(most_needed)
    publisher = min(grown.peers)
    grown.do(publisher, seam.Publish(1, T, (b"",), 0))
    grown.run(5_000)
    last = grown.delivered(publisher)[-1]
    assert all(last in grown.delivered(number) for number in grown.peers)


def test_a_lost_payload_is_fetched_from_an_announcer(grown: Group) -> None:
    victim = 6
    grown.drop = lambda sender, to, message: isinstance(message, Payload) and to == victim
    grown.do(1, seam.Publish(1, T, (b"",), 0))
    grown.run(400)
    last = grown.delivered(1)[-1]
    assert last not in grown.delivered(victim)
    grown.drop = lambda sender, to, message: False
    grown.run(20_000)
    assert last in grown.delivered(victim)


# --- members that read the past -------------------------------------------------------------------


def far_behind(rig: Rig, far: bool) -> list[tuple[int, object]]:
    """History says so; returns what that makes the member send."""
    tree(rig).on_far_behind(far)
    return everything_sent(rig.hear(2, Passed(T, [])))  # which says nothing


def stored(publisher: int) -> Run:
    """The first event of a publisher's, of a kind that members keep."""
    peer = contact(publisher).peer
    life = (T, peer, 1, 1, 0, (b"x",), NOTHING_BEFORE)
    return sign_run(signer(publisher), *life, sealed=True).run


def test_a_member_that_reads_the_past_and_passes_nothing_on_is_announced_to() -> None:
    rig = member(2)
    assert far_behind(rig, True) == [(2, Behind(T, True))]
    assert far_behind(rig, True) == []  # it was told
    rig.hear(2, IHave(T, [span(9, 1, 5)]))
    later = rig.wait(2_000)
    assert told(later, Graft) + told(later, Overdue) + told(later, Want) == []  # pages bring them
    assert far_behind(rig, False) == [(2, Behind(T, False))]


def test_a_member_that_others_are_fed_by_keeps_being_fed() -> None:
    rig = member(2, 3)
    assert far_behind(rig, True) == []
    make_lazy(rig, 3)
    assert far_behind(rig, True) == [(2, Behind(T, True))]
    assert everything_sent(rig.hear(3, Graft(T, []))) == [(2, Behind(T, False))]


def test_a_link_that_was_told_to_push_again_says_what_comes_before_that() -> None:
    rig = member(2)
    far_behind(rig, True)
    before = Level(T, [proven_run(9, 7).statement()])
    rig.hear(2, before)  # unasked
    assert delivered(rig.hear(2, Payload(T, event(9, 1), 1))) == [(9, 1)]
    far_behind(rig, False)
    rig.hear(2, before)
    assert delivered(rig.hear(2, Payload(T, event(9, 5), 1))) == []
    assert delivered(rig.hear(2, Payload(T, event(9, 8), 1))) == [(9, 8)]


def test_what_is_stored_is_announced_to_a_member_that_reads_the_past() -> None:
    rig = member(2, 3)
    rig.hear(3, Behind(T, True))
    assert everything_sent(rig.hear(2, Payload(T, stored(8), 1))) == []
    assert everything_sent(rig.wait(100)) == [(3, IHave(T, [span(8, 1, 1)]))]
    plain = rig.hear(2, Payload(T, event(9, 1), 1))
    assert told(plain, Payload) == [3]  # nobody keeps it: it cannot be had later
    [(to, level)] = sent(rig.hear(3, Behind(T, False)), Level)
    assert to == 3 and [number_of(PeerId(one.publisher)) for one in level.seen] == [9, 8]
    assert told(rig.hear(2, Payload(T, stored(7), 1)), Payload) == [3]


def test_a_graft_and_a_new_link_end_it() -> None:
    rig = member(2, 3)
    rig.hear(3, Behind(T, True))
    rig.hear(3, Graft(T, []))
    assert told(rig.hear(2, Payload(T, stored(8), 1)), Payload) == [3]
    rig.hear(3, Behind(T, True))
    rig.hear(3, Unlink(T))
    rig.link(3)
    rig.hear(3, Graft(T, []))
    assert told(rig.hear(2, Payload(T, stored(7), 1)), Payload) == [3]
