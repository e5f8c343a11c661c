"""A folder for what only lives as long as a session, gone in the end whatever happens.

Whoever leaves in order removes it. Whoever is killed cannot; so the folder holds a file that its
owner keeps locked, the system unlocks it when the owner is gone, and the next session on this
machine removes the folders that nobody holds any more.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from weft.pipeline import marked

PREFIX = "weft-spark-"
OWNER = ".owner"
REMOVED_SECONDS = 10.0  # guess: a worker that is being ended writes for a moment longer
YOUNG_SECONDS = 60.0  # guess: between making a folder and locking it are microseconds


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder of one's own for the time of a `with` block."""
    sweep(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    with (folder / OWNER).open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            yield folder
        finally:
            marked.wait_until(lambda: removed(folder), REMOVED_SECONDS)


def removed(folder: Path) -> bool:
    """Remove a folder, as far as that can be done; whether it is gone."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def sweep(base: Path) -> list[Path]:
    """Remove the folders whose owners are gone; which those were."""
    return [
        folder for folder in sorted(base.glob(f"{PREFIX}*")) if _left(folder) and removed(folder)
    ]


def _left(folder: Path) -> bool:
    """Whether a folder is this user's, and nobody's any more."""
    try:
        with (folder / OWNER).open("rb") as lock:
            known = os.fstat(lock.fileno())
            if known.st_uid != os.getuid() or time.time() - known.st_mtime < YOUNG_SECONDS:
                return False
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except OSError:  # no such file, or locked
        return False
