"""A universe drawn from 10⁸ memberships on two cores: how long it takes, in how much memory.

The lake is made of whole tables, not ingested, by tasks that each draw the memberships of some
users. Then a hundred draws of a thousand seeds each are made, and the median one is kept, as `weft
data universe LAKE --seeds 1000` does. Memory is what all processes have at once, this one too, and
what the driver has: this process and Java, in which Spark's tasks run as well.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow
from benchmarks.peer import machine
from benchmarks.pipeline.memberships import drawn
from benchmarks.pipeline.processes import timed
from pyarrow import RecordBatch
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from weft.pipeline.lake import Lake, drafted
from weft.pipeline.schemas import MEMBERSHIP
from weft.pipeline.session import SessionSettings, opened
from weft.pipeline.universe import make

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEMBERSHIPS = 100_000_000
PART_ROWS = 1_000_000  # drawn at once
SEEDS = 1_000
HEAP = "768m"  # of Java, which has as much again beside it


def measure(quick: bool) -> dict[str, Any]:
    return drawn_from(MEMBERSHIPS // (25 if quick else 1))


def drawn_from(rows: int) -> dict[str, Any]:
    """What it takes to draw from so many memberships."""
    with (
        tempfile.TemporaryDirectory(prefix="weft-bench-", dir=machine.cache_folder()) as aside,
        opened(SessionSettings("local[2]", "weft bench", driver_memory=HEAP)) as spark,
    ):
        lake = made(spark, Path(aside) / "lake", rows)
        machine.say(f"universe: draws from {lake.rows('memberships'):,} memberships")
        [found], cost = timed(
            lambda: make(spark, lake, [SEEDS], watch=lambda _, text: machine.say(text))
        )
    return {
        "universe_s": round(cost["seconds"], 1),
        "universe_cpu_s": round(cost["cpu_seconds"], 1),
        "universe_peak_gb": round(cost["peak_gb"], 2),
        "universe_driver_gb": round(cost["driver_gb"], 2),
        "universe_of": rows,
        "universe_memberships": found.memberships,
    }


def made(spark: SparkSession, folder: Path, rows: int) -> Lake:
    """A lake of so many memberships. Each task draws those of the users whose number has one
    remainder, so that no two tasks draw the same."""
    machine.say(f"universe: a lake of {rows:,} memberships")
    parts = max(1, rows // PART_ROWS)
    topics = rows // 20
    shape = to_arrow_schema(MEMBERSHIP, timezone="UTC")

    def draw(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        for batch in batches:
            for part in batch.column("id").to_pylist():
                users, kinds = drawn(rows // parts, np.random.default_rng([1, part]), topics)
                times = pyarrow.nulls(len(users), pyarrow.timestamp("us", "UTC"))
                columns = [pyarrow.array(users * parts + part), pyarrow.array(kinds), times]
                yield RecordBatch.from_arrays(columns, schema=shape)

    held = spark.range(0, parts, 1, parts).mapInArrow(draw, MEMBERSHIP)
    name = F.concat(F.lit("topic"), F.col("id").cast("string")).alias("name")
    with drafted(folder) as draft:
        draft.add("topics", spark.range(topics).select(F.col("id").alias("topic"), name))
        draft.add("memberships", held)
        draft.commit([("made", str(rows))])
    return Lake(folder)
