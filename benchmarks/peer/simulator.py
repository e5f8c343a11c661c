"""Messages that the simulator handles per second of CPU time, on one core.

Which messages: see `weft.sim.throughput`.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.peer import reference

from weft.sim.throughput import measure_throughput

TURNS = 3


def measure(quick: bool) -> dict[str, Any]:
    messages = 20_000 if quick else 200_000
    runs = [measure_throughput(messages) for _ in range(1 if quick else TURNS)]
    return {
        "sim_messages_per_s": median(runs),
        "runs": runs,
        "messages": messages,
        "reference": reference.calls(),
    }
