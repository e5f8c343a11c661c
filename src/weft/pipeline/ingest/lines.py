"""Text files as rows: each line with the place it stands at, and what a line can be found to be.

Spark reads a large file in blocks, in any order, and does not number lines. Each row keeps its
block and a position that grows by one from line to line within it; once the lines of each block are
counted, which is a small table, that makes line numbers (see `entries`). No sorting is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from weft.pipeline.ingest.options import SECONDS, UNITS
from weft.pipeline.schemas import FOUND, LINE, RECORD, SMALL, WHOLE, selected

SHOWN = 200
"""How much of a rejected row is kept, in characters."""

NOT_TEXT = "not UTF-8 text"
NO_USER = "no user"
NO_TOPIC = "no topic"
NO_TIME = "the time is neither a number nor an ISO date"

_MARK = "\ufeff"  # the byte order mark that some programs begin files with
_ALL = 2**31 - 1
_NUMBER = r"^\s*[+-]?\d{1,19}(\.\d*)?\s*$"


def file_number() -> Column:
    """Which file a row is from, by the number in its link's name."""
    return F.regexp_extract("_metadata.file_name", r"^(\d+)", 1).cast(SMALL)


def read(spark: SparkSession, links: Sequence[str]) -> DataFrame:
    """The lines of text files: `LINE`."""
    text = spark.read.text(list(links))
    value = F.col("value")
    placed = text.select(
        file_number().alias("file"),
        F.col("_metadata.file_block_start").alias("block"),
        F.monotonically_increasing_id().alias("position"),
        F.when(value.startswith(_MARK), F.substring(value, 2, _ALL))
        .otherwise(value)
        .alias("value"),
    )
    return selected(placed, LINE)


def milliseconds(time: Column, unit: str = SECONDS) -> Column:
    """A time as text: a number of these units, or a date in ISO's form. Null for anything else."""
    number = F.when(time.rlike(_NUMBER), F.trim(time)).cast("decimal(38, 9)")
    counted = (number * F.lit(UNITS[unit]).cast("decimal(10, 6)")).try_cast(WHOLE)
    dated = F.when(~time.rlike(_NUMBER), F.unix_millis(F.try_to_timestamp(F.trim(time))))
    return F.coalesce(counted, dated)


def found(
    user: Column,
    topic: Column | None,
    time: Column | None = None,
    *,
    unit: str = SECONDS,
    text: Column,
    problem: Column | None = None,
) -> Column:
    """One `FOUND`: a membership, or why there is none.

    `problem` is what the format has against it, if it has; `text` is what to show then. Without a
    topic it is left to the line to name one.
    """
    said = None if time is None else F.nullif(F.trim(time), F.lit(""))
    when = F.lit(None) if said is None else milliseconds(said, unit)
    against = [
        F.when(~F.is_valid_utf8(text), NOT_TEXT),
        F.lit(None) if problem is None else problem,
        F.when(_blank(user), NO_USER),
        F.lit(None) if topic is None else F.when(_blank(topic), NO_TOPIC),
        F.lit(None) if said is None else F.when(said.isNotNull() & when.isNull(), NO_TIME),
    ]
    why = F.coalesce(*against)
    good = why.isNull()
    return F.struct(
        F.when(good, F.trim(user)).alias("user"),
        F.when(good, F.lit(None) if topic is None else F.trim(topic)).alias("topic"),
        F.when(good, when).alias("time_ms"),
        why.alias("problem"),
        F.when(~good, F.substring(F.make_valid_utf8(text), 1, SHOWN)).alias("text"),
    ).cast(FOUND)


def _blank(name: Column) -> Column:
    return F.coalesce(F.trim(name), F.lit("")) == ""


def recorded(lines: DataFrame, entries: Column, *, skip: Column | None = None) -> DataFrame:
    """Lines with what was found in them: `RECORD`. Empty lines and those to skip hold nothing."""
    nothing = F.array().cast(RECORD["found"].dataType)
    empty = F.trim("value") == ""
    left_out = empty if skip is None else empty | skip
    return selected(lines.withColumn("found", F.when(left_out, nothing).otherwise(entries)), RECORD)
