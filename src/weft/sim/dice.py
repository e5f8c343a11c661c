"""Keyed draws for the simulator, by purpose: `dice.below("crash.when", 100, peer)`.

A thin layer over `weft.rules.draw`: each purpose is a stream of its own, and up to two numbers
(a peer, a round) tell the draws of one purpose apart. There is no state, so a new purpose never
shifts the draws of another, and old seeds give the same runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from weft.rules import draw

T = TypeVar("T")


@cache
def _stream(purpose: str) -> int:
    return draw.stream_of("sim." + purpose)


class Dice:
    """All the draws of one seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def bits(self, purpose: str, first: int = 0, second: int = 0) -> int:
        return draw.draw(self._seed, _stream(purpose), 0, first, second)

    def key(self, purpose: str, first: int = 0, second: int = 0) -> int:
        """A key to `draw.absorb` further numbers into."""
        return draw.key_of(self._seed, _stream(purpose), first, second)

    def below(self, purpose: str, bound: int, first: int = 0, second: int = 0) -> int:
        return draw.below(self.bits(purpose, first, second), bound)

    def between(self, purpose: str, low: int, high: int, first: int = 0, second: int = 0) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + self.below(purpose, high - low + 1, first, second)

    def percent(self, purpose: str, percent: int, first: int = 0, second: int = 0) -> bool:
        """True in so many of a hundred cases."""
        return draw.chance(self.bits(purpose, first, second), percent, 100)

    def pick(self, purpose: str, items: Sequence[T], first: int = 0) -> T:
        return items[self.below(purpose, len(items), first)]

    def some(self, purpose: str, items: Sequence[T], wanted: int, first: int = 0) -> list[T]:
        """`wanted` of the items, every subset equally likely, in their order."""
        mask = draw.subset_mask(self.key(purpose, first), len(items), wanted)
        return [items[slot] for slot in draw.slots_in(mask)]

    def weighted(
        self, purpose: str, weights: Sequence[int], first: int = 0, second: int = 0
    ) -> int:
        """The index of one weight, each with probability in proportion to its size."""
        point = self.below(purpose, sum(weights), first, second)
        for index, weight in enumerate(weights):
            point -= weight
            if point < 0:
                return index
        raise ValueError("all weights are zero")
