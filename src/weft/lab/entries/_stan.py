"""What the experiments on StaN share: which memberships they run on, and how they are pooled.

A *whole* trace is without topics of fewer than 30 subscribers. A *universe* is the median of 100
draws that grow from so many seed topics, in one of two readings of the paper's words: closed (the
grown topics, with their subscribers) and open (all topics of these subscribers). The grid is drawn
to the size wanted, and nothing of it is left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import Column, Window
from pyspark.sql import functions as F

from weft.engine.grid import Grid
from weft.engine.universe import READINGS
from weft.lab.registry import Params, Size
from weft.lab.sources import Source
from weft.pipeline.prune import pruned
from weft.pipeline.universe import Universes, medians

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from weft.pipeline.transforms import Transform

WHOLE_TRACE = "whole"
SMALLEST_SEEDS = 100  # paper (Table 1): the seeds of its smallest LiveJournal universe
LADDER = (20, 50, 100, 200, 500, 1000, 2000, 5000)
"""Seeds of universes, small to large: those of the paper (Table 1), and some between."""
GRID_NODES = {"quick": 100, "full": 1000}
NODES_PER_TOPIC = 6.25  # paper (Section 3.4): 100 nodes, 16 topics

_chosen: dict[tuple[Path, str, int, str], int] = {}


def seconds(params: Params) -> float:
    """About how long a point takes on two cores; measured on some, for the bar's time left."""
    if params["nodes"]:
        return 3.0 + float(params["nodes"]) / 100
    return 40.0 if params["universe"] == WHOLE_TRACE else 15.0


def runs_on(size: Size, source: Source) -> bool:
    """Whether a size is run on a source: the quick one on the grid, and on a lake that was asked
    for; the known traces are for the full one."""
    return size == "full" or source.is_grid or source.file is None


def whole(size: Size, source: Source) -> Params:
    """The point of a whole trace, or of a grid."""
    return {"universe": WHOLE_TRACE, "seeds": 0, "nodes": GRID_NODES[size] if source.is_grid else 0}


def smallest(source: Source) -> list[Params]:
    """The points of the smallest universes of a trace, in both readings."""
    if source.is_grid:
        return []
    return [{"universe": each, "seeds": SMALLEST_SEEDS, "nodes": 0} for each in READINGS]


def grid_of(nodes: int) -> Grid:
    """A grid of so many nodes, with as many topics as the paper's has for its nodes."""
    return Grid(nodes=nodes, topics=max(2, round(nodes / NODES_PER_TOPIC)))


def memberships_of(spark: SparkSession, params: Params, seed: int, source: Source) -> DataFrame:
    """The memberships of a point, kept in memory while it runs."""
    if source.is_grid:
        return source.memberships(spark, seed, grid_of(params["nodes"])).cache()
    all_of_it = source.memberships(spark, seed)
    if params["universe"] == WHOLE_TRACE:
        return all_of_it.transform(pruned).cache()
    return _universe(spark, all_of_it, params, source).cache()


def _universe(
    spark: SparkSession, memberships: DataFrame, params: Params, source: Source
) -> DataFrame:
    """The median universe; which of the draws that is, is found out once."""
    reading, seeds = params["universe"], params["seeds"]
    drawn = Universes(spark, memberships)
    seeds = min(seeds, drawn.topics)
    lake = source.opened()
    key = (lake.path, lake.version.content, seeds, reading)
    if key not in _chosen:
        sizes = drawn.draws([seeds]).transform(medians)
        for row in sizes.collect():
            _chosen[(*key[:3], row.reading)] = row.draw
    return drawn.universe(seeds, _chosen[key], reading)


def named(*parts: Column | str) -> Column:
    """The beginning of a measure's name: the source, then parts of what it is about."""
    words = F.concat_ws(", ", *(F.col(each) if isinstance(each, str) else each for each in parts))
    return F.concat(F.col("source"), F.lit(": "), words, F.lit(", "))


def reduction(final: str, initial: str = "ipvs") -> Column:
    """The share of physical links that are no longer needed, from sums."""
    return 1 - F.col(final) / F.col(initial)


def ks_distance(*by: str, value: str, after: Column) -> Transform:
    """Kolmogorov–Smirnov: the largest gap between the distribution functions of a value where
    `after` holds and where it does not, as `ks`; and `few`, the size of the smaller sample."""

    def transform(frame: DataFrame) -> DataFrame:
        group = Window.partitionBy(*by)
        up_to = group.orderBy(value)
        is_after = after.cast("double")
        gap = F.sum(is_after).over(up_to) / F.sum(is_after).over(group) - F.sum(1 - is_after).over(
            up_to
        ) / F.sum(1 - is_after).over(group)
        return (
            frame.select(*by, gap.alias("gap"), is_after.alias("is_after"))
            .groupBy(*by)
            .agg(
                F.max(F.abs("gap")).alias("ks"),
                F.least(F.sum("is_after"), F.sum(1 - F.col("is_after"))).alias("few"),
            )
        )

    return transform
