"""Judges of lookups: they know where everybody is, which no peer does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from weft.ids import PeerId
from weft.rules.prefix import closest, location_of


class Truth:
    """Who is up, by location."""

    def __init__(self, up: Iterable[PeerId]) -> None:
        self._by_location = {location_of(peer): peer for peer in up}
        self._up = frozenset(self._by_location.values())

    def __contains__(self, peer: PeerId) -> bool:
        return peer in self._up

    def closest(self, target: int, count: int) -> list[PeerId]:
        return [self._by_location[key] for key in closest(target, self._by_location, count)]


@dataclass(frozen=True)
class Judged:
    """One lookup against the truth."""

    wanted: int
    right: int  # found, and among the truly closest
    dead: int  # found, but not up

    @property
    def exact(self) -> bool:
        return self.right == self.wanted and not self.dead


def judge(found: Sequence[PeerId], target: int, count: int, truth: Truth) -> Judged:
    """Compare what a lookup found with the `count` closest of the peers that are up."""
    closest_up = truth.closest(target, count)
    right = len(set(found) & set(closest_up))
    return Judged(len(closest_up), right, sum(peer not in truth for peer in found))


def check_order(found: Sequence[PeerId], target: int) -> list[str]:
    """Closest first, and nobody twice."""
    distances = [location_of(peer) ^ target for peer in found]
    violations = []
    if distances != sorted(distances):
        violations.append("a lookup's result is not ordered by distance")
    if len(set(distances)) != len(distances):
        violations.append("a lookup's result names a peer twice")
    return violations
