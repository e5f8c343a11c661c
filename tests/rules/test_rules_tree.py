"""The push tree's decisions: which links there are, and which duplicates prune them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from weft.ids import PeerId
from weft.rules import tree

# --- Which peer is taken as a link

counts = st.integers(0, 64)


@given(counts, counts)
def test_somebody_without_links_is_never_refused(held: int, most: int) -> None:
    assert tree.accepts(held, most, urgent=True)
    assert tree.accepts(held, most, urgent=False) == (held < most)


@given(counts, counts)
def test_a_link_is_given_up_only_when_there_is_no_room(held: int, most: int) -> None:
    assert tree.must_evict(held, most) != tree.accepts(held, most, urgent=False)


@given(counts, counts, counts)
def test_asking_stops_when_there_are_enough(held: int, asked: int, wanted: int) -> None:
    more = tree.still_wanted(held, asked, wanted)
    assert more >= 0
    assert held + asked + more >= wanted
    assert more == 0 or held + asked + more == wanted


@given(counts, counts)
def test_a_member_that_is_back_gets_one_link_more_than_is_wanted_at_most(
    held: int, wanted: int
) -> None:
    while tree.may_ask_again(held, wanted) and held <= wanted + 1:
        held += 1
    assert held > wanted
    assert not tree.may_ask_again(wanted + 1, wanted)


# --- Which publisher's duplicates may prune links: all members must come to the same answer

QUIET_MS = 100
publishers = st.sampled_from([PeerId(bytes([number])) for number in range(5)])


def final_shaper(heard: list[tuple[PeerId, int]]) -> PeerId | None:
    shaper, since = None, 0
    for publisher, now in heard:
        if tree.shapes_tree(shaper, since, publisher, now, QUIET_MS):
            shaper, since = publisher, now
    return shaper


@given(st.lists(publishers, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_members_that_heard_the_same_lately_agree_whatever_the_order(
    heard: list[PeerId], order: object
) -> None:
    mine = final_shaper([(publisher, 0) for publisher in heard])
    order.shuffle(heard)  # type: ignore[attr-defined]
    assert final_shaper([(publisher, 0) for publisher in heard]) == mine == min(heard)


@given(st.lists(st.tuples(publishers, st.integers(1, QUIET_MS)), min_size=1, max_size=12))
def test_the_smallest_keeps_the_role_while_it_is_heard_of(
    steps: list[tuple[PeerId, int]],
) -> None:
    smallest = PeerId(b"")
    heard, now = [(smallest, 0)], 0
    for publisher, pause in steps:
        now += pause
        heard += [(publisher, now), (smallest, now)]
    assert all(b - a <= QUIET_MS for (_, a), (_, b) in pairwise(heard))
    assert final_shaper(heard) == smallest


def test_a_silent_publisher_loses_the_role() -> None:
    low, high = PeerId(b"\1"), PeerId(b"\2")
    assert not tree.shapes_tree(low, 0, high, QUIET_MS, QUIET_MS)
    assert tree.shapes_tree(low, 0, high, QUIET_MS + 1, QUIET_MS)


def test_the_first_event_of_a_publisher_is_a_wave() -> None:
    assert tree.is_wave(1, 12_345, None, QUIET_MS, True)
    assert not tree.is_wave(1, 12_345, None, QUIET_MS, False)  # a peer heard of for the first time


@given(st.lists(st.integers(0, 2 * QUIET_MS), min_size=2, max_size=30))
def test_in_each_stretch_of_time_there_is_one_wave(pauses: list[int]) -> None:
    times, now = [], 0
    for pause in pauses:
        now += pause
        times.append(now)
    numbered = list(enumerate(pairwise(times), start=2))
    waves = [b for number, (a, b) in numbered if tree.is_wave(number, b, a, QUIET_MS, True)]
    stretches = [at // QUIET_MS for at in [times[0], *waves]]
    assert stretches == sorted(set(stretches)) == sorted({at // QUIET_MS for at in times})


def test_a_member_that_lacks_the_event_before_cannot_tell_a_wave() -> None:
    assert not tree.is_wave(2, 10 * QUIET_MS, None, QUIET_MS, True)


def test_a_clock_that_was_set_back_shapes_on() -> None:
    assert tree.is_wave(5, 0, 10 * QUIET_MS, QUIET_MS, True)


def test_only_a_copy_over_another_link_than_the_firsts_prunes() -> None:
    one, other = PeerId(b"\1"), PeerId(b"\2")
    assert tree.prunes(one, True, other)
    assert not tree.prunes(one, True, one)
    assert not tree.prunes(one, False, other)  # the first's link carries nothing any more
    assert not tree.prunes(None, False, other)  # the first came by repair, or from here


def test_patience_grows_with_false_alarms_and_comes_back() -> None:
    waits = [500]
    for _ in range(10):
        waits.append(tree.patience(waits[-1], True, 500))
    assert waits[:4] == [500, 1000, 2000, 4000]
    assert waits[-1] == tree.PATIENCE_MAX * 500
    for _ in range(20):
        waits.append(tree.patience(waits[-1], False, 500))
    assert waits[-1] == 500


def test_a_new_name_earns_the_role_by_being_heard_of_for_a_while() -> None:
    assert tree.may_shape(0, 0)  # the first one
    assert tree.may_shape(5_000, 10_000) and not tree.may_shape(4_999, 10_000)
    assert tree.may_shape(60_000, 10**9) and not tree.may_shape(59_999, 10**9)


# --- Which member mends the tree, and by which other

ids = st.binary(min_size=2, max_size=2).map(PeerId)


@given(st.sets(ids, min_size=1, max_size=8))
def test_of_neighbours_that_have_told_each_other_just_one_mends(peers: set[PeerId]) -> None:
    mending = [one for one in peers if tree.mends(one, peers - {one})]
    assert mending == [min(peers)]


@given(ids)
def test_a_member_that_has_told_no_neighbour_mends(peer: PeerId) -> None:
    assert tree.mends(peer, [])


@given(st.lists(st.tuples(counts, st.booleans()), min_size=1))
def test_announcers_that_keep_their_promises_are_asked_first(said: list[tuple[int, bool]]) -> None:
    broken, is_eager = min(said, key=lambda one: tree.announcer_rank(*one))
    assert broken == min(count for count, _ in said)
    assert is_eager == any(eager for count, eager in said if count == broken)
