"""Small frames for the tests of experiments: rows written out, and one row looked at."""

from __future__ import annotations

from typing import Any

import pyarrow
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType

from weft.lab.execute import rows_of
from weft.lab.experiment import Columns
from weft.lab.task import Task, shape_of
from weft.protocol.delivery import SEND_RPC


def frame(spark: SparkSession, columns: StructType, rows: list[dict[str, Any]]) -> DataFrame:
    """Rows of an experiment of which a test needs some columns; the others are null."""
    shape = shape_of(columns)
    known = [{"point": "p", "seed": 1, **row} for row in rows]
    return spark.createDataFrame([[row.get(name) for name in shape.names] for row in known], shape)


def stored(spark: SparkSession, *results: tuple[Task, Columns]) -> DataFrame:
    """The rows of tasks' results, as they are stored."""
    listed: list[tuple[Any, ...]] = []
    for task, result in results:
        columns = rows_of(task, result).values()
        listed += zip(*(pyarrow.array(column).to_pylist() for column in columns), strict=True)
    return spark.createDataFrame(listed, shape_of(results[0][0].columns))


def count(part: str, messages: float, kind: str = SEND_RPC, **known: Any) -> dict[str, Any]:
    """A row of an engine's counts: one payload that stands for so many."""
    counted = {"part": part, "kind": kind, "rpc": "Payload", "messages": 1}
    return {**counted, "weight": float(messages), **known}


def only(found: DataFrame, **numbers: Any) -> Row:
    """The frame's single row, which has these numbers."""
    [row] = found.collect()
    assert {name: row[name] for name in numbers} == pytest.approx(numbers)
    return row
