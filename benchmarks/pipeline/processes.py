"""What this process and those below it use: Spark's Java process and its Python workers.

Linux forgets what a process used when it ends and nobody waits for it, as happens to Spark's
Python workers. So they are looked at again and again while something is measured, and what was last
seen of each counts, whether it still runs or not.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

POLL_S = 0.1  # guess: what a process does after it was last seen is lost
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PARENT, _USER, _SYSTEM, _STARTED, _RESIDENT = 1, 11, 12, 19, 21
Result = TypeVar("Result")


def _stat(pid: int) -> list[str] | None:
    """The fields of Linux's process table from the third on; None for one that has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def children(without: int | None = None) -> dict[int, list[str]]:
    """All processes below this one with their fields, those below `without` and itself excepted."""
    table = {int(e.name): _stat(int(e.name)) for e in os.scandir("/proc") if e.name.isdecimal()}
    below: dict[int, list[int]] = {}
    for pid, fields in table.items():
        if fields is not None:
            below.setdefault(int(fields[_PARENT]), []).append(pid)
    found: dict[int, list[str]] = {}
    waiting = [os.getpid()]
    while waiting:
        for pid in below.get(waiting.pop(), []):
            fields = table[pid]
            if pid != without and fields is not None:
                found[pid] = fields
                waiting.append(pid)
    return found


class Watch:
    """What this thread and the processes below this one use in all, and the most memory that they
    and this one have at once, while a `with` block runs; watching has a thread of its own, which
    does not count. The driver is this process and those that it started itself: Java, but not the
    Python workers below it."""

    def __init__(self, without: int | None = None) -> None:
        self._without = without
        self._seen: dict[tuple[int, str], int] = {}  # by id and start: ids are used again
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._before = 0.0
        self._own_before = 0.0
        self.peak_bytes = 0  # what processes share is counted in each
        self.driver_peak_bytes = 0

    def _poll(self) -> None:
        while not self._over.wait(POLL_S):
            self._look()

    def _look(self) -> float:
        with self._lock:
            found = children(self._without)
            for pid, fields in found.items():
                used = int(fields[_USER]) + int(fields[_SYSTEM])
                self._seen[pid, fields[_STARTED]] = used
            self._look_at_memory(found)
            return sum(self._seen.values()) / _TICKS

    def _look_at_memory(self, found: dict[int, list[str]]) -> None:
        here = _stat(os.getpid())
        own = 0 if here is None else int(here[_RESIDENT])
        below = sum(int(fields[_RESIDENT]) for fields in found.values())
        started = (fields for fields in found.values() if int(fields[_PARENT]) == os.getpid())
        driver = own + sum(int(fields[_RESIDENT]) for fields in started)
        self.peak_bytes = max(self.peak_bytes, (own + below) * _PAGE)
        self.driver_peak_bytes = max(self.driver_peak_bytes, driver * _PAGE)

    def __enter__(self) -> Self:
        self._before = self._look()
        self._own_before = time.thread_time()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def cpu_seconds(self) -> float:
        """User and system time since the beginning."""
        return self._look() - self._before + time.thread_time() - self._own_before


def timed(
    work: Callable[[], Result], without: int | None = None
) -> tuple[Result, dict[str, float]]:
    """What some work gives, the time it takes, its CPU time and its peaks of memory."""
    begun = time.perf_counter()
    with Watch(without) as watch:
        result = work()
        seconds, cpu_seconds = time.perf_counter() - begun, watch.cpu_seconds
    return result, {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "peak_gb": watch.peak_bytes / 1e9,
        "driver_gb": watch.driver_peak_bytes / 1e9,
    }
