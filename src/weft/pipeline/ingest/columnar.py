"""Parquet: the columns have names and types already."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DateType, NumericType, TimestampNTZType, TimestampType

from weft.pipeline import tables
from weft.pipeline.ingest import lines
from weft.pipeline.ingest.files import Inspected
from weft.pipeline.ingest.layout import by_name, unit_of
from weft.pipeline.ingest.options import BadInput, Options
from weft.pipeline.ingest.reading import Records
from weft.pipeline.schemas import RECORD, TEXT, selected

FORMAT = "parquet"
MAGIC = b"PAR1"


@dataclass(frozen=True)
class Columnar(Records):
    """Columns, three of which count; which ones is known when the files are opened."""

    options: Options
    format: str = FORMAT

    @property
    def described(self) -> str:
        asked = {"user": self.options.user, "topic": self.options.topic, "time": self.options.time}
        said = [f"{what} {column!r}" for what, column in asked.items() if column]
        return ", ".join([*said, *([f"in {self.options.unit}"] if self.options.unit else [])])

    def records(self, spark: SparkSession, links: list[str]) -> DataFrame:
        rows = tables.read_foreign(spark, links)
        placed = rows.select(
            "*",
            lines.file_number().alias("_file"),
            F.col("_metadata.row_index").alias("_position"),
        )
        return placed.transform(self.parsed)

    def parsed(self, rows: DataFrame) -> DataFrame:
        """The files' own columns, with `_file` and `_position` → `RECORD`."""
        names = [name for name in rows.columns if name not in ("_file", "_position")]
        user, topic, time = by_name("the Parquet file", names, self.options)
        unit = unit_of(None if time is None else names[time], self.options)
        entry = lines.found(
            _column(rows, names[user]).cast(TEXT),
            _column(rows, names[topic]).cast(TEXT),
            None if time is None else _time(rows, names[time]),
            unit=unit,
            text=F.to_json(F.struct(*(_column(rows, name) for name in names))),
        )
        placed = rows.select(
            F.col("_file").alias("file"),
            F.lit(0).alias("block"),
            F.col("_position").alias("position"),
            F.array(entry).alias("found"),
        )
        return selected(placed, RECORD)


def _column(rows: DataFrame, name: str) -> Column:
    return rows["`" + name.replace("`", "``") + "`"]


def _time(rows: DataFrame, name: str) -> Column:
    """A time as the text that is read everywhere else."""
    column, kind = _column(rows, name), _type(rows, name)
    if isinstance(kind, TimestampType | TimestampNTZType | DateType):
        return F.date_format(column.cast(TimestampType()), "yyyy-MM-dd'T'HH:mm:ss.SSSXXX")
    if isinstance(kind, NumericType):
        return column.cast("decimal(38, 9)").cast(TEXT)
    return column.cast(TEXT)


def _type(rows: DataFrame, name: str) -> DataType:
    return rows.schema[name].dataType


def plan(file: Inspected, options: Options) -> Columnar:
    """How to read a file: it says so itself."""
    if not file.head.startswith(MAGIC):
        raise BadInput(f"{file.path}: not Parquet: it begins with {file.beginning}")
    if not file.tail.endswith(MAGIC):
        raise BadInput(f"{file.path}: cut off: a Parquet file that does not end as one")
    return Columnar(options)
