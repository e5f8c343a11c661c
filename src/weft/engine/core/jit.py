"""How kernels are compiled: once per machine, kept on disk until any of the engine changes.

numba keeps compiled code by the file a function is written in and does not notice when a
function it calls from another file changes. So the folder of compiled code is named after
the content of all files of the engine and of the rules: code of an older text is never loaded.
Where the files lie does not count: a copy of the package, such as one that Spark unpacks for its
workers, or another checkout, finds what was compiled from the same text.

A rule of plain arithmetic needs no twin: `shared` lets kernels call it, compiled from its own
source.

Rules of the house for kernels: indices are signed 64-bit numbers, random bits and keys are
unsigned 64-bit ones, and the two never meet in one expression (numba would turn the result
into a floating-point number). Rows are read and written through `layout`, whose functions
convert indices, so that no test for negative ones is compiled.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import SupportsInt, TypeAlias, TypeVar, cast

import numba
from numba.core.caching import UserProvidedCacheLocator
from numba.extending import register_jitable

from weft import private

F = TypeVar("F", bound=Callable[..., object])
Bits: TypeAlias = int
"""An unsigned 64-bit number: random bits, a key, a mask."""

_Cast: TypeAlias = Callable[[SupportsInt], int]
_KINDS = (numba.uint64, numba.int64, numba.int32, numba.uint8)
u64, i64, i32, u8 = (cast(_Cast, kind) for kind in _KINDS)
ONE: Bits = u64(1)

_FOLDERS_KEPT = 4
"""guess: compiled code of so many versions is kept, so that a switch of branches costs nothing."""


def _fingerprint() -> str:
    """Names the present content of the files that kernels are written in, and of the rules."""
    digest = blake2b(numba.__version__.encode(), digest_size=8)
    package = Path(__file__).parents[2]
    for file in sorted([*(package / "engine").rglob("*.py"), *(package / "rules").rglob("*.py")]):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _cache_folder() -> Path | None:
    """The folder for compiled code. There is none where this user cannot write, or where others
    can: code from the folder is run."""
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    root = Path(base) if base else Path.home() / ".cache"
    folder = root / "weft" / f"engine-{_fingerprint()}"
    try:
        private.make_folder(folder)
        folder.touch()
        _forget_old(folder.parent)
    except (OSError, RuntimeError):
        return None
    own = private.stranger_on_the_way(folder) is None
    return folder if own and os.access(folder, os.W_OK) else None


def _forget_old(parent: Path) -> None:
    folders = sorted(parent.glob("engine-*"), key=lambda f: f.stat().st_mtime, reverse=True)
    for folder in folders[_FOLDERS_KEPT:]:
        for file in folder.rglob("*.nb?"):
            file.unlink(missing_ok=True)


class ByContent(UserProvidedCacheLocator):
    """Names the compiled code of a function after the content of its file; numba's own locator
    names it after the file's path."""

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        file = Path(py_file)
        return f"{file.stem}-{blake2b(file.read_bytes(), digest_size=8).hexdigest()}"


_FOLDER = _cache_folder()
if _FOLDER is not None:
    vars(numba.config)["CACHE_DIR"] = str(_FOLDER)
    vars(numba.config)["CACHE_LOCATOR_CLASSES"] = f"{__name__}.{ByContent.__name__}"


def compiled(function: F) -> F:
    """A kernel: compiled on first use, kept on disk, runs without Python's lock."""
    keep = _FOLDER is not None
    return cast(F, numba.njit(cache=keep, nogil=True, error_model="numpy")(function))


def part(function: F) -> F:
    """A piece of a kernel, always compiled into its caller."""
    return cast(F, numba.njit(forceinline=True, nogil=True, error_model="numpy")(function))


def shared(*rules: Callable[..., object]) -> None:
    """Let kernels call these rules, which stay Python for all other callers."""
    for rule in rules:
        register_jitable(forceinline=True, nogil=True, error_model="numpy")(rule)
