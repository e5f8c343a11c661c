"""Arithmetic on stretches of numbers, against sets."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from weft.rules.stretches import (
    Stretch,
    add_stretch,
    is_in,
    is_touched,
    joined,
    lacking,
    take_stretch,
)

numbers = st.sets(st.integers(1, 40))
small = st.integers(0, 45)


def stretches(found: set[int]) -> list[Stretch]:
    return joined((number, number) for number in sorted(found))


def listed(found: list[Stretch]) -> list[int]:
    return [number for first, last in found for number in range(first, last + 1)]


@given(small, small, small, numbers, st.integers(0, 50))
def test_what_is_lacking(first: int, last: int, floor: int, above: set[int], most: int) -> None:
    seen = set(range(floor + 1)) | above
    expected = [number for number in range(first, last + 1) if number not in seen]
    found = lacking(first, last, floor, stretches(above), most)
    assert listed(found) == expected[:most]


def test_a_run_that_a_stranger_claims_is_never_enumerated() -> None:
    last = (1 << 63) - 1
    assert lacking(0, last, 3, [(5, 5)], 3) == [(4, 4), (6, 7)]
    assert lacking(0, last, last, [], 3) == []
    assert lacking(last, last, 0, [(last, last)], 3) == []


@given(numbers)
def test_stretches_and_back(found: set[int]) -> None:
    result = stretches(found)
    assert listed(result) == sorted(found)
    for (_, last), (first, _) in pairwise(result):
        assert first > last + 1  # they are as long as they can be


@given(numbers, small, small)
def test_what_is_in_them(found: set[int], first: int, last: int) -> None:
    known = stretches(found)
    assert is_in(first, known) == (first in found)
    if first <= last:
        assert is_touched(first, last, known) == bool(found & set(range(first, last + 1)))


@given(numbers, st.integers(1, 40), st.integers(0, 5))
def test_adding_keeps_them_as_long_as_they_can_be(found: set[int], first: int, more: int) -> None:
    added = set(range(first, first + more + 1))
    known = stretches(found - added)
    add_stretch(known, first, first + more)
    assert known == stretches(found | added)


@given(numbers, st.data())
def test_taking_away_leaves_the_rest(found: set[int], data: st.DataObject) -> None:
    known = stretches(found | {7})
    first, last = data.draw(st.sampled_from(known))
    low = data.draw(st.integers(first, last))
    high = data.draw(st.integers(low, last))
    take_stretch(known, low, high)
    assert known == stretches((found | {7}) - set(range(low, high + 1)))
