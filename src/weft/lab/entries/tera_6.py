"""tera-6a … 6d: messages per notification, TERA against flooding (TERA 4.3.2, Fig. 6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from weft.engine.experiments import tera_6 as engine
from weft.lab.entries import _costs as costs
from weft.lab.figures import colour, marker, panels
from weft.lab.registry import Entry, Size
from weft.pipeline.schemas import AT_LEAST, AT_MOST
from weft.pipeline.transforms import magnitude, measured, over_seeds, together

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame

# --- 6a: subscriptions grow -----------------------------------------------------------------------

ABOVE = "TERA less the view size, at the right end"
LITTLE = "TERA over the view size, at the right end"


def measure_a(rows: DataFrame, size: Size) -> DataFrame:
    most = rows.agg(F.max("subscriptions")).first()
    assert most is not None
    right = rows.where(F.col("subscriptions") == most[0])
    return together(
        rows.transform(costs.common_measures),
        right.withColumn("value", F.col("tera") - costs.VIEW)
        .transform(over_seeds())
        .transform(measured(ABOVE, AT_LEAST, 0.0)),
        right.withColumn("value", F.col("tera") / costs.VIEW)
        .transform(over_seeds())
        .transform(measured(LITTLE, AT_MOST, 1.11)),
        right.withColumn("value", F.col("tera") / F.col("flooding"))
        .transform(over_seeds())
        .transform(measured("TERA over flooding, at the right end")),
    )


def figure_a(rows: DataFrame) -> Figure:
    points = costs.means(rows, "subscriptions")
    drawing, (left, right) = panels(columns=2)
    costs.line(left, points, "subscriptions", "tera", 0, "TERA")
    costs.line(left, points, "subscriptions", "flooding", 1, "flooding")
    left.axhline(costs.VIEW, color="#666666", lw=0.8, ls=":", label="view size")
    costs.log_log(left)
    costs.formula_in_legend(left)
    left.set_ylabel("messages per notification")
    costs.by_kind(right, points, "subscriptions")
    for panel in (left, right):
        panel.set_xlabel("subscriptions, on 100 topics")
    return drawing


# --- 6b: topics grow ------------------------------------------------------------------------------

GROWTH = "growth of flooding over growth of topics"
FLAT = "exponent of TERA's cost, tables growing"
STEEP = "exponent of TERA's cost, tables fixed"


def measure_b(rows: DataFrame, size: Size) -> DataFrame:
    slope = F.regr_slope(F.log10("tera"), F.log10("topics")).alias("value")
    fitted = rows.groupBy("tables", "seed").agg(slope).transform(over_seeds("tables"))
    ends = rows.groupBy("seed").agg(
        (
            F.max_by("flooding", "topics")
            / F.min_by("flooding", "topics")
            / (F.max("topics") / F.min("topics"))
        ).alias("value")
    )
    evenness = rows.groupBy("tables", "seed").agg((F.max("tera") / F.min("tera")).alias("value"))
    return together(
        rows.transform(costs.common_measures),
        ends.transform(over_seeds()).transform(measured(GROWTH, AT_LEAST, 0.9)),
        fitted.where(F.col("tables") == "growing")
        .transform(magnitude)
        .transform(measured(FLAT, AT_MOST, 0.1)),
        fitted.where(F.col("tables") == "fixed").transform(measured(STEEP, AT_LEAST, 0.1)),
        evenness.transform(over_seeds("tables")).transform(
            measured(F.concat(F.lit("TERA's cost, max/min, tables "), "tables"))
        ),
    )


def figure_b(rows: DataFrame) -> Figure:
    fixed = costs.means(rows.where(F.col("tables") == "fixed"), "topics")
    growing = costs.means(rows.where(F.col("tables") == "growing"), "topics")
    drawing, axes = panels(columns=3)
    costs.line(axes[0], growing, "topics", "tera", 0, "TERA, tables a tenth of the topics")
    costs.line(axes[0], fixed, "topics", "tera", 2, "TERA, tables of 10")
    costs.line(axes[0], growing, "topics", "flooding", 1, "flooding")
    costs.log_log(axes[0])
    costs.formula_in_legend(axes[0])
    axes[0].set_ylabel("messages per notification")
    costs.by_kind(axes[1], growing, "topics", legend=False)
    axes[1].set_title("TERA by kind, tables a tenth of the topics")
    costs.by_kind(axes[2], fixed, "topics")
    axes[2].set_title("TERA by kind, tables of 10")
    for panel in axes:
        panel.set_xlabel("topics")
    return drawing


# --- 6c: the rate of publishing varies ------------------------------------------------------------

LOW = "TERA at the lowest rate, over its counted maintenance"
HIGH = "TERA at the highest rate, over its counted cost of events"
ADDITIVE = "costs at published rates against those put together, largest relative gap"
_UPKEEP = ("tera_exchange_general", "tera_exchange_topic", "tera_advert")
_EVENTS = ("tera_lookup", "tera_route", "tera_dissemination")


def crossing(rows: DataFrame) -> DataFrame:
    """Per seed: the rate at which TERA and flooding cost the same, between two neighbouring rates
    by a straight line in logarithms."""
    along = Window.partitionBy("seed").orderBy("rate_shown")
    steps = rows.select(
        "seed",
        F.log10("rate_shown").alias("x"),
        F.log10(F.col("tera") / F.col("flooding")).alias("y"),
        F.log10(F.lead("rate_shown").over(along)).alias("next_x"),
        F.lead(F.log10(F.col("tera") / F.col("flooding"))).over(along).alias("next_y"),
    )
    crossed = steps.where((F.col("y") > 0) & (F.col("next_y") <= 0))
    share = F.col("y") / (F.col("y") - F.col("next_y"))
    x = F.col("x") + share * (F.col("next_x") - F.col("x"))
    return crossed.select("seed", F.pow(F.lit(10.0), x).alias("value"))


def measure_c(rows: DataFrame, size: Size) -> DataFrame:
    put_together = rows.where(F.col("rate") == 0)
    published = rows.where(F.col("rate") > 0)
    upkeep = sum((F.col(name) for name in _UPKEEP), F.lit(0.0))
    events = sum((F.col(name) for name in _EVENTS), F.lit(0.0))
    ends = put_together.groupBy("seed").agg(
        F.min_by(F.col("tera") / upkeep, "rate_shown").alias("low_end"),
        F.max_by(F.col("tera") / events, "rate_shown").alias("high_end"),
    )
    joined = published.alias("real").join(
        put_together.alias("sum"),
        (F.col("real.seed") == F.col("sum.seed"))
        & (F.abs(F.log10("real.rate") - F.log10("sum.rate_shown")) < 1e-6),
    )
    gap = F.abs(F.col("real.tera") / F.col("sum.tera") - 1)
    noise = 3 * F.sqrt(F.col("real.topics") / F.col("real.subscriptions") / F.col("real.events"))
    gaps = joined.select(F.col("real.seed").alias("seed"), gap.alias("value"), noise.alias("bound"))
    worst = gaps.groupBy("seed").agg(F.max("value").alias("value"), F.max("bound").alias("bound"))
    bound = worst.agg(F.max("bound")).first()
    assert bound is not None
    return together(
        rows.transform(costs.common_measures),
        ends.transform(over_seeds(value="low_end")).transform(measured(LOW, AT_MOST, 1.01)),
        ends.transform(over_seeds(value="high_end")).transform(measured(HIGH, AT_MOST, 1.01)),
        worst.transform(over_seeds()).transform(measured(ADDITIVE, AT_MOST, bound[0])),
        put_together.transform(crossing)
        .transform(over_seeds())
        .transform(measured("rate per topic at which TERA and flooding cost the same")),
    )


def figure_c(rows: DataFrame) -> Figure:
    points = costs.means(rows.where(F.col("rate") == 0), "rate_shown")
    real = costs.means(rows.where(F.col("rate") > 0), "rate_shown")
    drawing, (left, right) = panels(columns=2)
    for number, (name, label) in enumerate((("tera", "TERA"), ("flooding", "flooding"))):
        left.plot(points["rate_shown"], points[name], color=colour(number), label=label)
        left.plot(points["rate_shown"], points[f"{name}_formula"], "--", color="black", lw=0.9)
        style: Any = {"ls": "", "color": colour(number), "marker": marker(number)}
        left.plot(real["rate_shown"], real[name], label=f"{label}, as published", **style)
    costs.log_log(left)
    costs.formula_in_legend(left)
    left.set_ylabel("messages per notification")
    costs.by_kind(right, points, "rate_shown")
    right.set_ylim(bottom=1e-3)
    for panel in (left, right):
        panel.set_xlabel("events per topic and cycle")
    return drawing


# --- 6d: peers grow -------------------------------------------------------------------------------

AGREES = "simulated TERA against the closed form, largest relative gap"
REACH = "most peers simulated"


def measure_d(rows: DataFrame, size: Size) -> DataFrame:
    runs = rows.transform(costs.simulated)
    per_seed = runs.groupBy("seed").agg(
        F.max(F.abs(F.col("tera") / F.col("tera_formula") - 1)).alias("gap"),
        F.max("peers").cast("double").alias("reach"),
    )
    reach = per_seed.agg(
        F.max("reach").alias("value"),
        F.lit(None).alias("low"),
        F.lit(None).alias("high"),
        F.lit(1).alias("seeds"),
    )
    share = F.col("tera_exchange_general") / F.col("tera")
    dominant = rows.where(share >= 0.5).groupBy("seed").agg(F.min("peers").alias("value"))
    return together(
        rows.transform(costs.common_measures),
        per_seed.transform(over_seeds(value="gap")).transform(measured(AGREES, AT_MOST, 0.01)),
        reach.transform(measured(REACH, AT_LEAST, 1e8 if size == "full" else 1e6)),
        dominant.transform(over_seeds()).transform(
            measured("fewest peers at which the general overlay's exchanges are half of the cost")
        ),
    )


def figure_d(rows: DataFrame) -> Figure:
    points = costs.means(rows, "peers")
    drawing, (left, right) = panels(columns=2)
    for number, (name, label) in enumerate((("tera", "TERA"), ("flooding", "flooding"))):
        left.plot(points["peers"], points[f"{name}_formula"], "--", color="black", lw=0.9)
        looks: dict[str, Any] = {
            "all": {"marker": marker(number), "label": f"{label}, simulated"},
            "general": {
                "marker": marker(number),
                "mfc": "white",
                "label": f"{label}, general overlay simulated",
            },
            "formula": {"marker": "x", "label": f"{label}, by formula alone"},
        }
        for how, look in looks.items():
            some = points[points["simulated"] == how]
            if len(some):
                left.plot(some["peers"], some[name], ls="", color=colour(number), **look)
    costs.log_log(left)
    costs.formula_in_legend(left)
    left.set_ylabel("messages per notification")
    costs.by_kind(right, points, "peers")
    for panel in (left, right):
        panel.set_xlabel("peers")
    return drawing


# --- entries --------------------------------------------------------------------------------------


def _entry(
    letter: str,
    title: str,
    claim: str,
    measure: Callable[[DataFrame, Size], DataFrame],
    tolerances: dict[str, str],
    figure: Callable[[DataFrame], Figure],
) -> Entry:
    return Entry(
        id=f"tera-6{letter}",
        title=f"Messages per notification as {title}",
        claim=claim,
        simulation=f"{engine.__name__}:run",
        points=getattr(engine, f"points_{letter}"),
        seeds=engine.SEEDS,
        columns=costs.COLUMNS,
        measure=measure,
        tolerances={**costs.TOLERANCES, **tolerances},
        figure=figure,
        seconds=engine.seconds,
        gigabytes=engine.gigabytes,
        most_seeds=engine.most_seeds,
    )


ENTRIES = [
    _entry(
        "a",
        "subscriptions grow",
        "With more subscriptions a notification gets cheaper, for flooding in proportion, for TERA "
        "down to a little more than the view size, since events are flooded inside topics. Where "
        "everybody subscribes to everything the two cost about the same.",
        measure_a,
        {
            ABOVE: "Each subscriber sends an event to all its neighbours.",
            LITTLE: "20 for the flood, 2 for the exchange of views of each subscription at one "
            "event per topic and cycle, 0.03 for the general overlay and advertisements: 22.03.",
        },
        figure_a,
    ),
    _entry(
        "b",
        "topics grow",
        "With more topics an event concerns fewer peers, so flooding costs more per notification; "
        "TERA's cost stays about the same. It does so only where tables grow with the topics: "
        "with tables of fixed size lookups take over.",
        measure_b,
        {
            GROWTH: "Flooding costs 2 + 20·topics per notification here: from 1 topic to 10⁴ it "
            "grows by 0.91 of the topics' growth.",
            FLAT: "Flat means: less than a quarter more for ten times the topics.",
            STEEP: "Not flat, by the same measure.",
        },
        figure_b,
    ),
    _entry(
        "c",
        "events get more frequent",
        "At low rates TERA's upkeep is not paid back and flooding is cheaper; at high rates only "
        "dissemination counts, and TERA wins.",
        measure_c,
        {
            LOW: "At 10⁻⁵ events per topic and cycle the rest is below a thousandth.",
            HIGH: "At 10⁵ upkeep is below a thousandth.",
            ADDITIVE: "Costs add up, as events change neither overlays nor tables. Publishing in "
            "random topics of mean size s, E events meet subscribers with a relative error of "
            "1/√(sE); three of them.",
        },
        figure_c,
    ),
    _entry(
        "d",
        "peers grow",
        "With a fixed number of subscriptions TERA's cost stays low while the network grows, up to "
        "the point where the exchanges of views in the general overlay dominate.",
        measure_d,
        {
            AGREES: "The form takes topics to be equally large; sizes of 100 ± 10 change the cost "
            "by less than a hundredth.",
            REACH: "10⁸ peers in the general overlay within this machine's memory (10⁶ quick).",
        },
        figure_d,
    ),
]
