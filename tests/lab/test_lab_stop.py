"""Work with Spark that can be stopped (`weft.cli.spark`); here, where the shared session is."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from weft.cli.spark import Stopped, Stopping, stoppable


def test_work_that_is_not_stopped(spark: SparkSession) -> None:
    assert stoppable(spark, lambda stopping: spark.range(3).count()) == 3
    with pytest.raises(ZeroDivisionError):
        stoppable(spark, lambda stopping: 1 // 0)


def test_work_is_told_to_stop_where_it_asks() -> None:
    stopping = Stopping()
    stopping.check()
    stopping.want()
    with pytest.raises(Stopped):
        stopping.check()
