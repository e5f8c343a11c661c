"""Memberships as tables: what tasks do that draw them."""

from __future__ import annotations

from unittest.mock import MagicMock

import pyarrow

from weft.engine.data.grid import Grid
from weft.pipeline.memberships import grid_memberships


def test_a_task_that_draws_a_grid_reads_its_input_to_the_end() -> None:
    """Spark ends a worker that leaves some of it, and the next task waits for another to start."""
    spark = MagicMock()
    grid_memberships(spark, Grid(nodes=30, topics=4), 3)
    work = spark.range().mapInArrow.call_args.args[0]
    batches = iter([pyarrow.RecordBatch.from_pydict({"id": [0]})])
    rows = [row for batch in work(batches) for row in batch.to_pylist()]
    assert {row["topic"] for row in rows} == {0, 1, 2, 3}
    assert next(batches, None) is None
