"""Workloads of the experiments on subscriptions: whole tables and their universes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.engine.data.grid import LIVEJOURNAL_SIZED, Grid, PowerLaw
from weft.lab.experiment import Params, Size
from weft.pipeline.memberships import pruned
from weft.pipeline.universe import Recipe, Universes, medians

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from weft.lab.sources import Source


SMALL = Grid(
    nodes=12_000,
    topics=600,
    copies=PowerLaw(2.2, 4.0, 300.0),
    radius=PowerLaw(3.6, 0.0086, 0.28),
    least_members=30,
)
"""The LiveJournal-sized grid with a twenty-second of its nodes and topics; radii are √22 larger."""

PAPER_SEEDS = (20, 100, 500, 1_000, 5_000, 10_000, 15_000, 20_000)
"""paper (Table 1): the numbers of seeds of both its traces, up to 20,000."""

QUICK_SEEDS = (5, 20, 100)
WHOLE = "whole"
PRUNED = "pruned"


def grid_of(size: str) -> Grid:
    """The grid that a size of experiment runs on."""
    return SMALL if size == "quick" else LIVEJOURNAL_SIZED


def points(size: Size, source: Source) -> list[Params]:
    """One point per source; traces, which must be ingested first, only in the full size, and a lake
    that was asked for in both."""
    if size == "quick" and source.file is not None:
        return []
    return [{"size": size}]


def seeds_once(params: Params) -> int:
    """One seed on a trace, which is the same for all seeds; on a grid all, since each draws its
    own."""
    return 1_000_000 if params["source"] == "grid" else 1


def sources_in(rows: DataFrame) -> list[str]:
    """The sources that rows are from, in the order of their panels."""
    return sorted(row.source for row in rows.select("source").distinct().collect())


@dataclass(frozen=True)
class Workload:
    """The memberships of a source, and the universes drawn from them."""

    memberships: DataFrame
    universes: Universes
    sizes: tuple[int, ...]

    def closed(self, wanted: int) -> dict[str, DataFrame]:
        """The whole table, the pruned one, and so many of the smallest closed universes."""
        found = {WHOLE: self.memberships, PRUNED: self.memberships.transform(pruned)}
        draws = self.universes.draws(self.sizes[:wanted]).where("reading = 'closed'")
        for row in draws.transform(medians).orderBy("seeds").collect():
            found[f"{row.seeds} seeds"] = self.universes.universe(row.seeds, row.draw, "closed")
        return found


def workload_of(spark: SparkSession, params: Params, seed: int, source: Source) -> Workload:
    """The workload of a point. A trace's universes are always drawn by the same seed."""
    held = source.memberships(spark, seed, grid_of(params["size"])).cache()
    universes = Universes(spark, held, Recipe(seed=seed if source.is_grid else 1))
    known = QUICK_SEEDS if params["size"] == "quick" else PAPER_SEEDS
    sizes = tuple(each for each in known if each < universes.topics)
    return Workload(held, universes, sizes)
