"""What the experiments on messages per notification share: columns, measures, panels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from weft.engine.world import Settings
from weft.lab.figures import colour, marker, table
from weft.pipeline.schemas import AT_MOST, NUMBER, TEXT, WHOLE, columns
from weft.pipeline.transforms import measured, over_seeds, together

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pyspark.sql import DataFrame

VIEW = Settings().view_size
KINDS = {
    "tera_exchange_general": "view exchanges, general overlay",
    "tera_exchange_topic": "view exchanges, topic overlays",
    "tera_advert": "advertisements",
    "tera_lookup": "lookups",
    "tera_route": "events to access points",
    "tera_dissemination": "events in topics",
}
COLUMNS = columns(
    peers=WHOLE,
    topics=WHOLE,
    subscriptions=WHOLE,
    table_size=WHOLE,
    tables=TEXT,
    rate=NUMBER,
    rate_shown=NUMBER,
    simulated=TEXT,
    tera=NUMBER,
    flooding=NUMBER,
    **dict.fromkeys(KINDS, NUMBER),
    tera_formula=NUMBER,
    flooding_formula=NUMBER,
    size_estimation=NUMBER,
    flood_per_event=NUMBER,
    flood_reached=NUMBER,
    visits=WHOLE,
    events=WHOLE,
    events_lost=WHOLE,
    lookups=WHOLE,
    missed=WHOLE,
    notified=WHOLE,
)
EXACT = "flooding, counted against N·view, largest relative gap"
MISSED = "notifications missed by events that found their topic"
TOLERANCES = {
    EXACT: "Every peer sends an event once to each neighbour, so the count is exact.",
    MISSED: "A flood over a connected overlay reaches everyone; only a failed lookup, which is "
    "counted apart, may lose an event.",
}


def simulated(rows: DataFrame) -> DataFrame:
    """The points that are not by formula alone."""
    return rows.where(F.col("simulated") != "formula")


def common_measures(rows: DataFrame) -> DataFrame:
    """What is asked of every one of these experiments, and what is told of each."""
    runs = rows.transform(simulated)
    exact = F.col("peers") * F.least(F.lit(VIEW), F.col("peers") - 1)
    per_seed = runs.groupBy("seed").agg(
        F.max(F.abs(F.col("flood_per_event") / exact - 1)).alias("exact"),
        F.sum("missed").cast("double").alias("missed"),
        (F.sum("events_lost") / F.sum("lookups")).alias("lost"),
        F.max(F.abs(F.col("tera") / F.col("tera_formula") - 1)).alias("formula"),
        F.min(F.col("size_estimation") / F.col("tera")).alias("size_least"),
        F.max(F.col("size_estimation") / F.col("tera")).alias("size_most"),
    )

    def told(name: str, title: str) -> DataFrame:
        return per_seed.transform(over_seeds(value=name)).transform(measured(title))

    return together(
        per_seed.transform(over_seeds(value="exact")).transform(measured(EXACT, AT_MOST, 1e-9)),
        per_seed.transform(over_seeds(value="missed")).transform(measured(MISSED, AT_MOST, 0.0)),
        told("lost", "share of lookups that fail"),
        told("formula", "TERA against the closed form, largest relative gap"),
        told("size_least", "size estimation, beside TERA's messages, least"),
        told("size_most", "size estimation, beside TERA's messages, most"),
    )


# --- pictures -------------------------------------------------------------------------------------


def means(rows: DataFrame, x: str) -> Any:
    """The mean over seeds of every cost, by x."""
    costs = ["tera", "flooding", "tera_formula", "flooding_formula", *KINDS]
    found = rows.groupBy(x).agg(
        *(F.avg(name).alias(name) for name in costs), F.first("simulated").alias("simulated")
    )
    return table(found.orderBy(x))


def line(panel: Axes, points: Any, x: str, y: str, number: int, label: str) -> None:
    """A simulated line with its formula dashed in black."""
    panel.plot(points[x], points[y], color=colour(number), marker=marker(number), label=label)
    panel.plot(points[x], points[f"{y}_formula"], "--", color="black", lw=0.9)


def by_kind(panel: Axes, points: Any, x: str, *, legend: bool = True) -> None:
    """TERA's messages, split."""
    for number, (kind, label) in enumerate(KINDS.items()):
        some = points[points[kind] > 0]
        style: Any = {"color": colour(number), "marker": marker(number), "label": label}
        panel.plot(some[x], some[kind], **style)
    panel.plot(points[x], points["tera"], color="black", lw=2.2, alpha=0.35, label="all of TERA")
    log_log(panel)
    panel.set_ylabel("messages per notification")
    if legend:
        panel.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))


def log_log(panel: Axes) -> None:
    panel.set_xscale("log")
    panel.set_yscale("log")


def formula_in_legend(panel: Axes) -> None:
    panel.plot([], [], "--", color="black", lw=0.9, label="closed form")
    panel.legend()
