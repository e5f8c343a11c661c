"""Folders and processes that a run owns: held while it works, and removed or ended in any case.

A folder of results has one writer at a time (`claimed`): the run that holds a lock on it.

A scratch folder lives as long as a session. A session that ends in order removes it. One that is
killed cannot; so the folder holds a file that its owner keeps locked, the system unlocks it when
the owner is gone, and the next session on this machine removes the folders that have no owner.

Processes carry a mark, a random word, so that they and their children can be found and ended later.
A process that is started with it in the environment passes it on to its own children. On Linux,
where a user may read the environment of the user's processes, the mark finds all of them, also when
their parents are gone or their numbers were never noted, and never another process that happens to
have an old number. Elsewhere the mark is looked for in the command lines, which finds those that
were started with it as an argument.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from weft.errors import WeftError

PREFIX = "weft-spark-"
OWNER = ".owner"
REMOVED_SECONDS = 10.0  # guess: a worker that is being ended writes for a moment longer
YOUNG_SECONDS = 60.0  # guess: between making a folder and locking it are microseconds
MARK_VARIABLE = "WEFT_MARK"
_PROC = Path("/proc")
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
_POLL_SECONDS = 0.05


# --- folders that a run holds --------------------------------------------------------------------


class Busy(WeftError):
    """Another run writes to the same folder."""


@contextmanager
def claimed(out: Path) -> Iterator[None]:
    """Hold the folder for this run."""
    out.mkdir(parents=True, exist_ok=True)
    with held(out, Busy(f"another run is writing to {out}")):
        yield


@contextmanager
def held(folder: Path, busy: Exception) -> Iterator[None]:
    """Hold a folder; `busy` is raised if another process does. The lock is on the folder itself and
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


def put(path: Path, text: str) -> None:
    """Write a file in one step: whatever happens, it is there whole or as it was."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with aside.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def replace_folder(new: Path, path: Path) -> None:
    """Put a new folder in the place of another, which is removed. On Linux the two change places in
    one step, so that a reader always finds one; elsewhere there is a moment without."""
    old = new.with_name(new.name + ".old")
    if path.exists() and _exchanged(new, path):
        new.rename(old)
    else:
        if path.exists():
            path.rename(old)
        new.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def _exchanged(one: Path, other: Path) -> bool:
    """Whether the system has made two paths change places."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:  # another system, or an old one
        return False
    names = os.fsencode(one), os.fsencode(other)
    return bool(rename(_HERE, names[0], _HERE, names[1], _EXCHANGE) == 0)


# --- scratch folders ------------------------------------------------------------------------------


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
            wait_until(lambda: removed(folder), REMOVED_SECONDS)


def removed(folder: Path) -> bool:
    """Remove a folder, as far as that can be done; returns whether it is gone."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def sweep(base: Path) -> list[Path]:
    """Remove the folders whose owners are gone; returns these folders."""
    return [
        folder for folder in sorted(base.glob(f"{PREFIX}*")) if _left(folder) and removed(folder)
    ]


def _left(folder: Path) -> bool:
    """Whether a folder is this user's, and its owner is gone."""
    try:
        with (folder / OWNER).open("rb") as lock:
            known = os.fstat(lock.fileno())
            if known.st_uid != os.getuid() or time.time() - known.st_mtime < YOUNG_SECONDS:
                return False
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except OSError:  # no such file, or locked
        return False


# --- marked processes -----------------------------------------------------------------------------


def mark_argument(mark: str) -> str:
    """How a Java process carries the mark in its command line."""
    return f"-D{MARK_VARIABLE.lower().replace('_', '.')}={mark}"


def carriers(mark: str, variable: str = MARK_VARIABLE) -> list[int]:
    """The numbers of the living processes with this mark, this one excepted. A mark of Spark's own
    stands in another variable, and is seen on Linux alone."""
    if (_PROC / "self" / "environ").exists():
        numbers = [int(entry.name) for entry in os.scandir(_PROC) if entry.name.isdecimal()]
        return sorted(n for n in numbers if n != os.getpid() and _carries(n, variable, mark))
    listed = subprocess.run(
        ["ps", "-axww", "-o", "pid=,command="],  # noqa: S607  (the system's own)
        capture_output=True,
        text=True,
        check=False,
    )
    lines = (line.split(maxsplit=1) for line in listed.stdout.splitlines())
    return sorted(int(pid) for pid, command in lines if mark_argument(mark) in command.split())


def _carries(number: int, variable: str, mark: str) -> bool:
    try:
        environment = (_PROC / str(number) / "environ").read_bytes()
    except OSError:  # ended meanwhile, or another user's
        return False
    return f"{variable}={mark}".encode() in environment.split(b"\0")


def end_carriers(mark: str, polite_seconds: float, variable: str = MARK_VARIABLE) -> int:
    """End all that carry the mark, politely first; returns how many there were."""
    met: set[int] = set()

    def signalled(which: signal.Signals) -> bool:
        found = carriers(mark, variable)
        _signal(found, which)
        met.update(found)
        return bool(found)

    signalled(signal.SIGTERM)
    if not wait_until(lambda: not carriers(mark, variable), polite_seconds):
        # One that is being started while the others end is met in a later round.
        wait_until(lambda: not signalled(signal.SIGKILL), polite_seconds)
    return len(met)


def _signal(found: Sequence[int], which: signal.Signals) -> None:
    for number in found:
        with suppress(ProcessLookupError):
            os.kill(number, which)


def users_folder(name: str) -> Path:
    """The folder of this name in the user's home of weft, unless the environment names another, as
    `WEFT_CLUSTER` does for the cluster's."""
    if named := os.environ.get(f"WEFT_{name.upper()}"):
        return Path(named)
    return Path(os.environ.get("WEFT_HOME") or Path.home() / ".weft") / name


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Look again and again until a condition holds; returns whether it did in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
