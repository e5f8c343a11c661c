"""tera-5a, 5b: how load is shared among peers (TERA 4.3.1, Fig. 5).

One event per cycle is published in a network of many subscriptions. Each peer's load is the
number of messages it sent or received, in the general overlay (view exchanges, advertisements,
walks, events on the way to an access point) and in topic overlays (view exchanges, floods).

The general load should be flat. View exchanges are: each peer asks once a cycle, and is asked
about once, since it puts one new entry for itself into the overlay in each cycle and every
entry is used up by one question. Only the number of advertisements that reach a peer varies. One
message carries a peer's whole list; `general_single` is the load if every advertised topic were a
message of its own, under which peers with more subscriptions send more, in the general overlay too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from weft.engine.core.arrays import Array
from weft.engine.core.draws import random_peers
from weft.engine.tera.access_points import Adverts
from weft.engine.tera.events import Events
from weft.engine.tera.world import WorldSettings, build
from weft.lab import ground
from weft.lab.counted import COUNTS, GENERAL, TOPIC, both_ways, loads_of, rows_of
from weft.lab.defect import Defect, left_out
from weft.lab.experiment import Columns, Entry, Params, Size
from weft.lab.figures import BLACK, GREY, Figure, colour, panels, table
from weft.lab.measures import at_least, at_most, reasons, smalls
from weft.lab.memberships import memberships_of
from weft.pipeline.schemas import joined
from weft.pipeline.transforms import numbers, ranked
from weft.rules.deployment import visits_for

_SUCCESS = 0.999  # of lookups, from which K follows
SINGLE = "more in the general overlay, were each advertised topic a message"


def points(zipf: float, size: Size) -> list[Params]:
    """The quick network is a tenth of the paper's. Each lookup and each difference of in-degrees
    weighs more in it, so it has larger tables and runs for twice the time."""
    shape = {"peers": 10_000, "subscriptions": 200_000, "table_size": 10, "cycles": 300}
    if size == "quick":
        shape = {"peers": 1_000, "subscriptions": 20_000, "table_size": 100, "cycles": 600}
    return [{**shape, "topics": 1_000, "zipf": zipf}]


def run(params: Params, seed: int) -> Columns:
    """Rows: what each peer sent and received, by part (`lab/counted.py`)."""
    held = memberships_of(params, seed)
    settings = WorldSettings(
        table_size=params["table_size"],
        visits=visits_for(_SUCCESS, params["table_size"], held.topics),
        settled=True,
        load=True,
    )
    world = build(settings, held, seed)
    events = Events(world)
    topics = random_peers(params["cycles"], held.topics, seed, "tera-5.topic", 0)
    publishers = random_peers(params["cycles"], held.peers, seed, "tera-5.publisher", 0)
    for cycle in range(params["cycles"]):
        world.step()
        events.publish(topics[cycle : cycle + 1], publishers[cycle : cycle + 1])
        events.advance()
    assert world.general_load is not None and world.extra_load is not None
    counts = [
        *both_ways(GENERAL, world.general_load),
        *both_ways(SINGLE, world.extra_load),
        *both_ways(TOPIC, world.loads_in_topics()),
    ]
    return {
        **rows_of(counts, subscriptions_held=held.per_peer()),
        "events_lost": events.totals.lost,
    }


TITLES = {
    "flat": "general load, max/mean",
    "fair": "rank correlation of global load with subscriptions",
    "spread": "general load, std/mean",
    "flat_single": "general load, max/mean, an advertisement per topic",
    "fair_single": "rank correlation of global load with subscriptions, an advertisement per topic",
    "lost": "events lost to failed lookups",
}
COLUMNS = joined(COUNTS, smalls("subscriptions_held", "events_lost"))


def loads(rows: DataFrame) -> DataFrame:
    """Per peer; `_single` is the reading in which every advertised topic is a message."""
    parts = {"general": GENERAL, "extra": SINGLE, "topic": TOPIC}
    found = rows.transform(loads_of, parts, "seed", "subscriptions_held", "events_lost")
    single = F.col("general") + F.col("extra")
    return found.withColumns(
        {
            "general_single": single,
            "load": F.col("general") + F.col("topic"),
            "load_single": single + F.col("topic"),
        }
    )


def fairness(rows: DataFrame) -> DataFrame:
    """Per seed: how flat the general load is, and how well all load follows subscriptions."""
    names = ("subscriptions_held", "load", "load_single")
    peers = rows.transform(loads).transform(ranked(*names, by=("seed",)))
    return peers.groupBy("seed").agg(
        (F.max("general") / F.avg("general")).alias("flat"),
        (F.max("general_single") / F.avg("general_single")).alias("flat_single"),
        (F.stddev_pop("general") / F.avg("general")).alias("spread"),
        F.corr("subscriptions_held_rank", "load_rank").alias("fair"),
        F.corr("subscriptions_held_rank", "load_single_rank").alias("fair_single"),
        F.first("events_lost").alias("lost"),
    )


def measure(rows: DataFrame, size: Size) -> DataFrame:
    asked = at_most(1.06, "flat") | at_least(0.99, "fair")
    return rows.transform(fairness).transform(numbers(TITLES, asked))


def figure(rows: DataFrame) -> Figure:
    """Left: general overlay. Right: all messages, peers by falling number of subscriptions."""
    first = rows.where(F.col("seed") == 1).transform(loads)
    peers = table(first.withColumn("peer", F.col("peer").cast("int")).orderBy("peer"))
    drawing, (left, right) = panels(columns=2)
    share = peers["general"] / peers["general"].sum()
    left.plot(peers["peer"], share, ".", color=BLACK, ms=1.5, rasterized=True)
    left.axhline(1 / len(peers), color=colour(1), ls="--", label="equal shares, 1/N")
    left.set(ylim=(0, 1.6 * share.mean()), xlabel="peer", ylabel="share of messages")
    left.set_title("general overlay")
    left.legend(loc="upper right")
    ordered = peers.sort_values("subscriptions_held", ascending=False, kind="stable")
    place = np.arange(len(ordered))
    share = ordered["load"] / ordered["load"].sum()
    grey = right.twinx()
    grey.plot(place, ordered["subscriptions_held"], ".", color=GREY, ms=1.5, rasterized=True)
    grey.set_ylim(0, 1.35 * ordered["subscriptions_held"].max())
    grey.set_ylabel("subscriptions (grey)", color="#666666")
    grey.grid(visible=False)
    right.plot(place, share, ".", color=BLACK, ms=1.5, rasterized=True)
    right.set(ylim=(0, 1.1 * share.max()), zorder=grey.get_zorder() + 1)
    right.patch.set_visible(False)
    right.set(xlabel="peer, by falling number of subscriptions", title="all overlays")
    return drawing


def some_advertise_more(made: Callable[..., Adverts]) -> Callable[..., Adverts]:
    """A planted defect: one peer in ten advertises to twice as many neighbours."""

    def instead(every: int, to: Array, seed: int) -> Adverts:
        more = to.copy()
        more[::10] *= 2
        return made(every, more, seed)

    return instead


def _entry(letter: str, zipf: float, workload: str) -> Entry:
    return Entry.of(
        __name__,
        id=f"tera-5{letter}",
        title=f"Load is shared fairly, {workload}",
        claim="The load of the general overlay is the same for all peers, and all load together "
        "follows a peer's number of subscriptions: a peer that asks for more carries more.",
        points=partial(points, zipf),
        seeds={"quick": 2, "full": 10},
        tolerances=reasons(
            TITLES,
            flat=ground.asked(
                "2026-11-15",
                "Over 300 cycles a peer handles some 1800 messages, of which about 300 "
                "advertisements arrive at random (± 17). The largest of 10⁴ such deviations is "
                "four times that, below 4 %; 6 % leaves room for in-degrees that differ and for "
                "walks.",
            ),
            fair=ground.asked(
                "2026-11-15",
                "Each subscription costs the same view exchanges; only events differ between "
                "topics, and one is published per cycle.",
            ),
        ),
        defects=(
            Defect(
                "one peer in ten advertises to twice as many",
                {"weft.engine.tera.world:adverts": some_advertise_more},
            ),
            Defect(
                "topic overlays exchange no views",
                {"weft.engine.tera.topics:Topics.run": left_out},
            ),
        ),
        seconds=lambda params: float(params["cycles"] * params["subscriptions"] * 4e-7),
    )


ENTRIES = [_entry("a", 0.0, "uniform popularity"), _entry("b", 0.7, "Zipf 0.7")]
