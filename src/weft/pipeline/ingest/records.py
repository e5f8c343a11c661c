"""From the records of files to pairs of user and topic, whatever the format.

Text is read as lines, each with the place it stands at. Spark reads a large file in blocks, in any
order, and does not number lines. Each row keeps its block and a position that grows by one from
line to line within it; once the lines of each block are counted, which is a small table, that makes
line numbers. No sorting is needed.

A format makes *records* of lines (or of what else it reads), each with any number of memberships or
the reasons why there are none. Records become *entries*, one by one and with the numbers of their
lines; the good ones become pairs, the bad ones rejects.

A `Reading` is one way to read files. It first *stages* what it parses, so that files are unpacked
and parsed once; everything else is asked of what was staged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from weft.pipeline import tables
from weft.pipeline.ingest.options import SECONDS, UNITS
from weft.pipeline.schemas import REJECT, SMALL, TEXT, WHOLE, columns, selected

# A line of text, and where it stands: in which file, in which block of it, at which position, which
# grows by one from line to line within a block.
LINE = columns(file=SMALL, block=WHOLE, position=WHOLE, value=TEXT)
# What was found in a line or another record: memberships by name, or bad ones, with the reason and
# the text that is to blame.
FOUND = columns(user=TEXT, topic=TEXT, time_ms=WHOLE, problem=TEXT, text=TEXT)
RECORD = columns(file=SMALL, block=WHOLE, position=WHOLE, found=ArrayType(FOUND))
# The same one by one, with the line; and those that are good, once each, with the earliest time.
ENTRY = columns(
    file=TEXT, line=WHOLE, user=TEXT, topic=TEXT, time_ms=WHOLE, problem=TEXT, text=TEXT
)
PAIR = columns(user=TEXT, topic=TEXT, time_ms=WHOLE)
# The files of one ingest by number; `label` names what has no other name than its place in a file.
FILE = columns(file=SMALL, path=TEXT, label=TEXT)
# What a file gave; `wrong` are those of its bad rows that speak against its format.
COUNTED = columns(file=SMALL, rows=WHOLE, rejects=WHOLE, wrong=WHOLE)
SHOWN = 200
"""How much of a rejected row is kept, in characters."""

NOT_TEXT = "not UTF-8 text"
NO_USER = "no user"
NO_TOPIC = "no topic"
NO_TIME = "the time is neither a number nor an ISO date"

_MARK = "\ufeff"  # the byte order mark that some programs begin files with
_ALL = 2**31 - 1
_NUMBER = r"^\s*[+-]?\d{1,19}(\.\d*)?\s*$"


# --- text → lines → records -----------------------------------------------------------------------


def file_number() -> Column:
    """Which file a row is from, by the number in its link's name."""
    return F.regexp_extract("_metadata.file_name", r"^(\d+)", 1).cast(SMALL)


def read_lines(spark: SparkSession, links: Sequence[str]) -> DataFrame:
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


# --- records → entries → pairs and rejects --------------------------------------------------------


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


def entries(records: DataFrame, files: DataFrame) -> DataFrame:
    """`RECORD` → `ENTRY`. A topic without a name is called after its file and line."""
    found = records.transform(numbered).select("file", "line", F.explode("found").alias("found"))
    named = found.join(F.broadcast(files), "file").select(
        F.col("path").alias("file"), "label", "line", "found.*"
    )
    by_line = F.when(F.col("problem").isNull(), F.concat_ws(":", "label", "line"))
    return selected(named.withColumn("topic", F.coalesce("topic", by_line)), ENTRY)


def counted(records: DataFrame, harmless: Sequence[str] = ()) -> DataFrame:
    """`RECORD` → `COUNTED`: the memberships that each file states, and its bad rows.

    `harmless` are problems that a file of the right format may well have.
    """
    problems = F.filter(F.col("found.problem"), lambda problem: problem.isNotNull())
    bad = F.size(problems)
    wrong = F.size(F.filter(problems, lambda problem: ~problem.isin(*harmless)))
    sums = records.groupBy("file").agg(
        F.sum(F.size("found") - bad).alias("rows"),
        F.sum(bad).alias("rejects"),
        F.sum(wrong).alias("wrong"),
    )
    return selected(sums, COUNTED)


def distinct_pairs(found: DataFrame) -> DataFrame:
    """`ENTRY` → `PAIR`: distinct, each with its earliest time."""
    good = found.where(F.col("problem").isNull())
    first = good.groupBy("user", "topic").agg(F.min("time_ms").alias("time_ms"))
    return selected(first, PAIR)


def bad_entries(found: DataFrame) -> DataFrame:
    """`ENTRY` → `REJECT`."""
    bad = found.where(F.col("problem").isNotNull())
    return selected(bad.withColumn("reason", F.col("problem")), REJECT)


# --- ways to read ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Where a reading works: the files it reads, and the folder for what it makes of them."""

    spark: SparkSession
    links: list[str]
    files: DataFrame  # FILE
    folder: Path


class Reading(ABC):
    """One way to read files; equal ones are run together."""

    format: str

    @property
    def described(self) -> str:
        """What, beside the format, decides what the files mean."""
        return ""

    @abstractmethod
    def stage(self, place: Place) -> None:
        """Parse the files into the folder."""

    @abstractmethod
    def counts(self, place: Place) -> DataFrame:
        """How many rows each file gave and how many were bad: `COUNTED`."""

    @abstractmethod
    def pairs(self, place: Place) -> DataFrame:
        """The topics that users are in, by name: `PAIR`."""

    @abstractmethod
    def rejects(self, place: Place) -> DataFrame:
        """The bad rows: `REJECT`."""

    def trace(self, place: Place) -> DataFrame | None:
        """What peers did, if the files say so: `TRACE`."""
        return None


class Records(Reading):
    """Files of records, each of which holds any number of memberships."""

    harmless: ClassVar[tuple[str, ...]] = ()  # problems that say nothing against the format

    @abstractmethod
    def records(self, spark: SparkSession, links: list[str]) -> DataFrame:
        """What the files hold: `RECORD`."""

    def stage(self, place: Place) -> None:
        tables.write(self.records(place.spark, place.links), place.folder)

    def counts(self, place: Place) -> DataFrame:
        return self._staged(place).transform(counted, self.harmless)

    def pairs(self, place: Place) -> DataFrame:
        return self._entries(place).transform(distinct_pairs)

    def rejects(self, place: Place) -> DataFrame:
        return self._entries(place).transform(bad_entries)

    def _entries(self, place: Place) -> DataFrame:
        return self._staged(place).transform(entries, place.files)

    @staticmethod
    def _staged(place: Place) -> DataFrame:
        return tables.read(place.spark, place.folder, RECORD)


class Lines(Records):
    """Text files, with a record on each line."""

    def records(self, spark: SparkSession, links: list[str]) -> DataFrame:
        return read_lines(spark, links).transform(self.parsed)

    @abstractmethod
    def parsed(self, text: DataFrame) -> DataFrame:
        """`LINE` → `RECORD`."""
