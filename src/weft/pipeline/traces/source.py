"""Where a trace is: files of JSON lines, Parquet in the same shape, or a lake."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.pipeline.tables import SUFFIX
from weft.pipeline.traces.read import SUFFIXES

FOLDER = "trace"
"""The trace of a lake or of a demonstration, within its folder."""


class NoTrace(Exception):
    """There is no trace where one should be; the text says what was looked for."""


class BadTrace(Exception):
    """A trace cannot be read; the text says what Spark said."""


@dataclass(frozen=True)
class Source:
    """Files that hold one trace, all of a kind."""

    paths: tuple[Path, ...]
    parquet: bool

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(path.stat().st_size for path in self.paths)


def find(given: Sequence[Path]) -> Source:
    """The trace in these files and folders."""
    files = [file for path in given for file in _files(path)]
    parquet = [file for file in files if file.name.endswith(SUFFIX)]
    if parquet and len(parquet) < len(files):
        raise NoTrace(
            f"{parquet[0]} is Parquet and other files are JSON lines; measure one or the other"
        )
    return Source(tuple(files), bool(parquet))


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise NoTrace(f"{path}: no such file or folder")
    if path.is_file():
        if not path.name.endswith((SUFFIX, *SUFFIXES)):
            raise NoTrace(f"{path}: a trace ends in {_list((*SUFFIXES, SUFFIX))}")
        return [path]
    for folder in (path / FOLDER, path):
        found = listed(folder)
        if found:
            return found
    raise NoTrace(f"{path}: no trace here (files that end in {_list((*SUFFIXES, SUFFIX))})")


def listed(folder: Path) -> list[Path]:
    """The files of a trace in a folder: its JSON lines, or else its Parquet, also below it."""
    lines = [each for each in _visible(folder.glob("*")) if each.name.endswith(SUFFIXES)]
    return sorted(lines or _visible(folder.rglob(f"*{SUFFIX}")))


def _visible(found: Iterable[Path]) -> list[Path]:
    return [each for each in found if each.is_file() and not each.name.startswith((".", "_"))]


def _list(suffixes: Sequence[str]) -> str:
    return ", ".join(suffixes[:-1]) + " or " + suffixes[-1]
