"""tadht-rounds: hops until the last member has an event, over log₂ N_t (paper 002, Section 6).

The simulation is that of tadht-messages.
"""

from __future__ import annotations

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from weft.lab.experiment import Entry, Size
from weft.lab.experiments import _tadht as tadht
from weft.lab.experiments import tadht_messages
from weft.lab.figures import BLACK, Figure, panels, table
from weft.lab.measures import at_most, each, reasons
from weft.pipeline.transforms import numbers

SLOPE, SPARE = 1.5, 3.0
TITLES = {
    "over": "most rounds, over 1.5·log₂ N_t + 3",
    "most_a": "a of the most rounds ≈ a·log₂ N_t + b",
    "most_b": "b of the most rounds",
    "mean_a": "a of the mean rounds ≈ a·log₂ N_t + b",
    "mean_b": "b of the mean rounds",
}
JUDGED = (*tadht.PUSHED, *tadht.TREES)


def longest(rows: DataFrame) -> DataFrame:
    """Per scheme, size and seed: the most rounds of any event, and the mean."""
    return (
        rows.withColumn("way", tadht.named())
        .groupBy("way", "members", "seed")
        .agg(
            F.max("rounds").cast("double").alias("most"),
            F.avg("rounds").alias("mean"),
            F.log2(F.first("members")).alias("doublings"),
        )
    )


def fitted(found: DataFrame) -> DataFrame:
    """Per scheme and seed: straight lines through the most and the mean rounds over log₂ N_t."""
    lines = {}
    for name in ("most", "mean"):
        lines[f"{name}_a"] = F.regr_slope(name, "doublings")
        lines[f"{name}_b"] = F.regr_intercept(name, "doublings")
    over = F.max(F.col("most") - SLOPE * F.col("doublings") - SPARE)
    wanted = [column.alias(name) for name, column in lines.items()]
    return found.groupBy("way", "seed").agg(over.alias("over"), *wanted)


def measure(rows: DataFrame, size: Size) -> DataFrame:
    asked, judged = at_most(0.0, "over"), F.col("way").isin(*JUDGED)
    lines = rows.transform(longest).transform(fitted)
    return lines.transform(
        numbers(TITLES, asked, by=("way",), prefix=each("way"), judged_where=judged)
    )


def figure(rows: DataFrame) -> Figure:
    found = rows.transform(longest).groupBy("way", "members")
    drawn = table(
        found.agg(F.max("most").alias("most"), F.avg("mean").alias("mean")).orderBy("members")
    )
    drawing, axes = panels(columns=2)
    for panel, column in zip(axes, ("most", "mean"), strict=True):
        for name in tadht.ORDER:
            some = drawn[drawn["way"] == name]
            panel.plot(some["members"], some[column], **tadht.style(name))
        sizes = np.unique(drawn["members"])
        bound = SLOPE * np.log2(sizes) + SPARE
        panel.plot(sizes, bound, "--", color=BLACK, lw=0.9, label="1.5·log₂ N_t + 3")
        panel.set_xscale("log", base=2)
        panel.set_ylim(0, 1.6 * bound.max())  # with room for the legend
        panel.set_xlabel("members of the topic")
        panel.set_ylabel(f"rounds, {column} over events")
    axes[0].legend(loc="upper left", ncols=2)
    return drawing


ENTRY = Entry.of(
    __name__,
    title="Events reach everybody in O(log N_t) rounds",
    claim="In a topic of N_t members an event is with everybody after at most a·log₂ N_t + b "
    "rounds, by trees and by push gossip; asked for is 1.5·log₂ N_t + 3. Lines are fitted to "
    "the most and to the mean number of rounds. Push-pull, whose rounds of pulling come after "
    "the push, is reported.",
    simulation=f"{tadht_messages.__name__}:run",
    points=tadht_messages.points,
    seeds=tadht_messages.SEEDS,
    columns=tadht_messages.COLUMNS,
    tolerances=reasons(
        TITLES,
        [f"{name}: " for name in JUDGED],
        over="The bound that is asked for, for every event of every size.",
    ),
    seconds=tadht_messages.seconds,
)
