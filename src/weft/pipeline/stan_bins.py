"""Topics shared out over tasks: every task gets a bin of whole topics, all bins of about one cost.

Overlays are independent given the ids of the nodes, so a bin is computed without a word to the
others, all rounds in one task, and any packing has the same outcome. What a topic costs is known
beforehand: walks times what a walk collects (`packing` shares them out).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
from pyspark.sql import functions as F

from weft.engine.stan.overlays import IDEAL, Config, Overlays, overlays_of
from weft.engine.stan.views import Interests
from weft.pipeline.arrays import held
from weft.pipeline.packing import packed
from weft.pipeline.prune import topic_sizes
from weft.pipeline.schemas import BIN
from weft.pipeline.session import parallelism
from weft.rules.stan import view_size, visits

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Table  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

BINS_PER_CORE = 8  # guess: the last bins end together, and a bar moves
BIN_COST = 2e7
"""measured: candidates that a task weighs in a second or so; less is not worth a task."""
_LINK = 12.0  # measured: what a link costs in memory traffic, in candidates weighed
_HIGHEST = 2**31 - 1

Compute: TypeAlias = "Callable[[Overlays, Interests | None], Iterator[Table]]"


def cost_of(size: int, config: Config, rounds: tuple[int, ...]) -> float:
    """What a topic of this size costs, in candidates weighed."""
    view = view_size(size)
    walks = 1.0 * size * config.rounds * visits(config.ttl) * (view + 1)
    if config.overheard:
        walks *= visits(config.ttl) / 2
    best = size * size if IDEAL in rounds else 0
    return walks + best + _LINK * size * view * len(rounds)


def bins_of(
    spark: SparkSession, memberships: DataFrame, config: Config, rounds: tuple[int, ...]
) -> tuple[DataFrame, int]:
    """The bin of every topic (`BIN`), and how many bins there are."""
    sizes = memberships.transform(topic_sizes).orderBy("topic").toArrow()
    topics = sizes.column("topic").to_numpy()
    subscribers = sizes.column("subscribers").to_numpy()
    if len(topics) and int(topics.max()) > _HIGHEST:
        raise ValueError("topics are numbered from 0 to 2³¹−1; ingest them into a lake first")
    known, which = np.unique(subscribers, return_inverse=True)
    costs = np.array([cost_of(int(size), config, rounds) for size in known], float)[which]
    most = min(len(topics), BINS_PER_CORE * parallelism(spark), math.ceil(costs.sum() / BIN_COST))
    bins = max(1, most)
    frame = spark.createDataFrame(_table(topics, packed(costs, bins)), BIN)
    return frame, bins


def _table(topics: npt.NDArray[np.int64], bins: npt.NDArray[np.int32]) -> Table:
    import pyarrow  # noqa: PLC0415

    return pyarrow.table({"topic": topics, "bin": bins})


def computed(
    memberships: DataFrame,
    config: Config,
    rounds: tuple[int, ...],
    compute: Compute,
    shape: StructType,
    links_at_once: int,
) -> DataFrame:
    """What `compute` makes of the overlays, some topics at a time, in the tasks of their bins."""
    spark = memberships.sparkSession
    bins, count = bins_of(spark, memberships, config, rounds)
    interests = spark.sparkContext.broadcast(_interests(memberships)) if config.lean else None
    if count == 1:
        parted = memberships.select("topic", "user").coalesce(1)
    else:
        placed = memberships.select("user", "topic").join(F.broadcast(bins), "topic")
        parted = placed.repartitionById(count, F.col("bin")).select("topic", "user")

    def work(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        known = Interests(True, *interests.value) if interests is not None else None
        for overlays in pieces(overlays_in(batches), links_at_once // max(1, len(rounds))):
            for table in compute(overlays, known):
                yield from table.to_batches()

    return parted.mapInArrow(work, shape)


def _interests(
    memberships: DataFrame,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], int]:
    """Every node's topics, which lean weights need in every task."""
    known = held(memberships)
    return known.of_peer_offsets, known.topic_of[known.of_peer], known.topics


def overlays_in(batches: Iterable[RecordBatch]) -> Overlays:
    """The overlays of a bin from its memberships."""
    topics, users = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
    for batch in batches:
        topics.append(batch.column(0).to_numpy().astype(np.int32))
        users.append(batch.column(1).to_numpy().astype(np.int32))
    return overlays_of(np.concatenate(topics), np.concatenate(users))


def pieces(overlays: Overlays, links: int) -> Iterator[Overlays]:
    """Overlays in pieces of about so many links, at least a topic each: bounds the memory."""
    starts = overlays.starts()
    parts = math.ceil(int(starts[-1]) / links) if overlays.count else 0
    cuts = np.searchsorted(starts, np.arange(parts + 1) * links)
    cuts[-1:] = overlays.count
    for first, end in pairwise(cuts.tolist()):
        if first < end:
            offsets = overlays.offsets[first : end + 1]
            members = overlays.members[offsets[0] : offsets[-1]]
            yield Overlays(overlays.topics[first:end], offsets - offsets[0], members)
