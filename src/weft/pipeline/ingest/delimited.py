"""CSV and TSV: one membership per line, in columns.

CSV knows quotes; a quoted cell may hold separators but no line breaks, because lines are read
apart. TSV knows none. Whether there is a header is told from the names in the first line.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from weft.pipeline.ingest import lines
from weft.pipeline.ingest.files import Inspected
from weft.pipeline.ingest.layout import by_name, by_number, looks_like_header, unit_of
from weft.pipeline.ingest.options import BadInput, Options
from weft.pipeline.ingest.reading import Records

_QUOTED = "csv"
_SEPARATORS = {"csv": ",", "tsv": "\t"}


@dataclass(frozen=True)
class Delimited(Records):
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

    def records(self, spark: SparkSession, links: list[str]) -> DataFrame:
        return lines.read(spark, links).transform(self.parsed)

    def parsed(self, text: DataFrame) -> DataFrame:
        """`LINE` → `RECORD`."""
        value = F.col("value")
        cells = F.col("cells")
        entry = lines.found(
            cells.getItem(self.user),
            cells.getItem(self.topic),
            None if self.time is None else cells.getItem(self.time),
            unit=self.unit,
            text=value,
            problem=F.when(F.size(cells) != self.width, f"not {self.width} columns"),
        )
        skip = None if self.header is None else value == self.header
        split = text.withColumn("cells", self._cells(value))
        return lines.recorded(split, F.array(entry), skip=skip)

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


def plan(format_name: str, file: Inspected, options: Options) -> Delimited:
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
