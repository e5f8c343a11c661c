"""Small traces for tests."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from weft.pipeline.schemas import TRACE
from weft.pipeline.traces.pieces import coded
from weft.pipeline.traces.source import Parsed

S = 1_000_000_000
"""A second in nanoseconds."""


def frame(spark: SparkSession, shape: StructType, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), shape)


def batch(*records: dict[str, Any]) -> Any:
    """Records by the columns that matter, as tasks read them; `part` is 0 unless given."""
    columns = [[{"part": 0, **row}.get(name) for row in records] for name in TRACE.names]
    return coded(Parsed(columns, [], []))


def rows(table: Any) -> list[tuple[Any, ...]]:
    """What a table of Arrow holds."""
    return [tuple(row.values()) for row in table.to_pylist()]


def record(peer: str, at: int, kind: str, **columns: Any) -> dict[str, Any]:
    return {"peer": peer, "timestamp_ns": at * S, "kind": kind, **columns}
