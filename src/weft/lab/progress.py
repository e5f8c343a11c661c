"""How far a run is and how long it will still take: a bar on a terminal, plain lines elsewhere.

`Progress` is for many tasks at once, whose time left is told from their estimated seconds: what is
left of them, at the pace so far. `Phases` is for work that is done in one phase after the other,
each with its own count.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from itertools import count
from typing import TextIO

_WIDTH = 28
_PLAIN_EVERY_S = 15.0  # guess: often enough to see life, seldom enough for a log
_QUARTERS = 4


class _Line:
    """The line that a bar is drawn in, over and over, if the stream is a terminal."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self.live = self._stream.isatty()

    def draw(self, share: float, text: str, label: str = "") -> None:
        filled = int(_WIDTH * min(1.0, share))
        bar = "█" * filled + "░" * (_WIDTH - filled)
        self._stream.write(f"\r\x1b[K{label}{bar} {text}")
        self._stream.flush()

    def clear(self) -> None:
        if self.live:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def say(self, text: str) -> None:
        """A line that stays, instead of the bar."""
        self.clear()
        print(text, file=self._stream, flush=True)


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
        self._line = _Line(stream)
        self._clock = clock
        self._begun = clock()
        self._last_line = self._begun

    def show(self, done: int, weight: float, what: str = "points") -> None:
        """Say how much is done by now, of what."""
        now = self._clock()
        share = weight / self._weight
        text = f"{done}/{self._tasks} {what}{_left(share, now - self._begun)}"
        if self._line.live:
            self._line.draw(share, text)
        elif now - self._last_line >= _PLAIN_EVERY_S:
            self._last_line = now
            self.say(text)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._line.say(f"weft: {text}")

    def clear(self) -> None:
        """Take the bar away."""
        self._line.clear()


class Phases:
    """Phases one after the other, each with its own count."""

    def __init__(
        self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._line = _Line(stream)
        self._clock = clock
        self._label = ""
        self._total = 1
        self._begun = 0.0
        self._told = 0

    def begin(self, name: str, total: int) -> None:
        """A phase starts; `total` is what `update` counts up to."""
        self._label, self._total = f"  {name:<12} ", max(1, total)
        self._begun = self._clock()
        self._told = 0
        self.update(0)

    def update(self, done: int, note: str = "") -> None:
        done = min(done, self._total)
        text = f"{done}/{self._total} {note}".rstrip()
        if self._line.live:
            share = done / self._total
            self._line.draw(share, text + _left(share, self._clock() - self._begun), self._label)
        elif (quarter := _QUARTERS * done // self._total) > self._told:
            self._told = quarter
            if quarter < _QUARTERS:
                self._line.say(self._label + text)

    def steps(self, name: str, total: int) -> Callable[[], None]:
        """A phase of so many steps starts; call the result after each."""
        counter = count(1)
        self.begin(name, total)
        return lambda: self.update(next(counter))

    def end(self, result: str) -> None:
        """The phase is over; one line says what came out of it."""
        self._line.say(f"{self._label}{result}  ({self._clock() - self._begun:.1f} s)")

    def clear(self) -> None:
        """Leave the line of an unfinished phase."""
        self._line.clear()


def _left(share: float, elapsed: float) -> str:
    """How long the rest will take if it goes on like this."""
    if share <= 0 or elapsed <= 0:
        return ""
    return f", about {duration(elapsed * max(0.0, 1 / share - 1))} left"


def duration(seconds: float) -> str:
    """A length of time for people: 8 s, 2 min 5 s, 1 h 3 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
