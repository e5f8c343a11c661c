"""Arithmetic on runs of event numbers.

A publisher numbers its events in a topic 1, 2, 3, …, so what a peer has seen of a publisher is a
floor (everything up to it) and a few numbers above. These functions find what is missing and
write sets of numbers as runs, without ever enumerating a run that a stranger claims to have.
"""

from __future__ import annotations

from collections.abc import Iterable


def lacking(first: int, last: int, floor: int, above: set[int], most: int) -> list[int]:
    """The numbers in first … last that are neither up to `floor` nor in `above`; at most `most`."""
    found: list[int] = []
    number = max(first, floor + 1)
    # Each step either finds one or passes one of `above`, so the loop is bounded.
    while number <= last and len(found) < most:
        if number not in above:
            found.append(number)
        number += 1
    return found


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Ascending numbers as (first, last) runs."""
    result: list[tuple[int, int]] = []
    for number in numbers:
        if result and number == result[-1][1] + 1:
            result[-1] = (result[-1][0], number)
        else:
            result.append((number, number))
    return result


OUTLIER = 1 << 20
"""guess: no publisher is this many events ahead of what was last seen of it."""


def is_outlier(floor: int, number: int) -> bool:
    """Whether a number is too far above what was seen to be believed."""
    return floor > 0 and number - floor > OUTLIER


def raised_floor(floor: int, above: set[int]) -> int:
    """Move the floor over the numbers right above it, taking them out of `above`."""
    while floor + 1 in above:
        floor += 1
        above.remove(floor)
    return floor
