"""Arithmetic on runs of numbers, against sets."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from weft.protocol import recent

numbers = st.sets(st.integers(1, 40))
small = st.integers(0, 45)


@given(small, small, small, numbers, st.integers(0, 50))
def test_what_is_lacking(first: int, last: int, floor: int, above: set[int], most: int) -> None:
    seen = set(range(floor + 1)) | above
    expected = [number for number in range(first, last + 1) if number not in seen]
    assert recent.lacking(first, last, floor, above, most) == expected[:most]


def test_a_run_that_a_stranger_claims_is_never_enumerated() -> None:
    last = (1 << 63) - 1
    assert recent.lacking(0, last, 3, {5}, 3) == [4, 6, 7]
    assert recent.lacking(0, last, last, set(), 3) == []
    assert recent.lacking(last, last, 0, {last}, 3) == []


@given(numbers)
def test_runs_and_back(found: set[int]) -> None:
    result = recent.runs(sorted(found))
    listed = [number for first, last in result for number in range(first, last + 1)]
    assert listed == sorted(found)
    for (_, last), (first, _) in pairwise(result):
        assert first > last + 1  # runs are as long as they can be


@given(small, numbers)
def test_the_floor_rises_over_what_follows_it(floor: int, above: set[int]) -> None:
    before = {number for number in above if number > floor}
    left = set(before)
    raised = recent.raised_floor(floor, left)
    assert set(range(floor + 1, raised + 1)) | left == before
    assert raised + 1 not in left
    assert not left & set(range(raised + 1))
