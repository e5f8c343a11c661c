"""stan-loss, stan-churn: how long StaN takes where messages get lost and nodes come and go.

The paper measures both in a supplement that was not printed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, Window
from pyspark.sql import functions as F

from weft.engine.stan import IDEAL, Config
from weft.lab.entries import _stan
from weft.lab.figures import colour, marker, panels, table
from weft.lab.registry import JobEntry, Params, Size
from weft.lab.sources import Source
from weft.pipeline.schemas import (
    AT_LEAST,
    AT_MOST,
    NUMBER,
    SMALL,
    TEXT,
    TRUTH,
    WHOLE,
    columns,
)
from weft.pipeline.stan import links, view_sizes
from weft.pipeline.transforms import Bound, numbers
from weft.rules.stan import TTL, visits

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame, SparkSession

LOSSES = {"quick": (0.0, 0.2), "full": (0.0, 0.05, 0.1, 0.2, 0.3)}
CHURNS = {"quick": (0.0, 0.01), "full": (0.0, 0.01, 0.03, 0.1)}
STEPS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256)
"""The rounds that are looked at: all at first, then ever fewer."""
QUIET_ROUNDS = 16
CHURN_ROUNDS = 24
STEADY = 12  # rounds of a run with churn from which on it is taken to be steady
ENOUGH = 0.95
COLUMNS = columns(
    source=TEXT,
    universe=TEXT,
    loss=NUMBER,
    churn=NUMBER,
    overheard=TRUTH,
    round=SMALL,
    pvs=WHOLE,
    ipvs=WHOLE,
    ideal=WHOLE,
)


def survival(loss: float) -> float:
    """How likely a walk comes back: its steps and its reply."""
    return (1.0 - loss) ** (visits(TTL) + 1)


def _places(size: Size, source: Source) -> list[Params]:
    if source.is_grid:
        return [_stan.whole(size, source)]
    return (
        _stan.smallest(source)[1:] if _stan.runs_on(size, source) else []
    )  # the open reading: more topics


def loss_points(size: Size, source: Source) -> list[Params]:
    def rounds(loss: float) -> int:
        return min(STEPS[-1], math.ceil(QUIET_ROUNDS / survival(loss)))

    return [
        {**place, "loss": loss, "churn": 0.0, "overheard": overheard, "rounds": rounds(loss)}
        for place in _places(size, source)
        for loss in LOSSES[size]
        for overheard in (False, True)
    ]


def churn_points(size: Size, source: Source) -> list[Params]:
    return [
        {**place, "loss": 0.0, "churn": churn, "overheard": overheard, "rounds": CHURN_ROUNDS}
        for place in _places(size, source)
        for churn in CHURNS[size]
        for overheard in (False, True)
    ]


def job(spark: SparkSession, params: Params, seed: int, source: Source) -> DataFrame:
    memberships = _stan.memberships_of(spark, params, seed, source)
    config = Config(
        rounds=params["rounds"],
        loss=params["loss"],
        churn=params["churn"],
        overheard=params["overheard"],
    )
    asked = [step for step in STEPS if step < config.rounds] + [config.rounds, IDEAL]
    found = memberships.transform(links, config, seed, asked).transform(view_sizes)
    sums = found.groupBy("round").agg(F.sum("pvs").alias("pvs"))
    everything = Window.partitionBy()

    def at(round_: int) -> Column:
        return F.max(F.when(F.col("round") == round_, F.col("pvs"))).over(everything)

    known = sums.select("round", "pvs", at(0).alias("ipvs"), at(IDEAL).alias("ideal"))
    return known.where(F.col("round") != IDEAL)


GROUP = ("source", "universe", "loss", "churn", "overheard")


def progress(rows: DataFrame) -> DataFrame:
    """Every look with `share`: how much of the ideal's improvement there is by now."""
    saved = F.col("ipvs") - F.col("pvs")
    return rows.withColumn("share", saved / (F.col("ipvs") - F.col("ideal")))


def rounds_needed(rows: DataFrame) -> DataFrame:
    """Per run: the first look at which there was 95 % of the ideal's improvement (`rounds`, null if
    never), the mean share from round 12 on (`steady`), and the first look at 95 % of that."""
    looks = rows.transform(progress)
    later = F.when(F.col("round") >= STEADY, F.col("share"))
    steady = F.avg(later).over(Window.partitionBy(*GROUP, "seed"))
    there = F.when(F.col("share") >= ENOUGH, F.col("round"))
    settled = F.when(F.col("share") >= ENOUGH * F.col("steady"), F.col("round"))
    return (
        looks.withColumn("steady", steady)
        .groupBy(*GROUP, "seed")
        .agg(
            F.min(there).cast("double").alias("rounds"),
            F.avg("steady").alias("steady"),
            F.min(settled).cast("double").alias("settled"),
        )
    )


def _label(name: str) -> Column:
    how = F.when(F.col("overheard"), "overheard walks").otherwise("plain")
    return _stan.named(F.format_string(f"%.0f %% {name}", F.col(name) * 100), how)


ROUNDS = "rounds to 95 % of the improvement"
SETTLED = "rounds to 95 % of what is kept up"
KEPT = "share of the improvement that is kept up"


def measure_loss(rows: DataFrame, size: Size) -> DataFrame:
    found = rows.transform(rounds_needed)
    quiet = found.where((F.col("loss") == 0) & ~F.col("overheard"))
    base = quiet.groupBy("source", "universe").agg(F.avg("rounds").alias("base"))
    survives = F.pow(1 - F.col("loss"), F.lit(visits(TTL) + 1))
    wide = found.join(base, ["source", "universe"]).withColumn("survives", survives)
    step = 4 / 3  # looks are up to a third apart where rounds are many
    walks = F.col("base") + 1.65 * F.sqrt("base") + 0.45  # the 95th percentile, see the reason
    asked: dict[str, Bound] = {"rounds": (AT_MOST, step * walks / F.col("survives"))}
    titles = {"rounds": ROUNDS}
    return wide.transform(
        numbers(
            titles,
            asked,
            by=GROUP,
            prefix=_label("loss"),
            judged_where=F.col("loss") > 0,
            keep=("base", "survives"),
        )
    )


def measure_churn(rows: DataFrame, size: Size) -> DataFrame:
    asked: dict[str, Bound] = {"steady": (AT_LEAST, 0.9), "settled": (AT_MOST, 8.0)}
    titles = {"steady": KEPT, "settled": SETTLED, "rounds": ROUNDS}
    return rows.transform(rounds_needed).transform(
        numbers(
            titles,
            asked,
            by=GROUP,
            prefix=_label("churn"),
            judged_where=F.col("churn") == 0.01,
        )
    )


def _figure(rows: DataFrame, name: str) -> Figure:
    by = ("source", "universe", name, "overheard", "round")
    found = rows.transform(progress).groupBy(*by).agg(F.avg("share").alias("share"))
    looks = table(found.orderBy(*by))
    groups = list(looks.groupby(["source", "universe"]))
    drawing, axes = panels(columns=2, rows=len(groups))
    for number, ((source, _), part) in enumerate(groups):
        for overheard in (False, True):
            panel = axes[2 * number + overheard]
            some = part[part["overheard"] == overheard]
            for place, (rate, line) in enumerate(some.groupby(name)):
                label = f"{100 * rate:.0f} % {name}"
                style: Any = {"color": colour(place), "marker": marker(place), "ms": 3.5}
                panel.plot(line["round"] + 1, line["share"], label=label, **style)
            panel.axhline(ENOUGH, color="black", lw=0.8, ls=":")
            panel.set_xscale("log")
            looks_at = [0, 1, 2, 4, 8, 16, 32, 64, 128]
            ticks = [tick for tick in looks_at if tick <= part["round"].max()]
            panel.set_xticks([tick + 1 for tick in ticks], [str(tick) for tick in ticks])
            panel.minorticks_off()
            panel.set_ylim(min(0.0, some["share"].min()), 1.08)
            panel.set_xlabel("round")
            panel.set_ylabel("share of the ideal's improvement")
            panel.set_title(f"{source}, {'overheard walks' if overheard else 'plain'}")
            panel.legend(loc="lower right")
    return drawing


def figure_loss(rows: DataFrame) -> Figure:
    return _figure(rows, "loss")


def figure_churn(rows: DataFrame) -> Figure:
    return _figure(rows, "churn")


_HOW = ("plain", "overheard walks")

ENTRIES = [
    JobEntry(
        id="stan-loss",
        title="StaN where messages get lost",
        claim="Loss only slows StaN down. A walk of plain Algorithm 2 that loses one of its eight "
        "messages brings nothing, so 95 % of the ideal's improvement is there when 95 % of the "
        "members have got back as many walks as they need without loss, each with a chance of "
        "(1 − loss)⁸. Who overhears walks needs no more rounds than that either.",
        simulation=f"{__name__}:job",
        points=loss_points,
        seeds={"quick": 2, "full": 5},
        columns=COLUMNS,
        measure=measure_loss,
        tolerances={
            f"{loss * 100:.0f} % loss, {how}, {ROUNDS}": "The 95th percentile of how many rounds "
            "it takes to get k walks back is about (k + 1.65 √k + 0.45) over their chance "
            "(k events of a Poisson process); looks are up to a third apart."
            for loss in LOSSES["full"]
            for how in _HOW
        },
        figure=figure_loss,
        seconds=_stan.seconds,
    ),
    JobEntry(
        id="stan-churn",
        title="StaN where nodes come and go",
        claim="Where 1 % of the nodes are replaced per round, StaN keeps up nine tenths of its "
        "improvement and gets there in eight rounds. What 3 % and 10 % do is told.",
        simulation=f"{__name__}:job",
        points=churn_points,
        seeds={"quick": 2, "full": 5},
        columns=COLUMNS,
        measure=measure_churn,
        tolerances={
            f"1 % churn, {how}, {what}": why
            for how in _HOW
            for what, why in (
                (
                    KEPT,
                    "A view has lost 1 % of its neighbours and finds better ones in some rounds; "
                    "newcomers, as many, start from random views.",
                ),
                (SETTLED, "As long as it takes without churn."),
            )
        },
        figure=figure_churn,
        seconds=_stan.seconds,
    ),
]
