"""Messages that the simulator handles per second of CPU time, on one core, tracing off.

The mix is that of a calm network of 100 peers in 20 topics at work: view exchanges, links,
advertisements, lookups and events, as in any other run; only messages count, not timers.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from benchmarks.peer import reference

from weft.sim.scenario import Scenario, ScenarioSettings

TURNS = 3
_WARM_MESSAGES = 5_000
_STEP_MS = 1_000


def throughput(messages: int, seed: int = 1) -> float:
    """Messages handled per second. Runs are begun anew until enough messages have been handled;
    building a world is not counted."""
    handled = 0
    spent_s = 0.0
    while handled < messages:
        scenario = Scenario(
            ScenarioSettings(seed=seed, peers=100, topics=20, events=2_000, calm=True)
        )
        world, end_ms = scenario.world, scenario.timeline.end_ms
        while world.handled < _WARM_MESSAGES and world.now_ms < end_ms:
            world.run_until(world.now_ms + _STEP_MS)
        before = world.handled
        start_s = time.process_time()
        while world.handled - before < messages - handled and world.now_ms < end_ms:
            world.run_until(world.now_ms + _STEP_MS)
        spent_s += time.process_time() - start_s
        if world.handled == before:
            raise RuntimeError("a calm network of 100 peers handled no message")
        handled += world.handled - before
        seed += 1
    return handled / spent_s


def measure(quick: bool) -> dict[str, Any]:
    messages = 20_000 if quick else 200_000
    runs = [throughput(messages) for _ in range(1 if quick else TURNS)]
    return {
        "sim_messages_per_s": median(runs),
        "runs": runs,
        "messages": messages,
        "reference": reference.calls(),
    }
