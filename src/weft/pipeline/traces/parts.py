"""A trace in parts: what one task reads of it, and adds up there and then (`adding`).

A part is a span of bytes of a file of JSON lines, a whole packed file, or some row groups of a
Parquet file. A task takes several, about as much as the others, and writes what they add up to as
one file for each piece; nothing else of the trace leaves the worker. A task that is run twice
leaves the same files.

Workers read the files themselves: text need not go through Java, and Parquet keeps its dictionaries
(see `adding`). Lines are counted part by part, so that a bad one can be told with its number
without reading anything again.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from weft.pipeline import tables
from weft.pipeline.packing import packed
from weft.pipeline.schemas import (
    BAD_LINE,
    PART,
    PART_LINES,
    REJECT,
    SMALL,
    TEXT,
    TRACE,
    columns,
    joined,
    selected,
)
from weft.pipeline.session import parallelism
from weft.pipeline.traces import adding, lines
from weft.pipeline.traces.source import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIECE_BYTES = 16 << 20  # guess: of lines, so that tasks can be made equal
BLOCK_BYTES = 4 << 20  # measured: of lines at once; more is not faster
BATCH_ROWS = 1 << 18  # measured: of Parquet at once, some 20 MB
TASKS_PER_CORE = 4  # guess: the last ones end together, and a bar moves
TASK_BYTES_MAX = 512 << 20  # guess: what a task adds up is some tenths of that
TEXT_SHOWN = 200
BAD, LINES = "bad", "lines"
_PACKED = ".gz"
_TO_THE_END = 1 << 62
_NAMES = [each.name for each in TRACE.fields if each.dataType == TEXT]
Batch: TypeAlias = Any  # pyarrow's


class Part(NamedTuple):
    """Some of a file: bytes, or row groups of Parquet."""

    file: str
    start: int
    end: int


class Unreadable(Exception):
    """A file is not what it should be; the text names it."""


# --- which parts ----------------------------------------------------------------------------------


def parts_of(source: Source) -> list[tuple[Part, float]]:
    """The parts of a trace, each with its share of the bytes."""
    cut = _row_groups if source.parquet else _spans
    return [part for path in source.paths for part in cut(path.resolve())]


def _row_groups(path: Path) -> list[tuple[Part, float]]:
    try:
        sizes = tables.group_bytes(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise Unreadable(f"{path}: {error}") from error
    return [(Part(str(path), n, n + 1), float(size)) for n, size in enumerate(sizes)]


def _spans(path: Path) -> list[tuple[Part, float]]:
    size = path.stat().st_size
    if path.name.endswith(_PACKED):
        return [(Part(str(path), 0, _TO_THE_END), float(size))]
    return [(part, float(part.end - part.start)) for part in spans(str(path), 0, size)]


def spans(file: str, start: int, end: int) -> list[Part]:
    """Some bytes of a file in parts; all lines that begin in a part are its own."""
    return [Part(file, at, min(end, at + PIECE_BYTES)) for at in range(start, end, PIECE_BYTES)]


def shared_out(spark: SparkSession, parts: list[tuple[Part, float]]) -> DataFrame:
    """The parts (PART), those of one task together."""
    sizes = np.array([size for _, size in parts], float)
    wanted = max(TASKS_PER_CORE * parallelism(spark), math.ceil(sizes.sum() / TASK_BYTES_MAX))
    count = max(1, min(len(parts), wanted))
    tasks = packed(sizes, count)
    rows = [(*part, int(task)) for (part, _), task in zip(parts, tasks, strict=True)]
    frame = spark.createDataFrame(rows, joined(PART, columns(task=SMALL)))
    return frame.repartitionById(count, F.col("task")).select(*PART.names)


# --- adding up ------------------------------------------------------------------------------------


def add_up(parts: DataFrame, folder: Path) -> None:
    """Write the pieces of these parts (PART) below a folder, as tables with a file per task; and
    those of reading: `bad` lines, and how many `lines` each part has."""

    def work(batches: Iterable[Batch]) -> Iterator[Batch]:
        sums, bad, counts = adding.Sums(), [], []
        for batch in batches:
            for row in batch.to_pylist():
                part = Part(**row)
                number = 0
                for table, wrong, read in blocks(part):
                    sums.add(table)
                    bad += [(*part[:2], number + place + 1, *why) for place, *why in wrong]
                    number += read
                counts.append((*part[:2], number))
        context = TaskContext.get()
        key = f"part-{context.partitionId():05}" if context else "part"
        found = sums.tables()
        for name, shape in adding.SHAPES.items():
            some = found.get(name)
            columns = {each: some.column(each) if some else [] for each in shape.names}
            tables.write_part(folder / name, key, columns, shape)
        for name, rows, shape in ((BAD, bad, BAD_LINE), (LINES, counts, PART_LINES)):
            listed = zip(*rows, strict=True) if rows else [[]] * len(shape.names)
            columns = dict(zip(shape.names, map(list, listed), strict=True))
            tables.write_part(folder / name, key, columns, shape)
        yield from ()

    parts.mapInArrow(work, PART).write.format("noop").mode("overwrite").save()


def blocks(part: Part) -> Iterator[tuple[Batch, list[tuple[int, str, str]], int]]:
    """The records of a part, some at a time (TRACE, names as codes); with the bad lines among
    them, as place, reason and text, and how many lines were read."""
    try:
        if part.file.endswith(tables.SUFFIX):
            for batch in tables.read_batches(
                Path(part.file), range(part.start, part.end), TRACE, _NAMES, BATCH_ROWS
            ):
                yield batch, [], 0
            return
        for texts in texts_of(part):
            parsed = lines.parse(texts)
            bad = [(place, why, text[:TEXT_SHOWN]) for place, text, why in parsed.bad]
            yield coded(parsed), bad, len(texts)
    except (OSError, EOFError, zlib.error, pyarrow.ArrowException) as error:
        raise Unreadable(f"{part.file}: {error}") from error


def texts_of(part: Part) -> Iterator[list[str]]:
    """The lines that begin in a part, some at a time. A last line needs no end."""
    with _opened(part.file) as file:
        if part.start:
            file.seek(part.start - 1)
            file.readline()  # the rest of a line that began before, or only its end
        at = file.tell()
        while at < part.end:
            data = file.read(min(BLOCK_BYTES, part.end - at))
            if not data:
                return
            if not data.endswith(b"\n"):
                data += file.readline()
            at += len(data)
            yield data.removesuffix(b"\n").decode(errors="replace").split("\n")


def _opened(file: str) -> IO[bytes]:
    return gzip.open(file, "rb") if file.endswith(_PACKED) else open(file, "rb")  # type: ignore[return-value]


def coded(parsed: lines.Parsed) -> Batch:
    """What lines say, as columns of Arrow with codes for names."""
    arrays = [
        pyarrow.array(values, each.type)
        for values, each in zip(parsed.columns, to_arrow_schema(TRACE), strict=True)
    ]
    arrays = [
        array.dictionary_encode() if each.dataType == TEXT else array
        for array, each in zip(arrays, TRACE.fields, strict=True)
    ]
    return pyarrow.RecordBatch.from_arrays(arrays, names=TRACE.names)


# --- bad lines ------------------------------------------------------------------------------------


def rejects(counted: DataFrame) -> Callable[[DataFrame], DataFrame]:
    """Bad lines (BAD_LINE) → the same with their number in the file (REJECT), given how many lines
    each part has (PART_LINES)."""
    before = Window.partitionBy("file").orderBy("start").rowsBetween(Window.unboundedPreceding, -1)
    offsets = counted.select(
        "file", "start", F.coalesce(F.sum("lines").over(before), F.lit(0)).alias("before")
    )

    def transform(bad: DataFrame) -> DataFrame:
        placed = bad.join(offsets, ["file", "start"])
        return selected(placed.withColumn("line", F.col("before") + F.col("line")), REJECT)

    return transform
