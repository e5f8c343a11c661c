"""The order of a stream, heads and gaps, whatever comes when."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from signed_kit import ANNA, BEN, CAROL, chain, event
from weft.documents import dag
from weft.documents.dag import Stream
from weft.documents.descriptor import SealedEvent
from weft.documents.position import Position, position
from weft.documents.refusal import Reason
from weft.documents.shape import HEIGHT_MAX, PARENTS_MAX
from weft.ids import CID_PREFIX, Cid


def publish(rounds: list[tuple[int, bool]]) -> list[SealedEvent]:
    """Three publishers, each with a view of its own. A round: its publisher, and whether it has
    heard of all that the others published."""
    streams = [Stream() for _ in range(3)]
    events: list[SealedEvent] = []
    for number, (who, hears) in enumerate(rounds):
        if hears:
            for known in events:
                streams[who].add(known)
        made = event(
            b"%d" % number,
            *(next(e for e in events if e.cid == cid) for cid in streams[who].parents()),
            key=(ANNA, BEN, CAROL)[who],
        )
        assert streams[who].add(made).released == [made]
        events.append(made)
    return events


histories = st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=12).map(publish)


def true_heads(events: list[SealedEvent]) -> dict[Cid, int]:
    named = {parent for each in events for parent in each.parents}
    return {each.cid: each.height for each in events if each.cid not in named}


@given(histories, st.randoms(use_true_random=False))
def test_in_any_order_the_same_stream(events: list[SealedEvent], random: Random) -> None:
    shuffled = events * 2
    random.shuffle(shuffled)
    stream = Stream()
    released: list[SealedEvent] = []
    for each in shuffled:
        added = stream.add(each)
        assert added.refused is None
        assert not added.dropped
        released += added.released
        come = {e.cid for e in released}
        assert not come.intersection(stream.missing())
    assert sorted(released, key=position) == sorted(events, key=position)  # each once
    done: set[Cid] = set()
    for each in released:
        assert done.issuperset(each.parents)  # none before its parents
        done.add(each.cid)
    assert stream.heads == true_heads(events)
    assert not stream.waiting
    assert not stream.missing()


@given(histories, st.randoms(use_true_random=False), st.sets(st.integers(0, 11)))
def test_what_is_lost_for_good_holds_nothing_up(
    events: list[SealedEvent], random: Random, unlucky: set[int]
) -> None:
    lost = [each for number, each in enumerate(events) if number in unlucky]
    left = [each for number, each in enumerate(events) if number not in unlucky]
    random.shuffle(left)
    stream = Stream()
    released = [each for event in left for each in stream.add(event).released]
    while gaps := stream.missing():
        assert set(gaps) <= {each.cid for each in lost}
        added = stream.give_up(random.choice(gaps))
        assert not added.dropped
        released += added.released
    assert sorted(released, key=position) == sorted(left, key=position)
    held, done = {each.cid for each in left}, set[Cid]()
    for each in released:
        assert done.issuperset(held.intersection(each.parents))
        done.add(each.cid)
    assert stream.heads == true_heads(left)
    for late in sorted(lost, key=position):  # it turns up after all
        stream.add(late)
    assert stream.heads == true_heads(events)


@given(histories, st.randoms(use_true_random=False), st.sets(st.integers(0, 11)))
def test_what_comes_behind_events_that_follow_it_is_late(
    events: list[SealedEvent], random: Random, unlucky: set[int]
) -> None:
    """Gaps are given up at any time, and filled after all. Nothing that was released before follows
    an event that is not late, by a way of events that have come; and something that has come
    follows a late one."""
    shuffled = list(events)
    random.shuffle(shuffled)
    stream = Stream()
    come: dict[Cid, SealedEvent] = {}
    before: list[SealedEvent] = []

    def check(added: dag.Added) -> None:
        for one in added.released:
            if one.cid in added.late:
                assert one.cid in ancestors(list(come.values()), come)
            else:
                assert one.cid not in ancestors(before, come)
            before.append(one)

    for number, each in enumerate(shuffled):
        come[each.cid] = each
        check(stream.add(each))
        if number in unlucky and (gaps := stream.missing()):
            check(stream.give_up(random.choice(gaps)))


def ancestors(events: list[SealedEvent], come: dict[Cid, SealedEvent]) -> set[Cid]:
    """What these follow, as far as it has come."""
    found: set[Cid] = set()
    ahead = [parent for each in events for parent in each.parents]
    while ahead:
        cid = ahead.pop()
        if cid in come and cid not in found:
            found.add(cid)
            ahead += come[cid].parents
    return found


@given(histories)
def test_the_order_puts_causes_first(events: list[SealedEvent]) -> None:
    done: set[Cid] = set()
    for each in sorted(events, key=position):
        assert done.issuperset(each.parents)
        done.add(each.cid)


@given(histories, st.data())
def test_reading_on_gives_all_but_the_ancestors(
    events: list[SealedEvent], data: st.DataObject
) -> None:
    if not events:
        return
    last = data.draw(st.sampled_from(events))
    by_cid = {each.cid: each for each in events}
    ancestors, todo = set(), [last.cid]
    while todo:
        cid = todo.pop()
        ancestors.add(cid)
        todo += by_cid[cid].parents
    below = [e for e in sorted(events, key=position, reverse=True) if position(e) <= position(last)]
    found = dag.not_before([last.cid], ((e.cid, e.parents) for e in below))
    assert list(found) == [e.cid for e in below if e.cid not in ancestors]


def test_a_late_branch_moves_nothing_that_joined_before_it() -> None:
    trunk = chain(5)
    late = event(b"late", trunk[1], key=BEN)
    before, after = sorted(trunk, key=position), sorted([*trunk, late], key=position)
    assert after[:2] == before[:2]
    assert [each for each in after if each != late] == before


def test_a_gap_is_told_once_and_closed() -> None:
    one, two, three, four = chain(4)
    stream = Stream()
    stream.add(one)
    assert stream.add(three).missing == [two.cid]
    beside = event(b"beside", two, key=BEN)
    added = stream.add(beside)
    assert (added.missing, added.released, added.refused) == ([], [], None)
    assert stream.add(four).missing == []
    assert stream.missing() == [two.cid]
    assert stream.waiting == 3
    assert stream.knows(four.cid)
    assert stream.height(four.cid) is None
    released = stream.add(two).released
    assert released == [two, *sorted([three, beside], key=position), four]
    assert stream.heads == {beside.cid: 3, four.cid: 4}


def test_what_nobody_has_is_given_up() -> None:
    one, two, three, four = chain(4)
    stream = Stream()
    stream.add(four)
    stream.add(three)
    assert stream.give_up(three.cid).released == []  # it is here, it only waits
    assert stream.give_up(one.cid).released == []  # nobody asked for it
    assert stream.give_up(two.cid).released == [three, four]
    again = event(b"again", two, key=BEN)
    assert stream.add(again).released == [again]
    assert not stream.missing()
    stream.add(one)
    assert stream.add(two).released == [two]  # after all; but it is no head any more
    assert stream.heads == {four.cid: 4, again.cid: 3}


def lifted(made: SealedEvent, height: int) -> SealedEvent:
    """The event with another height, as its publisher could have signed it."""
    return replace(made, height=height)


@pytest.mark.parametrize("height", [1, 2, 4, 1 << 50])
def test_wrong_height(height: int) -> None:
    one, two, three = chain(3)
    stream = Stream()
    stream.add(one)
    stream.add(two)
    assert stream.add(lifted(three, height)).refused == Reason.WRONG_HEIGHT
    assert stream.add(three).released == [three]


def test_a_wrong_height_found_out_late_takes_its_descendants_along() -> None:
    one, two, three, four = chain(4)
    other = event(b"other", key=BEN)
    join = event(b"join", four, other)
    stream = Stream()
    stream.add(one)
    for waits in (lifted(three, 7), lifted(four, 8), lifted(join, 9)):
        assert stream.add(waits).refused is None
    added = stream.add(two)
    assert added.released == [two]
    assert [each.cid for each in added.dropped] == [three.cid, four.cid, join.cid]
    assert stream.waiting == 0
    assert stream.missing() == []
    assert stream.heads == {two.cid: 2}


def test_nobody_can_use_up_the_heights_with_parents_that_never_were() -> None:
    (one,) = chain(1)
    never = replace(one, cid=Cid(CID_PREFIX + bytes(32)), height=HEIGHT_MAX - 1)
    stream = Stream()
    stream.add(one)
    assert stream.add(event(b"tall", never)).refused == Reason.WRONG_HEIGHT
    lower = replace(never, height=dag.HEIGHT_BELIEVED)  # an old stream can be high
    tall = event(b"tall", lower)
    stream.add(tall)
    assert stream.give_up(never.cid).released == [tall]
    known = event(b"known", tall)
    assert stream.add(known).released == [known]


def test_what_waits_is_bounded() -> None:
    events = chain(5)
    stream = Stream(waiting_max=2)
    assert [stream.add(each).refused for each in events[2:]] == [None, None, Reason.NO_ROOM]
    assert stream.waiting == 2
    released = [each for event in events for each in stream.add(event).released]
    assert released == events


def test_nothing_below_the_floor_comes_back() -> None:
    one, two, three, four = chain(4)
    stream = Stream({three.cid: 3}, floor=position(two))
    assert stream.add(one).refused == Reason.PRUNED
    assert stream.add(two).refused == Reason.PRUNED
    assert stream.add(four).released == [four]
    # A branch from below the floor: its parent is pruned for sure, nobody need look for it.
    lows = (event(b"low %d" % number, one, key=BEN) for number in range(64))
    low = next(each for each in lows if position(each) > position(two))
    assert stream.add(low).released == [low]
    # A parent far below its child's height shows only when it comes.
    side = event(b"side", key=CAROL)
    join = event(b"join", four, side)
    assert stream.add(join).missing == [side.cid]
    added = stream.add(side)
    assert added.refused == Reason.PRUNED
    assert added.released == [join]


def test_a_stream_goes_on_from_what_is_stored() -> None:
    events = chain(6)
    stored = {each.cid: each.height for each in events[:5]}
    stream = Stream({events[4].cid: 5}, stored.get)
    assert stream.parents() == {events[4].cid: 5}
    assert stream.add(events[2]).released == []  # known
    assert stream.add(events[5]).released == [events[5]]
    late = event(b"late", events[0], key=BEN)
    assert stream.add(late).released == [late]
    assert stream.heads == {events[5].cid: 6, late.cid: 2}


def test_many_heads_are_joined_little_by_little() -> None:
    heads = [event(b"%d" % number) for number in range(PARENTS_MAX + 20)]
    stream = Stream()
    for each in heads:
        stream.add(each)
    by_cid = {each.cid: each for each in heads}
    for number in range(3):
        parents = stream.parents()
        assert len(parents) <= PARENTS_MAX
        made = event(b"join %d" % number, *(by_cid[cid] for cid in parents))
        by_cid[made.cid] = made
        assert stream.add(made).released == [made]
    assert len(stream.heads) == 1


def test_positions_sort_from_the_start() -> None:
    assert position(event(b"")) > dag.START
    assert Position(1, Cid(b"b")) < Position(2, Cid(b"a"))


# --- room for what waits ----------------------------------------------------------------------


def test_what_waits_highest_gives_way_to_what_is_lower() -> None:
    """From the end towards the beginning: the lowest always find a place."""
    events = chain(6)
    stream = Stream(waiting_max=2)
    displaced = [stream.add(each).displaced for each in events[:0:-1]]
    # Each time the highest of three goes; its parent waits itself, and is not wanted any more.
    assert displaced == [[], [], [events[4].cid], [events[3].cid], [events[2].cid]]
    assert stream.waiting == 2 and stream.missing() == [events[0].cid]
    assert stream.add(events[0]).released == events[:3]
    assert [stream.add(each).released for each in events[3:]] == [[each] for each in events[3:]]
    assert stream.missing() == [] and list(stream.heads) == [events[5].cid]


def test_a_parent_that_others_wait_for_stays_wanted() -> None:
    root = event(b"root")
    lost = event(b"lost", root)
    other = chain(4)[-1]
    low, high = event(b"low", lost), event(b"high", lost, other)
    stream = Stream(waiting_max=2)
    stream.add(low)
    stream.add(high)
    between = event(b"between", event(b"gone", root))
    added = stream.add(between)
    assert added.missing == list(between.parents)
    assert added.displaced == [other.cid] and lost.cid in stream.missing()
    assert not stream.knows(high.cid) and stream.knows(low.cid)


@given(histories, st.randoms(use_true_random=False), st.integers(1, 6))
def test_with_little_room_everything_comes_in_the_end(
    events: list[SealedEvent], random: Random, room: int
) -> None:
    """Whatever is offered again and again, in any order, is released, each event once."""
    stream = Stream(waiting_max=room)
    released: list[SealedEvent] = []
    for _ in range(len(events)):
        random.shuffle(events)
        for each in events:
            released += stream.add(each).released
            assert stream.waiting <= room
        assert not [cid for cid in stream.missing() if stream.knows(cid)]
    assert sorted(released, key=position) == sorted(events, key=position)
    assert not stream.waiting and not stream.missing()


def test_what_waits_is_bounded_in_number_and_bytes() -> None:
    one, two, three, four = chain(4)
    few = Stream(waiting_max=1)
    assert few.add(three).missing == [two.cid]
    assert few.add(four).refused is Reason.NO_ROOM
    assert few.add(one).released == [one]
    assert few.lowest_waiting() == 3
    assert few.add(two).released == [two, three]
    assert few.lowest_waiting() == 0
    small = Stream(waiting_bytes_max=len(three.block) + 10)
    assert small.add(three).missing and small.add(four).refused is Reason.NO_ROOM


def test_an_event_vouches_for_the_parents_it_waits_for() -> None:
    one, two = chain(2)
    stream = Stream()
    assert not stream.awaits(one.cid)
    stream.add(two)
    assert stream.awaits(one.cid) and not stream.awaits(two.cid)
    stream.add(one)
    assert not stream.awaits(one.cid)


def test_parents_missing_from_the_store_are_no_heads_when_they_come() -> None:
    one, two = chain(2)
    held = {two.cid: 2}
    stream = Stream(held, held.get, missing=[one.cid])
    assert stream.add(one).released == [one]
    assert stream.heads == {two.cid: 2}


def test_the_store_is_not_asked_about_what_is_higher_than_all_it_has() -> None:
    events = chain(4)
    asked: list[bytes] = []

    def lookup(cid: bytes) -> int | None:
        asked.append(cid)
        return None

    stream = Stream({events[1].cid: 2}, lookup)
    assert not stream.knows(events[3].cid, events[3].height)
    assert asked == []
    assert not stream.knows(events[0].cid, events[0].height)
    assert asked == [events[0].cid]


def test_of_a_long_stream_only_the_latest_events_are_at_hand() -> None:
    """What it holds in memory ends somewhere; the store is asked for the rest, and for nothing
    that has just come."""
    events = chain(dag.HEIGHTS_MAX + 3)
    stored = {each.cid: each.height for each in events}
    asked: list[Cid] = []

    def lookup(cid: Cid) -> int | None:
        asked.append(cid)
        return stored.get(cid)

    stream = Stream(lookup=lookup)
    for each in events:
        assert stream.add(each).released == [each]
    assert not asked
    assert stream.knows(events[-1].cid) and stream.knows(events[3].cid) and not asked
    assert stream.height(events[2].cid) == 3 and asked == [events[2].cid]
