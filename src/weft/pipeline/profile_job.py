"""The profile of memberships, as tables.

DIR/distribution.parquet   how many topics have so many subscribers, nodes so many subscriptions
DIR/fits.parquet           the power laws closest to them
DIR/correlation.parquet    of every two of the most popular topics, true and shuffled
DIR/summary.parquet        its mean and upper end
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from weft.pipeline import tables
from weft.pipeline.profile import (
    POPULAR,
    correlation_summary,
    correlations,
    distribution,
    fitted,
)
from weft.pipeline.schemas import (
    CORRELATION,
    CORRELATION_SUMMARY,
    DISTRIBUTION,
    FIT,
    TEXT,
    columns,
    joined,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHUFFLES = 3  # guess: their spread is far below what they are compared with
TABLES = {
    "distribution": DISTRIBUTION,
    "fits": joined(columns(kind=TEXT), FIT),
    "correlation": CORRELATION,
    "summary": CORRELATION_SUMMARY,
}
Watch = Callable[[int, str], None]


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
    tables.write(counted.transform(fitted("kind")).coalesce(1), out / "fits.parquet")
    watch(2, "correlating and shuffling")
    numbers = range(1, shuffles + 1)
    pairs = correlations(spark, memberships, numbers, popular)
    tables.write(pairs, out / "correlation.parquet")
    watch(3, "summing up")
    summary = table(spark, out, "correlation").transform(correlation_summary())
    tables.write(summary.coalesce(1), out / "summary.parquet")


def table(spark: SparkSession, out: Path, name: str) -> DataFrame:
    """One of the tables of a profile."""
    return tables.read(spark, out / f"{name}.parquet", TABLES[name])
