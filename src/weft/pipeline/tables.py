"""Reading and writing Parquet: the only place that does.

Two kinds of table. A *keyed* table is a folder with one file per task, named by the task's key.
Workers add to it while a job runs: each writes aside and renames, so a file is there whole or not
at all, a task that is run twice (a lost worker, a second attempt) leaves one file, and what is
finished is seen by listing names. A *plain* table is a folder that Spark writes in one go; it
appears, or takes the place of an older one, when it is complete.

The folders are paths that the driver and all workers see: any path with a local master, a shared
file system with another.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow  # type: ignore[import-untyped]
from pyarrow import RecordBatch, parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

Row: TypeAlias = dict[str, Any]
SUFFIX = ".parquet"
NOTE = "weft."


def write_part(
    folder: Path,
    key: str,
    columns: Mapping[str, object],
    shape: StructType,
    notes: Mapping[str, str] | None = None,
) -> int:
    """Add the rows of one task to a keyed table; returns how many. Runs in workers.

    `notes` are kept beside the rows: what is true of the run and no result of it.
    """
    table = pyarrow.table(dict(columns), schema=to_arrow_schema(shape))
    table = table.replace_schema_metadata(
        {NOTE + name: text for name, text in (notes or {}).items()}
    )
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / f".{key}.{uuid.uuid4().hex}"
    try:
        parquet.write_table(table, aside)
        os.replace(aside, folder / (key + SUFFIX))
    finally:
        aside.unlink(missing_ok=True)
    return int(table.num_rows)


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
    paths = [_address(folder / (key + SUFFIX)) for key in sorted(keys)]
    return spark.read.schema(shape).parquet(*paths)


def write(frame: DataFrame, folder: Path) -> None:
    """Write a plain table, in the place of an older one if there is one."""
    aside = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    old = aside.with_name(aside.name + ".old")
    try:
        frame.write.parquet(_address(aside))
        if folder.exists():
            folder.rename(old)
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def read(spark: SparkSession, folder: Path, shape: StructType) -> DataFrame:
    """A plain table."""
    return spark.read.schema(shape).parquet(_address(folder))


def _address(path: Path) -> str:
    """How Spark names a path of the file system, whatever its own default is (as on YARN)."""
    return f"file://{path.resolve()}"


def group_bytes(path: Path) -> list[int]:
    """How large the row groups of a file are."""
    known = parquet.read_metadata(path)
    return [known.row_group(number).total_byte_size for number in range(known.num_row_groups)]


def read_batches(
    path: Path, groups: Iterable[int], shape: StructType, coded: Sequence[str], rows: int
) -> Iterator[RecordBatch]:
    """Some row groups of a file in batches of Arrow; `coded` columns are codes into dictionaries,
    those that are not there are null. Runs in workers, without Spark."""
    fields = [
        pyarrow.field(each.name, pyarrow.dictionary(pyarrow.int32(), each.type))
        if each.name in coded
        else each
        for each in to_arrow_schema(shape)
    ]
    known = parquet.read_schema(path).names
    there = [each.name for each in fields if each.name in known]
    names = [name for name in coded if name in known]
    with parquet.ParquetFile(path, read_dictionary=names) as file:
        batches = file.iter_batches(rows, list(groups), columns=there, use_threads=False)
        for batch in batches:
            columns = [
                batch.column(each.name).cast(each.type)
                if each.name in there
                else pyarrow.nulls(len(batch), each.type)
                for each in fields
            ]
            yield pyarrow.RecordBatch.from_arrays(columns, schema=pyarrow.schema(fields))


def read_foreign(spark: SparkSession, paths: Iterable[str]) -> DataFrame:
    """Parquet files of another origin, in the shape they have."""
    return spark.read.parquet(*paths)


def read_arrays(folder: Path, names: Iterable[str]) -> list[npt.NDArray[np.int64]]:
    """Columns of whole numbers of a plain table as arrays, without Spark. Runs in workers."""
    wanted = list(names)
    table = parquet.read_table(folder, columns=wanted)
    return [table.column(name).to_numpy() for name in wanted]


def count(folder: Path) -> int:
    """How many rows a plain table has, from what its files say about themselves."""
    files = sorted(folder.glob(f"*{SUFFIX}"))
    return sum(int(parquet.read_metadata(file).num_rows) for file in files)


def read_small(folder: Path) -> list[Row]:
    """All rows of a plain table that is small, without Spark."""
    rows: list[Row] = parquet.read_table(folder).to_pylist()
    return rows
