"""From the records of files to pairs of user and topic, whatever the format.

Text is read as lines, each with the place it stands at. Spark reads a large file in blocks, in any
order, and does not number lines. Each row keeps its block and a position that grows by one from
line to line within it; once the lines of each block are counted, which is a small table, that makes
line numbers. No sorting is needed.

A format makes *records* of lines (or of what else it reads), each with any number of memberships or
the reasons why there are none. They are staged one by one, in plain columns, of which each later
step reads those that it needs. The good ones become pairs; the bad ones get the numbers of their
lines and become rejects.

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
from weft.pipeline.location import Location
from weft.pipeline.schemas import REJECT, SMALL, TEXT, WHOLE, columns, joined, selected

# A line of text, and where it stands: in which file, in which block of it, at which position, which
# grows by one from line to line within a block.
LINE = columns(file=SMALL, block=WHOLE, position=WHOLE, value=TEXT)
# What was found in a line or another record: memberships by name, or bad ones, with the reason and
# the text that is to blame; `extra` is what else the file says of it, a JSON object.
FOUND = columns(user=TEXT, topic=TEXT, time_us=WHOLE, problem=TEXT, text=TEXT, extra=TEXT)
RECORD = columns(file=SMALL, block=WHOLE, position=WHOLE, found=ArrayType(FOUND))
# The same one by one, as they are staged. A record in which nothing was found is a row without user
# and problem: it counts as a line.
STAGED = joined(columns(file=SMALL, block=WHOLE, position=WHOLE), FOUND)
# With the path of the file and the line; and those that are good, by name alone.
ENTRY = columns(
    file=TEXT, line=WHOLE, user=TEXT, topic=TEXT, time_us=WHOLE, problem=TEXT, text=TEXT
)
PAIR = columns(user=TEXT, topic=TEXT, time_us=WHOLE)
# The good ones each time that they are stated, with what else the file says (JSON).
STATED = joined(PAIR, columns(extra=TEXT))
# The files of one ingest by number; `label` names what has no other name than its place in a file.
FILE = columns(file=SMALL, path=TEXT, label=TEXT)
# What a file gave; `wrong` are those of its bad rows that speak against its format.
COUNTED = columns(file=SMALL, rows=WHOLE, rejects=WHOLE, wrong=WHOLE)
SHOWN = 200
"""How many characters of a rejected row are kept."""

NOT_TEXT = "not UTF-8 text"
NO_USER = "no user"
NO_TOPIC = "no topic"
NO_TIME = "the time is neither a number nor an ISO date"
FAR_TIME = "the time is not in the years 1 to 9999"
NULS = "NUL characters in a name"

_MARK = "\ufeff"  # the byte order mark that some programs begin files with
_ALL = 2**31 - 1
_FRACTION = r"^[+-]?\d{1,19}(?:\.\d*|\.?\d*[eE][+-]?\d{1,2})$"
"""Spark writes fractions in JSON from ten millions on with an exponent."""
_DATE = r"^[+-]?\d{4,7}-\d"  # an hour without a date would be one of the day of the ingest
_MINUTES = r"([T ]\d\d:\d\d)(Z|[+-]\d\d(?::?\d\d)?)$"
YEARS_US = (-62_135_596_800_000_000, 253_402_300_799_999_999)
"""The first and the last microsecond of the years 1 to 9999, the times that all readers know."""


# --- text → lines → records -----------------------------------------------------------------------


def number_of(link: str) -> int:
    """Which file a link stands for."""
    return int(Path(link).name.partition(".")[0])


def file_number(links: Sequence[str]) -> Column:
    """Which of the files behind these links a row is from."""
    if len(links) == 1:  # not to be asked of every row
        return F.lit(number_of(links[0]))
    name = F.substring_index(F.input_file_name(), "/", -1)
    return F.substring_index(name, ".", 1).cast(SMALL)


def block() -> Column:
    """Where in its file the block begins that a row is from. Spark's column `_metadata` would say
    it, too, but copies each row for that. measured: without it, and without a struct around what a
    line states, parsing a CSV of 3·10⁶ rows takes 2.3 s of CPU time in place of 2.8."""
    return F.input_file_block_start()


def read_lines(spark: SparkSession, links: Sequence[str]) -> DataFrame:
    """The lines of text files: `LINE`."""
    text = spark.read.text(list(links))
    value = F.col("value")
    placed = text.select(
        file_number(links).alias("file"),
        block().alias("block"),
        F.monotonically_increasing_id().alias("position"),
        F.when(value.startswith(_MARK), F.substring(value, 2, _ALL))
        .otherwise(value)
        .alias("value"),
    )
    return selected(placed, LINE)


def microseconds(time: Column, unit: str = SECONDS) -> Column:
    """A time as text: a number of these units, or a date in ISO's form. Null for anything else.

    The commonest form is tried first, because the others are then not computed.
    """
    per_unit = UNITS[unit]
    whole = time.try_cast(WHOLE)
    if per_unit >= 1:
        counted = F.try_multiply(whole, F.lit(int(per_unit)))
    else:
        counted = F.call_function("div", whole, F.lit(round(1 / per_unit)))
    number = F.when(time.rlike(_FRACTION), time).try_cast("decimal(38, 9)")
    parted = F.try_multiply(number, F.lit(per_unit).cast("decimal(10, 3)")).try_cast(WHOLE)
    # Spark knows no zone behind hours and minutes.
    to_the_second = F.regexp_replace(time, _MINUTES, "$1:00$2")
    moment = F.coalesce(F.try_to_timestamp(time), F.try_to_timestamp(to_the_second))
    dated = F.when(time.rlike(_DATE), F.unix_micros(moment))
    return F.coalesce(counted, parted, dated)


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

    `problem` is the format's own reason against it, or null; `text` is what a reject shows. Without
    a `topic`, file and line name the topic later. A value that is used twice is computed twice, so
    lines, of which there are many, go through `with_found`.
    """
    said = None if time is None else _said(time)
    when = None if said is None else microseconds(said, unit)
    named = None if topic is None else F.trim(topic)
    known = F.trim(user), named, said, when, text, problem
    parts = _parts(*known[:2], when, _against(*known), text)
    return F.struct(*(value.alias(part) for part, value in parts.items())).cast(FOUND)


def with_found(
    frame: DataFrame,
    name: str,
    user: Column,
    topic: Column,
    time: Column | None = None,
    *,
    unit: str = SECONDS,
    text: Column,
    problem: Column | None = None,
    extra: Column | None = None,
) -> DataFrame:
    """Adds what `found` has as columns `NAME_user` and so on, one step after the other, so that
    each value is computed once. measured: a fifth of the CPU time of one expression; and a struct
    around the parts, of which each is then taken, would be copied for each row."""
    parts = {"user": F.trim(user), "topic": F.trim(topic)}
    if time is not None:
        parts["said"] = _said(time)
    if problem is not None:
        parts["problem"] = problem
    given = frame.withColumns({f"_{name}_{part}": value for part, value in parts.items()})

    def step(part: str) -> Column | None:
        return F.col(f"_{name}_{part}") if part in parts else None

    said = step("said")
    if said is not None:
        parts["when"] = microseconds(said, unit)
        given = given.withColumn(f"_{name}_when", parts["when"])
    known = F.col(f"_{name}_user"), step("topic"), said, step("when"), text, step("problem")
    reasoned = given.withColumn(f"_{name}_why", _against(*known))
    why = F.col(f"_{name}_why")
    found_parts = _parts(*known[:2], known[3], why, text, extra)
    return reasoned.withColumns({f"{name}_{part}": each for part, each in found_parts.items()})


def entry(name: str) -> Column:
    """What `with_found` added under this name, as one `FOUND`."""
    return F.struct(*(F.col(f"{name}_{part}").alias(part) for part in FOUND.names))


def _said(time: Column) -> Column:
    return F.nullif(F.trim(time), F.lit(""))


def _against(
    user: Column,
    topic: Column | None,
    said: Column | None,
    when: Column | None,
    text: Column,
    problem: Column | None,
) -> Column:
    """The first reason why there is no membership; null if there is none."""
    names = [user] if topic is None else [user, topic]
    against = [F.when(~F.is_valid_utf8(text), NOT_TEXT)]
    if problem is not None:
        against.append(problem)
    for name, missing in zip(names, (NO_USER, NO_TOPIC), strict=False):
        against.append(F.when(name.isNull() | (name == ""), missing))
    against += [F.when(F.contains(name, F.lit("\0")), NULS) for name in names]
    if said is not None and when is not None:
        against.append(F.when(said.isNotNull() & when.isNull(), NO_TIME))
        against.append(F.when(~when.between(*YEARS_US), FAR_TIME))
    return F.coalesce(*against)


def _parts(
    user: Column,
    topic: Column | None,
    when: Column | None,
    why: Column,
    text: Column,
    extra: Column | None = None,
) -> dict[str, Column]:
    """The parts of `FOUND`."""
    good = why.isNull()
    parts = {
        "user": F.when(good, user),
        "topic": None if topic is None else F.when(good, topic),
        "time_us": None if when is None else F.when(good, when),
        "problem": why,
        "text": F.when(~good, F.substring(F.make_valid_utf8(text), 1, SHOWN)),
        "extra": None if extra is None else F.when(good, extra),
    }
    return {
        part: F.lit(None).cast(FOUND[part].dataType) if value is None else value
        for part, value in parts.items()
    }


def several(lines: DataFrame, entries: Column, *, skip: Column | None = None) -> DataFrame:
    """Lines with a list of what was found in each: `STAGED`."""
    nothing = F.array().cast(RECORD["found"].dataType)
    found = F.when(_left_out(skip), nothing).otherwise(entries)
    return selected(lines.withColumn("found", found), RECORD).transform(one_by_one)


def alone(lines: DataFrame, name: str, *, skip: Column | None = None) -> DataFrame:
    """Lines in each of which one `FOUND` was found under this name: `STAGED`. measured: with a
    list around it, which is then taken off, parsing a CSV takes a sixth more CPU time."""
    known = lines.withColumn("left_out", _left_out(skip))
    parts = {part: F.when(~F.col("left_out"), F.col(f"{name}_{part}")) for part in FOUND.names}
    return selected(known.withColumns(parts), STAGED)


def _left_out(skip: Column | None) -> Column:
    """Whether a line is left out: it is empty, or one to skip."""
    empty = F.trim("value") == ""
    return empty if skip is None else empty | skip


# --- records → entries → pairs and rejects --------------------------------------------------------


def one_by_one(records: DataFrame) -> DataFrame:
    """`RECORD` → `STAGED`."""
    return records.select("file", "block", "position", F.inline_outer("found"))


def numbered(some: DataFrame, staged: DataFrame) -> DataFrame:
    """Adds to some rows of what was staged their `line`, counted from 1 in each file: the lines of
    the blocks before, and those before it in its own."""
    blocks = staged.groupBy("file", "block").agg(
        F.min("position").alias("first"), F.max("position").alias("last")
    )
    earlier = Window.partitionBy("file").orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    lines = F.col("last") - F.col("first") + 1
    before = F.coalesce(F.sum(lines).over(earlier), F.lit(0))
    starts = blocks.select("file", "block", "first", before.alias("before"))
    line = F.col("before") + F.col("position") - F.col("first") + 1
    known = some.join(F.broadcast(starts), ["file", "block"])
    return known.withColumn("line", line).drop("first", "before")


def entries(staged: DataFrame, files: DataFrame, wanted: Column | None = None) -> DataFrame:
    """`STAGED` → `ENTRY`, all or those that are wanted. A topic without a name is called after its
    file and line."""
    some = staged.where(_something() if wanted is None else wanted)
    known = some.transform(numbered, staged).withColumnRenamed("file", "number")
    by_number = files.select(F.col("file").alias("number"), F.col("path").alias("file"), "label")
    named = known.join(F.broadcast(by_number), "number")
    by_line = F.when(F.col("problem").isNull(), F.concat_ws(":", "label", "line"))
    return selected(named.withColumn("topic", F.coalesce("topic", by_line)), ENTRY)


def _something() -> Column:
    """Whether something was found, good or bad."""
    return F.col("user").isNotNull() | F.col("problem").isNotNull()


def counted(staged: DataFrame, harmless: Sequence[str] = ()) -> DataFrame:
    """`STAGED` → `COUNTED`: the memberships that each file states, and its bad rows.

    `harmless` problems also occur in files of the right format, so they are not `wrong`.
    """
    bad = F.col("problem").isNotNull()
    sums = staged.groupBy("file").agg(
        F.count_if(F.col("user").isNotNull() & ~bad).alias("rows"),
        F.count_if(bad).alias("rejects"),
        F.count_if(bad & ~F.col("problem").isin(*harmless)).alias("wrong"),
    )
    return selected(sums, COUNTED)


def pairs_of(found: DataFrame) -> DataFrame:
    """`ENTRY` or `STAGED` → `PAIR`: the good ones, as often as they are stated."""
    return selected(found.where(_good()), PAIR)


def _good() -> Column:
    return F.col("user").isNotNull() & F.col("problem").isNull()


def stated(found: DataFrame) -> DataFrame:
    """`STAGED` → `STATED`: the good ones, as often as they are stated."""
    return selected(found.where(_good()), STATED)


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
    folder: Location


class Reading(ABC):
    """One way to read files; equal ones are run together."""

    format: str
    is_trace: ClassVar[bool] = False  # its rows are records, few of which state memberships

    @property
    def described(self) -> str:
        """What, beside the format, decides what the files mean."""
        return ""

    @property
    def doubt(self) -> str:
        """The first row of a file, if it was taken for one but may name the columns."""
        return ""

    @abstractmethod
    def stage(self, place: Place) -> None:
        """Parse the files into the folder."""

    @abstractmethod
    def counts(self, place: Place) -> DataFrame:
        """How many rows each file gave and how many were bad: `COUNTED`."""

    @abstractmethod
    def pairs(self, place: Place) -> DataFrame:
        """The topics that users are in, by name, as often as that is stated: `PAIR`."""

    @abstractmethod
    def rejects(self, place: Place) -> DataFrame:
        """The bad rows: `REJECT`."""

    def events(self, place: Place) -> DataFrame | None:
        """What users did, once for each time that the files state it: `STATED`. None if the files
        say no more than which users are in which topics."""
        return None

    def trace(self, place: Place) -> DataFrame | None:
        """What peers did, if the files say so: `TRACE`."""
        return None


class Records(Reading):
    """Files of records, each of which holds any number of memberships."""

    harmless: ClassVar[tuple[str, ...]] = ()  # problems that say nothing against the format
    names_topics: ClassVar[bool] = True  # else they are called after file and line
    varies: ClassVar[bool] = False  # whether rows may say more than the first ones do

    @abstractmethod
    def records(self, spark: SparkSession, links: list[str]) -> DataFrame:
        """What the files hold: `STAGED`."""

    def stage(self, place: Place) -> None:
        tables.write(self.records(place.spark, place.links), place.folder, brief=True)

    def counts(self, place: Place) -> DataFrame:
        return self._staged(place).transform(counted, self.harmless)

    def pairs(self, place: Place) -> DataFrame:
        if self.names_topics:  # where a membership stands does not matter
            return self._staged(place).transform(pairs_of)
        return self._staged(place).transform(entries, place.files).transform(pairs_of)

    @property
    def has_events(self) -> bool:
        """Whether the files say when, or something else beside user and topic."""
        return False

    def events(self, place: Place) -> DataFrame | None:
        if not (self.has_events or self.varies):
            return None
        said = self._staged(place).transform(stated)
        if not self.has_events and said.where(F.col("extra").isNotNull()).isEmpty():
            return None
        return said

    def rejects(self, place: Place) -> DataFrame:
        bad = F.col("problem").isNotNull()
        return self._staged(place).transform(entries, place.files, bad).transform(bad_entries)

    @staticmethod
    def _staged(place: Place) -> DataFrame:
        return tables.read(place.spark, place.folder, STAGED)


class Lines(Records):
    """Text files, with a record on each line."""

    def records(self, spark: SparkSession, links: list[str]) -> DataFrame:
        return read_lines(spark, links).transform(self.parsed)

    @abstractmethod
    def parsed(self, text: DataFrame) -> DataFrame:
        """`LINE` → `STAGED`."""
