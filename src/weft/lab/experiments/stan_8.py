"""stan-8: how physical links grow with the number of topics (StaN 3.4, Fig. 8)."""

from __future__ import annotations

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from weft.engine.data.universe import READINGS
from weft.lab import stan
from weft.lab.experiment import Columns, Params, Size, UniverseEntry
from weft.lab.figures import Figure, colour, means
from weft.lab.measures import at_most, reasons
from weft.lab.overlaid import Overlaid
from weft.lab.sources import Source
from weft.pipeline.schemas import NUMBER, SMALL, TEXT, WHOLE, columns, joined
from weft.pipeline.transforms import numbers

COLUMNS = joined(
    columns(source=TEXT, universe=TEXT, seeds=SMALL, nodes=SMALL),
    columns(topics=WHOLE, users=WHOLE, ipvs=NUMBER, fpvs=NUMBER, ideal=NUMBER),
)
GRIDS = {"quick": (60, 100, 200), "full": (100, 200, 500, 1000, 2000)}
TITLES = {
    "ratio": "growth after over growth before",
    "beyond": "growth after beyond the ideal's, over growth before",
    "before": "physical links per user and thousand topics, before",
    "after": "physical links per user and thousand topics, after",
    "ideal_ratio": "the ideal's growth over growth before",
}


def points(size: Size, source: Source) -> list[Params]:
    if source.is_grid:
        return [{"universe": "grid", "seeds": 0, "nodes": nodes} for nodes in GRIDS[size]]
    if not stan.runs_on(size, source):
        return []
    return [
        {"universe": reading, "seeds": seeds, "nodes": 0}
        for seeds in (stan.LADDER if size == "full" else stan.LADDER[:3])
        if seeds < source.topics()
        for reading in READINGS
    ]


def run(params: Params, seed: int, over: Overlaid) -> Columns:
    """Physical links per user, before, after and at best."""
    found = stan.view_sizes(params, seed, over)
    means = {name: float(np.mean(found[name])) for name in ("ipvs", "fpvs", "ideal")}
    return {"topics": over.topics(), "users": len(found["user"]), **means}


def growth(rows: DataFrame) -> DataFrame:
    """Per source, reading and seed: the slopes of links per user against topics, and their
    ratios."""

    def slope(name: str) -> Column:
        return 1000 * F.regr_slope(name, "topics")

    slopes = rows.groupBy("source", "universe", "seed").agg(
        slope("ipvs").alias("before"),
        slope("fpvs").alias("after"),
        slope("ideal").alias("best"),
        F.count(F.lit(1)).alias("universes"),
    )
    return slopes.where(F.col("universes") > 1).select(
        "source",
        "universe",
        "seed",
        "before",
        "after",
        (F.col("after") / F.col("before")).alias("ratio"),
        (F.col("best") / F.col("before")).alias("ideal_ratio"),
        ((F.col("after") - F.col("best")) / F.col("before")).alias("beyond"),
    )


def measure(rows: DataFrame, size: Size) -> DataFrame:
    asked, prefix = at_most(1.0, "ratio"), stan.named("universe")
    return rows.transform(growth).transform(
        numbers(TITLES, asked, by=("source", "universe"), prefix=prefix)
    )


def figure(rows: DataFrame) -> Figure:
    by, names = ("source", "universe", "seeds", "nodes"), ("topics", "ipvs", "fpvs", "ideal")
    drawn = means(rows, by, *names).sort_values(["source", "universe", "topics"])
    drawing, places = stan.panels_by_source(drawn)
    lines = (("ipvs", "initial PVS", "o-"), ("fpvs", "final PVS", "s-"), ("ideal", "ideal", "--"))
    for panel, _, _, part in places:
        for number, (name, label, style) in enumerate(lines):
            panel.plot(part["topics"], part[name], style, color=colour(number), label=label)
        panel.set(xlabel="topics", ylabel="physical links per user", xlim=(0, None))
        panel.set_ylim(0, 1.08 * max(part[name].max() for name, _, _ in lines))
        panel.legend()
    return drawing


ENTRY = UniverseEntry.of(
    __name__,
    title="Physical links grow more slowly with topics",
    claim="Over universes of growing size, physical links per user grow with the number of "
    "topics, and with StaN more slowly (the paper says: by a factor of about two). Both slopes "
    "and their ratio are told, and how the ratio compares with that of StaN's own ideal; we "
    "ask that links grow no faster than before.",
    seeds={"quick": 2, "full": 2},
    tolerances=reasons(
        TITLES, stan.groups(("grid", *READINGS)), ratio="Slower growth is what StaN is for."
    ),
    micros=stan.micros,
)
