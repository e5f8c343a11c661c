"""What a table of memberships is like: how popularity and interest are distributed, and how much
interests are correlated (StaN 3.2, Figs. 3 to 5).

Correlation is compared with that of shuffled memberships, in which every user keeps its number of
topics and every topic its number of subscribers, and all else is chance: popular topics share users
by chance, too.

Kept as a folder of tables (`make`):

    DIR/distribution.parquet   how many topics have so many subscribers, nodes so many subscriptions
    DIR/fits.parquet           the power laws closest to them
    DIR/correlation.parquet    of every two of the most popular topics, true and shuffled
    DIR/summary.parquet        its mean and upper end
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from pyarrow import RecordBatch
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from weft.engine.data.correlation import SWAPS_PER_MEMBERSHIP
from weft.engine.data.correlation import shuffled as swapped
from weft.engine.data.powerlaw import fit
from weft.pipeline import tables
from weft.pipeline.memberships import TOPIC_SIZE, arrays_of, topic_sizes
from weft.pipeline.schemas import (
    CORRELATION,
    CORRELATION_SUMMARY,
    DISTRIBUTION,
    FIT,
    SMALL,
    TEXT,
    WHOLE,
    columns,
    joined,
    selected,
)
from weft.pipeline.transforms import together
from weft.rules.draw import absorb

SUBSCRIBERS = "subscribers per topic"
SUBSCRIPTIONS = "subscriptions per node"
POPULAR = 1_000
"""measured: correlations among so many of the most popular topics are far from chance; among rarer
ones a single user in common decides."""

AT_ONCE = 16 << 20
"""guess: memberships that one task shuffles, in some gigabyte"""
ROUNDS = 5  # guess: each user meets that many parts of the others
_PAIR = columns(user=WHOLE, topic=WHOLE)
_CHOSEN = joined(TOPIC_SIZE, columns(place=WHOLE))
_PLACE_BITS = 32

SHUFFLES = 3  # guess: their spread is far below what they are compared with
TABLES = {
    "distribution": DISTRIBUTION,
    "fits": joined(columns(kind=TEXT), FIT),
    "correlation": CORRELATION,
    "summary": CORRELATION_SUMMARY,
}
Watch = Callable[[int, str], None]


def distribution(memberships: DataFrame) -> DataFrame:
    """How many topics have so many subscribers, and nodes so many subscriptions: `DISTRIBUTION`."""
    topics = memberships.transform(topic_sizes).select(
        F.lit(SUBSCRIBERS).alias("kind"), F.col("subscribers").alias("size")
    )
    nodes = (
        memberships.groupBy("user")
        .agg(F.count(F.lit(1)).alias("size"))
        .select(F.lit(SUBSCRIPTIONS).alias("kind"), "size")
    )
    counted = topics.unionByName(nodes).groupBy("kind", "size").agg(F.count("*").alias("count"))
    return selected(counted, DISTRIBUTION)


def nodes_in(counted: Iterable[Mapping[str, Any]]) -> int:
    """How many nodes the rows of a `DISTRIBUTION` are of."""
    return sum(row["count"] for row in counted if row["kind"] == SUBSCRIPTIONS)


def fitted(frame: DataFrame, *by: str) -> DataFrame:
    """Distributions (`size`, `count`) → the power law closest to each: the columns of `FIT`."""
    shape = joined(StructType([frame.schema[name] for name in by]), FIT)

    def fit_group(rows: Any) -> Any:
        found = fit(rows["size"].to_numpy(), rows["count"].to_numpy())
        row = rows.head(1)[list(by)].assign(**asdict(found))
        return row[shape.names]

    return selected(frame.groupBy(*by).applyInPandas(fit_group, shape), shape)


def correlations(
    spark: SparkSession,
    memberships: DataFrame,
    shuffles: Sequence[int] = (1,),
    popular: int = POPULAR,
    nodes: int | None = None,
) -> DataFrame:
    """The correlation of every two of the most popular topics, as they are and after each shuffle:
    `CORRELATION`. The numbers of shuffles are their seeds. How many nodes there are is counted,
    unless it is known (`nodes_in`).

    With n nodes, s and t subscribers and c in common, the correlation of two topics is
    (n·c − s·t) / √(s(n − s)·t(n − t)).
    """
    if min(shuffles, default=1) < 1:
        raise ValueError("shuffles are numbered from 1 on")
    if nodes is None:
        nodes = memberships.select("user").distinct().count()
    places = memberships.transform(most_popular, popular, nodes)
    rows = [(*row, place) for place, row in enumerate(places.collect())]
    chosen = spark.createDataFrame(rows, _CHOSEN)
    tables_ = {0: memberships} | {each: memberships.transform(shuffled, each) for each in shuffles}
    return together(
        *(
            table.transform(correlated, chosen, nodes).select(F.lit(number).alias("shuffle"), "*")
            for number, table in tables_.items()
        )
    ).transform(selected, CORRELATION)


def most_popular(memberships: DataFrame, wanted: int, nodes: int) -> DataFrame:
    """The topics with the most subscribers, first the largest; equal ones by number: `TOPIC_SIZE`.
    A topic of all nodes varies with nothing and is left out."""
    varied = memberships.transform(topic_sizes).where(F.col("subscribers") < nodes)
    return varied.orderBy(F.desc("subscribers"), "topic").limit(wanted)


def correlated(memberships: DataFrame, chosen: DataFrame, nodes: int) -> DataFrame:
    """The correlation (`value`) of every two of these topics (`one`, `other`: their places)."""
    place = F.col("place").cast(SMALL)
    inside = memberships.join(F.broadcast(chosen), "topic").select("user", place.alias("place"))
    # Every two of a node's topics, once. A node has at most as many as there are topics chosen, so
    # none is too large for a task. measured: with one key for both, half the CPU time of joining
    # the table with itself, which meets every two twice.
    held = inside.groupBy("user").agg(F.sort_array(F.collect_list("place")).alias("places"))
    ones = held.select("places", F.posexplode("places").alias("at", "one"))
    later = F.slice("places", F.col("at") + 2, F.size("places"))
    met = ones.select("one", F.explode(later).alias("other"))
    both = F.shiftleft(F.col("one").cast(WHOLE), _PLACE_BITS) + F.col("other")
    counted = met.groupBy(both.alias("both")).agg(F.count(F.lit(1)).alias("common"))
    common = counted.select(
        F.shiftright("both", _PLACE_BITS).alias("one"),
        F.col("both").bitwiseAND(F.lit((1 << _PLACE_BITS) - 1)).alias("other"),
        "common",
    )
    first = F.broadcast(chosen.select(F.col("place").alias("one"), F.col("subscribers").alias("s")))
    second = F.broadcast(
        chosen.select(F.col("place").alias("other"), F.col("subscribers").alias("t"))
    )
    pairs = first.join(second, F.col("one") < F.col("other")).join(common, ["one", "other"], "left")
    shared = F.lit(nodes) * F.coalesce("common", F.lit(0)) - F.col("s") * F.col("t")
    spread = F.sqrt(F.col("s") * (nodes - F.col("s"))) * F.sqrt(F.col("t") * (nodes - F.col("t")))
    return pairs.select("one", "other", (shared / spread).alias("value"))


def shuffled(memberships: DataFrame, number: int, at_once: int = AT_ONCE) -> DataFrame:
    """Memberships with the same numbers of topics per user and subscribers per topic, otherwise
    drawn at random: `user`, `topic`.

    A table that fits a task is shuffled there. A larger one is parted by user at random, each part
    is shuffled by itself, and the table is parted anew, for some rounds. Every exchange keeps the
    numbers of each user and topic, and over the rounds any two memberships may be exchanged.
    """
    rows = memberships.select("user", "topic")
    parts = math.ceil(rows.count() / at_once)
    if parts <= 1:
        return rows.repartition(1).mapInArrow(_swapping(number, SWAPS_PER_MEMBERSHIP), _PAIR)
    for round_ in range(ROUNDS):
        part = F.pmod(F.xxhash64("user", F.lit(number), F.lit(round_)), F.lit(parts))
        parted = rows.repartitionById(parts, part.cast(SMALL))
        seed = absorb(absorb(number, round_), parts) >> 1
        swapping = _swapping(seed, math.ceil(SWAPS_PER_MEMBERSHIP / ROUNDS), by_part=True)
        rows = parted.mapInArrow(swapping, _PAIR)
    return rows


def _swapping(
    seed: int, swaps: int, by_part: bool = False
) -> Callable[[Iterable[RecordBatch]], Iterator[RecordBatch]]:
    """What a task does that shuffles its part of a table."""

    def work(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        columns = [[column.to_numpy() for column in batch.columns] for batch in batches]
        if not columns:
            return
        users, topics = (np.concatenate(each) for each in zip(*columns, strict=True))
        context = TaskContext.get()
        part = context.partitionId() if by_part and context is not None else 0
        known, place = np.unique(users, return_inverse=True)
        kinds, kind = np.unique(topics, return_inverse=True)
        if not by_part:  # the numbers themselves, as ever
            known, place = np.arange(int(users.max()) + 1), users
            kinds, kind = np.arange(int(topics.max()) + 1), topics
        found = swapped(arrays_of(place, kind), absorb(seed, part) >> 1 if by_part else seed, swaps)
        yield RecordBatch.from_arrays(
            [pyarrow.array(known[found.members]), pyarrow.array(kinds[found.topic_of])],
            schema=to_arrow_schema(_PAIR),
        )

    return work


def correlation_summary(frame: DataFrame) -> DataFrame:
    """Correlations → their mean and upper end, for each shuffle: `CORRELATION_SUMMARY`."""
    # In order, so that quantiles are places in it. measured: Spark's own `percentile` keeps a table
    # of all different values, of which there are as many, and takes a third of all the CPU time of
    # half a million correlations.
    summary = frame.groupBy("shuffle").agg(
        (F.max("other") + 1).alias("topics"),
        F.avg("value").alias("mean"),
        F.sort_array(F.collect_list("value")).alias("values"),
        F.max("value").alias("largest"),
    )
    quantiles = {"median": _quantile("values", 0.5), "percentile_99": _quantile("values", 0.99)}
    return selected(summary.withColumns(quantiles), CORRELATION_SUMMARY)


def _quantile(values: str, share: float) -> Column:
    """The quantile of an ordered list at a share; between two of its places, in proportion."""
    place = (F.size(values) - 1) * F.lit(share)
    below, above = F.floor(place), F.ceil(place)
    low, high = F.get(values, below.cast(SMALL)), F.get(values, above.cast(SMALL))
    between = (above - place) * low + (place - below) * high
    return F.when(below == above, low).otherwise(between)


# --- as tables ------------------------------------------------------------------------------------


def make(
    spark: SparkSession,
    memberships: DataFrame,
    out: Path,
    *,
    shuffles: int = SHUFFLES,
    popular: int = POPULAR,
    watch: Watch = lambda step, text: None,
) -> None:
    """Profile memberships into a folder."""
    out.mkdir(parents=True, exist_ok=True)
    watch(0, "counting")
    tables.write(memberships.transform(distribution).coalesce(1), out / "distribution.parquet")
    watch(1, "fitting power laws")
    counted = table(spark, out, "distribution")
    tables.write(counted.transform(fitted, "kind").coalesce(1), out / "fits.parquet")
    watch(2, "correlating and shuffling")
    numbers = range(1, shuffles + 1)
    nodes = nodes_in(tables.read_small(out / "distribution.parquet"))
    pairs = correlations(spark, memberships, numbers, popular, nodes)
    tables.write(pairs, out / "correlation.parquet")
    watch(3, "summing up")
    summary = table(spark, out, "correlation").transform(correlation_summary)
    tables.write(summary.coalesce(1), out / "summary.parquet")


def table(spark: SparkSession, out: Path, name: str) -> DataFrame:
    """One of the tables of a profile."""
    return tables.read(spark, out / f"{name}.parquet", TABLES[name])
