"""Files for their owner alone: keys, stores, traces, generated programs.

What a peer writes down tells which topics its user follows and what was said in them, so nobody
else on the machine may read it: files are made with mode 0600 and folders with mode 0700, whatever
the umask says. A file that is there already and open to others is made private when it is used;
where that is not allowed (another user owns it), a warning says so in words.

What is run, or believed because it lies in a certain place, must lie where nobody else can put it:
`stranger_on_the_way` names the folder on the way to it that others can write to.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pathlib import Path  # loaded once a file is named

log = logging.getLogger("weft.private")

_FILE = 0o600
_FOLDER = 0o700
_OTHERS = 0o077
FOR_OTHERS = 0o644
"""The mode of a file that is written for others to read, as a peer's address is."""
_ADMINISTRATOR = 0  # may write everywhere anyway


def make_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, for their owner alone. One that is there
    already stays as it is: it may be one that its user shares on purpose."""
    for missing in reversed([one for one in path.parents if not one.exists()]):
        missing.mkdir(_FOLDER, exist_ok=True)
    path.mkdir(_FOLDER, exist_ok=True)


def close_folder(path: Path) -> None:
    """Take a folder that is weft's own away from everybody but its owner."""
    if path.is_dir() and stat.S_IMODE(path.stat().st_mode) & _OTHERS:
        try:
            path.chmod(_FOLDER)
        except OSError as error:
            log.warning("%s is open to others, and stays so: %s", path, error.strerror)
        else:
            log.warning("%s was open to others; now only its owner can use it", path)


def write(path: Path, data: bytes, *, replace: bool, mode: int = _FILE) -> None:
    """Write a file whole or not at all; `FileExistsError` if it is there and not to be replaced."""
    with draft_of(path, replace=replace, mode=mode) as file:
        file.write(data)


@contextmanager
def draft_of(path: Path, *, replace: bool, mode: int = _FILE) -> Iterator[BinaryIO]:
    """A file to write that appears under its name once all is written, and not at all if that
    fails; `FileExistsError` if it is there and not to be replaced. Until then it lies beside, under
    a name that nobody can guess: a link that another user puts there is not followed. Of a `mode`
    that lets others read, the umask takes away what it does of any file.

    What is no file is not replaced: a device takes what is written (`/dev/null`, or a terminal); a
    pipe or a socket is refused, since another user may have put it there to read."""
    if replace and path.exists() and not path.is_file() and not path.is_dir():
        if not path.is_char_device():
            raise FileExistsError(f"{path} is no file")
        with path.open("wb") as device:
            yield device
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if replace:
            draft.replace(path)
        else:
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def begin_anew(path: Path) -> BinaryIO:
    """Empty a file and open it for writing, while other programs may be reading it; it is made if
    it is missing."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE)
    tighten(path)
    return os.fdopen(handle, "wb")


def append_to(path: Path, buffer_bytes: int) -> BinaryIO:
    """Open a file to write on at its end; it is made if it is missing."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _FILE)
    tighten(path)
    return os.fdopen(handle, "ab", buffering=buffer_bytes)


def make_file(path: Path) -> None:
    """Make an empty file; one that exists is made private. An existing file is not opened: closing
    it would release the locks that this process holds on it through another handle."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE))
    except FileExistsError:
        tighten(path)


def tighten(path: Path, *, writable: bool = False) -> None:
    """Leave a file to its owner alone: to read, and if `writable` to write. A path without a file
    stays as it is, and so does what is no file, such as a terminal or a pipe."""
    if not path.is_file():
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    wanted = mode & ~_OTHERS | (_FILE if writable else 0)
    if mode == wanted:
        return
    try:
        path.chmod(wanted)
    except OSError as error:
        log.warning("%s has mode %04o, and cannot be given another: %s", path, mode, error.strerror)
    else:
        log.warning("%s had mode %04o; now only its owner can use it (%04o)", path, mode, wanted)


def lock(file: BinaryIO, path: Path, busy: Exception) -> bool:
    """Lock an open file for this peer, until it is closed. Raises `busy` if another peer holds the
    lock; returns False if the file system has no locks. The file is closed in both cases."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise busy from None
    except OSError as error:
        file.close()
        log.warning("%s cannot be locked: %s", path, error.strerror)
        return False
    return True


def stranger_on_the_way(path: Path) -> Path | None:
    """The first step on a path that another user than this one and the administrator owns or may
    write to: that user may have put there what lies below. None if there is no such step.

    In a folder with the sticky bit, such as /tmp, others cannot touch what is not theirs: there
    it counts which user the next step belongs to.
    """
    path = path.resolve()
    for step in reversed((path, *path.parents)):
        try:
            found = step.stat()
        except FileNotFoundError:
            return None  # from here on this process makes it
        if found.st_uid not in (_ADMINISTRATOR, os.getuid()) or _others_write(found):
            return step
    return None


def _others_write(found: os.stat_result) -> bool:
    if found.st_mode & stat.S_ISVTX and stat.S_ISDIR(found.st_mode):
        return False
    if found.st_mode & stat.S_IWOTH:
        return True
    # Where each user has a group of its own, of the same number, files are often open to it.
    return bool(found.st_mode & stat.S_IWGRP) and found.st_gid not in (
        _ADMINISTRATOR,
        os.getuid(),
    )
