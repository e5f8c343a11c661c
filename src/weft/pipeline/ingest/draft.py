"""The next version of a lake: written beside the present one, and unseen until it is complete.

Whatever stops the work, the lake stays as it was. What a killed process left behind is not named
by `lake.json` and goes when the next draft is begun.
"""

from __future__ import annotations

import hashlib
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from weft.pipeline import tables
from weft.pipeline.claim import claimed
from weft.pipeline.ingest.options import BadInput
from weft.pipeline.lake import POINTER, SHAPES, Version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STAGING = ".staging-"


class Draft:
    """A version that is being made. Use `drafted`, which cleans up."""

    def __init__(self, folder: Path, base: Version) -> None:
        self._folder = folder
        self._base = base
        self._key = f"{base.number + 1:06d}"
        self._written: dict[str, bool] = {}  # table: whether it takes the place of what there was
        self._rows: dict[str, int] = {}
        self.staging = folder / f"{_STAGING}{uuid.uuid4().hex}"

    def add(self, table: str, frame: DataFrame, rows: int) -> None:
        """More rows for a table: so many."""
        if rows:
            self._write(table, frame, whole=False)
            self._rows[table] = self._base.rows.get(table, 0) + rows

    def replace(self, table: str, frame: DataFrame) -> None:
        """All rows of a table."""
        self._write(table, frame, whole=True)
        path = self._folder / table / (self._key + tables.SUFFIX)
        self._rows[table] = tables.read(frame.sparkSession, path, SHAPES[table]).count()

    def _write(self, table: str, frame: DataFrame, *, whole: bool) -> None:
        self._written[table] = whole
        (self._folder / table).mkdir(exist_ok=True)
        tables.write(frame, self._folder / table / (self._key + tables.SUFFIX))

    def rows(self, table: str) -> int:
        """How many rows a table will have."""
        return self._rows.get(table, self._base.rows.get(table, 0))

    def commit(self, sources: Iterable[tuple[str, ...]]) -> Version:
        """Make it the lake. Parts that were replaced stay for one more version, for readers.

        `sources` name what was read; with all that was read before they name the lake's content.
        """
        parts = {name: list(keys) for name, keys in self._base.parts.items()}
        retired = {}
        for table, whole in self._written.items():
            if whole:
                retired[table] = parts.pop(table, [])
            parts.setdefault(table, []).append(self._key)
        rows = {**self._base.rows, **self._rows}
        history = repr((self._base.content, sorted(sources))).encode()
        content = hashlib.sha256(history).hexdigest()
        version = Version(self._base.number + 1, parts, rows, retired, content)
        version.write(self._folder)
        return version


@contextmanager
def drafted(folder: Path) -> Iterator[Draft]:
    """A draft of the next version, for one process at a time. Without `commit` nothing changes."""
    new = not folder.exists()
    if not new and not (folder / POINTER).exists() and any(_visible(folder)):
        raise BadInput(f"{folder}: not a lake, and not empty; choose another folder for --out")
    try:
        with claimed(folder):
            base = Version.read(folder) if (folder / POINTER).exists() else Version()
            _tidy(folder, base)
            try:
                yield Draft(folder, base)
            finally:
                now = Version.read(folder) if (folder / POINTER).exists() else base
                _tidy(folder, now)
    finally:
        if new and folder.exists() and not any(folder.iterdir()):
            folder.rmdir()


def _visible(folder: Path) -> Iterator[Path]:
    return (each for each in folder.iterdir() if not each.name.startswith(_STAGING))


def _tidy(folder: Path, version: Version) -> None:
    """Remove what is not part of the lake: staging folders, and parts that nobody names."""
    for leftover in folder.glob(f"{_STAGING}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    for table in SHAPES:
        named = {*version.parts.get(table, []), *version.retired.get(table, [])}
        place = folder / table
        if not place.is_dir():
            continue
        for part in place.iterdir():
            if part.name.removesuffix(tables.SUFFIX) not in named:
                shutil.rmtree(part, ignore_errors=True)
        if not named:
            place.rmdir()
