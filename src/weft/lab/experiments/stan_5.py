"""stan-5: how much the interests of nodes are correlated."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from weft.lab import ground, stan
from weft.lab.defect import Defect
from weft.lab.experiment import JobEntry, Params, Size
from weft.lab.figures import Figure, panels
from weft.lab.measures import at_least
from weft.lab.profiles import draw_heat
from weft.lab.sources import Source
from weft.lab.workload import WHOLE, points, sources_in, workload_of
from weft.pipeline.profile import correlation_summary, correlations
from weft.pipeline.schemas import CORRELATION, NUMBER, TEXT, columns, joined
from weft.pipeline.schemas import WHOLE as NUMBERS
from weft.pipeline.transforms import numbers, together

SUMMARY = ("topics", "mean", "median", "percentile_99", "largest")
COLUMNS = joined(
    columns(source=TEXT, universe=TEXT),
    CORRELATION,
    columns(topics=NUMBERS, **dict.fromkeys(SUMMARY[1:], NUMBER)),
)
SHOWN = 100
"""Pairs among so many of the most popular topics are kept, for the heat map."""

ABOVE = "99th percentile over that of a shuffle"


def job(spark: SparkSession, params: Params, seed: int, source: Source) -> DataFrame:
    """Correlations in the whole table and in the smallest universe, as they are and shuffled."""
    work = workload_of(spark, params, seed, source)
    frames = {WHOLE: work.memberships}
    for seeds in work.sizes[:1]:  # none, where there are hardly any topics
        frames[f"{seeds} seeds"] = work.universes.median(seeds, "closed")
    return together(
        *(
            correlated(spark, frame, seed).withColumn("universe", F.lit(name))
            for name, frame in frames.items()
        )
    )


def correlated(spark: SparkSession, memberships: DataFrame, shuffle: int) -> DataFrame:
    """The pairs to show, each with the summary of all pairs of its kind; shuffled ones as 1."""
    pairs = correlations(spark, memberships, (shuffle,)).cache()
    summary = pairs.transform(correlation_summary)
    shown = pairs.where(F.col("other") < SHOWN).join(F.broadcast(summary), "shuffle")
    return shown.withColumn("shuffle", F.least("shuffle", F.lit(1)))


def beside_chance(rows: DataFrame) -> DataFrame:
    """Per universe and seed: the numbers as they are beside those of the shuffle."""
    true = F.col("shuffle") == 0

    def pick(name: str, which: bool) -> Column:
        return F.max(F.when(true if which else ~true, F.col(name)))

    found = rows.groupBy("source", "universe", "seed").agg(
        *(pick(name, True).alias(name) for name in SUMMARY),
        *(pick(name, False).alias(f"{name}_shuffled") for name in SUMMARY[1:]),
    )
    return found.withColumn("above", F.col("percentile_99") / F.col("percentile_99_shuffled"))


def measure(rows: DataFrame, size: Size) -> DataFrame:
    titles = {
        "above": ABOVE,
        "topics": "topics compared",
        "mean": "mean",
        "mean_shuffled": "mean, shuffled",
        "percentile_99": "99th percentile",
        "percentile_99_shuffled": "99th percentile, shuffled",
        "largest": "largest",
        "largest_shuffled": "largest, shuffled",
    }
    return rows.transform(beside_chance).transform(
        numbers(
            titles,
            at_least(1.1, "above"),
            by=("source", "universe"),
            prefix=stan.named("universe"),
            judged_where=F.col("universe") == WHOLE,
        )
    )


def shuffled_twice(correlated_: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    """A planted defect: one shuffle is compared with another."""

    def instead(spark: SparkSession, frame: DataFrame, shuffles: tuple[int]) -> DataFrame:
        [first] = shuffles
        both = correlated_(spark, frame, (first, first + 1)).where("shuffle > 0")
        return both.withColumn("shuffle", F.when(F.col("shuffle") == first, first).otherwise(0))

    return instead


def figure(rows: DataFrame) -> Figure:
    """Heat maps of the whole tables, as they are above, shuffled below."""
    first = rows.where((F.col("seed") == 1) & (F.col("universe") == WHOLE))
    sources = sources_in(first)
    drawing, axes = panels(columns=len(sources), rows=2)
    pairs = first.select("source", "shuffle", "one", "other", "value").collect()
    for line, what in enumerate(("as it is", "shuffled")):
        for column, source in enumerate(sources):
            some = [
                (row.one, row.other, row.value)
                for row in pairs
                if row.source == source and row.shuffle == line
            ]
            panel = axes[line * len(sources) + column]
            image = draw_heat(panel, some, f"{source}, {what}")
    drawing.colorbar(image, ax=axes, shrink=0.6, label="Pearson's correlation")
    return drawing


ENTRY = JobEntry.of(
    __name__,
    points=points,
    title="Interests are correlated",
    claim="Subscriptions are correlated with a non-negligible probability: Pearson's "
    "correlation between the columns of the matrix of subscribers and topics, as a heat map. "
    "We compare with shuffles that keep all degrees, among the 1000 most popular topics: the "
    "mean hardly differs, so the upper end is asked for.",
    seeds={"quick": 2, "full": 3},
    tolerances={
        f"{WHOLE}, {ABOVE}": ground.asked(
            "2026-11-16",
            "Interests that are independent of each other give 1 on average, so every second "
            "shuffle keeps the bound of 1 that was asked until then. Non-negligible means a tenth "
            "more.",
        )
    },
    defects=(
        Defect(
            "interests that have nothing to do with each other",
            {"weft.lab.experiments.stan_5:correlations": shuffled_twice},
        ),
    ),
    seconds=lambda params: 20.0 if params["size"] == "quick" else 60.0,
)
