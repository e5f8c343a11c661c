"""Telling a waiting user how far things are: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from itertools import count
from typing import TextIO

_WIDTH = 28
_QUARTERS = 4


class Progress:
    """Phases one after the other, each with its own count."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._name = ""
        self._total = 1
        self._begun = 0.0
        self._told = 0

    def begin(self, name: str, total: int) -> None:
        """A phase starts; `total` is what `update` counts up to."""
        self._name, self._total = name, max(1, total)
        self._begun = time.monotonic()
        self._told = 0
        self.update(0)

    def update(self, done: int, note: str = "") -> None:
        done = min(done, self._total)
        if self._live:
            filled = _WIDTH * done // self._total
            bar = "█" * filled + "·" * (_WIDTH - filled)
            self._write(f"\r\x1b[2K  {self._name:<12} {bar} {done}/{self._total} {note}")
        elif (quarter := _QUARTERS * done // self._total) > self._told:
            self._told = quarter
            if quarter < _QUARTERS:
                self._write(f"  {self._name:<12} {done}/{self._total} {note}".rstrip() + "\n")

    def steps(self, name: str, total: int) -> Callable[[], None]:
        """A phase of so many steps starts; call the result after each."""
        counter = count(1)
        self.begin(name, total)
        return lambda: self.update(next(counter))

    def end(self, result: str) -> None:
        """The phase is over; one line says what came out of it."""
        took = time.monotonic() - self._begun
        start = "\r\x1b[2K" if self._live else ""
        self._write(f"{start}  {self._name:<12} {result}  ({took:.1f} s)\n")

    def clear(self) -> None:
        """Leave the line of an unfinished phase."""
        if self._live:
            self._write("\r\x1b[2K")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
