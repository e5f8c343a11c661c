"""tera-3a, 3b, 3c: topics are spread evenly over access point tables (TERA 4.2.1, Fig. 3)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from weft.engine.experiments import tera_3 as engine
from weft.lab.figures import BLACK, GREY, colour, panels, table
from weft.lab.registry import Entry, Params, Size
from weft.pipeline.schemas import AT_LEAST, AT_MOST, NUMBER, TEXT, WHOLE, columns
from weft.pipeline.transforms import Bound, magnitude, numbers, ranked, together

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame

JUDGED = ("true", "counted")
"""The popularity that tables admit by: the true one, and the one that weft's peers estimate."""
KINDS: dict[Size, tuple[str, ...]] = {
    "quick": ("true", "counted", "unscaled", "textbook"),
    "full": engine.KINDS,
}
NAMES = {
    "true": "true popularity",
    "counted": "weft's estimate",
    "unscaled": "weft's estimate, unscaled",
    "likely": "maximum likelihood",
    "textbook": "C²/2l",
}
PAPER_SPREAD = 0.05
COLUMNS = columns(
    kind=TEXT,
    topic=WHOLE,
    popularity=WHOLE,
    held=WHOLE,
    held_average=NUMBER,
    active=WHOLE,
    cycles=WHOLE,
    mean_expected=NUMBER,
    spread_floor=NUMBER,
    spread_average_floor=NUMBER,
    rank_correlation_noise=NUMBER,
)


def points(letter: str, size: Size) -> list[Params]:
    every = {"a": engine.points_a, "b": engine.points_b, "c": engine.points_c}[letter](size)
    return [{**every[0], "kind": kind} for kind in KINDS[size]]


def unevenness(rows: DataFrame) -> DataFrame:
    """Per kind and seed: how even tables are, and how even chance lets them be."""
    grouped = rows.transform(ranked("popularity", "held", by=("kind", "seed"))).groupBy(
        "kind", "seed"
    )
    spread = F.stddev_pop("held") / F.avg("held")
    average = F.stddev_pop("held_average") / F.avg("held_average")
    return grouped.agg(
        (F.avg("held") / F.first("mean_expected")).alias("filled"),
        spread.alias("spread"),
        (spread / F.first("spread_floor")).alias("spread_to_floor"),
        average.alias("spread_average"),
        (average / F.first("spread_average_floor")).alias("average_to_floor"),
        F.corr("popularity_rank", "held_rank").alias("ranks"),
        F.first("rank_correlation_noise").alias("rank_noise"),
        (1 / F.sqrt(2 * (F.first("active") - 1))).alias("spread_noise"),
    )


MEASURES = {
    "filled": "mean over N·APT/active",
    "spread": "std/mean of a snapshot",
    "spread_to_floor": "std/mean of a snapshot over its floor",
    "spread_average": "std/mean of the average of snapshots",
    "average_to_floor": "std/mean of the average over its floor",
    "ranks": "rank correlation with popularity",
}


def small_spread(letter: str) -> str:
    """Which number the paper's 5 % is about: a snapshot can only be so even with few topics."""
    return "spread" if letter == "c" else "spread_average"


def measure(letter: str, rows: DataFrame, size: Size) -> DataFrame:
    asked: dict[str, Bound] = {
        "filled": (AT_LEAST, 0.999),
        "spread_to_floor": (AT_MOST, 1 + 3 * F.col("spread_noise") / F.sqrt("seeds")),
        "ranks": (AT_MOST, 3 * F.col("rank_noise") / F.sqrt("seeds")),
        small_spread(letter): (AT_MOST, PAPER_SPREAD),
    }
    found = unevenness(rows).transform(
        numbers(
            MEASURES,
            asked,
            by=("kind",),
            prefix=F.concat("kind", F.lit(": ")),
            judged_where=F.col("kind").isin(*JUDGED),
            keep=("rank_noise", "spread_noise"),
        )
    )
    signed = F.col("measure").endswith(MEASURES["ranks"])
    return together(found.where(~signed), found.where(signed).transform(magnitude))


def tolerances(letter: str) -> dict[str, str]:
    reasons = {
        MEASURES["filled"]: "Tables are full in the long run, so the mean is exact; a thousandth "
        "allows for peers that heard nothing yet.",
        MEASURES["spread_to_floor"]: "The floor is the spread that regular, independent "
        "advertisements leave (derived beside the simulation). A standard deviation over A topics "
        "and S seeds has a relative error of 1/√(2(A−1)S); three of them.",
        MEASURES["ranks"]: "Spearman's coefficient of unrelated columns of length A has standard "
        "deviation 1/√(A−1), over S seeds 1/√(S(A−1)); three of them.",
        MEASURES[small_spread(letter)]: "The paper's 5 %.",
    }
    return {f"{kind}: {name}": why for kind in JUDGED for name, why in reasons.items()}


# --- the picture ----------------------------------------------------------------------------------


def figure(rows: DataFrame) -> Figure:
    """Dots as in the paper, for the true popularity, weft's estimate and the textbook's."""
    kinds = ("true", "counted", "textbook")
    drawing, axes = panels(columns=len(kinds))
    first = table(rows.where((F.col("seed") == 1) & F.col("kind").isin(*kinds)))
    for panel, kind in zip(axes, kinds, strict=True):
        _panel(panel, first[first["kind"] == kind].sort_values("topic"))
        panel.set_title(f"admitted by {NAMES[kind]}")
    top = max(panel.get_ylim()[1] for panel in axes)
    for panel in axes:
        panel.set_ylim(0, top)
    axes[0].set_ylabel("tables that hold the topic")
    axes[0].legend(loc="upper right")
    return drawing


def _panel(panel: Axes, topics: Any) -> None:
    expected, floor = topics["mean_expected"].iloc[0], topics["spread_floor"].iloc[0]
    panel.plot(topics["topic"], topics["popularity"], ".", color=GREY, ms=3.5, label="subscribers")
    panel.plot(topics["topic"], topics["held"], ".", color=BLACK, ms=3.5, label="tables")
    panel.axhline(expected, color=colour(1), ls="--", label="N·APT/active")
    panel.axhspan(
        expected * (1 - 2 * floor),
        expected * (1 + 2 * floor),
        color=colour(1),
        alpha=0.15,
        lw=0,
        label="± 2 × the floor",
    )
    panel.set_xlabel("topic")


def _entry(letter: str, workload: str) -> Entry:
    return Entry(
        id=f"tera-3{letter}",
        title=f"Topics are spread evenly over tables, {workload}",
        claim="Whatever the popularity of topics, each active topic is in about the same number of "
        "access point tables, N·APT/active; what differs is chance alone and not related to "
        "popularity. The paper saw a standard deviation below 5 %: a snapshot can show that for "
        "Zipf 2.0, an average of snapshots for the others. It must hold for the popularity that "
        "peers estimate, too.",
        simulation=f"{engine.__name__}:run",
        points=partial(points, letter),
        seeds=engine.SEEDS,
        columns=COLUMNS,
        measure=partial(measure, letter),
        tolerances=tolerances(letter),
        figure=figure,
        seconds=engine.seconds,
        most_seeds=engine.most_seeds,
        version=2,
    )


ENTRIES = [
    _entry("a", "uniform popularity"),
    _entry("b", "Zipf 0.7"),
    _entry("c", "Zipf 2.0"),
]
