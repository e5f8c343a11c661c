"""Small traces for tests."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from weft.pipeline.schemas import TRACE

S = 1_000_000_000
"""A second in nanoseconds."""


def frame(spark: SparkSession, shape: StructType, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), shape)


def records(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    """Records by the columns that matter; `part` is 0 unless given."""
    names = [each.name for each in TRACE.fields]
    whole = [{"part": 0, **row} for row in rows]
    return frame(spark, TRACE, *(tuple(row.get(name) for name in names) for row in whole))


def record(peer: str, at: int, kind: str, **columns: Any) -> dict[str, Any]:
    return {"peer": peer, "timestamp_ns": at * S, "kind": kind, **columns}
