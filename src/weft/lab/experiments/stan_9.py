"""stan-9: StaN leaves overlays as fit as they were (StaN 3.5, Fig. 9)."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from weft.engine.data.universe import READINGS
from weft.engine.stan.overlays import Config
from weft.lab import stan
from weft.lab.experiment import Columns, Params, Size, UniverseEntry
from weft.lab.figures import Figure, colour, panels, table
from weft.lab.measures import at_least, reasons
from weft.lab.overlaid import Overlaid
from weft.lab.sources import Source
from weft.lab.stan import PLAIN
from weft.lab.universes import LARGE, WHOLE_TRACE
from weft.pipeline.schemas import FITNESS, TEXT, columns, joined
from weft.pipeline.transforms import numbers, together
from weft.rules.stan import PATIENCE

MENDED = "mended"
VARIANTS = {PLAIN: Config(), MENDED: Config(overheard=True, patience=PATIENCE)}
BEFORE = "before"
LINES = {BEFORE: "--", f"after, {PLAIN}": "-", f"after, {MENDED}": "-."}
COLUMNS = joined(columns(source=TEXT, universe=TEXT, variant=TEXT), FITNESS)

TITLES = {
    "weak": "overlays that are weakly connected after",
    "strong": "overlays that are strongly connected after",
    "clustering_ks": "clustering, Kolmogorov–Smirnov distance of before and after",
    "diameter_ks": "diameter, Kolmogorov–Smirnov distance of before and after",
    "noise": "Kolmogorov–Smirnov distance of one in a hundred pairs of alike samples",
    "strong_before": "overlays that are strongly connected before",
    "unlinked": "members that nobody links to after, per overlay",
    "clustering_before": "mean clustering before",
    "clustering_after": "mean clustering after",
    "diameter_before": "mean diameter before",
    "diameter_after": "mean diameter after",
    "overlays": "overlays",
}


def points(size: Size, source: Source) -> list[Params]:
    if not stan.runs_on(size, source):
        return []
    places = [stan.whole(size, source)]
    if not source.is_grid:
        places = [{**places[0], "universe": LARGE}, *stan.smallest(source)]
    return [{**place, "variant": variant} for place in places for variant in VARIANTS]


def run(params: Params, seed: int, over: Overlaid) -> Columns:
    """Every overlay as a graph, before and after."""
    return over.fitness(VARIANTS[params["variant"]], seed)


def figures_of(rows: DataFrame) -> DataFrame:
    """Per source, universe, variant and seed: how many overlays hold together, and how far the
    distributions of clustering and diameter have moved."""
    by = ("source", "universe", "variant", "seed")
    after = F.col("round") > 0

    def mean(name: str, condition: Column) -> Column:
        return F.avg(F.when(condition, F.col(name).cast("double")))

    whole = rows.withColumns({"weakly": (F.col("weak") == 1), "strongly": (F.col("strong") == 1)})
    shares = whole.groupBy(*by).agg(
        mean("weakly", after).alias("weak"),
        mean("strongly", after).alias("strong"),
        mean("strongly", ~after).alias("strong_before"),
        mean("unlinked", after).alias("unlinked"),
        *(
            mean(name, condition).alias(f"{name}_{when}")
            for name in ("clustering", "diameter")
            for when, condition in (("before", ~after), ("after", after))
        ),
        F.sum(after.cast("long")).alias("overlays"),
    )
    for name in ("clustering", "diameter"):
        moved = rows.transform(stan.ks_distance(*by, value=name, after=after))
        shares = shares.join(moved.select(*by, F.col("ks").alias(f"{name}_ks")), list(by))
    return shares


def measure(rows: DataFrame, size: Size) -> DataFrame:
    noise = 1.63 * F.sqrt(2 / F.col("overlays"))
    found = rows.transform(figures_of).withColumn("noise", noise)
    by = ("source", "universe", "variant")
    prefix = stan.named("universe", "variant")

    def judged(variant: str, *names: str) -> DataFrame:
        some = found.where(F.col("variant") == variant)
        return some.transform(numbers(TITLES, at_least(0.999, *names), by=by, prefix=prefix))

    return together(judged(PLAIN, "weak"), judged(MENDED, "weak", "strong"))


def figure(rows: DataFrame) -> Figure:
    """Distribution functions of clustering and diameter, two panels for each universe."""
    after = F.col("round") > 0
    line = F.when(after, F.concat(F.lit("after, "), F.col("variant"))).otherwise(BEFORE)
    wanted = rows.where(after | (F.col("variant") == PLAIN)).withColumn("line", line)
    points_ = table(wanted.select("source", "universe", "line", "clustering", "diameter"))
    groups = list(points_.groupby(["source", "universe"]))
    drawing, axes = panels(columns=4, rows=-(-len(groups) // 2))
    names = {"clustering": "clustering coefficient", "diameter": "diameter"}
    for panel in axes[2 * len(groups) :]:
        panel.set_visible(False)
    for number, ((source, universe), part) in enumerate(groups):
        for panel, (name, title) in zip(axes[2 * number :], names.items(), strict=False):
            for which, (label, style) in enumerate(LINES.items()):
                values = sorted(part[part["line"] == label][name])
                shares = [(place + 1) / len(values) for place in range(len(values))]
                panel.step(values, shares, style, where="post", color=colour(which), label=label)
            panel.set(title=f"{source}, {universe}", xlabel=title, ylabel="share of overlays")
            panel.set_ylim(0, 1.02)
            panel.locator_params("x", integer=name == "diameter")
    axes[1].legend(loc="lower right")
    return drawing


WEAK = (
    "The overlays are drawn to be connected with probability 0.99 as directed ones; as "
    "undirected ones they practically always are."
)
STRONG = (
    "A member that loses its last in-link is told, and asks for another at once; what is "
    "left are small groups that only hold each other."
)

ENTRY = UniverseEntry.of(
    __name__,
    title="Overlays stay as fit as they were",
    claim="No overlay falls apart. Plain Algorithm 2 leaves some members without an in-link, "
    "so that overlays stay weakly and not strongly connected; with overheard walks and "
    "adoption at least 99.9 % of the overlays are strongly connected. The paper says that "
    "clustering coefficients and diameters do not change: how far their distributions move is "
    "told, by the distance of Kolmogorov and Smirnov.",
    seeds={"quick": 2, "full": 3},
    tolerances={
        title: why
        for universe in (WHOLE_TRACE, LARGE, *READINGS)
        for variant, some in ((PLAIN, {"weak": WEAK}), (MENDED, {"weak": WEAK, "strong": STRONG}))
        for title, why in reasons(TITLES, [f"{universe}, {variant}, "], **some).items()
    },
    micros=lambda params: 70.0,
)
