"""stan-3 and stan-4: how subscribers per topic and subscriptions per node are distributed.

The paper's Fig. 3 is of LiveJournal, for which traces of groups and places stand in; its Fig. 4 is
of Wikipedia. The grid is in both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from weft.lab import ground, stan, workload
from weft.lab.defect import Defect
from weft.lab.experiment import JobEntry, Params, Size
from weft.lab.figures import Figure, panels
from weft.lab.measures import at_least
from weft.lab.profiles import draw_distribution
from weft.lab.sources import GRID, Source
from weft.lab.workload import PRUNED, WHOLE, seeds_once, sources_in, workload_of
from weft.pipeline.profile import SUBSCRIBERS, SUBSCRIPTIONS, distribution, fitted
from weft.pipeline.schemas import DISTRIBUTION, FIT, TEXT, columns, joined
from weft.pipeline.transforms import numbers, together

COLUMNS = joined(columns(source=TEXT, universe=TEXT), DISTRIBUTION, FIT)
UNIVERSES = 3  # guess: as many of the smallest as a picture can show beside the whole
WIKIPEDIA = "wikipedia_edits"
HEAVY = "power law against an exponential one"
NOT_LOGNORMAL = "power law against a log-normal one"


def points(size: Size, source: Source, *, wikipedia: bool) -> list[Params]:
    """Each known trace belongs to one of the two figures; the grid and a lake of the user's own
    belong to both."""
    if source.name != GRID and source.file is not None and wikipedia != (source.name == WIKIPEDIA):
        return []
    return workload.points(size, source)


def job(spark: SparkSession, params: Params, seed: int, source: Source) -> DataFrame:
    """The distributions of the whole table and of universes, each row with its power law."""
    found = workload_of(spark, params, seed, source).closed(UNIVERSES)
    counted = together(
        *(
            frame.transform(distribution).withColumn("universe", F.lit(name))
            for name, frame in found.items()
        )
    ).cache()
    by = ["universe", "kind"]
    return counted.join(counted.transform(fitted, *by), by)


def laws(rows: DataFrame) -> DataFrame:
    """One row per fitted distribution."""
    by = ("source", "seed", "universe", "kind")
    return rows.groupBy(*by).agg(*(F.first(name).alias(name) for name in FIT.names))


def measure(rows: DataFrame, size: Size) -> DataFrame:
    titles = {
        "exponent": "exponent",
        "least": "where the tail begins",
        "share": "share in the tail",
        "distance": "distance of the fit",
        "against_exponential": HEAVY,
        "against_lognormal": NOT_LOGNORMAL,
    }
    fits = rows.transform(laws).withColumn("share", F.col("tail") / F.col("total"))
    return fits.transform(
        numbers(
            titles,
            at_least(2.0, "against_exponential") | at_least(-2.0, "against_lognormal"),
            by=("source", "universe", "kind"),
            prefix=stan.named("universe", "kind"),
            judged_where=F.col("universe") == WHOLE,
        )
    )


def figure(rows: DataFrame) -> Figure:
    """Per source one column: topics above, nodes below, as in the paper."""
    first = rows.where("seed = 1")
    sources = sources_in(first)
    drawing, axes = panels(columns=len(sources), rows=2)
    fits = {(row.source, row.universe, row.kind): row for row in first.transform(laws).collect()}
    counted = first.orderBy("size").collect()
    for line, kind in enumerate((SUBSCRIBERS, SUBSCRIPTIONS)):
        for column, source in enumerate(sources):
            panel = axes[line * len(sources) + column]
            names = sorted(
                {name for which, name, _ in fits if which == source and name != PRUNED},
                key=lambda name: (name != WHOLE, -int(name.split()[0]) if name != WHOLE else 0),
            )
            for number, name in enumerate(names):
                wanted = (source, name, kind)
                some = [row for row in counted if (row.source, row.universe, row.kind) == wanted]
                sizes, counts = [row["size"] for row in some], [row["count"] for row in some]
                draw_distribution(panel, sizes, counts, fits[wanted], number, name)
            panel.set(title=source, xlabel=kind, ylabel="share with at least as many")
            panel.legend()
    return drawing


WHY = {
    HEAVY: ground.derived(
        "2026-11-15",
        "Vuong's statistic in standard deviations, on the tail where the power law fits best: "
        "above 2 an exponential law is ruled out, which is what few topics with very many "
        "subscribers means. From 2026-11-15 to 2026-11-16 tails of fewer than 500 data were not "
        "judged.",
    ),
    NOT_LOGNORMAL: ground.derived(
        "2026-11-16",
        "Below −2 a log-normal law is clearly better than the power law that the paper says.",
    ),
}


# --- planted defects ------------------------------------------------------------------------------


def exponential(counted: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    """A planted defect: sizes become logarithms, which follow an exponential law where the sizes
    follow a power law."""
    return lambda frame: counted(frame).withColumn("size", F.ceil(1 + 20 * F.log("size")))


def lognormal(counted: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    """A planted defect: sizes are bent so that their logarithms fall off as fast as those of a
    log-normal law."""

    def instead(frame: DataFrame) -> DataFrame:
        bent = F.exp(3.0 * F.sqrt(F.log(F.col("size") + 1)))
        return counted(frame).withColumn("size", F.ceil(bent))

    return instead


def _entry(name: str, title: str, wikipedia: bool) -> JobEntry:
    return JobEntry.of(
        __name__,
        id=name,
        title=title,
        claim="The number of subscribers of a topic follows a power law, and so does the number of "
        "subscriptions of a node: few topics are highly popular, and some users subscribe to very "
        "many. We fit by maximum likelihood and tell the exponents. We ask that tails are heavier "
        "than exponential, and no worse as power laws than as log-normal ones.",
        points=partial(points, wikipedia=wikipedia),
        seeds={"quick": 2, "full": 2},
        tolerances={
            f"{WHOLE}, {kind}, {what}": why
            for kind in (SUBSCRIBERS, SUBSCRIPTIONS)
            for what, why in WHY.items()
        },
        defects=(
            Defect(
                "subscriptions that follow an exponential law",
                {"weft.lab.experiments.stan_3:distribution": exponential},
            ),
            Defect(
                "subscriptions that follow a log-normal law",
                {"weft.lab.experiments.stan_3:distribution": lognormal},
            ),
        ),
        seconds=lambda params: 20.0 if params["size"] == "quick" else 60.0,
        most_seeds=seeds_once,
    )


ENTRIES = [
    _entry("stan-3", "Distributions of subscriptions, groups and places", wikipedia=False),
    _entry("stan-4", "Distributions of subscriptions, Wikipedia", wikipedia=True),
]
