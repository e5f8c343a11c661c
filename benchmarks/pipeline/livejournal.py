"""StaN on Spark at the size of the paper's largest universe: 13,652 topics and 267,230 nodes, drawn
from power laws. Minutes of work, so it runs only when it is asked for by name.
"""

from __future__ import annotations

from typing import Any

from benchmarks.peer import machine
from benchmarks.pipeline.stan import cost_of, grown, run, said

from weft.pipeline.memberships import grid_memberships
from weft.pipeline.session import SessionSettings, opened

QUICK_PART = 1 / 16


def measure(quick: bool) -> dict[str, Any]:
    grid = grown(QUICK_PART if quick else 1.0)
    with opened(SessionSettings("local[2]", "weft bench", driver_memory="2g")) as spark:
        run(grid_memberships(spark, None, 1))  # compiles
        machine.say(f"livejournal: {grid.topics:,} topics, {grid.nodes:,} nodes")
        pooled, cost = cost_of(grid_memberships(spark, grid, 1))
        machine.say(f"livejournal: {said(cost)}")
    return {
        "stan_livejournal_s": cost["seconds"],
        "stan_livejournal_cpu_s": cost["cpu_seconds"],
        "stan_livejournal_peak_gb": cost["peak_gb"],
        "memberships": cost["memberships"],
        "topics": grid.topics,
        "nodes": grid.nodes,
        "pooled": pooled,
    }
