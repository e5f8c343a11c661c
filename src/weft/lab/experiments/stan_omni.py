"""stan-omni: StaN between members that know nothing and members that know everything."""

from __future__ import annotations

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from weft.engine.data.universe import READINGS
from weft.lab import ground, stan
from weft.lab.experiment import Columns, Params, Size, UniverseEntry
from weft.lab.figures import Figure, colour, means, panels
from weft.lab.measures import at_most, reasons, smalls, texts, wholes
from weft.lab.overlaid import Overlaid
from weft.lab.sources import Source
from weft.lab.stan import LEAST
from weft.lab.universes import WHOLE_TRACE
from weft.pipeline.schemas import joined
from weft.pipeline.transforms import numbers

KINDS = {
    "ipvs": "independent random overlays",
    "fpvs": "StaN",
    "ideal": "StaN's own ideal",
    "omni": "greedy omniscient",
}
COLUMNS = joined(
    texts("source", "universe"),
    smalls("least"),
    wholes("users", "lvs"),
    wholes(*KINDS),
)
GROUPS = ("source", "universe", "least")
TITLES = {
    "fewer": "links with StaN over those of independent overlays",
    "more": "omniscient links over those with StaN",
    "closed": "share of the possible saving that StaN makes",
    "users": "users",
    **{f"{name}_mean": f"links per user, {kind}" for name, kind in KINDS.items()},
}


def points(size: Size, source: Source) -> list[Params]:
    if source.is_grid:
        return [stan.whole("quick", source)]
    return stan.smallest(source) if stan.runs_on(size, source) else []


def run(params: Params, seed: int, over: Overlaid) -> Columns:
    """Links of all users, and of those in many topics, by kind of overlay."""
    columns = {**stan.view_sizes(params, seed, over), "omni": over.fewest()}
    groups = [columns["topics"] >= least for least in LEAST]
    return {
        "least": np.array(LEAST),
        "users": np.array([int(group.sum()) for group in groups]),
        **{
            name: np.array([int(columns[name][group].sum()) for group in groups])
            for name in ("lvs", "ipvs", "fpvs", "ideal", "omni")
        },
    }


def compared(rows: DataFrame) -> DataFrame:
    """Adds the ratios of links between the kinds of overlays."""
    saved, possible = F.col("ipvs") - F.col("fpvs"), F.col("ipvs") - F.col("omni")
    return rows.withColumns(
        {
            "fewer": F.col("fpvs") / F.col("ipvs"),
            "more": F.col("omni") / F.col("fpvs"),
            "closed": saved / possible,
            **{f"{name}_mean": F.col(name) / F.col("users") for name in KINDS},
        }
    )


def measure(rows: DataFrame, size: Size) -> DataFrame:
    asked, prefix = at_most(1.0, "fewer", "more"), stan.named("universe", stan.users())
    return rows.transform(compared).transform(numbers(TITLES, asked, by=GROUPS, prefix=prefix))


def figure(rows: DataFrame) -> Figure:
    per_user = {name: F.col(f"{name}_mean") for name in KINDS}
    bars = means(rows.transform(compared), GROUPS, **per_user)
    drawing, axes = panels(columns=2)
    for panel, least, users in zip(axes, LEAST, stan.USERS, strict=True):
        part = bars[bars["least"] == least]
        for number, (name, label) in enumerate(KINDS.items()):
            places = [place + 0.2 * number for place in range(len(part))]
            panel.bar(places, part[name], 0.2, color=colour(number), label=label)
        names = [
            source if universe == WHOLE_TRACE else f"{source},\n{universe}"
            for source, universe in zip(part["source"], part["universe"], strict=True)
        ]
        panel.set_xticks([place + 0.3 for place in range(len(part))], names, fontsize=8)
        panel.set(title=users, ylabel="physical links per user", xlim=(-0.5, max(3, len(part))))
        panel.grid(visible=False, axis="x")
    axes[0].legend(loc="upper left")
    top = max(1.0, float(bars[bars["least"] == 1][list(KINDS)].to_numpy().max()))
    axes[0].set_ylim(0, 1.45 * top)
    return drawing


ENTRY = UniverseEntry.of(
    __name__,
    title="StaN against the omniscient",
    claim="StaN, which asks nobody for its interests, needs fewer physical links than "
    "independent random overlays and more than a greedy assignment that knows everybody's. How "
    "much of the way StaN goes is told.",
    seeds={"quick": 2, "full": 5},
    tolerances=reasons(
        TITLES,
        stan.groups((WHOLE_TRACE, *READINGS), stan.USERS),
        fewer=ground.by_construction(
            "2026-11-16", "Links that are ranked alike in all topics are shared at least by chance."
        ),
        more=ground.by_construction(
            "2026-11-16", "Members that know everything need no more links than others."
        ),
    ),
    micros=lambda params: 70.0,
)
