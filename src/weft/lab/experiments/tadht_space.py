"""tadht-space: locations and table entries per peer (paper 002, Section 6, Space complexity)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import functions as F

from weft.engine.experiments import tadht_space as engine
from weft.lab.experiment import Entry, Size
from weft.lab.figures import BLACK, colour, marker, panels, table
from weft.pipeline.schemas import AT_MOST, WHOLE, columns
from weft.pipeline.transforms import Bound, numbers, together
from weft.rules.roles import location_view_bound

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame


COLUMNS = columns(
    peers=WHOLE,
    k=WHOLE,
    per_peer=WHOLE,
    topics=WHOLE,
    peer=WHOLE,
    topics_held=WHOLE,
    locations=WHOLE,
    children_most=WHOLE,
    entries=WHOLE,
    entries_lobby=WHOLE,
    network=WHOLE,
)
RATIO = "mean |L_p| over its bound 1 + |T_p|/(k+1)"
TABLES = "entries per table in topics, over 20·(log₂ N + 2.67)"
LOBBY = "entries per table in the lobby, over 20·(2·log₂ N + 2.67)"
_MORE = 2.67
"""A random tree of prefixes with n leaves has log₂ n + 1.33 forks above a leaf; there are two such
trees here, one of topics, and in each of its leaves one of peers."""
CHILDREN = "most children of a forwarder, over k"


def space(rows: DataFrame) -> DataFrame:
    """Per point and seed: mean |L_p| against its bound, and entries per table."""
    bound = 1 + F.col("topics_held") / (F.col("k") + 1)
    each = F.sum("entries") / F.sum("locations")
    return rows.groupBy("peers", "k", "per_peer", "seed").agg(
        (F.avg("locations") / F.avg(bound)).alias("ratio"),
        F.avg("locations").alias("locations"),
        (F.sum("locations") / F.sum("topics_held")).alias("forwarding"),
        each.alias("entries"),
        F.avg("entries_lobby").alias("entries_lobby"),
        F.avg(F.col("entries") + F.col("entries_lobby")).alias("entries_of_peer"),
        F.log2(F.first("network")).alias("doublings"),
        (F.first("children_most") / F.first("k")).alias("children"),
    )


def tables(found: DataFrame) -> DataFrame:
    """Per seed: the longest tables, over what full buckets at all forks would hold."""
    doublings, bucket = F.col("doublings"), engine.BUCKET
    same = found.where((F.col("k") == 8) & (F.col("per_peer") == 10))
    return (
        found.groupBy("seed")
        .agg(
            F.max(F.col("entries") / (bucket * (doublings + _MORE))).alias("tables"),
            F.max(F.col("entries_lobby") / (bucket * (2 * doublings + _MORE))).alias("lobby"),
            F.max("children").alias("children"),
        )
        .join(
            same.groupBy("seed").agg(
                F.regr_slope("entries", "doublings").alias("growth"),
                F.regr_slope("entries_lobby", "doublings").alias("growth_lobby"),
            ),
            "seed",
        )
    )


def measure(rows: DataFrame, size: Size) -> DataFrame:
    found = rows.transform(space)
    prefix = F.concat(
        F.lit("k = "), F.col("k"), F.lit(", "), F.col("per_peer"), F.lit(" topics each: ")
    )
    asked: dict[str, Bound] = {"ratio": (AT_MOST, 1.0)}
    told = {
        "locations": "mean |L_p|",
        "forwarding": "share of subscriptions that are forwarders",
        "entries_of_peer": "table entries of a peer",
    }
    by = ("k", "per_peer")
    whole: dict[str, Bound] = {
        "tables": (AT_MOST, 1.0),
        "lobby": (AT_MOST, 1.0),
        "children": (AT_MOST, 1.0),
    }
    titles = {
        "tables": TABLES,
        "lobby": LOBBY,
        "children": CHILDREN,
        "growth": "entries per table in topics, for each doubling of N",
        "growth_lobby": "entries per table in the lobby, for each doubling of N",
    }
    return together(
        found.transform(numbers({"ratio": RATIO}, asked, by=by, prefix=prefix)),
        found.transform(tables).transform(numbers(titles, whole)),
        found.transform(numbers(told, by=by, prefix=prefix)),
    )


def figure(rows: DataFrame) -> Figure:
    found = rows.transform(space)
    points = table(
        found.groupBy("peers", "k", "per_peer").agg(
            F.avg("locations").alias("locations"),
            F.avg("entries").alias("entries"),
            F.avg("entries_lobby").alias("entries_lobby"),
            F.avg("doublings").alias("doublings"),
        )
    )
    drawing, (left, right) = panels(columns=2)
    largest = points[points["peers"] == points[points["k"] != 8]["peers"].max()]
    for number, (k, some) in enumerate(largest.groupby("k")):
        line = some.sort_values("per_peer")
        left.plot(
            line["per_peer"],
            line["locations"],
            color=colour(number),
            marker=marker(number),
            label=f"k = {k}",
        )
        topics = range(1, 1 + int(line["per_peer"].max()))
        bound = [location_view_bound(each, int(k)) for each in topics]
        left.plot(topics, bound, "--", color=colour(number), lw=0.9)
    left.plot([], [], "--", color=BLACK, lw=0.9, label="1 + |T_p|/(k+1)")
    left.set_ylim(bottom=0)
    left.set_xlabel("topics per peer |T_p|")
    left.set_ylabel("mean of |L_p|")
    left.legend()
    same = points[(points["k"] == 8) & (points["per_peer"] == 10)].sort_values("doublings")
    steps = np.linspace(0, same["doublings"].max())
    lines = (("entries", "in topics", 1), ("entries_lobby", "in the lobby", 2))
    for number, (name, label, forks) in enumerate(lines):
        own = colour(number)
        right.plot(same["doublings"], same[name], color=own, marker=marker(number), label=label)
        allowed = engine.BUCKET * (forks * steps + _MORE)
        right.plot(steps, allowed, "--", color=own, lw=0.9)
    right.plot([], [], "--", color=BLACK, lw=0.9, label="20 for each fork expected")
    right.set_ylim(bottom=0)
    right.set_xlabel("log₂ of all locations N")
    right.set_ylabel("entries per table")
    right.legend()
    return drawing


_DENSE = (
    "The paper's bound, which takes it that every forwarder has all the k children it may have "
    "and that one location more may be needed per peer."
)

ENTRIES = [
    Entry(
        id="tadht-space",
        title="Few locations per peer, short tables",
        claim="Where topics have more than k subscribers, a peer of |T_p| topics has at most "
        "1 + |T_p|/(k+1) locations on average, and no forwarder more than k children. The tables "
        "of a peer have O(|L_p| log N) entries: a bucket of 20 for each fork of the tree of "
        "prefixes of all N locations.",
        simulation=f"{engine.__name__}:run",
        points=engine.points,
        seeds=engine.SEEDS,
        columns=COLUMNS,
        measure=measure,
        tolerances={
            **{
                f"k = {k}, {held} topics each: {RATIO}": _DENSE
                for k in engine.CHILDREN
                for held in engine.PER_PEER
            },
            TABLES: "A bucket of 20 at each fork of the tree of prefixes, as many as expected.",
            LOBBY: "The same; all peers are in the lobby, so it has up to twice as many forks.",
            CHILDREN: "The bound k itself.",
        },
        figure=figure,
        seconds=engine.seconds,
    )
]
