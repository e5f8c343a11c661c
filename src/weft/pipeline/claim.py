"""One writer at a time: a folder that a run holds while it writes to it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Busy(Exception):
    """Another run writes to the same folder."""


@contextmanager
def claimed(out: Path) -> Iterator[None]:
    """Hold the folder for this run."""
    out.mkdir(parents=True, exist_ok=True)
    with held(out, Busy(f"another run is writing to {out}")):
        yield


@contextmanager
def held(folder: Path, busy: Exception) -> Iterator[None]:
    """Hold a folder; `busy` is raised if somebody else does. The lock is on the folder itself and
    leaves no file."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise busy from None
        yield
    finally:
        os.close(handle)
