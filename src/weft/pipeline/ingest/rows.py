"""One membership per row, in columns: CSV, TSV, JSON lines, Parquet.

CSV knows quotes; a quoted cell may hold separators and line breaks. Lines are read apart, in any
number of tasks, unless a quote is open where one ends: such a file is read by one task, from its
beginning. A quote that never ends costs its own line, and not all lines after it. TSV knows no
quotes. Whether there is a header is told from the names in the first line. JSON
lines have an object per line, with a field for the user, one for the topic, perhaps a time. Of
Parquet the columns have names and types already.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import ClassVar, NamedTuple

from pyarrow import RecordBatch
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DateType,
    FractionalType,
    LongType,
    MapType,
    NumericType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from weft.pipeline import tables
from weft.pipeline.ingest import records
from weft.pipeline.ingest.files import MAGIC, TASKS_PER_CORE, Inspected, opened
from weft.pipeline.ingest.options import (
    BadInput,
    Options,
    by_name,
    by_number,
    check_no_days,
    knows_names,
    looks_like_header,
    may_be_header,
    names_both,
    unit_of,
)
from weft.pipeline.ingest.records import LINE, NOT_TEXT, STAGED
from weft.pipeline.schemas import SMALL, TEXT, columns, joined, selected
from weft.pipeline.session import parallelism, setting

JSONL = "jsonl"
NOT_JSON = "not a JSON object"
NOT_PLAIN = "the user or the topic is a list or an object"
MORE_JSON = "more on the line than one JSON object"
TWICE = "the user, the topic or the time is given twice"
HALF = "a name holds half of a character (one \\u escape of two)"
PARQUET = "parquet"
OPEN_QUOTE = "a quote that does not end"

_QUOTED = "csv"
_SEPARATORS = {"csv": ",", "tsv": "\t"}
_BAD = "_not_json"
_FILE, _POSITION, _ENTRY = "_weft_file", "_weft_position", "_weft_entry"
"""Columns beside those of a Parquet file, which may have any other name."""
_LINES_JOINED = 1_000  # guess: lines in one row; a quote that stays open for longer opens no cell
_ROWS = 10_000  # at once
_BY_COLUMN = "spark.sql.parquet.enableVectorizedReader"
_HOURS = ("time32", "time64")
_UNREAD = re.compile(r"halffloat|decimal256\((?:39|[4-7]\d),")
"""Types of columns that Spark has none for."""
_NESTED = ("list", "large_list", "fixed_size_list", "struct", "map")  # as Arrow calls them
_SAMPLE = 50  # lines that a header is told from
_HEADER_LINES = 10  # guess: lines of a header; a quote that stays open for longer opens no cell
_MAY_BE_MORE = r"(?s)\}.*\{|[^}\s]\s*$"
"""What a line with more than one object has somewhere, unless a brace is lost; one with objects in
objects may, too."""
_HALVES = (
    r"(?<!\\)(?:\\\\)*(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F])"
)
"""The escape of one half of a character beyond 16 bits without the other."""
_OTHER_SEPARATORS = ";\t|"


# A line, or a row over several, cut into cells, and what is wrong with it.
_SPLIT = joined(LINE, columns(cells=ArrayType(TEXT), problem=TEXT))


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
    breaks: bool = False  # whether quoted cells may hold line breaks
    names: tuple[str, ...] = ()  # of the columns, where there are more than these three
    # The first row, if it may be a header; files that differ in it alone are read alike.
    unsure: str = field(default="", compare=False)

    @property
    def has_events(self) -> bool:
        return self.time is not None or bool(self.names)

    @property
    def doubt(self) -> str:
        return self.unsure

    def records(self, spark: SparkSession, links: list[str]) -> DataFrame:
        if not self.breaks:
            return super().records(spark, links)
        separator, width = self.separator, self.width

        def work(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
            shape = to_arrow_schema(_SPLIT)
            for batch in batches:
                for number, link in zip(*batch.to_pydict().values(), strict=True):
                    rows = quoted_rows(_text_of(link), separator, width)
                    while some := list(islice(rows, _ROWS)):
                        listed = [(number, 0, *_valid(row)) for row in some]
                        named_rows = [dict(zip(shape.names, row, strict=True)) for row in listed]
                        yield RecordBatch.from_pylist(named_rows, schema=shape)

        numbers = [(records.number_of(link), link) for link in links]
        named = spark.createDataFrame(numbers, columns(file=SMALL, link=TEXT))
        tasks = min(len(links), TASKS_PER_CORE * parallelism(spark))
        split = named.repartition(tasks).mapInArrow(work, _SPLIT)
        return self._judged(split, F.col("problem"))

    @property
    def described(self) -> str:
        columns = {"user": self.user, "topic": self.topic, "time": self.time}
        places = [f"{what} {place + 1}" for what, place in columns.items() if place is not None]
        unit = [] if self.time is None else [f"in {self.unit}"]
        header = "with header" if self.header else "no header"
        return ", ".join([f"separator {self.separator!r}", header, *places, *unit])

    def parsed(self, text: DataFrame) -> DataFrame:
        return self._judged(text.withColumn("cells", self._cells(F.col("value"))))

    def _judged(self, split: DataFrame, problem: Column | None = None) -> DataFrame:
        """Lines with their `cells` → `STAGED`."""
        value, cells = F.col("value"), F.col("cells")
        width = F.when(F.size(cells) != self.width, f"not {self.width} columns")
        entries = records.with_found(
            split,
            "entry",
            F.get(cells, F.lit(self.user)),
            F.get(cells, F.lit(self.topic)),
            None if self.time is None else F.get(cells, F.lit(self.time)),
            unit=self.unit,
            text=value,
            problem=width if problem is None else F.coalesce(problem, width),
            extra=self._extra(cells),
        )
        skip = None if self.header is None else value == self.header
        return records.alone(entries, "entry", skip=skip)

    def _extra(self, cells: Column) -> Column | None:
        """The columns that do not count, by their names."""
        used = (self.user, self.topic, self.time)
        others = [(name, place) for place, name in enumerate(self.names) if place not in used]
        if not others:
            return None
        return F.to_json(F.struct(*(F.get(cells, F.lit(at)).alias(name) for name, at in others)))

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


class QuotedRow(NamedTuple):
    """A row of CSV, where it begins, and what is wrong with it."""

    line: int
    text: str
    cells: list[str]
    problem: str | None = None


def quoted_rows(lines: Iterable[str], separator: str, width: int) -> Iterator[QuotedRow]:
    """The rows of CSV whose quoted cells may hold line breaks. Runs in workers.

    If a row does not end, or ends with another number of cells, the quote that it begins with opens
    no cell: its first line is bad, and the next line begins a row.
    """
    waiting: deque[tuple[int, str]] = deque()
    coming = enumerate(lines, 1)
    while begun := waiting.popleft() if waiting else next(coming, None):
        number, text = begun
        cells = _strict_cells(text, separator)
        if cells is not None:
            yield QuotedRow(number, text, cells)
            continue
        joined, held = text, 0
        while cells is None and held < _LINES_JOINED:
            if held == len(waiting):
                more = next(coming, None)
                if more is None:
                    break
                waiting.append(more)
            joined += "\n" + waiting[held][1]
            held += 1
            if waiting[held - 1][1].count('"') % 2:  # else the quote is still open
                cells = _strict_cells(joined, separator)
        if cells is None or len(cells) != width:
            yield QuotedRow(number, text, [], OPEN_QUOTE)
            continue
        for _ in range(held):
            waiting.popleft()
        yield QuotedRow(number, joined, cells)


def _strict_cells(text: str, separator: str) -> list[str] | None:
    """The cells of one row; None if a quote is open at its end."""
    try:
        lines = io.StringIO(text, newline="")  # which keeps the ends of lines
        reader = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
        found = list(reader)
    except csv.Error as error:
        if "unexpected end of data" in str(error):
            return None
        return text.split(separator)  # a quote in the midst of a cell is a character
    return found[0] if len(found) == 1 else []


def _valid(row: QuotedRow) -> QuotedRow:
    """The row, or a bad one with a problem if its text is not UTF-8."""
    try:
        row.text.encode()
    except UnicodeEncodeError:
        shown = row.text.encode(errors="surrogateescape").decode(errors="replace")
        return QuotedRow(row.line, shown, [], records.NOT_TEXT)
    return row


def _text_of(link: str) -> Iterator[str]:
    """The lines of a file by its link; bytes that are no UTF-8 are kept as they are."""
    packing = {".gz": "gzip", ".bz2": "bzip2"}.get(Path(link).suffix, "")
    with opened(link, packing) as file:
        text = io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline=None)
        for line in text:
            yield line.removesuffix("\n")


def _literal(separator: str) -> str:
    """The pattern that means this character."""
    return "\\" + separator if separator in "\\^$.|?*+()[]{}" else separator


def plan_delimited(format_name: str, file: Inspected, options: Options) -> Delimited:
    """How to read a file, from its first line."""
    separator = options.separator or _SEPARATORS[format_name]
    lines = [line for line in file.lines if line.strip()]
    if not lines:
        raise BadInput(f"{file.path}: empty")
    first, cells = _first_row(format_name, separator, lines, file.breaks)
    by_names = any(
        each is not None and not each.isdecimal()
        for each in (options.user, options.topic, options.time)
    )
    below = _sample(format_name, separator, lines[first.count("\n") + 1 :])
    guessed = looks_like_header(cells, below)
    header = (guessed or by_names) if options.header is None else options.header
    if options.header is None and not header:
        _check_no_header_below(file, below)
    if len(cells) < 2:
        others = (each for each in _OTHER_SEPARATORS if each != separator and each in first)
        hint = next((f"; with {each!r} between columns, say --separator" for each in others), "")
        raise BadInput(
            f"{file.path}: not {format_name}: no {separator!r} in its first line "
            f"{file.beginning}{hint}"
        )
    if header and (by_names or knows_names(cells)):
        user, topic, time = by_name(file.path, cells, options)
    else:
        user, topic, time = by_number(file.path, len(cells), options)
    name = cells[time] if header and time is not None else None
    if time is not None:
        rows = below if header else [cells, *below]
        check_no_days(file.path, (row[time] for row in rows if time < len(row)), name, options)
    return Delimited(
        format_name,
        separator,
        len(cells),
        first if header else None,
        user,
        topic,
        time,
        unit_of(name, options),
        format_name == _QUOTED and file.breaks,
        _named(cells, header) if len(cells) > 2 + (time is not None) else (),
        "" if header or options.header is not None or not may_be_header(cells, below) else first,
    )


def _check_no_header_below(file: Inspected, below: Sequence[Sequence[str]]) -> None:
    """Raise `BadInput` if a header stands below other lines (a title, a comment, what a spreadsheet
    says of separators): it would be a row, and the columns would go by their numbers."""
    for cells in below:
        if names_both(cells):
            raise BadInput(
                f"{file.path}: {', '.join(cells)!r} is a header, it seems, but other lines stand "
                "above it; remove these, or say --no-header"
            )


def _named(cells: Sequence[str], header: bool) -> tuple[str, ...]:
    """A name for each column, no two the same: as the header has it, or by its number."""
    names: list[str] = []
    for place, cell in enumerate(cells, 1):
        known = {name.casefold() for name in names}
        wanted = cell.strip() if header else ""
        names.append(wanted if wanted and wanted.casefold() not in known else f"column {place}")
    return tuple(names)


def _first_row(
    format_name: str, separator: str, lines: Sequence[str], breaks: bool
) -> tuple[str, list[str]]:
    """What the first row is, and its cells. It has one line, unless a quoted name goes on."""
    if format_name != _QUOTED:
        return lines[0], lines[0].split(separator)
    for length in range(1, 1 + (min(_HEADER_LINES, len(lines)) if breaks else 0)):
        text = "\n".join(lines[:length])
        cells = _strict_cells(text, separator)
        if cells is not None and len(cells) > 1:
            return text, cells
    return lines[0], next(csv.reader(lines[:1], delimiter=separator))


def _sample(format_name: str, separator: str, lines: Sequence[str]) -> list[list[str]]:
    """The cells of some lines."""
    some = lines[: _SAMPLE - 1]
    if format_name == _QUOTED:
        return list(csv.reader(some, delimiter=separator))
    return [line.split(separator) for line in some]


# --- JSON lines -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class JsonLines(records.Lines):
    """Objects, three of whose fields count."""

    varies: ClassVar[bool] = True

    user: str
    topic: str
    time: str | None
    unit: str
    more: bool = False  # whether the objects have other fields, too
    format: str = JSONL

    @property
    def has_events(self) -> bool:
        return self.time is not None or self.more

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
        problem = F.coalesce(
            F.when(read.isNull() | read[_BAD].isNotNull(), NOT_JSON),
            # Spark reads the first object of a line and passes over the rest.
            F.when(_may_be_more("value") & ~_is_one("value"), MORE_JSON),
            F.when(self._given_twice(fields), TWICE),
            F.when(self._nested(self.user) | self._nested(self.topic), NOT_PLAIN),
            F.when(self._half(self.user) | self._half(self.topic), HALF),
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
            extra=self._extra(fields),
        )
        return records.alone(entries, "entry")

    def _extra(self, used: Sequence[str]) -> Column:
        """The fields that do not count."""
        fields = F.from_json("value", MapType(TEXT, TEXT))
        others = F.map_filter(fields, lambda name, _: ~name.isin(*used))
        return F.when(F.size(others) > 0, F.to_json(others))

    @staticmethod
    def _given_twice(fields: Sequence[str]) -> Column:
        """Whether an object has one of these fields more than once: Spark takes the last. A field
        of an object in it may have the same name; so the names are looked at, of the few lines
        where one stands twice."""
        quoted = (json.dumps(field, ensure_ascii=False) for field in fields)
        before = (F.substring_index("value", each, 2) != F.col("value") for each in quoted)
        stands_twice = reduce(Column.__or__, before)
        names = F.map_keys(F.from_json("value", MapType(TEXT, TEXT)))
        own = F.filter(names, lambda name: name.isin(*fields))
        return stands_twice & (F.size(own) > F.size(F.array_distinct(own)))

    @staticmethod
    def _nested(field: str) -> Column:
        """Whether a field is a list or an object. Both are read as their text, as a name may be
        that begins like one; so, of the few that do, the kind of value is looked at."""
        begins = F.col("object")[field].rlike(r"^\s*[\[{]")
        kind = F.from_json("value", StructType([StructField(field, VariantType())]))[field]
        return begins & F.schema_of_variant(kind).rlike("^(ARRAY|OBJECT)")

    @staticmethod
    def _half(field: str) -> Column:
        """Whether a name lost a part that is no character: Spark puts a question mark there."""
        return F.contains(F.col("object")[field], F.lit("?")) & F.col("value").rlike(_HALVES)


def _may_be_more(value: str) -> Column:
    """Whether a line has to be looked at: it may hold more than one object. Of a flat one it says
    no, unless a name in it has braces."""
    opened, closed = (
        F.length(F.replace(F.col(value), F.lit(brace), F.lit(""))) for brace in ("{", "}")
    )
    return F.col(value).rlike(_MAY_BE_MORE) | (opened != closed)


def _is_one(value: str) -> Column:
    """Whether a line holds one value. A bracket in the line ends the list before its last value."""
    listed = F.from_json(F.concat(F.lit("["), value, F.lit(",0]")), ArrayType(TEXT))
    return F.coalesce(F.size(listed), F.lit(0)) == 2


def plan_json(file: Inspected, options: Options) -> JsonLines:
    """How to read a file, from the names in its first objects."""
    objects = [_object(line) for line in file.lines if line.strip()]
    if not objects or not objects[0]:
        raise BadInput(f"{file.path}: not JSON lines: it begins with {file.beginning}")
    fields = dict.fromkeys(field for each in objects for field in each)
    # A field that these objects happen to lack may still be asked for by name.
    asked = [each for each in (options.user, options.topic, options.time) if each]
    names = list(dict.fromkeys([*fields, *asked]))
    user, topic, time = by_name(file.path, names, options)
    name = None if time is None else names[time]
    if name is not None:
        times = (str(each[name]) for each in objects if each.get(name) is not None)
        check_no_days(file.path, times, name, options)
    more = not {names[user], names[topic], name}.issuperset(fields)
    return JsonLines(names[user], names[topic], name, unit_of(name, options), more)


def _object(line: str) -> dict[str, object]:
    """The fields of an object; none if it is no object."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# --- Parquet --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Columnar(records.Records):
    """Columns, three of which count; which ones is known when the files are opened."""

    options: Options
    shape: str = ""  # names and types of the columns: files that differ are read apart
    by_row: bool = False  # and not column by column, by which Spark misreads it
    format: str = PARQUET

    def stage(self, place: records.Place) -> None:
        with setting(place.spark, _BY_COLUMN, str(not self.by_row).lower()):
            super().stage(place)

    @property
    def has_events(self) -> bool:
        names = [name for name, _ in json.loads(self.shape)]
        return len(names) > 2

    @property
    def described(self) -> str:
        asked = {"user": self.options.user, "topic": self.options.topic, "time": self.options.time}
        said = [f"{what} {column!r}" for what, column in asked.items() if column]
        return ", ".join([*said, *([f"in {self.options.unit}"] if self.options.unit else [])])

    def records(self, spark: SparkSession, links: list[str]) -> DataFrame:
        rows = tables.read_foreign(spark, links)
        placed = rows.select(
            *(self._read(rows, name) for name in rows.columns),
            records.file_number(links).alias(_FILE),
            # A column of the file may be called as Spark's own is.
            rows.metadataColumn("_metadata")["row_index"].alias(_POSITION),
        )
        return placed.transform(self.parsed)

    def _read(self, rows: DataFrame, name: str) -> Column:
        """A column as the file means it: Spark reads times in nanoseconds as numbers."""
        column, kind = _column(rows, name), dict(json.loads(self.shape))[name]
        if kind.startswith("timestamp[ns") and isinstance(rows.schema[name].dataType, LongType):
            column = F.timestamp_micros(F.call_function("div", column, F.lit(1_000)))
        return column.alias(name)

    def parsed(self, rows: DataFrame) -> DataFrame:
        """The files' own columns, with `_FILE` and `_POSITION` → `STAGED`."""
        names = [name for name in rows.columns if name not in (_FILE, _POSITION)]
        user, topic, time = by_name("the Parquet file", names, self.options)
        unit = unit_of(None if time is None else names[time], self.options)
        others = [name for place, name in enumerate(names) if place not in (user, topic, time)]
        member, group = (_name(rows, names[place]) for place in (user, topic))
        entries = records.with_found(
            rows,
            _ENTRY,
            member,
            group,
            None if time is None else _time(rows, names[time]),
            unit=unit,
            text=_as_json(rows, names),
            # In JSON bytes are written otherwise, so that it says nothing about names.
            problem=F.when(~(F.is_valid_utf8(member) & F.is_valid_utf8(group)), NOT_TEXT),
            extra=_as_json(rows, others) if others else None,
        )
        placed = entries.select(
            F.col(_FILE).alias("file"),
            F.lit(0).alias("block"),
            F.col(_POSITION).alias("position"),
            *(F.col(f"{_ENTRY}_{part}").alias(part) for part in records.FOUND.names),
        )
        return selected(placed, STAGED)


def _as_json(rows: DataFrame, names: Sequence[str]) -> Column:
    return F.to_json(F.struct(*(_column(rows, name) for name in names)))


def _column(rows: DataFrame, name: str) -> Column:
    return rows["`" + name.replace("`", "``") + "`"]


def _name(rows: DataFrame, name: str) -> Column:
    """A name as text. Where numbers are fractions, NaN means that there is none."""
    column = _column(rows, name)
    text = column.cast(TEXT)
    fraction = isinstance(rows.schema[name].dataType, FractionalType)
    return F.when(~F.isnan(column), text) if fraction else text


def _time(rows: DataFrame, name: str) -> Column:
    """A time as the text that is read everywhere else."""
    column, kind = _column(rows, name), rows.schema[name].dataType
    if isinstance(kind, TimestampType | TimestampNTZType | DateType):
        return F.date_format(column.cast(TimestampType()), "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")
    if isinstance(kind, NumericType):
        # A number that is too large, or infinite, is a bad time; NaN means that there is no time.
        number = column.try_cast("decimal(38, 9)").cast(TEXT)
        return F.when(~F.isnan(column.cast("double")), F.coalesce(number, column.cast(TEXT)))
    return column.cast(TEXT)


def plan_parquet(file: Inspected, options: Options) -> Columnar:
    if not file.head.startswith(MAGIC):
        raise BadInput(f"{file.path}: not Parquet: it begins with {file.beginning}")
    if not file.tail.endswith(MAGIC):
        raise BadInput(f"{file.path}: cut off: it does not end as a Parquet file does")
    held = json.loads(file.shape)
    met: set[str] = set()
    for name, _ in held:
        if name.casefold() in met:  # Spark tells no columns apart by that
            raise BadInput(f"{file.path}: two columns are called {name!r}; rename one")
        met.add(name.casefold())
    for name, kind in held:
        if _UNREAD.search(kind):
            raise BadInput(
                f"{file.path}: the column {name!r} holds {kind}, which Spark cannot read; write it "
                "as another type, or without it"
            )
    for place in by_name(file.path, [name for name, _ in held], options):
        name, kind = ("", "") if place is None else held[place]
        if kind.startswith(_NESTED):
            raise BadInput(
                f"{file.path}: the column {name!r} holds {kind}, no plain values; "
                "say another with --user, --topic or --time"
            )
        if kind.startswith(_HOURS):
            raise BadInput(f"{file.path}: the column {name!r} holds {kind}, hours without a date")
    return Columnar(options, file.shape, file.misread)
