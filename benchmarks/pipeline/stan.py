"""StaN on Spark: eight rounds of the gowalla trace, and how time grows with memberships.

The time is that of the whole job on a warm session: packing topics into bins, all rounds in the
workers (before, after and StaN's own ideal), and counting physical links. Compiling the kernels,
done once per machine, is left out by a small job before. Growth is measured on synthetic universes
that differ in nothing but their size, up to a quarter of the paper's LiveJournal one (which is a
measure of its own, `livejournal`), by the CPU time of all processes below this one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.graph import exponent
from benchmarks.peer import machine
from benchmarks.pipeline.processes import timed
from pyspark.sql import Column
from pyspark.sql import functions as F

from weft.engine.data.grid import LIVEJOURNAL_SIZED, Grid, PowerLaw
from weft.engine.stan.overlays import IDEAL, Config
from weft.lab.progress import Steps
from weft.lab.sources import DATA_BESIDE, TRACES
from weft.pipeline.memberships import grid_memberships
from weft.pipeline.schemas import (
    MEMBERSHIP,
    NODE_SIZES,
    NUMBER,
    SMALL,
    TIME,
    WHOLE,
    columns,
    selected,
)
from weft.pipeline.session import SessionSettings, opened
from weft.pipeline.stan import MANY_TOPICS, links, view_sizes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# What became of physical links: over all users, or those in `least` topics or more.
REDUCTION = columns(
    least=SMALL, users=WHOLE, lvs=WHOLE, ipvs=WHOLE, fpvs=WHOLE, ideal=WHOLE, improved_40=NUMBER
)
PARTS = (1 / 16, 1 / 8, 1 / 4)  # of the LiveJournal-sized universe
QUICK_PARTS = (0.01, 0.02, 0.04)


def node_sizes(sizes: DataFrame) -> DataFrame:
    """Before, after and at best, side by side: `VIEW_SIZES` → `NODE_SIZES`."""
    last = F.max("round").alias("last")
    ends = sizes.crossJoin(F.broadcast(sizes.agg(last)))

    def at(where: Column, name: str) -> Column:
        return F.max(F.when(where, F.col("pvs"))).alias(name)

    wide = ends.groupBy("user").agg(
        F.max("topics").alias("topics"),
        F.max("lvs").alias("lvs"),
        at(F.col("round") == 0, "ipvs"),
        at(F.col("round") == F.col("last"), "fpvs"),
        at(F.col("round") == IDEAL, "ideal"),
    )
    return selected(wide, NODE_SIZES)


def stan_nodes(memberships: DataFrame, config: Config, seed: int) -> DataFrame:
    """StaN from beginning to end: what each user's views come to (`NODE_SIZES`)."""
    found = links(memberships, config, seed, (0, config.rounds, IDEAL))
    return found.transform(view_sizes).transform(node_sizes)


def reductions(nodes: DataFrame, least: Sequence[int] = (1, MANY_TOPICS)) -> DataFrame:
    """Physical links pooled over users in so many topics or more: `NODE_SIZES` → `REDUCTION`."""
    groups = F.explode(F.array(*(F.lit(number) for number in least))).alias("least")
    some = nodes.select("*", groups).where(F.col("topics") >= F.col("least"))
    better = (1 - F.col("fpvs") / F.col("ipvs") > 0.4).cast("double")
    pooled = some.groupBy("least").agg(
        F.count(F.lit(1)).alias("users"),
        *(F.sum(name).alias(name) for name in ("lvs", "ipvs", "fpvs", "ideal")),
        F.avg(better).alias("improved_40"),
    )
    return selected(pooled, REDUCTION)


def run(memberships: DataFrame) -> list[dict[str, Any]]:
    """StaN from memberships to pooled numbers."""
    pooled = memberships.transform(stan_nodes, Config(), 1).transform(reductions)
    return [row.asDict() for row in pooled.collect()]


def gowalla(spark: SparkSession) -> DataFrame:
    """The trace as it is, all topics."""
    raw = spark.read.csv(
        str(DATA_BESIDE / TRACES["gowalla"]), columns(user=WHOLE, topic=WHOLE), header=True
    )
    return selected(raw.withColumn("time", F.lit(None).cast(TIME)), MEMBERSHIP)


def grown(part: float) -> Grid:
    """A universe like the LiveJournal-sized one with a part of its nodes and topics: as many topics
    a node and subscribers a topic."""
    full = LIVEJOURNAL_SIZED
    shorter = part**-0.5
    radius = PowerLaw(full.radius.exponent, full.radius.least * shorter, full.radius.most * shorter)
    nodes, topics = round(full.nodes * part), round(full.topics * part)
    return dataclasses.replace(full, nodes=nodes, topics=topics, radius=radius)


def cost_of(memberships: DataFrame) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """What StaN finds, and what it costs; all of it from memberships that are there already."""
    kept = memberships.cache()
    count = kept.count()
    with Steps(kept.sparkSession, (1.0,)) as steps:
        steps.begin(0, f"StaN on {count:,} memberships")
        pooled, cost = timed(lambda: run(kept))
    kept.unpersist()
    return pooled, {"memberships": count, **cost}


def growth(spark: SparkSession, parts: Sequence[float]) -> dict[str, Any]:
    """How CPU time grows with memberships."""
    costs = []
    for part in parts:
        costs.append(cost_of(grid_memberships(spark, grown(part), 1))[1])
        machine.say(f"stan: {costs[-1]['memberships']:,} memberships, {said(costs[-1])}")
    counts, seconds = zip(
        *((each["memberships"], each["cpu_seconds"]) for each in costs), strict=True
    )
    return {"growth": costs, "stan_exponent": exponent(list(counts), list(seconds))}


def said(cost: dict[str, float]) -> str:
    return "{seconds:.1f} s, {cpu_seconds:.1f} s of CPU, {peak_gb:.2f} GB".format(**cost)


def measure(quick: bool) -> dict[str, Any]:
    with opened(SessionSettings("local[2]", "weft bench", driver_memory="2g")) as spark:
        run(grid_memberships(spark, None, 1))  # compiles
        machine.say("stan: kernels are compiled")
        found: dict[str, Any] = {}
        if (DATA_BESIDE / TRACES["gowalla"]).is_file():
            found["pooled"], cost = cost_of(gowalla(spark))
            machine.say(f"stan: gowalla, {said(cost)}")
            found |= {
                "memberships": cost["memberships"],
                "stan_gowalla_s": cost["seconds"],
                "stan_gowalla_cpu_s": cost["cpu_seconds"],
                "stan_gowalla_peak_gb": cost["peak_gb"],
            }
        else:
            found["skipped"] = "the gowalla trace is not here"
        return found | growth(spark, QUICK_PARTS if quick else PARTS)
