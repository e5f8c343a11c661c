"""A tiny experiment that is a Spark job, for tests of the lab: how many subscribe to each topic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from weft.engine.data.grid import Grid
from weft.lab import ground
from weft.lab.experiment import JobEntry, Params, Size
from weft.lab.figures import panels
from weft.lab.sources import Source
from weft.pipeline.schemas import AT_LEAST, TEXT, WHOLE, columns
from weft.pipeline.transforms import numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame, SparkSession


def count(spark: SparkSession, params: Params, seed: int, source: Source) -> DataFrame:
    with Path(params["calls"]).open("a") as log:
        log.write(f"{source.name} {seed}\n")
    if seed == params.get("fails"):
        raise ValueError("lost count")
    held = source.memberships(spark, seed, Grid(nodes=30, topics=4))
    return held.groupBy("topic").agg(F.count("*").alias("subscribers"))


def measure(rows: DataFrame, size: Size) -> DataFrame:
    sums = rows.groupBy("source", "seed").agg(F.sum("subscribers").alias("total"))
    prefix = F.concat("source", F.lit(": "))
    return sums.transform(
        numbers({"total": "memberships"}, {"total": (AT_LEAST, 5)}, by=("source",), prefix=prefix)
    )


def most(rows: DataFrame) -> DataFrame:
    return rows.groupBy("topic").agg(F.max("subscribers").alias("most"))


def figure(rows: DataFrame) -> Figure:
    drawing, [axes] = panels()
    axes.plot([row.subscribers for row in rows.orderBy("topic", "seed").collect()])
    return drawing


def entry(calls: Path, **changes: Any) -> JobEntry:
    def points(size: Size, source: Source) -> list[Params]:
        return [{"calls": str(calls)}]

    settings: dict[str, Any] = {
        "id": "census",
        "title": "Topics have subscribers",
        "claim": "There are five memberships at least.",
        "simulation": "census:count",
        "points": points,
        "seeds": {"quick": 2, "full": 3},
        "columns": columns(source=TEXT, topic=WHOLE, subscribers=WHOLE),
        "measure": measure,
        "tolerances": {"memberships": ground.asked("2026-11-15", "So we say.")},
        "figure": figure,
        "tables": {"most": most},
        "most_seeds": lambda params: 9 if params["source"] == "grid" else 1,
    }
    return JobEntry(**{**settings, **changes})
