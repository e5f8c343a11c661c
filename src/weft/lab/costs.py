"""What the experiments on messages per notification share: columns, measures, panels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from weft.engine.tera.world import WorldSettings
from weft.lab import ground
from weft.lab.counted import COUNTS, traffic
from weft.lab.figures import Table, colour, look, marker, table
from weft.lab.measures import at_most, reals, reasons, texts, wholes
from weft.lab.task import shape_of
from weft.pipeline.schemas import joined, selected
from weft.pipeline.traces import figures
from weft.pipeline.transforms import Bound, numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pyspark.sql import Column, DataFrame


VIEW = WorldSettings().view_size
KINDS = {
    "tera_exchange_general": "view exchanges, general overlay",
    "tera_exchange_topic": "view exchanges, topic overlays",
    "tera_advert": "advertisements",
    "tera_lookup": "lookups",
    "tera_route": "events to access points",
    "tera_dissemination": "events in topics",
}
TERA, FLOODING, SIZE = "tera", "flooding", "size_estimation"
FLOOD = "flood"
"""The part of flooding that events cause; the other is the general overlay's upkeep."""
KNOWN = joined(
    wholes("peers", "topics", "subscriptions", "table_size"),
    texts("tables"),
    reals("rate", "rate_shown"),
    texts("simulated"),
    reals("tera_formula", "flooding_formula"),
    reals("flood_reached"),
    wholes("visits", "events", "events_lost", "lookups", "missed", "notified"),
)
"""What is known of a run beside its counts."""
COLUMNS = joined(KNOWN, texts("system"), COUNTS, reals("notifications"))
"""For each system: the messages that it sends in a cycle at the rate shown, by part, and the
notifications that it gives for them."""
RUN = ("point", "seed", "rate_shown")
COSTS = joined(KNOWN, reals(TERA, FLOODING, SIZE, *KINDS, "flood_per_event"))
"""Messages per notification, and those of one flooded event."""


def of_counts(rows: DataFrame) -> DataFrame:
    """Counts → one row for each run and rate (COSTS), by the pipeline's own transform."""
    given = rows.groupBy(*RUN, "system").agg(F.max("notifications").alias("notifications"))
    by = (*RUN, "system", "part")
    found = traffic(rows).transform(figures.messages, given, by).join(given, [*RUN, "system"])

    def of(system: str, part: str | None, number: Column) -> Column:
        where = F.col("system") == system
        return F.sum(F.when(where if part is None else where & (F.col("part") == part), number))

    each = F.col("per_notification")
    wide = found.groupBy(*RUN).agg(
        *(of(system, None, each).alias(system) for system in (TERA, FLOODING, SIZE)),
        *(of(TERA, kind, each).alias(kind) for kind in KINDS),
        of(FLOODING, FLOOD, each * F.col("notifications")).alias("flooded"),
    )
    names = [name for name in KNOWN.names if name not in RUN]
    known = rows.groupBy(*RUN).agg(*(F.first(name).alias(name) for name in names))
    in_a_cycle = F.col("rate_shown") * F.col("topics")
    both = known.join(wide, list(RUN))
    found = both.withColumn("flood_per_event", F.col("flooded") / in_a_cycle)
    return selected(found, shape_of(COSTS))


TITLES = {
    "exact": "flooding, counted against N·view, largest relative gap",
    "missed": "notifications missed by events that found their topic",
    "lost": "share of lookups that fail",
    "formula": "TERA against the closed form, largest relative gap",
    "size_least": "size estimation, beside TERA's messages, least",
    "size_most": "size estimation, beside TERA's messages, most",
}
TOLERANCES = reasons(
    TITLES,
    exact=ground.derived(
        "2026-11-15", "Every peer sends an event once to each neighbour, so the count is exact."
    ),
    missed=ground.paper(
        "2026-11-15",
        "No notifications were missed (footnote 10). A flood over a connected overlay reaches "
        "everyone; only a failed lookup, which is counted apart, may lose an event.",
    ),
)


def is_simulated() -> Column:
    """Whether a point is not by formula alone."""
    return F.col("simulated") != "formula"


def when_simulated(number: Column) -> Column:
    """A number of the points that are not by formula alone; null for those."""
    return F.when(is_simulated(), number)


def common_numbers() -> dict[str, Column]:
    """What is computed per seed in every one of these experiments."""
    exact = F.col("peers") * F.least(F.lit(VIEW), F.col("peers") - 1)
    size = when_simulated(F.col("size_estimation") / F.col("tera"))
    return {
        "exact": F.max(when_simulated(F.abs(F.col("flood_per_event") / exact - 1))),
        "missed": F.sum("missed"),
        "lost": F.sum("events_lost") / F.sum("lookups"),
        "formula": F.max(when_simulated(F.abs(F.col("tera") / F.col("tera_formula") - 1))),
        "size_least": F.min(size),
        "size_most": F.max(size),
    }


def judged(
    rows: DataFrame,
    titles: Mapping[str, str],
    own: Mapping[str, Column],
    asked: Mapping[str, Bound],
) -> DataFrame:
    """The measures of an experiment: its own numbers per seed, and the common ones."""
    aggregates = {**common_numbers(), **own}
    per_seed = rows.groupBy("seed").agg(
        *(column.alias(name) for name, column in aggregates.items())
    )
    wanted = {name: {**TITLES, **titles}[name] for name in aggregates}
    exact = at_most(1e-9, "exact") | at_most(0.0, "missed")
    return per_seed.transform(numbers(wanted, {**exact, **asked}))


# --- pictures -------------------------------------------------------------------------------------


def means(rows: DataFrame, x: str) -> Table:
    """The mean over seeds of every cost, by x."""
    costs = ["tera", "flooding", "tera_formula", "flooding_formula", *KINDS]
    found = rows.groupBy(x).agg(
        *(F.avg(name).alias(name) for name in costs), F.first("simulated").alias("simulated")
    )
    return table(found.orderBy(x))


def line(panel: Axes, points: Table, x: str, y: str, number: int, label: str) -> None:
    """A line of simulated points, and the values of the formula there, dashed in black."""
    panel.plot(points[x], points[y], color=colour(number), marker=marker(number), label=label)
    panel.plot(points[x], points[f"{y}_formula"], "--", color="black", lw=0.9)


def by_kind(panel: Axes, points: Table, x: str, *, legend: bool = True) -> None:
    """TERA's messages, split."""
    for number, (kind, label) in enumerate(KINDS.items()):
        some = points[points[kind] > 0]
        [drawn] = panel.plot(some[x], some[kind], label=label, **look(number))
        if number == 0:  # may lie under the next one, and shows around it
            drawn.set(lw=3.6, ms=8)
    panel.plot(points[x], points["tera"], color="black", lw=2.2, alpha=0.35, label="all of TERA")
    panel.set(xscale="log", yscale="log", ylabel="messages per notification")
    if legend:
        panel.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))


def finish(panel: Axes) -> None:
    """Scales and legend of a panel with costs and their closed forms."""
    panel.set(xscale="log", yscale="log", ylabel="messages per notification")
    panel.plot([], [], "--", color="black", lw=0.9, label="closed form")
    panel.legend()
