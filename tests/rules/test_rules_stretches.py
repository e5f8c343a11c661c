"""Arithmetic on stretches of numbers, against sets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weft.rules.stretches import (
    Stretch,
    add_stretch,
    is_in,
    is_touched,
    lacking,
    raised,
    take_stretch,
)

numbers = st.sets(st.integers(1, 40))
small = st.integers(0, 45)


def stretches(found: set[int]) -> list[Stretch]:
    result: list[Stretch] = []
    for number in sorted(found):
        if result and result[-1][1] == number - 1:
            result[-1] = (result[-1][0], number)
        else:
            result.append((number, number))
    return result


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


@given(numbers, small)
def test_a_floor_moves_over_what_lies_right_above_it(found: set[int], floor: int) -> None:
    expected = floor
    while expected + 1 in found:
        expected += 1
    known = stretches({number for number in found if number > floor})
    assert raised(floor, known) == expected
    assert known == stretches({number for number in found if number > expected})


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
