"""A lake: the tables that ingesting fills and everything else reads, on any file system.

    LAKE/versions/        the versions of the lake: which version of each table belongs to it
    LAKE/memberships/     the topics of each user, and since when
    LAKE/events/          what users did in topics: every row with its time, however often
    LAKE/users/, topics/  the dictionaries: a name for each number
    LAKE/rejects/         rows that could not be read, with file, line and reason
    LAKE/sources/         the files that were read
    LAKE/quality/         what became of the rows of each ingest
    LAKE/trace/           what peers did, where a trace was ingested
    LAKE/universes/NAME/  what was drawn from the lake

Each is a Delta table (`delta`), which any reader of Delta opens. Users and topics are numbered
0, 1, 2 … without gaps; a number, once given, stays. A membership is a distinct (user, topic), with
the earliest time known or none.

One commit of Delta changes one table. So the lake has a table of its own, `versions`, and consists
of the table versions that its last entry names: a reader that goes by it sees all tables as of one
moment, and a run that fails leaves the lake as it was. A reader that has opened a lake keeps
reading the version that it opened; old ones can be read until `tidied` removes them.

The next version is a *draft*. Its files are written beside the others, and nothing names them. Then
the tables are committed, those last that refer to others, and in the end `versions`. If another run
has committed meanwhile, that last step fails, and the tables go back to what `versions` names; the
next draft does the same for a run that was killed between two commits.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow
from deltalake import CommitProperties
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from weft.errors import WeftError
from weft.pipeline import delta, tables
from weft.pipeline.delta import Overtaken, Staged
from weft.pipeline.location import Location, Unwritable
from weft.pipeline.resources import claimed
from weft.pipeline.schemas import (
    HAPPENED,
    KEPT_TRACE,
    LAKE_VERSION,
    MEMBERSHIP,
    QUALITY,
    REJECT,
    SOURCE,
    TOPIC,
    USER,
)

VERSIONS = "versions"
LAYOUT = 2
"""The number of this layout; a lake of a later one is refused."""
OLD_POINTER = "lake.json"
"""What a lake of layout 1 has in place of `versions` (`conversion`)."""

UNIVERSES = "universes"
SHAPES: dict[str, StructType] = {
    "users": USER,
    "topics": TOPIC,
    "rejects": REJECT,
    "sources": SOURCE,
    "quality": QUALITY,
    "trace": KEPT_TRACE,
    "events": HAPPENED,
    "memberships": MEMBERSHIP,
}
"""The tables, in the order in which they are committed: numbers are named before they are used."""
KEEP = 1
"""How many versions stay when a lake is tidied."""
_STAGING = ".staging-"
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

Address = str | Path | Location


class NotALake(WeftError):
    """There is no lake, or none that this version can read; the text says why."""


# --- versions -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Version:
    """One version of a lake: of each table its version and its rows."""

    number: int = 0
    tables: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    content: str = ""  # names what was ingested: the same in every lake with the same history
    at: datetime = _NEVER

    @staticmethod
    def read(place: Address, number: int | None = None, as_of: datetime | None = None) -> Version:
        """The version that a lake is at, or an older one by its number or its time."""
        known = history(place)[0]
        if number is None and as_of is None:
            return known[-1]
        for each in reversed(known):
            if each.number == number or (as_of is not None and each.at <= as_of):
                return each
        first, last = known[0], known[-1]
        raise NotALake(
            f"{place}: no version {number}; there are {first.number} to {last.number}"
            if as_of is None
            else f"{place}: no version as old as {as_of:%Y-%m-%d %H:%M:%S}; the oldest is version "
            f"{first.number} of {first.at:%Y-%m-%d %H:%M:%S}"
        )

    def write(self, place: Address, forgotten: int = 0) -> None:
        """Make this the version of a lake, in one step; raises `Overtaken` if it is not the next.
        Versions with a number up to `forgotten` are no longer listed."""
        folder = Location.of(place) / VERSIONS
        known, base = history(place) if delta.is_there(folder) else ([], None)
        if self.number != (known[-1].number if known else 0) + 1:
            raise Overtaken(f"{place}: another run has written to it meanwhile")
        listed = [each for each in known if each.number > forgotten]
        rows = [row for each in [*listed, self] for row in each._rows()]
        new = delta.staged_rows(rows, folder, LAKE_VERSION)
        try:
            delta.changed(folder, base, new, whole=True)
        except BaseException:
            new.folder.remove()
            raise

    def _rows(self) -> list[dict[str, object]]:
        """This version as rows of LAKE_VERSION, one for each table."""
        common = {
            "layout": LAYOUT,
            "version": self.number,
            "at": self.at,
            "content": self.content,
        }
        return [
            {**common, "table": name, "table_version": number, "rows": self.rows.get(name, 0)}
            for name, number in self.tables.items()
        ] or [{**common, "table": None, "table_version": None, "rows": None}]


def history(place: Address) -> tuple[list[Version], int]:
    """The versions of a lake that can be read, the oldest first; and at which version of its own
    the table is that says so."""
    location = Location.of(place)
    if not delta.is_there(location / VERSIONS):
        if (location / OLD_POINTER).exists():
            raise NotALake(
                f"{place}: made by an older weft; 'weft data convert {place}' converts it"
            )
        raise NotALake(f"{place}: no lake here; 'weft data ingest FILE --out {place}' makes one")
    try:
        table = delta.opened(location / VERSIONS)
        assert table is not None
        rows = delta.rows_of(location / VERSIONS, table.version())
        layouts = {row["layout"] for row in rows}
        grouped: dict[int, list[dict[str, Any]]] = {}
        for row in rows:
            grouped.setdefault(row["version"], []).append(row)
        found = [_version(grouped[number]) for number in sorted(grouped)]
    except (DeltaError, OSError, KeyError, TypeError, pyarrow.ArrowException) as error:
        raise NotALake(f"{location / VERSIONS}: damaged, this is not what weft wrote") from error
    if layouts != {LAYOUT} or not found:
        raise NotALake(f"{place}: made by another version of weft (layout {layouts or 'unknown'})")
    return found, int(table.version())


def _version(rows: Sequence[dict[str, Any]]) -> Version:
    named = [row for row in rows if row["table"] is not None]
    return Version(
        rows[0]["version"],
        {row["table"]: row["table_version"] for row in named},
        {row["table"]: row["rows"] for row in named},
        rows[0]["content"],
        rows[0]["at"],
    )


def is_lake(place: Address) -> bool:
    """Whether there is a lake, of this layout or an older one."""
    return delta.is_there(Location.of(place) / VERSIONS) or is_old(place)


def is_old(place: Address) -> bool:
    """Whether there is a lake that must be converted first."""
    location = Location.of(place)
    return (location / OLD_POINTER).exists() and not delta.is_there(location / VERSIONS)


# --- reading --------------------------------------------------------------------------------------


class Lake:
    """A lake to read, at the version it has now or at an older one."""

    def __init__(
        self, place: Address, version: int | None = None, as_of: datetime | None = None
    ) -> None:
        self.place = Location.of(place)
        self.version = Version.read(self.place, version, as_of)

    @property
    def path(self) -> Path:
        """The folder of a lake on this machine."""
        return self.place.local

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

    def files(self, table: str) -> list[Location]:
        """The files of a table in this version of the lake; `NotALake` if the table is not as this
        version names it, which would otherwise be one without rows."""
        number, folder = self.version.tables.get(table), self.place / table
        if number is None:
            return []
        try:
            if not delta.is_there(folder):
                raise NotALake(f"{folder}: damaged, version {number} of this table is gone")
            return delta.files_of(folder, number)
        except DeltaError as error:
            why = str(error).partition("\n")[0]
            raise NotALake(f"{folder}: damaged, version {number} cannot be read ({why})") from error

    def few(self, table: str) -> list[tables.Row]:
        """All rows of a table that is small, without Spark."""
        return [row for file in self.files(table) for row in tables.read_few(file)]

    def table(self, spark: SparkSession, name: str) -> DataFrame:
        """A table by its name; an empty one if nothing was ever written to it."""
        return tables.read_files(spark, self.files(name), SHAPES[name])

    def universes(self) -> list[str]:
        """The names of the universes that were drawn from this lake."""
        return [name for name in (self.place / UNIVERSES).names() if _NAME.fullmatch(name)]

    def universe_folder(self, name: str) -> Location:
        """Where a universe of this name is, or will be."""
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"a universe's name is letters, digits, '.', '_' and '-', not {name!r}"
            )
        return self.place / UNIVERSES / name

    def universe(self, spark: SparkSession, name: str) -> DataFrame:
        """The memberships of a universe, in the lake's numbers: `MEMBERSHIP`."""
        table = self.universe_folder(name) / "memberships"
        if not delta.is_there(table):
            known = ", ".join(self.universes()) or "none yet; 'weft data universe' makes them"
            raise NotALake(f"{self.place}: no universe {name!r} here (there are: {known})")
        return tables.read_files(spark, delta.files_of(table), MEMBERSHIP)


# --- the next version -----------------------------------------------------------------------------


class Draft:
    """A version that is being made. Use `drafted`, which cleans up."""

    def __init__(self, place: Location, base: Version) -> None:
        self._place = place
        self._base = base
        self._staged: dict[str, tuple[Staged, bool, Sequence[str]]] = {}
        self._all: list[Staged] = []
        self.staging = place / f"{_STAGING}{uuid.uuid4().hex}"

    def add(self, table: str, frame: DataFrame, gone: Sequence[Location] = ()) -> Staged:
        """More rows for a table, in the place of some of its files."""
        return self._stage(table, frame, gone, whole=False)

    def add_rows(self, table: str, rows: Sequence[Sequence[object]]) -> None:
        """A few more rows for a table, without Spark."""
        shape = SHAPES[table]
        named = [dict(zip(shape.names, row, strict=True)) for row in rows]
        new = delta.staged_rows(named, self._place / table, shape)
        self._all.append(new)
        self._staged[table] = (new, False, ())

    def replace(self, table: str, frame: DataFrame) -> Staged:
        """All rows of a table."""
        return self._stage(table, frame, (), whole=True)

    def _stage(
        self, table: str, frame: DataFrame, gone: Sequence[Location], *, whole: bool
    ) -> Staged:
        folder = self._place / table
        new = delta.staged(frame, folder, SHAPES[table])
        self._all.append(new)
        paths = [each.url.removeprefix(f"{folder.url}/") for each in gone]
        self._staged[table] = (new, whole, paths)
        if not new.files:
            new.folder.remove()
        return new

    @property
    def number(self) -> int:
        """The number that the version will have."""
        return self._base.number + 1

    def rows(self, table: str) -> int:
        """How many rows a table will have, unless some of its files are removed."""
        known = self._base.rows.get(table, 0)
        if table not in self._staged:
            return known
        new, whole, _ = self._staged[table]
        return new.rows if whole else known + new.rows

    def commit(
        self,
        sources: Iterable[tuple[str, ...]],
        at: datetime | None = None,
        rows: dict[str, int] | None = None,
        content: str | None = None,
    ) -> Version:
        """Make it the lake; raises `Overtaken`, and takes all back, if another run was faster.

        `sources` name what was read; with all that was read before they name the lake's content.
        `rows` are those of tables that lost files.
        """
        numbers, counts = dict(self._base.tables), dict(self._base.rows)
        try:
            for table, shape in SHAPES.items():
                if table not in self._staged:
                    continue
                new, whole, gone = self._staged[table]
                if not new.files and not gone and not (whole and table in numbers):
                    continue
                folder = self._place / table
                latest = delta.restored(folder, numbers.get(table), shape)
                numbers[table] = delta.changed(folder, latest, new, whole=whole, gone=gone)
                counts[table] = (rows or {}).get(table, self.rows(table))
            past = repr((self._base.content, sorted(sources))).encode()
            made = Version(
                self._base.number + 1,
                numbers,
                counts,
                content or hashlib.sha256(past).hexdigest(),
                at or datetime.now(UTC),
            )
            made.write(self._place)
        except BaseException:
            settle(self._place)
            raise
        self._all.clear()
        return made

    def discard(self) -> None:
        """Remove what was not committed."""
        self.staging.remove()
        for each in self._all:
            each.folder.remove()


def settle(place: Location) -> None:
    """Make the version of each table that the lake names its latest, because other readers of Delta
    read the latest."""
    named = Version.read(place).tables if delta.is_there(place / VERSIONS) else {}
    for name, shape in SHAPES.items():
        delta.restored(place / name, named.get(name), shape)


@contextmanager
def drafted(place: Address) -> Iterator[Draft]:
    """A draft of the next version. Without `commit` nothing changes. On this machine one run at a
    time makes drafts; elsewhere the first one to commit wins."""
    location = Location.of(place)
    if location.is_local and location.exists() and not location.local.is_dir():
        raise NotALake(f"{location}: a file, not a folder; choose another place for --out")
    new = not location.exists()
    known = delta.is_there(location / VERSIONS)
    strange = [] if known else [each for each in location.names() if not _is_own(each)]
    if OLD_POINTER in strange:
        Version.read(location)  # says what to do
    if strange:
        raise NotALake(f"{location}: not a lake, and not empty; choose another folder for --out")
    try:
        with claimed(location.local) if location.is_local else nullcontext():
            base = Version.read(location) if known else Version()
            draft = Draft(location, base)
            try:
                yield draft
            finally:
                draft.discard()
                _sweep(location)
    finally:
        if new and location.is_local and location.exists() and not location.names():
            location.local.rmdir()


def _is_own(name: str) -> bool:
    """Whether a killed run may have left this in a folder that is no lake yet."""
    return name.startswith(_STAGING) or name in (*SHAPES, VERSIONS)


def _sweep(place: Location) -> None:
    """Remove what killed runs left, where no other run can be at work: their staging, and folders
    of tables that were never committed, so that no version names what is in them."""
    if not place.is_local:
        return
    for leftover in place.local.glob(f"{_STAGING}*"):
        Location.of(leftover).remove()
    for table in SHAPES:
        folder = place / table
        if folder.local.is_dir() and not delta.is_there(folder):
            folder.remove()


# --- tidying --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tidied:
    """What tidying did."""

    version: Version
    forgotten: int  # versions
    compacted: int  # files that were put together with others
    removed: int  # files


def tidied(place: Address, keep: int = KEEP, young_hours: int = 0) -> Tidied:
    """Put small files together, and remove all but the last `keep` versions with their files. Files
    younger than `young_hours` stay, as other runs may be writing them."""
    location = Location.of(place)
    try:
        return _tidied(location, keep, young_hours)
    except DeltaError as error:
        raise Unwritable(location, error) from error


def _tidied(location: Location, keep: int, young_hours: int) -> Tidied:
    history(location)  # before a folder is made to be held
    with claimed(location.local) if location.is_local else nullcontext():
        known, _ = history(location)
        settle(location)
        base = known[-1]
        numbers, compacted = {}, 0
        for name in base.tables:
            table = delta.opened(location / name)
            assert table is not None
            done = table.optimize.compact(commit_properties=CommitProperties(max_commit_retries=0))
            compacted += int(done["numFilesRemoved"])
            numbers[name] = table.version()
        listed, version = known, base
        if compacted or len(known) > keep:
            when = datetime.now(UTC)
            version = Version(base.number + 1, numbers, base.rows, base.content, when)
            listed = [*known, version][-keep:]
            version.write(location, forgotten=listed[0].number - 1)
        removed = 0
        for name in base.tables:
            stay = {each.tables[name] for each in listed if name in each.tables}
            removed += len(_vacuumed(location / name, sorted(stay), young_hours))
        removed += len(_vacuumed(location / VERSIONS, None, young_hours))
    return Tidied(version, sum(each not in listed for each in known), compacted, removed)


def _vacuumed(folder: Location, stay: list[int] | None, young_hours: int) -> list[str]:
    table = delta.opened(folder)
    assert table is not None
    return table.vacuum(
        young_hours,
        dry_run=False,
        enforce_retention_duration=False,
        full=True,
        keep_versions=stay,
    )
