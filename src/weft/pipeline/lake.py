"""A lake: the folder of tables that ingesting fills and everything else reads.

    LAKE/lake.json                     which parts make up each table, and how many rows it has
    LAKE/memberships/000002.parquet/   the topics of each user, and since when
    LAKE/users/000001.parquet/ ...     the dictionaries: a name for each number
    LAKE/rejects/...                   rows that could not be read, with file, line and reason
    LAKE/sources/...                   the files that were read
    LAKE/trace/...                     what peers did, where a trace was ingested
    LAKE/universes/NAME/               what was drawn from the lake

Users and topics are numbered 0, 1, 2 … without gaps; a number, once given, stays. A membership is
a distinct (user, topic), with the earliest time known or none.

`lake.json` is the lake: whatever it does not name is not there. It is replaced last and by one
rename, so a lake is as it was or as it should be, whatever happens in between. A reader that has
opened a lake keeps reading the version that it opened: its parts stay until the version after the
next.

The next version is a *draft*: written beside the present one, and unseen until it is complete.
Whatever stops the work, the lake stays as it was. What a killed process left behind is not named
by `lake.json` and goes when the next draft is begun.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from weft.errors import WeftError
from weft.pipeline import tables
from weft.pipeline.resources import claimed, put
from weft.pipeline.schemas import MEMBERSHIP, REJECT, SOURCE, TOPIC, TRACE, USER

POINTER = "lake.json"
LAYOUT = 1
"""The number of this layout; a lake of a later one is refused."""

UNIVERSES = "universes"
SHAPES: dict[str, StructType] = {
    "memberships": MEMBERSHIP,
    "users": USER,
    "topics": TOPIC,
    "rejects": REJECT,
    "sources": SOURCE,
    "trace": TRACE,
}
_STAGING = ".staging-"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class NotALake(WeftError):
    """The folder is no lake, or none that this version can read; the text says why."""


@dataclass(frozen=True)
class Version:
    """What `lake.json` says: the parts of each table in the order they came, its rows, and the
    parts of the version before that are no longer part of it."""

    number: int = 0
    parts: dict[str, list[str]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    retired: dict[str, list[str]] = field(default_factory=dict)
    content: str = ""  # names what was ingested: the same in every lake with the same history

    @staticmethod
    def read(folder: Path) -> Version:
        """The version that a lake is at."""
        try:
            known = json.loads((folder / POINTER).read_text())
            layout = known["weft_lake"]
            version = Version(
                known["version"],
                known["parts"],
                known["rows"],
                known["retired"],
                known["content"],
            )
        except (FileNotFoundError, NotADirectoryError):
            raise NotALake(
                f"{folder}: no lake here; 'weft data ingest FILE --out {folder}' makes one"
            ) from None
        except (ValueError, KeyError, TypeError):
            raise NotALake(f"{folder / POINTER}: damaged, this is not what weft wrote") from None
        if layout != LAYOUT:
            raise NotALake(f"{folder}: made by another version of weft (layout {layout})")
        return version

    def write(self, folder: Path) -> None:
        """Make this the version of the lake, in one step."""
        text = json.dumps(
            {
                "weft_lake": LAYOUT,
                "version": self.number,
                "parts": self.parts,
                "rows": self.rows,
                "retired": self.retired,
                "content": self.content,
            },
            indent=1,
        )
        put(folder / POINTER, text + "\n")


class Lake:
    """A lake to read, at the version it has now."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).resolve()
        self.version = Version.read(self.path)

    def rows(self, table: str) -> int:
        """How many rows a table has; 0 for one that is not there."""
        return self.version.rows.get(table, 0)

    def memberships(self, spark: SparkSession) -> DataFrame:
        """The topics that users are subscribed to: `MEMBERSHIP`, distinct (user, topic)."""
        return self.table(spark, "memberships")

    def users(self, spark: SparkSession) -> DataFrame:
        """The users' names: `USER`."""
        return self.table(spark, "users")

    def topics(self, spark: SparkSession) -> DataFrame:
        """The topics' names: `TOPIC`."""
        return self.table(spark, "topics")

    def table(self, spark: SparkSession, name: str) -> DataFrame:
        """A table by its name; an empty one if nothing was ever written to it."""
        shape = SHAPES[name]
        parts = self.version.parts.get(name, [])
        if not parts:
            return spark.createDataFrame([], shape)
        return tables.read_parts(spark, self.path / name, parts, shape)

    def universes(self) -> list[str]:
        """The names of the universes that were drawn from this lake."""
        folder = self.path / UNIVERSES
        if not folder.is_dir():
            return []
        return sorted(each.name for each in folder.iterdir() if _NAME.fullmatch(each.name))

    def universe_folder(self, name: str) -> Path:
        """Where a universe of this name is, or will be."""
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"a universe's name is letters, digits, '.', '_' and '-', not {name!r}"
            )
        return self.path / UNIVERSES / name

    def universe(self, spark: SparkSession, name: str) -> DataFrame:
        """The memberships of a universe, in the lake's numbers: `MEMBERSHIP`."""
        folder = self.universe_folder(name) / "memberships.parquet"
        if not folder.is_dir():
            known = ", ".join(self.universes()) or "none yet; 'weft data universe' makes them"
            raise NotALake(f"{self.path}: no universe {name!r} here (there are: {known})")
        return tables.read(spark, folder, MEMBERSHIP)


# --- the next version -----------------------------------------------------------------------------


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
        raise NotALake(f"{folder}: not a lake, and not empty; choose another folder for --out")
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
    """Remove what is not part of the lake: staging folders, and parts that it does not name."""
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
