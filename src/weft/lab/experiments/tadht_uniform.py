"""tadht-uniform: random routing draws every subscriber alike (paper 002, Lemma 4.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from weft.lab.experiment import Entry, Size
from weft.lab.figures import BLACK, colour, panels, table
from weft.lab.tadht import uniform as machines
from weft.pipeline.schemas import AT_MOST, NUMBER, TEXT, WHOLE, columns
from weft.pipeline.transforms import Bound, numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import Column, DataFrame


COLUMNS = columns(
    members=WHOLE,
    draws=WHOLE,
    drawer=TEXT,
    statistic=NUMBER,
    freedom=WHOLE,
    forwarders=WHOLE,
    children=WHOLE,
    left_the_topic=WHOLE,
    lookups=WHOLE,
    lookups_parasite=WHOLE,
)
EXCESS = "chi-square above its mean, in its standard deviations"
LEFT = "requests of draws that left the topic"
PAPER = "the same for whoever is closest to a random value"


def excess(rows: DataFrame) -> DataFrame:
    """Per seed: all drawing peers' statistics together, and the paper's way by itself.

    A sum of chi-squares is one with the sum of their degrees of freedom ν: of mean ν and standard
    deviation √(2ν).
    """
    own = F.col("drawer") != "paper"

    def pooled(which: Column) -> Column:
        freedom = F.sum(F.when(which, F.col("freedom")))
        return (F.sum(F.when(which, F.col("statistic"))) - freedom) / F.sqrt(2 * freedom)

    return rows.groupBy("seed").agg(
        pooled(own).alias("excess"),
        pooled(~own).alias("paper"),
        F.first("left_the_topic").alias("left"),
        F.first("lookups_parasite").alias("parasites"),
        (F.first("lookups") / F.first("draws") / F.sum(F.when(own, 1))).alias("cost"),
    )


def measure(rows: DataFrame, size: Size) -> DataFrame:
    titles = {
        "excess": EXCESS,
        "left": LEFT,
        "paper": PAPER,
        "parasites": "requests inside the topic to peers that are not subscribed",
        "cost": "requests inside topics per draw, those of subscribing included",
    }
    asked: dict[str, Bound] = {"excess": (AT_MOST, 3 / F.sqrt("seeds")), "left": (AT_MOST, 0.0)}
    return rows.transform(excess).transform(numbers(titles, asked))


def figure(rows: DataFrame) -> Figure:
    """Each drawing peer's statistic over its degrees of freedom: one if chances are equal."""
    points = table(rows.withColumn("ratio", F.col("statistic") / F.col("freedom")))
    drawing, [panel] = panels()
    drawers = ("forwarder", "child", "paper")
    for number, drawer in enumerate(drawers):
        some = points[points["drawer"] == drawer]
        panel.plot([number] * len(some), some["ratio"], "o", color=colour(number), alpha=0.6)
    panel.axhline(1.0, color=BLACK, ls="--", lw=0.9, label="equal chances")
    panel.set_yscale("log")
    panel.set_xticks(range(len(drawers)), ["a forwarder draws", "a child draws", "paper's way"])
    panel.set_ylabel("chi-square over degrees of freedom")
    panel.legend()
    return drawing


ENTRIES = [
    Entry(
        id="tadht-uniform",
        title="Random routing draws all subscribers alike",
        claim="Whoever routes at random inside a topic, forwarder or child, draws every subscriber "
        "with the same chance, and asks nobody outside of the topic. Whoever is closest to a "
        "random value, the paper's own way, is reported beside it: it is not uniform.",
        simulation=f"{machines.__name__}:run",
        points=machines.points,
        seeds=machines.SEEDS,
        columns=COLUMNS,
        measure=measure,
        tolerances={
            EXCESS: "Three standard deviations of the mean over so many seeds.",
            LEFT: "None, by Lemma 4.1.",
        },
        figure=figure,
        seconds=machines.seconds,
    )
]
