"""What the experiments on StaN share: which memberships they run on (`weft.lab.universes` says what
is a whole trace and what a universe), how they are pooled, and how panels are laid out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

from pyspark.sql import Column, Window
from pyspark.sql import functions as F

from weft.engine.data.universe import READINGS
from weft.engine.stan.overlays import IDEAL, Config
from weft.engine.stan.scamp import Scamp
from weft.lab.defect import Function, Instead
from weft.lab.experiment import Columns, Params, Size
from weft.lab.figures import Table, panels
from weft.lab.overlaid import Overlaid
from weft.lab.sources import Source
from weft.lab.universes import WHOLE_TRACE
from weft.pipeline.stan import MANY_TOPICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame

    from weft.pipeline.transforms import Transform


SMALLEST_SEEDS = 100  # paper (Table 1): the seeds of its smallest LiveJournal universe
LADDER = (20, 100, 500, 1000, 5000)
"""paper (Table 1): seeds of universes, small to large; larger ones are the whole trace here."""
USERS = ("all users", f"users in {MANY_TOPICS} topics or more")
LEAST = (1, MANY_TOPICS)
"""Results are told for users in at least so many topics."""
PLAIN, OVERHEARD, REMEMBERED = "plain", "overheard walks", "remembered walks"
OVER_SCAMP = "over Scamp"
SHARING = {
    PLAIN: Config(),
    OVERHEARD: Config(overheard=True),
    REMEMBERED: Config(memory=True),
    OVER_SCAMP: Config(scamp=Scamp()),
}
"""Plain Algorithm 2 over random views and, as in the paper (Section 2.1), over Scamp's; and two
ways to learn more of each walk."""
GRID_NODES = {"quick": 100, "full": 1000}


def micros(params: Params) -> float:
    """CPU time per membership of eight rounds with views counted; measured."""
    return 48.0


def runs_on(size: Size, source: Source) -> bool:
    """Whether a size is run on a source: the quick size runs on the grid and on a lake that was
    asked for, the full size on the known traces as well."""
    return size == "full" or source.is_grid or source.file is None


def whole(size: Size, source: Source) -> Params:
    """The point of a whole trace, or of a grid."""
    return {"universe": WHOLE_TRACE, "seeds": 0, "nodes": GRID_NODES[size] if source.is_grid else 0}


def smallest(source: Source) -> list[Params]:
    """The points of the smallest universes of a trace, in both readings."""
    if source.is_grid:
        return []
    return [{"universe": each, "seeds": SMALLEST_SEEDS, "nodes": 0} for each in READINGS]


def view_sizes(params: Params, seed: int, over: Overlaid) -> Columns:
    """Every user's views, before, after and at best."""
    config = SHARING[params.get("variant", PLAIN)]
    found = over.sizes(config, seed, (0, config.rounds, IDEAL))
    return {
        "user": found.nodes,
        "topics": found.topics,
        "lvs": found.logical,
        "ipvs": found.physical[0],
        "fpvs": found.physical[config.rounds],
        "ideal": found.physical[IDEAL],
    }


def with_options(**changed: float) -> Instead:
    """For planted defects: rounds with other options than the ones that were asked for."""

    def instead(options: Function) -> Function:
        return lambda config: options(config)._replace(**changed)

    return instead


def users() -> Column:
    """The users that a row is about: those in `least` topics or more."""
    return F.when(F.col("least") == 1, USERS[0]).otherwise(USERS[1])


def panels_by_source(points: Table) -> tuple[Figure, list[tuple[Axes, str, str, Table]]]:
    """A panel for each source and universe of a table of pandas', a row of them for each source;
    with each panel its source, its universe and its part of the table."""
    groups = {source: list(some.groupby("universe")) for source, some in points.groupby("source")}
    across = max(len(universes) for universes in groups.values())
    drawing, axes = panels(columns=across, rows=len(groups))
    found = []
    for row, (source, universes) in enumerate(groups.items()):
        for place, panel in enumerate(axes[row * across : (row + 1) * across]):
            panel.set_visible(place < len(universes))
            if place < len(universes):
                universe, part = universes[place]
                panel.set_title(source if source == universe else f"{source}, {universe}")
                found.append((panel, source, universe, part))
    return drawing, found


def named(*parts: Column | str) -> Column:
    """The beginning of a measure's name: the source, then parts of what it is about."""
    words = F.concat_ws(", ", *(F.col(each) if isinstance(each, str) else each for each in parts))
    return F.concat(F.col("source"), F.lit(": "), words, F.lit(", "))


def groups(*parts: Sequence[str]) -> list[str]:
    """The beginnings of measures' names after the source's, in every combination of parts."""
    return ["".join(f"{word}, " for word in words) for words in product(*parts)]


def reduction(final: str) -> Column:
    """The share of physical links that are no longer needed, from sums."""
    return 1 - F.col(final) / F.col("ipvs")


def ks_distance(*by: str, value: str, after: Column) -> Transform:
    """Kolmogorov–Smirnov: the largest gap between the distribution functions of a value where
    `after` holds and where it does not, as `ks`."""

    def transform(frame: DataFrame) -> DataFrame:
        group = Window.partitionBy(*by)
        up_to = group.orderBy(value)
        is_after = after.cast("double")
        gap = F.sum(is_after).over(up_to) / F.sum(is_after).over(group) - F.sum(1 - is_after).over(
            up_to
        ) / F.sum(1 - is_after).over(group)
        gaps = frame.select(*by, gap.alias("gap"))
        return gaps.groupBy(*by).agg(F.max(F.abs("gap")).alias("ks"))

    return transform
