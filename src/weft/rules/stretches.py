"""Stretches of numbers: sets of whole numbers that mostly follow on each other, as few pairs.

What a publisher has sent is numbered, so what a peer has seen of it, holds of it or lacks of it is
a few stretches, however many events there were. A list of stretches ascends, no two of them overlap
and, where a function says so, none begins right after another ends. Each question takes a binary
search, and what a stranger claims (a stretch of 2⁶³ numbers, say) is never enumerated.

    seen = [(1, 3), (7, 8)]                 # 1, 2, 3, 7 and 8
    is_in(4, seen)                          # False
    lacking(2, 9, 0, seen, most=10)         # [(4, 6), (9, 9)]
    add_stretch(seen, 4, 6)                 # seen: [(1, 8)]
    take_stretch(seen, 2, 2)                # seen: [(1, 1), (3, 8)]

`protocol/recent.py` keeps what a member of a topic has seen and holds in them.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TypeAlias

Stretch: TypeAlias = tuple[int, int]
"""The first and the last of some consecutive numbers, at least one."""


def lacking(first: int, last: int, floor: int, above: list[Stretch], most: int) -> list[Stretch]:
    """The numbers in first … last that are neither up to `floor` nor in `above`: at most `most`
    of them, the lowest."""
    found: list[Stretch] = []
    number = max(first, floor + 1)
    at = bisect_right(above, (number + 1,))  # the first that begins after this number
    if at and above[at - 1][1] >= number:
        number = above[at - 1][1] + 1
    while number <= last and most > 0:
        begin, end = above[at] if at < len(above) else (last + 1, last)
        until = min(last, number + most - 1, begin - 1)
        found.append((number, until))
        most -= until - number + 1
        number = end + 1
        at += 1
    return found


def raised(floor: int, above: list[Stretch]) -> int:
    """Where a floor ends up that moves over the numbers right above it, which are taken away."""
    while above and above[0][0] <= floor + 1:
        floor = max(floor, above.pop(0)[1])
    return floor


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
        stretches[at - 1] = (stretches[at - 1][0], last)
    else:
        stretches.insert(at, (first, last))


def take_stretch(stretches: list[Stretch], first: int, last: int) -> None:
    """Take away numbers that are all in one of them; what is left of it on either side stays in its
    place."""
    at = bisect_right(stretches, (first + 1,)) - 1
    low, high = stretches[at]
    left = ((low, first - 1), (last + 1, high))
    stretches[at : at + 1] = [one for one in left if one[0] <= one[1]]
