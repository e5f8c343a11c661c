"""Processes that carry a mark, so that they and their children can be found and ended later.

A mark is a random word. Whoever is started with it in the environment passes it on to its own
children, so on Linux, where a user may read the environment of the user's processes, the mark finds
all of them, also when their parents are gone or nobody wrote their numbers down, and never a
process of somebody else that happens to have an old number. Elsewhere the mark is looked for in
the command lines, which finds those that were started with it as an argument.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

VARIABLE = "WEFT_MARK"
_PROC = Path("/proc")
_POLL_SECONDS = 0.05


def argument(mark: str) -> str:
    """How a Java process carries the mark in its command line."""
    return f"-D{VARIABLE.lower().replace('_', '.')}={mark}"


def carriers(mark: str) -> list[int]:
    """The numbers of the living processes with this mark, this one excepted."""
    if (_PROC / "self" / "environ").exists():
        numbers = [int(entry.name) for entry in os.scandir(_PROC) if entry.name.isdecimal()]
        return sorted(n for n in numbers if n != os.getpid() and _carries(n, mark))
    listed = subprocess.run(
        ["ps", "-axww", "-o", "pid=,command="],  # noqa: S607  (the system's own)
        capture_output=True,
        text=True,
        check=False,
    )
    lines = (line.split(maxsplit=1) for line in listed.stdout.splitlines())
    return sorted(int(pid) for pid, command in lines if argument(mark) in command.split())


def _carries(number: int, mark: str) -> bool:
    try:
        environment = (_PROC / str(number) / "environ").read_bytes()
    except OSError:  # ended meanwhile, or another user's
        return False
    return f"{VARIABLE}={mark}".encode() in environment.split(b"\0")


def command_of(number: int) -> str:
    """What a process was started as; empty if that cannot be told."""
    try:
        return (_PROC / str(number) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def end(mark: str, polite_seconds: float) -> int:
    """End all that carry the mark, politely first; returns how many there were."""
    met: set[int] = set()
    _signal(mark, signal.SIGTERM, met)
    if not wait_until(lambda: not carriers(mark), polite_seconds):
        # One that is being started while the others end is met in a later round.
        wait_until(lambda: not _signal(mark, signal.SIGKILL, met), polite_seconds)
    return len(met)


def _signal(mark: str, which: signal.Signals, met: set[int]) -> list[int]:
    found = carriers(mark)
    for number in found:
        with suppress(ProcessLookupError):
            os.kill(number, which)
    met.update(found)
    return found


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Look again and again; whether the condition came to hold in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
