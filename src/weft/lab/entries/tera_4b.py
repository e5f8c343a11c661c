"""tera-4b: how soon two parts of a topic overlay meet (TERA 4.2.3, Fig. 4b)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from weft.engine.experiments import tera_4b as engine
from weft.lab.figures import colour, marker, panels, plain_log, table
from weft.lab.registry import Entry, Size
from weft.pipeline.schemas import AT_MOST, NUMBER, SMALL, columns
from weft.pipeline.transforms import largest, magnitude, measured, over_seeds, together

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame

FRESH_VIEW = 20  # a shuffle of the whole view is nearest to the formula's fresh one
GAP = "largest gap, shuffle 20"
COLUMNS = columns(
    members=SMALL,
    shuffle_length=SMALL,
    trials=SMALL,
    horizon=SMALL,
    merged=NUMBER,
    predicted=NUMBER,
    one_overlay=NUMBER,
    forced_exchanges=SMALL,
)


def gaps(rows: DataFrame) -> DataFrame:
    """Per shuffle length: the largest gap between measured and predicted, over G and H.

    `noise` is the standard error of the share at that place.
    """
    signed = rows.withColumn("value", F.col("merged") - F.col("predicted"))
    place = ("shuffle_length", "members", "horizon")
    means = signed.transform(over_seeds(*place))
    trials = rows.groupBy(*place).agg(
        F.sum("trials").alias("trials"), F.first("predicted").alias("share")
    )
    noise = F.sqrt(F.col("share") * (1 - F.col("share")) / F.col("trials"))
    worst = means.join(trials, list(place)).withColumn("noise", noise).transform(magnitude)
    return worst.transform(largest("value", "shuffle_length"))


def measure(rows: DataFrame, size: Size) -> DataFrame:
    worst = rows.transform(gaps)
    fresh = F.col("shuffle_length") == FRESH_VIEW
    bound = F.lit(0.03) if size == "full" else 0.03 + 3 * F.col("noise")
    others = worst.where(~fresh)
    one = rows.groupBy("shuffle_length", "seed").agg(F.avg("one_overlay").alias("value"))
    return together(
        worst.where(fresh).transform(measured(GAP, AT_MOST, bound)),
        others.transform(measured(F.concat(F.lit("largest gap, shuffle "), "shuffle_length"))),
        one.transform(over_seeds("shuffle_length")).transform(
            measured(
                F.concat(F.lit("share with one overlay id at the end, shuffle "), "shuffle_length")
            )
        ),
    )


def figure(rows: DataFrame) -> Figure:
    found = rows.groupBy("shuffle_length", "members", "horizon").agg(
        F.avg("merged").alias("merged"), F.avg("predicted").alias("predicted")
    )
    points = table(found.orderBy("members", "horizon"))
    lengths = sorted(points["shuffle_length"].unique(), reverse=True)
    drawing, axes = panels(columns=len(lengths))
    for panel, length in zip(axes, lengths, strict=True):
        lines = points[points["shuffle_length"] == length].groupby("members")
        for number, (members, line) in enumerate(lines):
            style: Any = {"color": colour(number), "marker": marker(number), "ms": 3}
            panel.plot(line["horizon"], line["merged"], label=f"G = {members}", **style)
            panel.plot(line["horizon"], line["predicted"], "--", color="black", lw=0.9)
        panel.plot([], [], "--", color="black", lw=0.9, label="formula")
        plain_log(panel, (1, 2, 5, 10, 20, 50))
        panel.set_ylim(0, 1.02)
        panel.set_title(f"shuffle {length} of 20")
        panel.set_xlabel("cycles H")
    axes[0].set_ylabel("met within H cycles")
    axes[0].legend(loc="lower right")
    return drawing


ENTRIES = [
    Entry(
        id="tera-4b",
        title="Parts of a topic meet as soon as the formula says",
        claim="G subscribers of a topic and one more in an overlay of its own meet within H cycles "
        "with the probability of the closed form, which takes every view to be fresh in each "
        "cycle. That is near the truth when the whole view is shuffled; with shorter shuffles a "
        "view is mostly the same in the next cycle, and meeting takes longer.",
        simulation=f"{engine.__name__}:run",
        points=engine.points,
        seeds=engine.SEEDS,
        columns=COLUMNS,
        measure=measure,
        tolerances={
            GAP: "0.03 for what the form leaves out at a shuffle of the whole view; in the quick "
            "size, three standard errors of the share among its fewer trials more."
        },
        figure=figure,
        seconds=engine.seconds,
    )
]
