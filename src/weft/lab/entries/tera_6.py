"""tera-6a … 6d: messages per notification, TERA against flooding (TERA 4.3.2, Fig. 6)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from weft.engine.experiments import tera_6 as engine
from weft.lab.entries import _costs as costs
from weft.lab.figures import colour, marker, panels
from weft.lab.registry import Entry, Size
from weft.pipeline.schemas import AT_LEAST, AT_MOST
from weft.pipeline.transforms import Bound, numbers, together

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import Column, DataFrame

# --- 6a: subscriptions grow -----------------------------------------------------------------------

ABOVE = "TERA less the view size, at the right end"
LITTLE = "TERA over the view size, at the right end"


def measure_a(rows: DataFrame, size: Size) -> DataFrame:
    right = F.max_by("tera", "subscriptions")
    own = {
        "above": (right - costs.VIEW, ABOVE),
        "little": (right / costs.VIEW, LITTLE),
        "both": (
            right / F.max_by("flooding", "subscriptions"),
            "TERA over flooding, at the right end",
        ),
    }
    return costs.judged(rows, own, {"above": (AT_LEAST, 0.0), "little": (AT_MOST, 1.11)})


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
    def tera(tables: str) -> Column:
        return F.when(F.col("tables") == tables, F.col("tera"))

    def slope(tables: str) -> Column:
        return F.regr_slope(F.log10(tera(tables)), F.log10("topics"))

    growth = F.max_by("flooding", "topics") / F.min_by("flooding", "topics")
    own = {
        "growth": (growth / (F.max("topics") / F.min("topics")), GROWTH),
        "flat": (F.abs(slope("growing")), FLAT),
        "steep": (slope("fixed"), STEEP),
        **{
            tables: (F.max(tera(tables)) / F.min(tera(tables)), f"cost, max/min, tables {tables}")
            for tables in ("growing", "fixed")
        },
    }
    asked: dict[str, Bound] = {
        "growth": (AT_LEAST, 0.9),
        "flat": (AT_MOST, 0.1),
        "steep": (AT_LEAST, 0.1),
    }
    return costs.judged(rows, own, asked)


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
_EVENTS_LEAST = 2_000  # published at each of the rates that are run as they are
_EVENTS = ("tera_lookup", "tera_route", "tera_dissemination")


def with_crossings(rows: DataFrame) -> DataFrame:
    """Add `crossing`: the rate at which TERA and flooding cost the same, where that lies between a
    row's rate and the next; by a straight line in logarithms."""
    along = Window.partitionBy("seed", "rate").orderBy("rate_shown")
    x, y = F.log10("rate_shown"), F.log10(F.col("tera") / F.col("flooding"))
    next_x, next_y = F.lead(x).over(along), F.lead(y).over(along)
    meets = x + y / (y - next_y) * (next_x - x)
    return rows.withColumn("crossing", F.when((y > 0) & (next_y <= 0), F.pow(F.lit(10.0), meets)))


def measure_c(rows: DataFrame, size: Size) -> DataFrame:
    put_together = F.col("rate") == 0  # one simulation, its costs put together for every rate
    upkeep = sum((F.col(name) for name in _UPKEEP), F.lit(0.0))
    events = sum((F.col(name) for name in _EVENTS), F.lit(0.0))

    def at(rate: float, which: Column) -> Column:
        return F.max(
            F.when(which & (F.abs(F.log10("rate_shown") - math.log10(rate)) < 1e-6), F.col("tera"))
        )

    published = [point for point in engine.points_c(size) if point["rate"] > 0]
    gaps = [
        F.abs(at(p["rate"], ~put_together) / at(p["rate"], put_together) - 1) for p in published
    ]
    sample = published[0]["subscriptions"] / published[0]["topics"] * _EVENTS_LEAST
    rate = F.when(put_together, F.col("rate_shown"))
    own = {
        "low": (F.min_by(F.col("tera") / upkeep, rate), LOW),
        "high": (F.max_by(F.col("tera") / events, rate), HIGH),
        "additive": (F.greatest(*gaps), ADDITIVE),
        "crossing": (
            F.max("crossing"),
            "rate per topic at which TERA and flooding cost the same",
        ),
    }
    asked: dict[str, Bound] = {
        "low": (AT_MOST, 1.01),
        "high": (AT_MOST, 1.01),
        "additive": (AT_MOST, 3 / math.sqrt(sample)),
    }
    return costs.judged(rows.transform(with_crossings), own, asked)


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
    gap = F.abs(F.col("tera") / F.col("tera_formula") - 1)
    dominant = F.col("tera_exchange_general") / F.col("tera") >= 0.5
    own = {
        "agrees": (F.max(costs.when_simulated(gap)), AGREES),
        "dominant": (
            F.min(F.when(dominant, F.col("peers"))),
            "fewest peers at which the general overlay's exchanges are half of the cost",
        ),
    }
    most = rows.where(costs.is_simulated()).groupBy().agg(F.max("peers").alias("reach"))
    reach = most.withColumn("seed", F.lit(1))
    wanted = 1e8 if size == "full" else 1e6
    return together(
        costs.judged(rows, own, {"agrees": (AT_MOST, 0.01)}),
        reach.transform(numbers({"reach": REACH}, {"reach": (AT_LEAST, wanted)})),
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
    low, high = left.get_ylim()
    left.set_ylim(low, high * (high / low) ** 0.7)  # room for the legend above the lines
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
