"""tadht-rounds: hops until the last member has an event, over log₂ N_t (paper 002, Section 6).

The simulation is that of tadht-messages.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from weft.engine.topic_dht.schemes import Crowd, Outcome
from weft.lab import ground, schemes
from weft.lab.defect import Defect, Function
from weft.lab.experiment import Entry, Params, Size
from weft.lab.experiments import tadht_messages
from weft.lab.experiments.tadht_messages import K
from weft.lab.figures import BLACK, Figure, panels, table
from weft.lab.measures import at_most, each, reasons
from weft.pipeline.transforms import numbers

SLOPE, SPARE = 1.5, 3.0
TITLES = {
    "missed": "members that an event missed, over those expected",
    "over": "most rounds, over 1.5·log₂ N_t + 3",
    "most_a": "a of the most rounds ≈ a·log₂ N_t + b",
    "most_b": "b of the most rounds",
    "mean_a": "a of the mean rounds ≈ a·log₂ N_t + b",
    "mean_b": "b of the mean rounds",
}
JUDGED = (*schemes.PUSHED, *schemes.TREES)


def longest(rows: DataFrame) -> DataFrame:
    """Per scheme, size and seed: the most rounds of any event, and the mean."""
    return (
        rows.withColumn("way", schemes.named())
        .groupBy("way", "members", "seed")
        .agg(
            F.max("rounds").cast("double").alias("most"),
            F.avg("rounds").alias("mean"),
            F.log2(F.first("members")).alias("doublings"),
            F.sum("missed").alias("missed"),
            F.count("event").alias("events"),
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
    expected = F.sum("events") * missed_expected()
    noise = F.sqrt(F.sum("events") * missed_expected() * (K + 1))
    missed = F.sum("missed") / (expected + 3 * noise)
    return found.groupBy("way", "seed").agg(
        over.alias("over"), F.coalesce(missed, F.sum("missed")).alias("missed"), *wanted
    )


def missed_expected() -> Column:
    """Members that an event misses on average: none by trees. By push gossip with ln n + 3 partners
    each of n members is told by nobody with a chance of e^−(ln n + 3), so e^−3 of them all; a
    forwarder takes its k children along."""
    whole, forwarders = math.exp(-3), (K + 1) * math.exp(-3)
    gossip = F.when(F.col("way") == schemes.PUSHED[0], whole).when(
        F.col("way") == schemes.PUSHED[1], forwarders
    )
    return F.first(gossip)


def measure(rows: DataFrame, size: Size) -> DataFrame:
    judged = F.col("way").isin(*JUDGED)
    none = F.when(F.col("way").isin(*schemes.TREES), 0.0).otherwise(1.0)
    asked = at_most(0.0, "over") | at_most(none, "missed")
    lines = rows.transform(longest).transform(fitted)
    return lines.transform(
        numbers(TITLES, asked, by=("way",), prefix=each("way"), judged_where=judged)
    )


# --- planted defects ------------------------------------------------------------------------------


def is_judged(params: Params) -> bool:
    return bool(params["mode"] == "push")


def slower(publish: Function) -> Function:
    def instead(*args: object) -> Outcome:
        outcome: Outcome = publish(*args)
        return replace(outcome, rounds=6 * outcome.rounds)

    return instead


def two_less(fanout: Function) -> Function:
    return lambda members, mode: max(1, fanout(members, mode) - 2)


def some_idle(crowd_of: Function) -> Function:
    def instead(*args: object) -> Crowd:
        some: Crowd = crowd_of(*args)
        some.live[1::100] = 0
        return some

    return instead


# --- the picture ----------------------------------------------------------------------------------


def figure(rows: DataFrame) -> Figure:
    found = rows.transform(longest).groupBy("way", "members")
    drawn = table(
        found.agg(F.max("most").alias("most"), F.avg("mean").alias("mean")).orderBy("members")
    )
    drawing, axes = panels(columns=2)
    for panel, column in zip(axes, ("most", "mean"), strict=True):
        for name in schemes.ORDER:
            some = drawn[drawn["way"] == name]
            panel.plot(some["members"], some[column], **schemes.style(name))
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
    "the most and to the mean number of rounds. Trees miss nobody, gossip no more than its "
    "fan-out lets expect. Push-pull, whose rounds of pulling come after the push, is reported.",
    simulation=f"{tadht_messages.__name__}:run",
    points=tadht_messages.points,
    seeds=tadht_messages.SEEDS,
    columns=tadht_messages.COLUMNS,
    tolerances=reasons(
        TITLES,
        [f"{name}: " for name in JUDGED],
        over=ground.asked("2026-11-15", "No event in a topic of any size takes more rounds."),
        missed=ground.derived(
            "2026-11-16",
            "By trees none. By push to ln n + 3 others e^−3 members for each event, times k + 1 "
            "where a forwarder takes its children along; and three standard deviations.",
        ),
    ),
    defects=(
        Defect(
            "every hop takes six rounds",
            {"weft.engine.topic_dht.schemes:Events.publish": slower},
            where=is_judged,
        ),
        Defect(
            "members tell two others less",
            {"weft.rules.treecast:fanout": two_less},
            where=is_judged,
        ),
        Defect(
            "one member in a hundred forwards nothing",
            {"weft.engine.topic_dht.schemes:Events._crowd": some_idle},
            where=is_judged,
        ),
    ),
    seconds=tadht_messages.seconds,
)
