"""Where a run's time goes: by room of the house, and the dearest functions."""

from __future__ import annotations

import cProfile
import io
import pstats
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_ROOMS = ("sim", "protocol", "rules", "documents")


def profiled(work: Callable[[], T], functions: int = 25) -> tuple[T, str]:
    """What the work returned, and a report of where its time went."""
    profile = cProfile.Profile()
    result = profile.runcall(work)
    text = io.StringIO()
    stats = pstats.Stats(profile, stream=text).sort_stats("tottime")
    stats.print_stats(functions)
    shares = ", ".join(f"{room} {share:.0%}" for room, share in room_shares(stats).items())
    return result, f"own time by room: {shares}\n{text.getvalue()}"


def room_shares(stats: pstats.Stats) -> dict[str, float]:
    """Each room's share of all time; a built-in's time counts for whoever called it."""
    spent_s = dict.fromkeys((*_ROOMS, "other"), 0.0)
    entries: dict[tuple[str, int, str], tuple[int, int, float, float, dict[object, object]]]
    entries = stats.stats  # type: ignore[attr-defined]
    for (file, _, _), (_, _, own_s, _, callers) in entries.items():
        if _room(file) != "other" or not callers:
            spent_s[_room(file)] += own_s
            continue
        for caller, times in callers.items():
            assert isinstance(caller, tuple) and isinstance(times, tuple)
            spent_s[_room(caller[0])] += times[2]
    total_s = sum(spent_s.values()) or 1.0
    return {room: seconds / total_s for room, seconds in spent_s.items()}


def _room(file: str) -> str:
    for room in _ROOMS:
        if f"weft/{room}/" in file:
            return room
    return "other"
