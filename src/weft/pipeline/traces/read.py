"""Traces as JSON lines brought into one shape, and the lines that cannot be (`lines` reads one)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from weft.pipeline.schemas import REJECT, TRACE, TRACE_LINE, selected

SUFFIXES = tuple(
    f"{suffix}{packed}" for suffix in (".jsonl", ".json", ".ndjson") for packed in ("", ".gz")
)
PARSED = TRACE_LINE
TEXT_SHOWN = 200
_ROWS_BITS = 33  # Spark's row numbers: the part, and in so many bits the row
_FIRST = Window.unboundedPreceding


def lines(spark: SparkSession, paths: Iterable[str | Path]) -> DataFrame:
    """The lines of text files, packed or not: `file` and `text`."""
    text = spark.read.option("lineSep", "\n").text([str(path) for path in paths])
    return text.select(F.col("_metadata.file_path").alias("file"), F.col("value").alias("text"))


def parsed(text: DataFrame) -> DataFrame:
    """Lines → what they say (TRACE_LINE); empty ones are left out."""
    return text.select("file", "text").mapInArrow(_parsed, TRACE_LINE)


def _parsed(batches: Iterator[Any]) -> Iterator[Any]:
    """Runs in workers."""
    import pyarrow  # type: ignore[import-untyped]  # noqa: PLC0415
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

    from weft.pipeline.traces.lines import parse  # noqa: PLC0415

    shape = to_arrow_schema(TRACE_LINE)
    for batch in batches:
        said = parse(batch.column("text").to_pylist())
        good = [*said.columns, [None] * len(said.places), [None] * len(said.places)]
        bad: list[list[str | None]] = [[None] * len(said.bad) for _ in TRACE.fields]
        bad += [[text for _, text, _ in said.bad], [why for _, _, why in said.bad]]
        names = [*TRACE.names, "text", "problem"]
        arrays = {
            name: pyarrow.array(first + rest, shape.field(name).type)
            for name, first, rest in zip(names, good, bad, strict=True)
        }
        places = said.places + [place for place, _, _ in said.bad]
        arrays["file"] = batch.column("file").take(pyarrow.array(places, pyarrow.int64()))
        yield pyarrow.RecordBatch.from_arrays([arrays[name] for name in shape.names], schema=shape)


def records(rows: DataFrame) -> DataFrame:
    """The good rows (TRACE) of parsed lines."""
    return selected(rows.where(F.col("problem").isNull()), TRACE)


def laid_out(frame: DataFrame) -> DataFrame:
    """Records in the order in which a table that stays should have them: by kind. Most figures need
    one or two kinds, and Parquet then skips the pages of the others."""
    return frame.sortWithinPartitions("kind")


def rejects(rows: DataFrame, text: DataFrame) -> DataFrame:
    """The bad lines (REJECT) among parsed ones, with their numbers.

    Spark reads files in parts and does not count lines. So the files with bad lines are read again:
    rows keep their order within a part, and what stands before a part is counted.
    """
    bad = rows.where(F.col("problem").isNotNull()).select("file", "text", "problem").distinct()
    numbered = text.join(F.broadcast(bad.select("file").distinct()), "file", "left_semi")
    numbered = numbered.withColumn("row", F.monotonically_increasing_id())
    part = F.shiftright("row", _ROWS_BITS).alias("piece")
    parts = numbered.groupBy("file", part).agg(
        F.min("row").alias("start"), F.count(F.lit(1)).alias("rows")
    )
    before = Window.partitionBy("file").orderBy("piece").rowsBetween(_FIRST, -1)
    offsets = parts.select(
        "file", "piece", "start", F.coalesce(F.sum("rows").over(before), F.lit(0)).alias("before")
    )
    found = numbered.join(F.broadcast(bad), ["file", "text"]).withColumn("piece", part)
    placed = found.join(F.broadcast(offsets), ["file", "piece"])
    return selected(
        placed.select(
            F.regexp_replace("file", "^file:/+", "/").alias("file"),
            (F.col("before") + F.col("row") - F.col("start") + 1).alias("line"),
            F.col("problem").alias("reason"),
            F.substring("text", 1, TEXT_SHOWN).alias("text"),
        ),
        REJECT,
    )
