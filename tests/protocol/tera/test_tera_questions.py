"""Questions along the push tree: whether an event that was announced still comes."""

from __future__ import annotations

from protocol_kit import Rig, T, event, everything_sent, member, sent, span, told
from weft.protocol.config import Config
from weft.protocol.defence import Config as Defence
from weft.protocol.recent import IHave, Repair, Want
from weft.protocol.tera.questions import Overdue, Passed
from weft.protocol.tera.tree import Graft, Prune
from weft.protocol.wire import Payload

ASKED = [span(9, 2, 2)]
PATIENCE_MS = Config().dissemination.graft_timeout_ms


def fed(*links: int, me: int = 1) -> Rig:
    """A member that gets the events of publisher 9 over its link to 2; the one to 8 is lazy."""
    rig = Rig(me)
    rig.subscribe(T)
    rig.link(2, *links, 8)
    rig.hear(8, Prune(T))
    rig.hear(2, Payload(T, event(9, 1), 1))
    return rig


def waiting(*links: int, me: int = 1) -> Rig:
    """The next event was announced by 8, and the feed asked about it."""
    rig = fed(*links, me=me)
    rig.hear(8, IHave(T, ASKED))
    assert sent(rig.wait(PATIENCE_MS), Overdue) == [(2, Overdue(T, ASKED))]
    return rig


def test_a_member_whose_feed_asks_it_asks_its_other_links() -> None:
    """A link that was pruned elsewhere has turned the way of the events around."""
    rig = fed(3, 4)
    assert everything_sent(rig.hear(2, Overdue(T, ASKED))) == [
        (3, Overdue(T, ASKED)),
        (4, Overdue(T, ASKED)),
    ]
    assert everything_sent(rig.hear(3, Payload(T, event(9, 2), 1)))[0][0] == 2  # here it is
    assert everything_sent(rig.hear(4, Passed(T, ASKED))) == []


def test_a_member_that_lacks_the_event_asks_back_before_it_says_that_nothing_comes() -> None:
    leaf = member(2)
    leaf.hear(2, Payload(T, event(9, 1), 1))
    answer = [(2, Overdue(T, ASKED)), (2, Passed(T, ASKED))]
    assert everything_sent(leaf.hear(2, Overdue(T, ASKED))) == answer
    rig = fed(3, 4)
    rig.hear(2, Overdue(T, ASKED))
    for link in (3, 4):
        rig.hear(link, Overdue(T, ASKED))
        assert told(rig.hear(link, Passed(T, ASKED)), Passed) == ([2] if link == 4 else [])


def test_no_announcer_is_asked_before_all_links_have_answered_that_lack_it() -> None:
    rig = waiting(3, 4)
    assert told(rig.hear(2, Overdue(T, ASKED)), Overdue) == [3, 4]
    assert sent(rig.hear(2, Passed(T, ASKED)), Graft) == []
    rig.hear(3, Overdue(T, ASKED))
    assert sent(rig.hear(3, Passed(T, ASKED)), Graft) == []
    rig.hear(4, Overdue(T, ASKED))
    assert told(rig.hear(4, Passed(T, ASKED)), Graft) == [8]


def test_a_member_that_can_mend_the_tree_does_so_for_those_that_have_asked_it() -> None:
    rig = waiting(3)
    rig.hear(3, Overdue(T, ASKED))
    effects = rig.hear(2, Passed(T, ASKED))  # it has the event, and it did not come
    assert everything_sent(effects) == [(8, Graft(T, ASKED))]
    assert told(rig.hear(8, Payload(T, event(9, 2), 1)), Payload) == [2, 3]


def test_of_two_that_find_the_tree_cut_the_smaller_goes_first() -> None:
    for me in (1, 5):
        rig = waiting(3, me=me)
        rig.hear(2, Overdue(T, ASKED))
        rig.hear(2, Passed(T, ASKED))
        assert sent(rig.hear(3, Overdue(T, ASKED)), Passed) == [(3, Passed(T, ASKED))]
        assert told(rig.hear(3, Passed(T, ASKED)), Graft) == ([8] if me == 1 else [])
        if me == 5:  # 3 has not mended it
            assert told(rig.wait(PATIENCE_MS), Graft) == [8]


def test_over_a_link_that_is_lazy_here_nothing_comes() -> None:
    assert everything_sent(fed().hear(8, Overdue(T, ASKED))) == [(8, Passed(T, ASKED))]


def test_what_was_repaired_is_pushed_to_members_that_asked_and_to_nobody_else() -> None:
    rig = fed(3, 4)
    rig.hear(3, Overdue(T, ASKED))
    assert told(rig.hear(7, Repair(T, [event(9, 2)])), Payload) == [3]


def test_what_may_come_over_any_link_is_fetched_on_the_side_after_a_while() -> None:
    """A neighbour that has nothing to do with the event may be one that does not answer."""
    rig = waiting(3, 4)
    rig.hear(2, Overdue(T, ASKED))
    assert sent(rig.wait(PATIENCE_MS), Want) == [(8, Want(T, ASKED))]
    assert sent(rig.wait(PATIENCE_MS), Graft) == []


def test_a_pruned_feed_is_not_waited_for_and_the_others_are_asked() -> None:
    rig = waiting(3)
    assert everything_sent(rig.hear(2, Prune(T))) == [(2, Graft(T, []))]  # it brought the wave
    rig.hear(3, Overdue(T, ASKED))
    assert told(rig.hear(3, Prune(T)), Graft) == []
    assert told(rig.hear(2, Passed(T, ASKED)), Graft) == [8]


def test_a_neighbour_cannot_have_any_number_of_questions_passed_on() -> None:
    rig, asked = fed(3), 0
    for number in range(2, 700):
        asked += len(sent(rig.hear(3, Overdue(T, [span(9, number, number)])), Overdue))
    assert asked == 512
    free = member(2, 3, config=Config(defence=Defence(rates=False)))
    free.hear(2, Payload(T, event(9, 1), 1))
    for number in range(2, 700):
        effects = free.hear(3, Overdue(T, [span(9, number, number)]))
        assert told(effects, Overdue) == [2]
