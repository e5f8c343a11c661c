"""Small frames for the tests of experiments: rows written out, and one row looked at."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType

from weft.lab.task import shape_of


def frame(spark: SparkSession, columns: StructType, rows: list[dict[str, Any]]) -> DataFrame:
    """Rows of an experiment of which a test needs some columns; the others are null."""
    shape = shape_of(columns)
    known = [{"point": "p", "seed": 1, **row} for row in rows]
    return spark.createDataFrame([[row.get(name) for name in shape.names] for row in known], shape)


def only(found: DataFrame, **numbers: Any) -> Row:
    """The frame's single row, which has these numbers."""
    [row] = found.collect()
    assert {name: row[name] for name in numbers} == pytest.approx(numbers)
    return row
