"""What a user may say about the files beyond their format."""

from __future__ import annotations

from dataclasses import dataclass

SECONDS = "s"
UNITS: dict[str, float] = {SECONDS: 1000.0, "ms": 1.0, "us": 1e-3, "ns": 1e-6}
"""Milliseconds in each unit that a time may be counted in."""


class BadInput(Exception):
    """The input cannot be taken as it is; the text says why. Nothing was changed."""


@dataclass(frozen=True)
class Options:
    """Which column is what, and the like; None leaves it to what the file says of itself."""

    user: str | None = None  # a column's name, or its number from 1
    topic: str | None = None
    time: str | None = None
    unit: str | None = None  # one of UNITS
    header: bool | None = None
    separator: str | None = None
    both_ways: bool = False  # an edge list is of friends, not of followers
    user_prefix: str = ""
    topic_prefix: str = ""
