"""From records to entries: who is in what, or why that is unknown, and where in which file."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from weft.pipeline.schemas import COUNTED, ENTRY, PAIR, REJECT, selected

Transform = Callable[[DataFrame], DataFrame]


def numbered(records: DataFrame) -> DataFrame:
    """Adds `line`, counted from 1 in each file: the lines of the blocks before, and those before
    it in its own."""
    blocks = records.groupBy("file", "block").agg(
        F.min("position").alias("first"), F.count("*").alias("lines")
    )
    earlier = Window.partitionBy("file").orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    before = F.coalesce(F.sum("lines").over(earlier), F.lit(0))
    starts = blocks.select("file", "block", "first", before.alias("before"))
    line = F.col("before") + F.col("position") - F.col("first") + 1
    known = records.join(F.broadcast(starts), ["file", "block"])
    return known.withColumn("line", line).drop("first", "before")


def entries(files: DataFrame) -> Transform:
    """`RECORD` → `ENTRY`. A topic without a name is called after its file and line."""

    def transform(records: DataFrame) -> DataFrame:
        found = records.transform(numbered).select(
            "file", "line", F.explode("found").alias("found")
        )
        named = found.join(F.broadcast(files), "file").select(
            F.col("path").alias("file"), "label", "line", "found.*"
        )
        by_line = F.when(F.col("problem").isNull(), F.concat_ws(":", "label", "line"))
        return selected(named.withColumn("topic", F.coalesce("topic", by_line)), ENTRY)

    return transform


def counted(harmless: Sequence[str] = ()) -> Transform:
    """`RECORD` → `COUNTED`: the memberships that each file states, and its bad rows.

    `harmless` are problems that a file of the right format may well have.
    """

    def transform(records: DataFrame) -> DataFrame:
        problems = F.filter(F.col("found.problem"), lambda problem: problem.isNotNull())
        bad = F.size(problems)
        wrong = F.size(F.filter(problems, lambda problem: ~problem.isin(*harmless)))
        sums = records.groupBy("file").agg(
            F.sum(F.size("found") - bad).alias("rows"),
            F.sum(bad).alias("rejects"),
            F.sum(wrong).alias("wrong"),
        )
        return selected(sums, COUNTED)

    return transform


def pairs(found: DataFrame) -> DataFrame:
    """`ENTRY` → `PAIR`: distinct, each with its earliest time."""
    good = found.where(F.col("problem").isNull())
    first = good.groupBy("user", "topic").agg(F.min("time_ms").alias("time_ms"))
    return selected(first, PAIR)


def rejects(found: DataFrame) -> DataFrame:
    """`ENTRY` → `REJECT`."""
    bad = found.where(F.col("problem").isNotNull())
    return selected(bad.withColumn("reason", F.col("problem")), REJECT)
