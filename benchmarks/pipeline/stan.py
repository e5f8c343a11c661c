"""StaN on Spark: eight rounds of the gowalla trace, and how time grows with memberships.

The time is that of the whole job on a warm session: packing topics into bins, all rounds in the
workers (before, after and StaN's own ideal), and counting physical links. Compiling the kernels,
done once per machine, is left out by a small job before. Growth is measured on synthetic universes
that differ in nothing but their size, up to that of the paper's LiveJournal one, by the CPU time of
all processes below this one.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from benchmarks.pipeline.processes import children_cpu_seconds, children_resident_bytes
from pyspark.sql import functions as F

from weft.engine.grid import LIVEJOURNAL_SIZED, Grid, PowerLaw
from weft.engine.stan import Config
from weft.engine.stats import exponent
from weft.lab.sources import DATA_BESIDE, TRACES
from weft.pipeline.schemas import MEMBERSHIP, WHOLE, columns, selected
from weft.pipeline.session import Settings, opened
from weft.pipeline.stan import reductions, stan_nodes
from weft.pipeline.synthetic import grid_memberships

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTS = (0.125, 0.25, 0.5, 1.0)  # of the LiveJournal-sized universe
QUICK_PARTS = (0.01, 0.02, 0.04)
POLL_S = 0.25


class Memory:
    """Watches how much memory the processes below this one use, while a `with` block runs."""

    def __init__(self) -> None:
        self.peak = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._over.wait(POLL_S):
            self.peak = max(self.peak, children_resident_bytes())

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def timed(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """What some work gives, the time it takes, its CPU time and its peak of memory."""
    used, begun = children_cpu_seconds(), time.perf_counter()
    with Memory() as memory:
        result = work()
    return result, {
        "seconds": time.perf_counter() - begun,
        "cpu_seconds": children_cpu_seconds() - used,
        "peak_gb": memory.peak / 1e9,
    }


def run(memberships: DataFrame) -> list[dict[str, Any]]:
    """StaN from memberships to pooled numbers."""
    pooled = memberships.transform(stan_nodes, Config(), 1).transform(reductions)
    return [row.asDict() for row in pooled.collect()]


def gowalla(spark: SparkSession) -> DataFrame:
    """The trace as it is, all topics."""
    raw = spark.read.csv(
        str(DATA_BESIDE / TRACES["gowalla"]), columns(user=WHOLE, topic=WHOLE), header=True
    )
    return selected(raw.withColumn("time_ms", F.lit(None).cast("long")), MEMBERSHIP)


def grown(part: float) -> Grid:
    """A universe like the LiveJournal-sized one with a part of its nodes and topics: as many topics
    a node and subscribers a topic."""
    full = LIVEJOURNAL_SIZED
    shorter = part**-0.5
    radius = PowerLaw(full.radius.exponent, full.radius.least * shorter, full.radius.most * shorter)
    nodes, topics = round(full.nodes * part), round(full.topics * part)
    return dataclasses.replace(full, nodes=nodes, topics=topics, radius=radius)


def measure(quick: bool) -> dict[str, Any]:
    with opened(Settings("local[2]", "weft bench", driver_memory="2g")) as spark:
        run(grid_memberships(spark, None, 1))  # compiles
        found: dict[str, Any] = {"growth": []}
        for part in QUICK_PARTS if quick else PARTS:
            memberships = grid_memberships(spark, grown(part), 1).cache()
            count = memberships.count()
            _, cost = timed(lambda memberships=memberships: run(memberships))
            memberships.unpersist()
            found["growth"].append({"memberships": count, **cost})
        found["stan_exponent"] = exponent(
            [each["memberships"] for each in found["growth"]],
            [each["cpu_seconds"] for each in found["growth"]],
        )
        if not (DATA_BESIDE / TRACES["gowalla"]).is_file():
            return found | {"skipped": "the gowalla trace is not here"}
        memberships = gowalla(spark).cache()
        found["memberships"] = memberships.count()
        found["pooled"], cost = timed(lambda: run(memberships))
        return found | {
            f"stan_gowalla_{'s' if key == 'seconds' else key}": value for key, value in cost.items()
        }
