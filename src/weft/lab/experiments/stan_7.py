"""stan-7: physical links before and after StaN (StaN 3.4, Fig. 7)."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from weft.engine.core.arrays import Ids
from weft.engine.data.universe import READINGS
from weft.engine.stan.overlays import Outcome
from weft.lab import ground, stan
from weft.lab.defect import Defect
from weft.lab.experiment import Columns, Params, Size, UniverseEntry
from weft.lab.figures import GREY, Axes, Figure, Table, colour, table
from weft.lab.measures import at_least, at_most, reasons
from weft.lab.overlaid import Overlaid
from weft.lab.sources import Source
from weft.lab.stan import PLAIN, REMEMBERED, SHARING
from weft.lab.universes import WHOLE_TRACE
from weft.pipeline.schemas import NODE_SIZES, TEXT, columns, joined
from weft.pipeline.stan import MANY_TOPICS
from weft.pipeline.transforms import numbers

COLUMNS = joined(columns(source=TEXT, universe=TEXT, variant=TEXT), NODE_SIZES)
PAPERS_GRID: Params = {"universe": "100 nodes", "seeds": 0, "nodes": 100}  # paper (Section 3.4)
DOTS = 3000
TITLES = {
    "reached": "share of the ideal reduction that is reached",
    "above": "reduction beyond the ideal",
    "reduction": "reduction of physical links",
    "ideal_reduction": "reduction at StaN's own ideal",
    "improved_40": "share of users that save more than 40 %",
    "users": "users",
    "ipvs_mean": "physical links per user before",
    "fpvs_mean": "physical links per user after",
}
NOISE = 0.01
JUDGED = (PLAIN, REMEMBERED)
LITTLE = 0.02
"""A universe whose ideal saves less is not judged: a share of such a small saving is noise."""


def points(size: Size, source: Source) -> list[Params]:
    if not stan.runs_on(size, source):
        return []
    places = [stan.whole(size, source)]
    if size == "full":
        places += [PAPERS_GRID] if source.is_grid else stan.smallest(source)
    return [{**place, "variant": variant} for place in places for variant in SHARING]


def run(params: Params, seed: int, over: Overlaid) -> Columns:
    """Every user's views, before, after and at best."""
    return stan.view_sizes(params, seed, over)


def most_seeds(params: Params) -> int:
    """All seeds for plain Algorithm 2; one for the variants beside it, some of which take five
    times as long."""
    return 1000 if params.get("variant", PLAIN) == PLAIN else 1


def pooled(rows: DataFrame) -> DataFrame:
    """Per source, universe and seed, for all users and for those in ten topics or more: the sums
    of view sizes, and what of the links is saved."""
    groups = F.explode(F.array(F.lit(1), F.lit(MANY_TOPICS))).alias("least")
    some = rows.select("*", groups).where(F.col("topics") >= F.col("least"))
    better = (1 - F.col("fpvs") / F.col("ipvs") > 0.4).cast("double")
    sums = some.groupBy("source", "universe", "variant", "least", "seed").agg(
        *(F.sum(name).alias(name) for name in ("ipvs", "fpvs", "ideal")),
        *(F.avg(name).alias(f"{name}_mean") for name in ("ipvs", "fpvs")),
        F.avg(better).alias("improved_40"),
        F.count(F.lit(1)).alias("users"),
    )
    saved, best = stan.reduction("fpvs"), stan.reduction("ideal")
    return sums.withColumns(
        {
            "reduction": saved,
            "ideal_reduction": best,
            "reached": saved / best,
            "above": F.greatest(F.lit(0.0), saved - best),
        }
    )


def measure(rows: DataFrame, size: Size) -> DataFrame:
    how = F.when(F.col("variant") != PLAIN, F.col("variant"))  # plain walks have no label
    found = rows.transform(pooled).withColumn("best", F.col("ideal_reduction"))
    return found.transform(
        numbers(
            TITLES,
            at_least(0.95, "reached") | at_most(NOISE, "above"),
            by=("source", "universe", "variant", "least"),
            prefix=stan.named("universe", how, stan.users()),
            judged_where=(F.col("best") >= LITTLE) & F.col("variant").isin(*JUDGED),
            keep=("best",),
        )
    )


def nodes(rows: DataFrame) -> DataFrame:
    """Every node of the whole traces: view sizes, the mean over runs of plain Algorithm 2."""
    whole = rows.where((F.col("universe") == WHOLE_TRACE) & (F.col("variant") == PLAIN))
    means = [F.avg(name).alias(name) for name in ("topics", "lvs", "ipvs", "fpvs")]
    return (
        whole.groupBy("source", F.col("user").alias("node"))
        .agg(*means)
        .select("node", F.col("topics").cast("long"), "lvs", "ipvs", "fpvs", "source")
        .orderBy("source", "node")
    )


# --- planted defects ------------------------------------------------------------------------------


def is_judged(params: Params) -> bool:
    return params["variant"] in JUDGED


def unopened(at: Callable[..., Ids]) -> Callable[..., Ids]:
    """A planted defect: after the last round a quarter of the links is the link before it."""

    def instead(outcome: Outcome, round_: int) -> Ids:
        links = at(outcome, round_).copy()
        if round_ > 0:
            links[1::4] = links[:-1:4][: len(links[1::4])]
        return links

    return instead


# --- the picture ----------------------------------------------------------------------------------


def _dots(panel: Axes, x: Table, y: Table, number: int) -> None:
    panel.scatter(x, y, color=colour(number), s=7, alpha=0.35, linewidths=0)


def figure(rows: DataFrame) -> Figure:
    means = [F.avg(name).alias(name) for name in ("ipvs", "fpvs")]
    plain = rows.where(F.col("variant") == PLAIN)
    per_user = plain.groupBy("source", "universe", "user").agg(*means)
    within = Window.partitionBy("source", "universe")
    order = F.xxhash64("source", "universe", "user")
    some = per_user.withColumn("place", F.row_number().over(within.orderBy(order)))
    dots = table(some.where(F.col("place") <= DOTS).orderBy("source", "universe"))
    drawing, places = stan.panels_by_source(dots)
    for panel, _, _, part in places:
        most = part["ipvs"].max() * 1.03
        panel.plot([0, most], [0, most], color=GREY, lw=1)
        _dots(panel, part["ipvs"], part["fpvs"], 0)
        panel.set_xlabel("initial PVS")
        panel.set_ylabel("final PVS", color=colour(0))
        panel.set_ylim(0, most)
        right = panel.twinx()
        gains = 100 * (1 - part["fpvs"] / part["ipvs"])
        _dots(right, part["ipvs"], gains, 1)
        right.set_ylabel("improvement in %", color=colour(1))
        right.set_ylim(min(-20.0, gains.min()), 100)
        right.grid(visible=False)
    return drawing


UNIVERSES = (WHOLE_TRACE, PAPERS_GRID["universe"], *READINGS)
ABOVE = ground.asked(
    "2026-11-15",
    "Links that eight rounds have not yet made the lightest may be shared by chance, which single "
    "links can add to the ideal.",
)

ENTRY = UniverseEntry.of(
    __name__,
    title="Physical links before and after StaN",
    claim="Eight rounds of plain Algorithm 2 (TTL 6) reach at least 95 % of the reduction that "
    "StaN's own ideal has, in which every node holds the lightest members of each of its "
    "topics, and never more than it beyond noise. The paper's own words are that most nodes "
    "of its Wikipedia trace improve by more than 40 %; how many do here is told. The same 95 % are "
    "asked where members add what their own last walk collected (weft's own). What eight rounds "
    "reach where walks that pass are read (Section 2.4), and over Scamp's views, is told.",
    seeds={"quick": 3, "full": 10},
    tolerances=reasons(
        TITLES,
        stan.groups(UNIVERSES, stan.USERS),
        reached=ground.asked(
            "2026-11-15",
            "A view wants the lightest of all members, and a walk shows a hundred or so of them: "
            "in eight rounds a member sees nearly all where a topic has some hundreds.",
        ),
        above=ABOVE,
    )
    | reasons(
        TITLES,
        stan.groups(UNIVERSES, (REMEMBERED,), stan.USERS),
        reached=ground.asked(
            "2026-11-19",
            "As of plain Algorithm 2. On whole traces 0.990 and more of the ideal was known by "
            "then; it was told and not judged until this day.",
        ),
        above=ABOVE,
    ),
    defects=(
        Defect(
            "half of all messages are lost",
            {"weft.engine.stan.overlays:Config.options": stan.with_options(loss=2**31)},
            where=is_judged,
        ),
        Defect(
            "a quarter of the links is never opened",
            {"weft.engine.stan.overlays:Outcome.at": unopened},
            where=is_judged,
        ),
    ),
    tables={"nodes": nodes},
    micros=stan.micros,
)
