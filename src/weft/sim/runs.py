"""Plays runs for the command line: many over processes, or one under the profiler.

A run needs nothing but its settings, so processes share nothing. A profile says where a run's time
went: by room of the package, and in the most expensive functions. A profiled run takes longer than
a plain one; its result is the same.
"""

from __future__ import annotations

import cProfile
import io
import os
import pstats
import signal
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import TypeVar

from weft.sim.scenario import Result, ScenarioSettings, run

T = TypeVar("T")
_ROOMS = ("sim", "protocol", "rules", "documents")
_FUNCTIONS = 25
"""Those that a profile lists, by their own time."""


# --- many runs --------------------------------------------------------------------------------


def run_many(settings: Sequence[ScenarioSettings], processes: int = 2) -> Iterator[Result]:
    """Results in the order of the settings, each as soon as it and all before it are there.

    If the caller stops iterating (at an interrupt, say), the workers end.
    """
    if processes <= 1 or len(settings) <= 1:
        yield from map(run, settings)
        return
    with get_context("spawn").Pool(min(processes, len(settings)), begin_worker) as pool:
        yield from pool.imap(run, settings)
        pool.close()  # ending idle workers by force can hang (seen once, in the pool's own locks)
        pool.join()


def begin_worker() -> None:
    """Prepare a process that plays runs. Ctrl-C reaches every process of a terminal; here it is
    ignored, for the parent decides. If the parent is killed, this process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


# --- one run, profiled ------------------------------------------------------------------------


def profiled(work: Callable[[], T]) -> tuple[T, str]:
    """The result of the work, and a report of where its time went."""
    profile = cProfile.Profile()
    result = profile.runcall(work)
    text = io.StringIO()
    stats = pstats.Stats(profile, stream=text).sort_stats("tottime")
    stats.print_stats(_FUNCTIONS)
    shares = ", ".join(f"{room} {share:.0%}" for room, share in room_shares(stats).items())
    return result, f"own time by room: {shares}\n{text.getvalue()}"


def room_shares(stats: pstats.Stats) -> dict[str, float]:
    """Each room's share of all time; a built-in's time counts for its callers."""
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
