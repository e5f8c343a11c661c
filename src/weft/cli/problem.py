"""How a command says that something is wrong, and with which exit code it ends."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

FAILED = 1
USAGE = 2
INTERRUPTED = 130


class Problem(Exception):
    """Something a user can mend. The text says what; no traceback is shown."""

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(text)
        self.code = code


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean 'peer'?)`, or nothing if nothing is close."""
    close = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""
