"""Stretches of numbers: sets of whole numbers that mostly follow on each other, as few pairs.

What a publisher has sent is numbered, so what a peer has seen of it, holds of it or lacks of it is
a few stretches, however many events there were. A list of stretches ascends, no two of them overlap
and, where a function says so, none begins right after another ends. Each question takes a binary
search, and what a stranger claims (a stretch of 2⁶³ numbers, say) is never enumerated.

`protocol/recent.py` keeps what a member of a topic has seen and holds in them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import TypeAlias

Stretch: TypeAlias = tuple[int, int]
"""The first and the last of some consecutive numbers, at least one."""


def lacking(first: int, last: int, floor: int, above: list[Stretch], most: int) -> list[Stretch]:
    """The numbers in first … last that are neither up to `floor` nor in `above`: at most `most`
    of them, the lowest."""
    found: list[Stretch] = []
    number = max(first, floor + 1)
    at = max(0, bisect_right(above, (number,)) - 1) if above else 0
    while number <= last and most > 0:
        while at < len(above) and above[at][1] < number:
            at += 1
        if at < len(above) and above[at][0] <= number:
            number = above[at][1] + 1
            continue
        end = min(last, number + most - 1, above[at][0] - 1 if at < len(above) else last)
        found.append((number, end))
        most -= end - number + 1
        number = end + 1
    return found


def is_in(number: int, stretches: list[Stretch]) -> bool:
    """Whether a number is in one of them."""
    at = bisect_right(stretches, (number + 1,)) - 1
    return at >= 0 and stretches[at][1] >= number


def is_touched(first: int, last: int, stretches: list[Stretch]) -> bool:
    """Whether any number in first … last is in them."""
    at = bisect_right(stretches, (last + 1,)) - 1
    return at >= 0 and stretches[at][1] >= first


def add_stretch(stretches: list[Stretch], first: int, last: int) -> None:
    """Add numbers of which none is in them; they stay ascending and as long as they can be."""
    at = bisect_right(stretches, (first,))
    if at < len(stretches) and stretches[at][0] == last + 1:
        last = stretches.pop(at)[1]
    if at and stretches[at - 1][1] == first - 1:
        at -= 1
        first = stretches.pop(at)[0]
    stretches.insert(at, (first, last))


def take_stretch(stretches: list[Stretch], first: int, last: int) -> None:
    """Take away numbers that are all in one of them; what is left of it on either side stays in its
    place."""
    at = bisect_right(stretches, (first + 1,)) - 1
    low, high = stretches[at]
    left = ((low, first - 1), (last + 1, high))
    stretches[at : at + 1] = [one for one in left if one[0] <= one[1]]


def joined(runs: Iterable[Stretch]) -> list[Stretch]:
    """Ascending runs of numbers, those that follow on each other as one."""
    result: list[Stretch] = []
    for first, last in runs:
        if result and first == result[-1][1] + 1:
            result[-1] = (result[-1][0], last)
        else:
            result.append((first, last))
    return result
