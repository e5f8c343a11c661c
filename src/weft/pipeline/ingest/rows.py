"""One membership per row, in columns: CSV, TSV, JSON lines, Parquet.

CSV knows quotes; a quoted cell may hold separators but no line breaks, because lines are read
apart. TSV knows none. Whether there is a header is told from the names in the first line. JSON
lines have an object per line, with a field for the user, one for the topic, perhaps a time. Of
Parquet the columns have names and types already.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, NumericType, TimestampNTZType, TimestampType

from weft.pipeline import tables
from weft.pipeline.ingest import records
from weft.pipeline.ingest.files import Inspected
from weft.pipeline.ingest.options import (
    BadInput,
    Options,
    by_name,
    by_number,
    looks_like_header,
    unit_of,
)
from weft.pipeline.ingest.records import RECORD
from weft.pipeline.schemas import TEXT, columns, selected

JSONL = "jsonl"
NOT_JSON = "not a JSON object"
NOT_PLAIN = "the user or the topic is no plain value"
PARQUET = "parquet"
MAGIC = b"PAR1"

_QUOTED = "csv"
_SEPARATORS = {"csv": ",", "tsv": "\t"}
_BAD = "_not_json"


# --- CSV and TSV ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Delimited(records.Lines):
    """Lines of so many cells, three of which count."""

    format: str
    separator: str
    width: int
    header: str | None  # the line itself
    user: int
    topic: int
    time: int | None
    unit: str

    @property
    def described(self) -> str:
        columns = {"user": self.user, "topic": self.topic, "time": self.time}
        places = [f"{what} {place + 1}" for what, place in columns.items() if place is not None]
        unit = [] if self.time is None else [f"in {self.unit}"]
        header = "with header" if self.header else "no header"
        return ", ".join([f"separator {self.separator!r}", header, *places, *unit])

    def parsed(self, text: DataFrame) -> DataFrame:
        value = F.col("value")
        cells = F.col("cells")
        split = text.withColumn("cells", self._cells(value))
        entries = records.with_found(
            split,
            "entry",
            F.get(cells, F.lit(self.user)),
            F.get(cells, F.lit(self.topic)),
            None if self.time is None else F.get(cells, F.lit(self.time)),
            unit=self.unit,
            text=value,
            problem=F.when(F.size(cells) != self.width, f"not {self.width} columns"),
        )
        skip = None if self.header is None else value == self.header
        return records.recorded(entries, F.array("entry"), skip=skip)

    def _cells(self, value: Column) -> Column:
        plain = F.split(value, _literal(self.separator), -1)
        if self.format != _QUOTED:
            return plain
        names = [f"c{place}" for place in range(self.width)]
        shape = ", ".join(f"{name} STRING" for name in [*names, "bad"])
        options = {
            "sep": self.separator,
            "escape": '"',
            "columnNameOfCorruptRecord": "bad",
            "ignoreLeadingWhiteSpace": "true",  # or a quote after a blank would be none
            "ignoreTrailingWhiteSpace": "true",
        }
        cells = F.from_csv(value, shape, options)
        whole = F.array(*(cells[name] for name in names))
        careful = F.when(cells["bad"].isNull(), whole).otherwise(F.array().cast("array<string>"))
        # Few lines have quotes, and those without are split several times as fast.
        return F.when(F.contains(value, F.lit('"')), careful).otherwise(plain)


def _literal(separator: str) -> str:
    """The pattern that means this character."""
    return "\\" + separator if separator in "\\^$.|?*+()[]{}" else separator


def plan_delimited(format_name: str, file: Inspected, options: Options) -> Delimited:
    """How to read a file, from its first line."""
    separator = options.separator or _SEPARATORS[format_name]
    first = next((line for line in file.lines if line.strip()), "")
    if not first:
        raise BadInput(f"{file.path}: empty")
    if format_name == _QUOTED:
        cells = next(csv.reader([first], delimiter=separator))
    else:
        cells = first.split(separator)
    by_names = any(
        each is not None and not each.isdecimal()
        for each in (options.user, options.topic, options.time)
    )
    header = looks_like_header(cells) or by_names if options.header is None else options.header
    if len(cells) < 2:
        raise BadInput(
            f"{file.path}: not {format_name}: no {separator!r} in its first line {file.beginning}"
        )
    if header:
        user, topic, time = by_name(file.path, cells, options)
    else:
        user, topic, time = by_number(file.path, len(cells), options)
    name = cells[time] if header and time is not None else None
    return Delimited(
        format_name,
        separator,
        len(cells),
        first if header else None,
        user,
        topic,
        time,
        unit_of(name, options),
    )


# --- JSON lines -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class JsonLines(records.Lines):
    """Objects, three of whose fields count."""

    user: str
    topic: str
    time: str | None
    unit: str
    format: str = JSONL

    @property
    def described(self) -> str:
        time = [] if self.time is None else [f"time {self.time!r}", f"in {self.unit}"]
        return ", ".join([f"user {self.user!r}", f"topic {self.topic!r}", *time])

    def parsed(self, text: DataFrame) -> DataFrame:
        fields = [self.user, self.topic, *([self.time] if self.time else [])]
        shape = columns(**dict.fromkeys([*fields, _BAD], TEXT))
        options = {"columnNameOfCorruptRecord": _BAD}
        split = text.withColumn("object", F.from_json("value", shape, options))
        read = F.col("object")
        nested = r"^[\[{]"
        problem = F.coalesce(
            F.when(read.isNull() | read[_BAD].isNotNull(), NOT_JSON),
            F.when(read[self.user].rlike(nested) | read[self.topic].rlike(nested), NOT_PLAIN),
        )
        entries = records.with_found(
            split,
            "entry",
            read[self.user],
            read[self.topic],
            read[self.time] if self.time else None,
            unit=self.unit,
            text=F.col("value"),
            problem=problem,
        )
        return records.recorded(entries, F.array("entry"))


def plan_json(file: Inspected, options: Options) -> JsonLines:
    """How to read a file, from the names in its first object."""
    first = next((line for line in file.lines if line.strip()), "")
    try:
        fields = json.loads(first)
    except ValueError:
        fields = None
    if not isinstance(fields, dict) or not fields:
        raise BadInput(f"{file.path}: not JSON lines: it begins with {file.beginning}")
    # A field that the first object happens to lack may still be asked for by name.
    asked = [each for each in (options.user, options.topic, options.time) if each]
    names = list(dict.fromkeys([*fields, *asked]))
    user, topic, time = by_name(file.path, names, options)
    name = None if time is None else names[time]
    return JsonLines(names[user], names[topic], name, unit_of(name, options))


# --- Parquet --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Columnar(records.Records):
    """Columns, three of which count; which ones is known when the files are opened."""

    options: Options
    format: str = PARQUET

    @property
    def described(self) -> str:
        asked = {"user": self.options.user, "topic": self.options.topic, "time": self.options.time}
        said = [f"{what} {column!r}" for what, column in asked.items() if column]
        return ", ".join([*said, *([f"in {self.options.unit}"] if self.options.unit else [])])

    def records(self, spark: SparkSession, links: list[str]) -> DataFrame:
        rows = tables.read_foreign(spark, links)
        placed = rows.select(
            "*",
            records.file_number().alias("_file"),
            F.col("_metadata.row_index").alias("_position"),
        )
        return placed.transform(self.parsed)

    def parsed(self, rows: DataFrame) -> DataFrame:
        """The files' own columns, with `_file` and `_position` → `RECORD`."""
        names = [name for name in rows.columns if name not in ("_file", "_position")]
        user, topic, time = by_name("the Parquet file", names, self.options)
        unit = unit_of(None if time is None else names[time], self.options)
        entries = records.with_found(
            rows,
            "_entry",
            _column(rows, names[user]).cast(TEXT),
            _column(rows, names[topic]).cast(TEXT),
            None if time is None else _time(rows, names[time]),
            unit=unit,
            text=F.to_json(F.struct(*(_column(rows, name) for name in names))),
        )
        placed = entries.select(
            F.col("_file").alias("file"),
            F.lit(0).alias("block"),
            F.col("_position").alias("position"),
            F.array("_entry").alias("found"),
        )
        return selected(placed, RECORD)


def _column(rows: DataFrame, name: str) -> Column:
    return rows["`" + name.replace("`", "``") + "`"]


def _time(rows: DataFrame, name: str) -> Column:
    """A time as the text that is read everywhere else."""
    column, kind = _column(rows, name), rows.schema[name].dataType
    if isinstance(kind, TimestampType | TimestampNTZType | DateType):
        return F.date_format(column.cast(TimestampType()), "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")
    if isinstance(kind, NumericType):
        return column.cast("decimal(38, 9)").cast(TEXT)
    return column.cast(TEXT)


def plan_parquet(file: Inspected, options: Options) -> Columnar:
    if not file.head.startswith(MAGIC):
        raise BadInput(f"{file.path}: not Parquet: it begins with {file.beginning}")
    if not file.tail.endswith(MAGIC):
        raise BadInput(f"{file.path}: cut off: a Parquet file that does not end as one")
    return Columnar(options)
