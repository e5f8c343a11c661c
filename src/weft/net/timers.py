"""One clock and one timer for all peers of an event loop.

Machines set many timers and never cancel one. Each is a small tuple in the list of its tick
(5 ms); all timers of one tick wake the loop once, whichever peer they belong to, so 200 idle peers
in a process cost one timer of the loop and not thousands.

A peer lives in the event loop of its application. An application that has many events to read, and
blocks for each of them (a database's commit), would not let the loop run until it has read all:
meanwhile its peer answers nobody. So subscriptions and consumers give the loop its `Turns`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TypeVar
from weakref import WeakKeyDictionary

log = logging.getLogger("weft.net")

T = TypeVar("T")

TICK_MS = 5  # guess: far below every timeout of the protocols


def now_ms() -> int:
    """Monotonic milliseconds, the `now` of every machine in this process."""
    return time.monotonic_ns() // 1_000_000


TURN_S = 0.005  # guess: how long an application that never waits may keep the loop


class Turns:
    """Lets the event loop run now and then, while an application reads without waiting."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due = 0.0

    @property
    def due(self) -> bool:
        """Whether the loop should have a turn."""
        return time.monotonic() >= self._due

    async def give(self) -> None:
        """Let everything else of the loop run once."""
        await asyncio.sleep(0)
        self._due = time.monotonic() + TURN_S


class Timers:
    """Calls each callback once, after its delay and within a tick or two of it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: dict[int, list[tuple[Callable[..., None], object]]] = {}
        self._ticks: list[int] = []
        self._handle: asyncio.TimerHandle | None = None
        self._armed = 0  # the tick that `_handle` waits for

    def after(self, delay_ms: int, callback: Callable[[T], None], argument: T) -> None:
        tick = (now_ms() + delay_ms) // TICK_MS + 1
        waiting = self._due.get(tick)
        if waiting is not None:
            waiting.append((callback, argument))
            return
        self._due[tick] = [(callback, argument)]
        heappush(self._ticks, tick)
        if self._handle is None or tick < self._armed:
            self._arm()

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._ticks:
            self._armed = self._ticks[0]
            self._handle = self._loop.call_at(self._armed * TICK_MS / 1_000, self._run)

    def _run(self) -> None:
        self._handle = None
        current = now_ms() // TICK_MS
        while self._ticks and self._ticks[0] <= current:
            for callback, argument in self._due.pop(heappop(self._ticks)):
                try:
                    callback(argument)
                except Exception:
                    log.exception("a timer failed")
        if self._handle is None:
            self._arm()


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Timers] = WeakKeyDictionary()


def shared_timers() -> Timers:
    """The timers of the running loop."""
    loop = asyncio.get_running_loop()
    timers = _of_loop.get(loop)
    if timers is None:
        timers = _of_loop[loop] = Timers(loop)
    return timers
