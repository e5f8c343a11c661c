"""StaN over a table of memberships: logical and physical links of every node, round by round.

Workers improve overlays (`weft.engine.stan.overlays`) and answer, for each user and round, with the
different neighbours over those of its topics that were computed together. Counting the different
ones over all of a user's topics is then an aggregation: the physical view size.

Topics are shared out over tasks: every task gets a bin of whole topics, all bins of about one cost.
Overlays are independent given the ids of the nodes, so one task computes all rounds of a bin, needs
nothing of other bins, and any packing has the same outcome. The cost of a topic is known
beforehand: the number of walks times what a walk collects.

Workers also compute how fit overlays are before and after StaN, and how few links would do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow
from pyarrow import RecordBatch, Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from weft.engine.stan import overlays as engine
from weft.engine.stan.overlays import (
    IDEAL,
    Config,
    Outcome,
    Overlays,
    fewest,
    interests_of,
    overlays_of,
)
from weft.engine.stan.views import Interests
from weft.pipeline.memberships import held, topic_sizes
from weft.pipeline.schemas import (
    FITNESS,
    LINKS,
    SMALL,
    VIEW_SIZES,
    WHOLE,
    columns,
    selected,
)
from weft.pipeline.session import packed, parallelism, shared
from weft.rules.stan import view_size, visits

# Which bin a topic is computed in.
BIN = columns(topic=WHOLE, bin=SMALL)

LINKS_AT_ONCE = 1 << 23
"""guess: links that a task holds, over all rounds asked for: some 200 MB while they are sorted."""
MANY_TOPICS = 10
"""Users in so many topics or more are those that StaN is for."""
BINS_PER_CORE = 8  # guess: the last bins end together, and a bar moves
BIN_COST = 2e7
"""measured: candidates that a task weighs in a second or so; less is not worth a task."""
_LINK = 12.0  # measured: what a link costs in memory traffic, in candidates weighed
_HIGHEST = 2**31 - 1

Compute: TypeAlias = "Callable[[Overlays, Interests | None], Iterator[Table]]"
FEWEST = columns(user=WHOLE, pvs=WHOLE)


# --- topics shared out over tasks -----------------------------------------------------------------


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
    table = pyarrow.table({"topic": topics, "bin": packed(costs, bins)})
    return spark.createDataFrame(table, BIN), bins


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
    if count == 1:
        placed = memberships.select("topic", "user", F.lit(0).alias("bin"))
    else:
        placed = memberships.select("topic", "user").join(F.broadcast(bins), "topic")

    def tables_of(overlays: Overlays, interests: Interests | None) -> Iterator[Table]:
        for some in pieces(overlays, links_at_once // max(1, len(rounds))):
            yield from compute(some, interests)

    if config.lean:
        return _lean(placed, memberships, count, tables_of, shape)

    def work(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        for table in tables_of(overlays_in(batches), None):
            yield from table.to_batches()

    parted = placed.repartitionById(count, F.col("bin"))
    return parted.select("topic", "user").mapInArrow(work, shape)


def _lean(
    placed: DataFrame,
    memberships: DataFrame,
    bins: int,
    compute: Compute,
    shape: StructType,
) -> DataFrame:
    """As `computed`, where weights lean. A bin's task then needs all topics of its users, so these
    are sent along with the memberships; no process holds the topics of all users."""
    kind = columns(bin=SMALL, held=SMALL, topic=WHOLE, user=WHOLE)
    of_bins = placed.select("bin", "user").distinct().join(memberships, "user")
    both = placed.withColumn("held", F.lit(0)).unionByName(
        of_bins.select("topic", "user", "bin", F.lit(1).alias("held"))
    )

    def work(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        rows = [batch.select(["held", "topic", "user"]) for batch in batches]
        if not rows:
            return
        held, topics, users = (
            np.concatenate([batch.column(place).to_numpy() for batch in rows]) for place in range(3)
        )
        members = held == 0
        overlays = overlays_of(topics[members].astype(np.int32), users[members].astype(np.int32))
        for table in compute(overlays, interests_of(topics[~members], users[~members])):
            yield from table.to_batches()

    parted = selected(both, kind).repartitionById(bins, F.col("bin"))
    return parted.mapInArrow(work, shape)


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


# --- views ----------------------------------------------------------------------------------------


def links(
    memberships: DataFrame, config: Config, seed: int, rounds: Sequence[int] | None = None
) -> DataFrame:
    """Each user's neighbours after each of `rounds` (0: the views that StaN starts from; IDEAL: its
    own ideal; by default these two and the last): `LINKS`."""
    asked = tuple(rounds) if rounds is not None else (0, config.rounds, IDEAL)

    def compute(overlays: Overlays, interests: Interests | None) -> Iterator[Table]:
        outcome = engine.run(overlays, config, seed, asked, interests)
        for round_ in asked:
            yield neighbours_of(outcome, round_)

    return computed(memberships, config, asked, compute, LINKS, LINKS_AT_ONCE)


def neighbours_of(outcome: Outcome, round_: int) -> Table:
    """The different neighbours of each user over the overlays of an outcome."""
    overlays = outcome.overlays
    pairs = outcome.owners().astype(np.int64) << 32
    pairs |= outcome.at(round_)
    pairs = np.unique(pairs)
    # Some may have no neighbour: the only subscribers of their topics.
    users, topics = np.unique(overlays.members, return_counts=True)
    firsts = np.searchsorted(pairs, np.append(users, users[-1:] + 1).astype(np.int64) << 32)
    rows = np.searchsorted(users, overlays.members)
    logical = np.bincount(rows, weights=outcome.degrees, minlength=len(users))
    values = pyarrow.array((pairs & 0xFFFFFFFF).astype(np.int32))
    columns = [
        np.full(len(users), round_, np.int32),
        users.astype(np.int32),
        topics.astype(np.int32),
        logical.astype(np.int32),
        pyarrow.ListArray.from_arrays(pyarrow.array(firsts.astype(np.int32)), values),
    ]
    return pyarrow.table(columns, schema=to_arrow_schema(LINKS))


def view_sizes(linked: DataFrame) -> DataFrame:
    """Logical and physical view sizes of each user after each round: `LINKS` → `VIEW_SIZES`."""
    different = F.array_distinct(F.flatten(F.collect_list("neighbours")))
    counted = linked.groupBy("round", "user").agg(
        F.sum("topics").alias("topics"),
        F.sum("logical").alias("lvs"),
        F.size(different).alias("pvs"),
    )
    return selected(counted, VIEW_SIZES)


# --- fitness --------------------------------------------------------------------------------------


def overlay_fitness(
    memberships: DataFrame,
    config: Config,
    seed: int,
    rounds: Sequence[int] | None = None,
    ways: bool = True,
) -> DataFrame:
    """Every overlay as a graph, after each of `rounds` (by default before and after): `FITNESS`.
    Without `ways`, the diameter is left out."""
    asked = tuple(rounds) if rounds is not None else (0, config.rounds)

    def compute(overlays: Overlays, interests: Interests | None) -> Iterator[Table]:
        rows = fitness_of(engine.run(overlays, config, seed, asked, interests), ways)
        yield pyarrow.Table.from_pylist(rows, schema=to_arrow_schema(FITNESS))

    return computed(memberships, config, asked, compute, FITNESS, LINKS_AT_ONCE)


def fitness_of(outcome: Outcome, ways: bool = True) -> list[dict[str, float]]:
    """The rows of `FITNESS` for every overlay of an outcome, round by round."""
    from weft.engine.stan.fitness import fitness  # noqa: PLC0415  (needs scipy)

    overlays = outcome.overlays
    starts = outcome.starts()
    rows = []
    for place, topic in enumerate(overlays.topics.tolist()):
        mine = slice(overlays.offsets[place], overlays.offsets[place + 1])
        members, sizes = overlays.members[mine], outcome.degrees[mine]
        for round_ in outcome.rounds:
            linked = outcome.at(round_)[starts[place] : starts[place + 1]]
            neighbours = np.searchsorted(members, linked).astype(np.int32)
            figures = asdict(fitness(neighbours, sizes, ways))
            known = {"topic": topic, "round": round_, "members": len(members)}
            rows.append({**known, "view": round(float(sizes.mean())), **figures})
    return rows


def omniscient(memberships: DataFrame) -> DataFrame:
    """The physical view size of each user if all knew everything (`FEWEST`); for small universes,
    since each user is compared with all others that it shares a topic with, again and again."""
    spark = memberships.sparkSession
    everything = held(memberships)
    users, sent = everything.peers, shared(spark, everything)

    def work(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        known = sent.value
        for batch in batches:
            some = batch.column(0).to_numpy()
            some = some[np.diff(known.of_peer_offsets)[some] > 0]
            counts = fewest(known, some)
            yield pyarrow.RecordBatch.from_arrays(
                [pyarrow.array(some), pyarrow.array(counts)], names=FEWEST.names
            )

    parts = 4 * parallelism(spark)
    return spark.range(0, users, 1, parts).mapInArrow(work, FEWEST)
