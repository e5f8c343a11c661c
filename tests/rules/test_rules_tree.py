"""Which publisher's duplicates may prune links: all members must come to the same answer."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from weft.ids import PeerId
from weft.rules import tree

QUIET_MS = 100
publishers = st.sampled_from([PeerId(bytes([number])) for number in range(5)])


def final_shaper(heard: list[tuple[PeerId, int]]) -> PeerId | None:
    shaper, since = None, 0
    for publisher, now in heard:
        if tree.shapes_tree(shaper, since, publisher, now, QUIET_MS):
            shaper, since = publisher, now
    return shaper


@given(st.lists(publishers, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_whoever_heard_the_same_lately_agrees_whatever_the_order(
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


def test_a_silent_one_loses_it() -> None:
    low, high = PeerId(b"\1"), PeerId(b"\2")
    assert not tree.shapes_tree(low, 0, high, QUIET_MS, QUIET_MS)
    assert tree.shapes_tree(low, 0, high, QUIET_MS + 1, QUIET_MS)


def test_patience_grows_with_false_alarms_and_comes_back() -> None:
    waits = [500]
    for _ in range(10):
        waits.append(tree.patience(waits[-1], True, 500))
    assert waits[:4] == [500, 1000, 2000, 4000]
    assert waits[-1] == tree.PATIENCE_MAX * 500
    for _ in range(20):
        waits.append(tree.patience(waits[-1], False, 500))
    assert waits[-1] == 500
