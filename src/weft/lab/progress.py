"""How far a run is and how long it will still take: a bar on a terminal, plain lines elsewhere.

Time left is told from the tasks' estimated seconds: what is left of them, at the pace so far.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

_WIDTH = 28
_PLAIN_EVERY_S = 15.0  # guess: often enough to see life, seldom enough for a log


class Progress:
    """Counts finished tasks, weighed by their estimated seconds."""

    def __init__(
        self,
        tasks: int,
        weight: float,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tasks = tasks
        self._weight = max(weight, 1e-9)
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty()
        self._clock = clock
        self._begun = clock()
        self._last_line = self._begun

    def show(self, done: int, weight: float, what: str = "points") -> None:
        """Say how much is done by now, of what."""
        now = self._clock()
        text = f"{done}/{self._tasks} {what}{self._left(weight, now)}"
        if self._live:
            filled = int(_WIDTH * min(1.0, weight / self._weight))
            bar = "█" * filled + "░" * (_WIDTH - filled)
            self._stream.write(f"\r\x1b[K{bar} {text}")
            self._stream.flush()
        elif now - self._last_line >= _PLAIN_EVERY_S:
            self._last_line = now
            print(f"weft: {text}", file=self._stream, flush=True)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self.clear()
        print(f"weft: {text}", file=self._stream, flush=True)

    def clear(self) -> None:
        """Take the bar away."""
        if self._live:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _left(self, weight: float, now: float) -> str:
        elapsed = now - self._begun
        if weight <= 0 or elapsed <= 0:
            return ""
        seconds = elapsed * max(0.0, self._weight - weight) / weight
        return f", about {duration(seconds)} left"


def duration(seconds: float) -> str:
    """A length of time for people: 8 s, 2 min 5 s, 1 h 3 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
