"""The synthetic grid as a table, drawn by a worker, so that only the parameters travel; and as a
lake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import functions as F

from weft.engine.data.grid import Grid, draw_grid
from weft.pipeline.ingest.draft import drafted
from weft.pipeline.lake import Version
from weft.pipeline.schemas import MEMBERSHIP

if TYPE_CHECKING:
    from pyarrow import RecordBatch  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS = 1 << 18  # guess: some megabytes


def grid_memberships(spark: SparkSession, grid: Grid | None, seed: int) -> DataFrame:
    """The memberships of a grid of this seed: `MEMBERSHIP`, users and topics numbered from 0."""
    chosen = grid or Grid()

    def drawn(_: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        import pyarrow  # noqa: PLC0415

        held = draw_grid(chosen, seed)
        for start in range(0, held.total, BATCH_ROWS):
            users = held.members[start : start + BATCH_ROWS].astype(np.int64)
            topics = held.topic_of[start : start + BATCH_ROWS].astype(np.int64)
            times = pyarrow.nulls(len(users), pyarrow.int64())
            yield pyarrow.RecordBatch.from_arrays(
                [pyarrow.array(users), pyarrow.array(topics), times], names=MEMBERSHIP.names
            )

    return spark.range(0, 1, 1, 1).mapInArrow(drawn, MEMBERSHIP)


def make(spark: SparkSession, grid: Grid, seed: int, lake: Path) -> Version:
    """Keep a grid as a new lake: nodes are the users `n0`, `n1` …, topics are `/t/0`, `/t/1` …"""
    with drafted(lake) as draft:
        draft.replace("memberships", grid_memberships(spark, grid, seed))
        for table, column, prefix, rows in (
            ("users", "user", "n", grid.nodes),
            ("topics", "topic", "/t/", grid.topics),
        ):
            number = F.col("id").alias(column)
            name = F.concat(F.lit(prefix), F.col("id").cast("string")).alias("name")
            draft.add(table, spark.range(0, rows, 1, 1).select(number, name), rows)
        return draft.commit([("grid", repr(sorted(asdict(grid).items())), str(seed))])
