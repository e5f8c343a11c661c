"""Reading and writing Parquet: the only place that does.

Three kinds of table. A *keyed* table is a folder with one file per task, named by the task's key.
Workers add to it while a job runs: each writes aside and renames, so a file is there whole or not
at all, a task that is run twice (a lost worker, a second attempt) leaves one file, and what is
finished is seen by listing names. Or a task only stages its file and answers with its name, and the
driver accepts what it was told: then a lost attempt leaves nothing that is read. A *plain* table is
a folder that Spark writes in one go; it appears, or takes the place of an older one, when it is
complete. The third kind is *files* that something else names, such as the log of a Delta table
(`delta`): written anywhere, seen by nobody until they are named.

Folders are seen by the driver and by all workers: any path with a local master, a shared file
system or an address (`location`) with another. Spark opens files on this machine by itself. For
those elsewhere it needs jars that pip does not bring, so there its tasks write and read through
pyarrow.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow
from pyarrow import RecordBatch, parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from weft.pipeline.location import Location
from weft.pipeline.resources import replace_folder
from weft.pipeline.schemas import TEXT, WHOLE, columns
from weft.pipeline.session import parallelism

Row: TypeAlias = dict[str, Any]
SUFFIX = ".parquet"
NOTE = "weft."
_FILE = columns(name=TEXT, size=WHOLE, modified_ms=WHOLE, stats=TEXT)
_URL = columns(url=TEXT)
_NO_GLOB = ("globPaths", "false")  # a path is what it says, also with '[' or '*' in it
_DICTIONARIES = "parquet.enable.dictionary"
_WRITER = {"parquet.writer.version": "v2", "compression": "snappy"}
"""Whole numbers and times are written as differences, which version 1 of Parquet does not have.
measured: 10⁶ events, without dictionaries of numbers, are written and read for half the CPU time,
in four fifths of the room. Texts are written so, too; whatever a cluster's settings are, never
without compression, because Spark (4.3) then reads other texts, without an error."""
_BRIEF = {
    "parquet.writer.version": "v1",
    "compression": "lz4_raw",
    _DICTIONARIES: "false",
    "parquet.column.statistics.enabled": "false",
    "parquet.size.statistics.enabled": "false",
    "parquet.page.row.count.limit": str(1 << 20),
}
"""Values one after the other, as version 1 of Parquet has them. measured: of 3·10⁶ staged lines,
names and times are read for 0.19 s of CPU time in place of 0.26, from 64 MB in place of 47.
Statistics of values are left out: only the search for bad rows could skip a part of such a table by
them, and where it can skip none it takes 0.25 s of CPU time for 10⁷ rows. Pages end at 1 MB, not at
Parquet's 20,000 rows. measured: an ingest of 2·10⁶ rows takes 2 % less CPU time so."""
_TEXT_DIFFERENCES = "DELTA_BYTE_ARRAY"
_TEXT_BOUND = 32  # guess: longer texts bound nothing that a reader could skip files by


def write_part(
    folder: Path,
    key: str,
    columns: Mapping[str, object],
    shape: StructType,
    notes: Mapping[str, str] | None = None,
) -> int:
    """Add the rows of one task to a keyed table; returns how many. Runs in workers.

    `notes` are kept beside the rows: facts about the run that are not among its results.
    """
    aside, rows = stage_part(folder, key, columns, shape, notes)
    try:
        accept_part(folder, key, aside)
    finally:
        (folder / aside).unlink(missing_ok=True)
    return rows


def stage_part(
    folder: Path,
    key: str,
    columns: Mapping[str, object],
    shape: StructType,
    notes: Mapping[str, str] | None = None,
) -> tuple[str, int]:
    """Write the rows of one task where no reader looks; returns the file's name and the number of
    rows. Runs in workers."""
    table = pyarrow.table(dict(columns), schema=to_arrow_schema(shape, timezone="UTC"))
    table = table.replace_schema_metadata(
        {NOTE + name: text for name, text in (notes or {}).items()}
    )
    folder.mkdir(parents=True, exist_ok=True)
    aside = f".{key}.{uuid.uuid4().hex}"
    try:
        parquet.write_table(table, folder / aside)
    except BaseException:
        (folder / aside).unlink(missing_ok=True)
        raise
    return aside, int(table.num_rows)


def accept_part(folder: Path, key: str, aside: str) -> None:
    """Make rows that were staged those of a task."""
    os.replace(folder / aside, folder / (key + SUFFIX))


def finished(folder: Path) -> set[str]:
    """The keys of the tasks whose rows a keyed table holds."""
    if not folder.is_dir():
        return set()
    return {
        entry.name.removesuffix(SUFFIX)
        for entry in os.scandir(folder)
        if entry.name.endswith(SUFFIX) and not entry.name.startswith(".")
    }


def notes_of(folder: Path, key: str) -> dict[str, str]:
    """The notes that a finished task's rows were written with."""
    kept = parquet.read_schema(folder / (key + SUFFIX)).metadata or {}
    notes = {name.decode(): text.decode() for name, text in kept.items()}
    return {name.removeprefix(NOTE): text for name, text in notes.items() if name.startswith(NOTE)}


def forget(folder: Path, keys: Iterable[str]) -> None:
    """Remove the rows of these tasks."""
    for key in keys:
        (folder / (key + SUFFIX)).unlink(missing_ok=True)


def tidy(folder: Path) -> None:
    """Remove what a killed worker left unfinished. Not while another run writes here."""
    if folder.is_dir():
        for leftover in folder.glob(".*"):
            leftover.unlink()


def read_parts(
    spark: SparkSession, folder: Path, keys: Iterable[str], shape: StructType
) -> DataFrame:
    """The rows of these tasks, which must be finished."""
    paths = [Location.of(folder / (key + SUFFIX)).for_spark for key in sorted(keys)]
    return spark.read.schema(shape).option(*_NO_GLOB).parquet(*paths)


def write(frame: DataFrame, folder: Path | Location, *, brief: bool = False) -> None:
    """Write a plain table, in the place of an older one if there is one; at an address there must
    be none. Tables that are soon removed are written `brief`: without dictionaries of values."""
    place = Location.of(folder)
    if not place.is_local:
        write_files(frame, place)
        return
    path = place.local
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        chosen = _BRIEF if brief else _WRITER
        frame.write.options(**chosen).parquet(Location.of(aside).for_spark)
        replace_folder(aside, path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def read(spark: SparkSession, folder: Path | Location, shape: StructType) -> DataFrame:
    """A plain table."""
    place = Location.of(folder)
    if place.is_local:
        return spark.read.schema(shape).option(*_NO_GLOB).parquet(place.for_spark)
    files = [place / name for name in place.names() if name.endswith(SUFFIX)]
    return read_files(spark, files, shape)


def read_folders(spark: SparkSession, folders: Sequence[Path], shape: StructType) -> DataFrame:
    """Several plain tables of one shape as one."""
    if not folders:
        return spark.createDataFrame([], shape)
    places = [Location.of(folder).for_spark for folder in folders]
    return spark.read.schema(shape).option(*_NO_GLOB).parquet(*places)


def count(folder: Path | Location) -> int:
    """How many rows a plain table has, from what its files say about themselves."""
    place = Location.of(folder)
    names = [name for name in place.names() if name.endswith(SUFFIX) and name[0] not in "._"]
    return count_files([place / name for name in names])


def count_files(files: Iterable[Location]) -> int:
    """How many rows some files have."""
    total = 0
    for file in files:
        with file.reached() as (system, path):
            total += int(parquet.read_metadata(path, filesystem=system).num_rows)
    return total


# --- files that something else names --------------------------------------------------------------


@dataclass(frozen=True)
class File:
    """A file that was written: what Delta keeps of it, `stats` as JSON."""

    name: str
    size: int
    modified_ms: int
    stats: str


def write_files(frame: DataFrame, folder: Location) -> list[File]:
    """Write rows to files in a new folder that nothing names yet; returns the files, none if there
    are no rows."""
    return _written_by_spark(frame, folder) if folder.is_local else _written_here(frame, folder)


def _written_by_spark(frame: DataFrame, folder: Location) -> list[File]:
    numbers = (each.name for each in frame.schema if each.dataType != TEXT)
    undone = {f"{_DICTIONARIES}#{name}": "false" for name in numbers}
    frame.write.options(**undone, **_WRITER).parquet(folder.for_spark)
    found = []
    for file in sorted(folder.local.iterdir()):
        stats = _stats(file) if file.name.endswith(SUFFIX) else None
        if stats is None or not stats["numRecords"]:
            file.unlink()  # checksums, a mark of success, the shape of a table without rows
            continue
        known = file.stat()
        modified_ms = known.st_mtime_ns // 1_000_000
        found.append(File(file.name, known.st_size, modified_ms, json.dumps(stats)))
    return found


def _written_here(frame: DataFrame, folder: Location) -> list[File]:
    """Files that tasks write themselves; a task that is run twice leaves one that nothing names."""
    shape = to_arrow_schema(frame.schema, timezone="UTC")

    def work(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        kept = (batch for batch in batches if len(batch))
        first = next(kept, None)
        if first is None:
            return
        name = f"part-{uuid.uuid4().hex}{SUFFIX}"
        system, path = (folder / name).opened()
        with parquet.ParquetWriter(path, shape, filesystem=system) as writer:
            writer.write_batch(first.cast(shape))
            for batch in kept:
                writer.write_batch(batch.cast(shape))
        known = system.get_file_info(path)
        row = {
            "name": name,
            "size": known.size,
            "modified_ms": known.mtime_ns // 1_000_000,
            "stats": json.dumps(_stats(path, system)),
        }
        yield RecordBatch.from_pylist([row], schema=to_arrow_schema(_FILE))

    return [File(**row.asDict()) for row in sorted(frame.mapInArrow(work, _FILE).collect())]


def write_few(rows: Sequence[Row], folder: Location, shape: StructType) -> File:
    """Write a few rows to a file in a new folder, without Spark."""
    file = folder / f"part-{uuid.uuid4().hex}{SUFFIX}"
    table = pyarrow.Table.from_pylist(list(rows), schema=to_arrow_schema(shape, timezone="UTC"))
    if folder.is_local:
        folder.local.mkdir(parents=True)
    with file.reached() as (system, path):
        parquet.write_table(table, path, filesystem=system)
        known = system.get_file_info(path)
        stats = json.dumps(_stats(path, system))
    return File(file.name, known.size, known.mtime_ns // 1_000_000, stats)


def read_few(file: Location) -> list[Row]:
    """All rows of a file, without Spark."""
    with file.told(), file.reader() as opened, parquet.ParquetFile(opened) as rows:
        found: list[Row] = rows.read().to_pylist()
        return found


def _stats(file: Path | str, system: Any = None) -> dict[str, Any]:
    """What Delta keeps of a file, from its footer: rows, and the least and greatest values."""
    footer = parquet.read_metadata(file, filesystem=system)
    low: dict[str, object] = {}
    high: dict[str, object] = {}
    nulls: dict[str, int] = {}
    for number in range(footer.num_columns):
        chunks = [footer.row_group(n).column(number) for n in range(footer.num_row_groups)]
        kept = [each.statistics for each in chunks]
        name = footer.schema.column(number).path
        if "." in name or not kept or any(each is None for each in kept):
            continue
        if all(each.has_null_count for each in kept):  # else a text is too long for statistics
            nulls[name] = sum(each.null_count for each in kept)
        bounds = [each for each in kept if each.has_min_max]
        if len(bounds) < sum(each.num_values > 0 for each in kept) or not bounds:
            continue
        least, most = min(each.min for each in bounds), max(each.max for each in bounds)
        if isinstance(least, date):
            low[name], high[name] = least.isoformat(), most.isoformat()
        elif isinstance(least, int | float) or (
            isinstance(least, str) and max(len(least), len(most)) <= _TEXT_BOUND
        ):
            low[name], high[name] = least, most
    return {"numRecords": footer.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}


def read_files(spark: SparkSession, files: Sequence[Location], shape: StructType) -> DataFrame:
    """The rows of some files; columns that a file does not have are null."""
    if not files:
        return spark.createDataFrame([], shape)
    if files[0].is_local:
        reader = spark.read.schema(shape).option(*_NO_GLOB)
        return reader.parquet(*(file.for_spark for file in files))
    access = files[0].access

    def work(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        for batch in batches:
            for url in batch.column("url").to_pylist():
                yield from _batches_of(Location(url, access), shape)

    named = spark.createDataFrame([(file.url,) for file in files], _URL)
    return named.repartition(min(len(files), 4 * parallelism(spark))).mapInArrow(work, shape)


def _batches_of(file: Location, shape: StructType) -> Iterator[RecordBatch]:
    """The rows of a file in this shape; columns that it does not have are null."""
    wanted = to_arrow_schema(shape, timezone="UTC")
    with file.told(), file.reader() as opened, parquet.ParquetFile(opened) as rows:
        there = [each.name for each in wanted if each.name in rows.schema_arrow.names]
        for batch in rows.iter_batches(columns=there):
            arrays = [
                batch.column(each.name).cast(each.type)
                if each.name in there
                else pyarrow.nulls(len(batch), each.type)
                for each in wanted
            ]
            yield RecordBatch.from_arrays(arrays, schema=wanted)


# --- some of a file -------------------------------------------------------------------------------


def group_bytes(file: Location) -> list[int]:
    """How large the row groups of a file are."""
    with file.reader() as opened:
        known = parquet.read_metadata(opened)
    return [known.row_group(number).total_byte_size for number in range(known.num_row_groups)]


def read_batches(
    place: Location, groups: Iterable[int], shape: StructType, coded: Sequence[str], rows: int
) -> Iterator[RecordBatch]:
    """Some row groups of a file in batches of Arrow; `coded` columns are codes into dictionaries,
    those that are not there are null. Runs in workers, without Spark."""
    fields = [
        pyarrow.field(each.name, pyarrow.dictionary(pyarrow.int32(), each.type))
        if each.name in coded
        else each
        for each in to_arrow_schema(shape)
    ]
    with place.reader() as opened:
        known = parquet.read_schema(opened).names
    there = [each.name for each in fields if each.name in known]
    wanted = list(groups)
    with place.reader() as opened:
        names = _with_codes(parquet.read_metadata(opened), wanted) & set(coded)
    with place.reader() as opened, parquet.ParquetFile(opened, read_dictionary=names) as file:
        batches = file.iter_batches(rows, wanted, columns=there, use_threads=False)
        for batch in batches:
            columns = [
                _as(batch.column(each.name), each.type)
                if each.name in there
                else pyarrow.nulls(len(batch), each.type)
                for each in fields
            ]
            yield pyarrow.RecordBatch.from_arrays(columns, schema=pyarrow.schema(fields))


def _with_codes(footer: parquet.FileMetaData, groups: Iterable[int]) -> set[str]:
    """The columns that Arrow can read as codes into dictionaries; it cannot where texts are written
    as differences."""
    chunks = [
        footer.row_group(group).column(number)
        for group in groups
        for number in range(footer.num_columns)
    ]
    without = {each.path_in_schema for each in chunks if _TEXT_DIFFERENCES in each.encodings}
    return {each.path_in_schema for each in chunks} - without


def _as(column: pyarrow.Array, kind: pyarrow.DataType) -> pyarrow.Array:
    """A column as one of this type, which may be codes into a dictionary."""
    if pyarrow.types.is_dictionary(kind) and not pyarrow.types.is_dictionary(column.type):
        column = column.cast(kind.value_type).dictionary_encode()
    return column.cast(kind)


def read_foreign(spark: SparkSession, paths: Iterable[str]) -> DataFrame:
    """Parquet files of another origin, in the shape they have."""
    return spark.read.parquet(*paths)


def read_arrays(folder: Path, names: Iterable[str]) -> list[npt.NDArray[np.int64]]:
    """Columns of whole numbers of a plain table as arrays, without Spark. Runs in workers."""
    wanted = list(names)
    table = parquet.read_table(folder, columns=wanted)
    return [table.column(name).to_numpy() for name in wanted]


def values(folder: Location, column: str, where: str) -> set[str | None]:
    """The different values of a column of a plain table that is small, in the rows in which
    another column is not null; without Spark."""
    found: set[str | None] = set()
    for name in folder.names():
        if name.endswith(SUFFIX):
            rows = read_few(folder / name)
            found |= {row[column] for row in rows if row[where] is not None}
    return found


def read_small(folder: Path) -> list[Row]:
    """All rows of a plain table that is small, without Spark."""
    rows: list[Row] = parquet.read_table(folder).to_pylist()
    return rows
