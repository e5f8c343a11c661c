"""How long a program takes from its start to its first event at a reader that is there already.

The clock starts before the process does and stops in the reader's application: starting Python,
loading the client, connecting, finding the topic, and the event's way. Weft's program is not
subscribed, as none of the others is. Systems take turns, and the least counts.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.peer.machine import say
from benchmarks.peer.worker import WorkerFailed
from benchmarks.rivals.environment import Missing
from benchmarks.rivals.swarm import Swarm

TURNS = 7


def run(system: str) -> dict[str, float]:
    with Swarm(system, 0, 2) as swarm:
        began = time.monotonic_ns()
        newcomer = swarm.add(7, False, swarm.known[0], outside=True)
        newcomer.hear()
        used = newcomer.ask(publish=1)["cpu_s"]
        came = swarm.readers[0].ask(until=1)["first_read_at"]
    return {"ms": (came - began) / 1e6, "cpu_ms": used * 1e3}


def measure(quick: bool) -> dict[str, Any]:
    turns: dict[str, list[dict[str, float]]] = {"weft": [], "nats": [], "zenoh": []}
    missing: dict[str, str] = {}
    for _ in range(2 if quick else TURNS):
        for system in [one for one in turns if one not in missing]:
            try:
                turns[system].append(run(system))
            except Missing as problem:
                missing[system] = str(problem)
                continue
            except WorkerFailed as problem:  # its other turns count
                say(f"{system}: {problem}")
                continue
            say(f"{system}: {turns[system][-1]['ms']:.0f} ms")
    least = {s: min((one["ms"] for one in found), default=None) for s, found in turns.items()}
    ours, theirs = least["weft"], least["nats"]
    return {
        "first_event_ratio_nats": ours / theirs if ours and theirs else None,
        "least_ms": least,
        "missing": missing,
        "turns": turns,
    }
