"""What a table of memberships is like: how popularity and interest are distributed, and how much
interests are correlated (StaN 3.2, Figs. 3 to 5).

Correlation is compared with that of shuffled memberships, in which every user has as many topics
and every topic as many subscribers, and nothing else is left: popular topics share users by chance,
too.

Kept as a folder of tables (`make`):

    DIR/distribution.parquet   how many topics have so many subscribers, nodes so many subscriptions
    DIR/fits.parquet           the power laws closest to them
    DIR/correlation.parquet    of every two of the most popular topics, true and shuffled
    DIR/summary.parquet        its mean and upper end
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow  # type: ignore[import-untyped]
from pyarrow import RecordBatch
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from weft.engine.data.correlation import correlations as matrix_of
from weft.engine.data.correlation import most_popular, shuffled
from weft.engine.data.powerlaw import fit
from weft.pipeline import tables
from weft.pipeline.memberships import held, topic_sizes
from weft.pipeline.schemas import (
    CORRELATION,
    CORRELATION_SUMMARY,
    DISTRIBUTION,
    FIT,
    TEXT,
    columns,
    joined,
    selected,
)

SUBSCRIBERS = "subscribers per topic"
SUBSCRIPTIONS = "subscriptions per node"
POPULAR = 1_000
"""measured: correlations among so many of the most popular topics are far from chance; among rarer
ones a single user in common decides."""

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
) -> DataFrame:
    """The correlation of every two of the most popular topics, as they are and after each shuffle:
    `CORRELATION`. Shuffles run in the workers; their numbers are their seeds."""
    sent = spark.sparkContext.broadcast(held(memberships))
    numbers = [0, *shuffles]
    if min(numbers[1:], default=1) < 1:
        raise ValueError("shuffles are numbered from 1 on")

    def correlated(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        for batch in batches:
            for place in batch.column(0).to_pylist():
                number = numbers[place]
                table = shuffled(sent.value, number) if number else sent.value
                matrix = matrix_of(table, most_popular(sent.value, popular))
                one, other = np.triu_indices(len(matrix), 1)
                columns = [np.full(len(one), number), one, other, matrix[one, other]]
                yield pyarrow.RecordBatch.from_arrays(
                    [pyarrow.array(each) for each in columns], names=CORRELATION.names
                )

    return spark.range(0, len(numbers), 1, len(numbers)).mapInArrow(correlated, CORRELATION)


def correlation_summary(frame: DataFrame) -> DataFrame:
    """Correlations → their mean and upper end, for each shuffle: `CORRELATION_SUMMARY`."""
    summary = frame.groupBy("shuffle").agg(
        (F.max("other") + 1).alias("topics"),
        F.avg("value").alias("mean"),
        F.percentile("value", F.lit(0.5)).alias("median"),
        F.percentile("value", F.lit(0.99)).alias("percentile_99"),
        F.max("value").alias("largest"),
    )
    return selected(summary, CORRELATION_SUMMARY)


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
    pairs = correlations(spark, memberships, numbers, popular)
    tables.write(pairs, out / "correlation.parquet")
    watch(3, "summing up")
    summary = table(spark, out, "correlation").transform(correlation_summary)
    tables.write(summary.coalesce(1), out / "summary.parquet")


def table(spark: SparkSession, out: Path, name: str) -> DataFrame:
    """One of the tables of a profile."""
    return tables.read(spark, out / f"{name}.parquet", TABLES[name])
