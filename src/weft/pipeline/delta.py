"""One Delta table: Parquet files that its log names, so that all readers see the same rows.

Spark writes rows to files that nothing names yet (`staged`); one transaction of `deltalake` then
names them, or fails because another writer was first (`changed`). Spark reads the files that a
version names (`files_of`). No file is renamed and no folder locked: a version of the table is one
file of its log, made only if it is not there, which all file systems can do.

A transaction is never tried again on its own: one that replaces files is right only for the version
that it was made for, and `deltalake` would accept it on top of a later one.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from weft.errors import WeftError
from weft.pipeline import tables
from weft.pipeline.location import Location, Unreachable, Unwritable

LOG = "_delta_log"
"""The folder that makes a folder a table."""
ROWS = "rows-"
"""The names of folders of files begin so. Names with '_' or '.' in front would be left by cleaning.
"""
SETTINGS = {"delta.enableExpiredLogCleanup": "false"}
"""Old versions are removed when a user tidies the lake, not by their age."""


class Overtaken(WeftError):
    """Another writer has changed the table meanwhile."""


@dataclass(frozen=True)
class Staged:
    """Files of a table that its log does not name yet."""

    folder: Location
    shape: StructType
    files: list[AddAction] = field(default_factory=list)

    @property
    def places(self) -> list[Location]:
        """Where the files are."""
        return [self.folder / each.path.rpartition("/")[2] for each in self.files]

    @property
    def rows(self) -> int:
        return sum(json.loads(each.stats)["numRecords"] for each in self.files)


# --- writing --------------------------------------------------------------------------------------


def staged(frame: DataFrame, table: Location, shape: StructType) -> Staged:
    """Write rows to files of the table that no version names."""
    folder = table / f"{ROWS}{uuid.uuid4().hex}"
    try:
        written = tables.write_files(frame, folder)
    except BaseException:  # an interruption as well
        folder.remove()
        raise
    files = [
        AddAction(f"{folder.name}/{each.name}", each.size, {}, each.modified_ms, True, each.stats)
        for each in written
    ]
    return Staged(folder, shape, files)


def staged_rows(rows: Sequence[tables.Row], table: Location, shape: StructType) -> Staged:
    """Write a few rows, which the driver has, to a file of the table that no version names."""
    folder = table / f"{ROWS}{uuid.uuid4().hex}"
    try:
        file = tables.write_few(rows, folder, shape)
    except BaseException:
        folder.remove()
        raise
    path = f"{folder.name}/{file.name}"
    action = AddAction(path, file.size, {}, file.modified_ms, True, file.stats)
    return Staged(folder, shape, [action])


# --- versions -------------------------------------------------------------------------------------


def opened(table: Location, version: int | None = None) -> DeltaTable | None:
    """A version of a table, the latest by default; None if there is no table."""
    if not is_there(table):
        return None
    with table.told():
        return DeltaTable(table.for_delta, version, table.delta_options)


def is_there(table: Location) -> bool:
    """Whether there is a table; `Unreachable` if nobody can tell."""
    try:
        return DeltaTable.is_deltatable(table.for_delta, table.delta_options)
    except (OSError, DeltaError) as error:
        raise Unreachable(table, error) from error


def changed(
    table: Location,
    base: int | None,
    new: Staged,
    *,
    whole: bool = False,
    gone: Sequence[str] = (),
) -> int:
    """Make a version on top of `base` (None: there is no table yet) and return its number.

    The new files are added to what is there, or, `whole`, take its place; files that are `gone`, by
    their paths in the table, are part of it no longer. Raises `Overtaken` if `base` is not the
    latest version.
    """
    with table.told():
        return _changed(table, base, new, whole, gone)


def _changed(
    table: Location, base: int | None, new: Staged, whole: bool, gone: Sequence[str]
) -> int:
    shape = Schema.from_arrow(to_arrow_schema(new.shape, timezone="UTC"))
    once = CommitProperties(max_commit_retries=0)
    try:
        if base is None:
            create_table_with_add_actions(
                table.for_delta,
                shape,
                new.files,
                configuration=SETTINGS,
                storage_options=table.delta_options,
                commit_properties=once,
            )
            return 0
        now_ms = time.time_ns() // 1_000_000
        known = DeltaTable(table.for_delta, base, table.delta_options)
        there = {each.name for each in known.schema().fields}
        added = [each for each in shape.fields if each.name not in there]
        if added:  # a version of its own: adding files alone leaves the columns as they are
            known.alter.add_columns(added, commit_properties=once)
            base = known.version()
        known.create_write_transaction(
            [*new.files, *(RemoveAction(path, True, now_ms, partition_values={}) for path in gone)],
            "overwrite" if whole else "append",
            shape,
            [],
            commit_properties=once,
        )
        return base + 1
    except CommitFailedError as error:
        raise Overtaken(f"{table}: another run has written to it meanwhile") from error
    except DeltaError as error:
        if base is None and is_there(table):
            raise Overtaken(f"{table}: another run has made it meanwhile") from error
        raise Unwritable(table, error) from error


def restored(table: Location, version: int | None, shape: StructType) -> int | None:
    """Make the latest version one with the files of this one (None: with none at all), unless it is
    that already; returns its number, or None if there is no table."""
    latest = opened(table)
    if latest is None:
        return None
    now = latest.version()
    if now == version:
        return now
    wanted = [] if version is None else files_of(table, version)
    if files_of(table) == wanted:
        return now
    if version is None:
        return changed(table, now, Staged(table, shape), whole=True)
    try:
        with table.told():
            latest.restore(version, commit_properties=CommitProperties(max_commit_retries=0))
    except DeltaError as error:
        raise Unwritable(table, error) from error
    return now + 1


def replaced(frame: DataFrame, table: Location, shape: StructType) -> Staged:
    """Make these rows the whole content of a table that belongs to no lake version; in one step, so
    that readers see it as it was or with all rows."""
    known = opened(table)
    new = staged(frame, table, shape)
    try:
        changed(table, None if known is None else known.version(), new, whole=True)
    except BaseException:
        new.folder.remove()
        raise
    return new


# --- reading --------------------------------------------------------------------------------------


def files_of(table: Location, version: int | None = None) -> list[Location]:
    """The files of a version, in an order that is always the same."""
    known = opened(table, version)
    names = [] if known is None else pyarrow.table(known.get_add_actions()).column("path")
    return [table / str(name) for name in sorted(map(str, names))]


def is_plain(table: Location) -> bool:
    """Whether the rows of a table's files are those of the table: none is deleted, no column has
    another name there or is in the names of folders."""
    known = opened(table)
    assert known is not None
    return known.protocol().min_reader_version <= 1 and not known.metadata().partition_columns


def rows_of(table: Location, version: int | None = None) -> list[tables.Row]:
    """All rows of a version of a table that is small, without Spark."""
    return [row for file in files_of(table, version) for row in tables.read_few(file)]
