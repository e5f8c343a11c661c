"""Tables of memberships: pruned, as arrays for kernels, and drawn as a synthetic grid.

*Pruning* leaves out topics that too few subscribe to, until none is left (StaN 3.1). One pass is
the fixed point. A topic that goes takes only its own memberships along; a user that leaves with it
had no other, so no other topic loses a subscriber. Counting once is therefore enough, and a second
pass over the result finds nothing to do (a test keeps it so). No more topics can stay than there
are memberships / `least`, so the list of them is small enough to be sent to every worker, and the
memberships themselves never move: two scans and one small aggregation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow
from pyarrow import RecordBatch
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from weft.engine.core.arrays import offsets_of
from weft.engine.data.grid import Grid, draw_grid
from weft.engine.data.memberships import Memberships, memberships
from weft.pipeline.lake import Version, drafted
from weft.pipeline.location import Location
from weft.pipeline.schemas import MEMBERSHIP, WHOLE, columns, selected

# How many subscribe to a topic.
TOPIC_SIZE = columns(topic=WHOLE, subscribers=WHOLE)

LEAST_SUBSCRIBERS = 30
"""paper (Section 3.1): topics with fewer are left out."""
BATCH_ROWS = 1 << 18  # guess: some megabytes


def topic_sizes(memberships: DataFrame) -> DataFrame:
    """How many subscribers each topic has: `TOPIC_SIZE`."""
    counts = memberships.groupBy("topic").agg(F.count(F.lit(1)).alias("subscribers"))
    return selected(counts, TOPIC_SIZE)


def pruned(memberships: DataFrame, least: int = LEAST_SUBSCRIBERS) -> DataFrame:
    """The memberships in topics of at least so many subscribers: `MEMBERSHIP`."""
    popular = memberships.transform(topic_sizes).where(F.col("subscribers") >= least)
    kept = memberships.join(F.broadcast(popular.select("topic")), "topic", "left_semi")
    return selected(kept, MEMBERSHIP)


# --- as arrays ------------------------------------------------------------------------------------


def held(frame: DataFrame) -> Memberships:
    """A table of memberships as arrays: 12 bytes each. Users and topics keep their numbers; a
    number that does not occur is a user without topics, or a topic without subscribers."""
    table = frame.select("user", "topic").toArrow()
    return arrays_of(table.column("user").to_numpy(), table.column("topic").to_numpy())


def arrays_of(users: npt.NDArray[np.integer], topics: npt.NDArray[np.integer]) -> Memberships:
    """Memberships as arrays (see `held`), from a column of users and one of topics."""
    # In order of users, so that the order of the rows, which is chance, does not matter.
    order = np.lexsort((users, topics))
    sizes = np.bincount(topics) if len(topics) else np.zeros(0, np.int64)
    peers = int(users.max()) + 1 if len(users) else 0
    return memberships(peers, offsets_of(sizes), users[order].astype(np.int32))


# --- the synthetic grid ---------------------------------------------------------------------------


def grid_memberships(spark: SparkSession, grid: Grid | None, seed: int) -> DataFrame:
    """The memberships of a grid of this seed: `MEMBERSHIP`, users and topics numbered from 0. A
    worker draws them, so that only the parameters travel."""
    chosen = grid or Grid()

    def drawn(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        for _ in batches:
            pass  # Spark ends a worker that leaves some of its input unread
        held = draw_grid(chosen, seed)
        for start in range(0, held.total, BATCH_ROWS):
            users = held.members[start : start + BATCH_ROWS].astype(np.int64)
            topics = held.topic_of[start : start + BATCH_ROWS].astype(np.int64)
            times = pyarrow.nulls(len(users), pyarrow.timestamp("us", "UTC"))
            yield pyarrow.RecordBatch.from_arrays(
                [pyarrow.array(users), pyarrow.array(topics), times], names=MEMBERSHIP.names
            )

    return spark.range(0, 1, 1, 1).mapInArrow(drawn, MEMBERSHIP)


def make_grid(spark: SparkSession, grid: Grid, seed: int, lake: Path | Location) -> Version:
    """Keep a grid as a new lake: nodes are the users `n0`, `n1` …, topics are `/t/0`, `/t/1` …"""
    with drafted(lake) as draft:
        draft.replace("memberships", grid_memberships(spark, grid, seed))
        for table, column, prefix, rows in (
            ("users", "user", "n", grid.nodes),
            ("topics", "topic", "/t/", grid.topics),
        ):
            number = F.col("id").alias(column)
            name = F.concat(F.lit(prefix), F.col("id").cast("string")).alias("name")
            draft.add(table, spark.range(0, rows, 1, 1).select(number, name))
        return draft.commit([("grid", repr(sorted(asdict(grid).items())), str(seed))])
