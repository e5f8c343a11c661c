"""Overlay identity (TERA, Section 3, "Partition Merging").

Whoever starts a topic overlay gives it a random id. When two parts of a topic meet, all members
must end with the same id, whatever the order in which they meet: the smaller one survives.
"""

from __future__ import annotations

from weft.ids import OverlayId


def surviving(mine: OverlayId, theirs: OverlayId) -> OverlayId:
    """The id both sides keep after they met."""
    return mine if mine <= theirs else theirs


def next_period(period: int, changed: bool, longest: int) -> int:
    """Cycles until a topic's next view exchange: each quiet one doubles it, news resets it."""
    return 1 if changed else min(longest, period * 2)
