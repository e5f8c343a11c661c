"""How long an event takes from one publisher to nine readers at 1,000 events a second.

From the publisher's call to the readers' application, in processes of their own, over all readers;
weft and NATS take turns, and the least median counts.
"""

from __future__ import annotations

from typing import Any

from benchmarks.peer.machine import say
from benchmarks.rivals.environment import Missing
from benchmarks.rivals.swarm import Swarm

RATE = 1_000.0
EVENTS = 5_000
WARMUP = 1_000
READERS = 9
TURNS = 3


def run(system: str, events: int) -> dict[str, float]:
    with Swarm(system, 1, READERS) as swarm:
        swarm.publish(WARMUP, WARMUP, RATE)
        for reader in swarm.readers:
            reader.ask(delays=True)
        swarm.publish(events, WARMUP + events, RATE)
        delays = sorted(delay for one in swarm.readers for delay in one.ask(told=True)["delays"])
    return {
        "p50_ms": delays[len(delays) // 2] / 1e6,
        "p99_ms": delays[len(delays) * 99 // 100] / 1e6,
    }


def measure(quick: bool) -> dict[str, Any]:
    turns: dict[str, list[dict[str, float]]] = {"weft": [], "nats": [], "zenoh": []}
    missing: dict[str, str] = {}
    for _ in range(1 if quick else TURNS):
        for system in [one for one in turns if one not in missing]:
            try:
                turns[system].append(run(system, EVENTS // 5 if quick else EVENTS))
            except Missing as problem:
                missing[system] = str(problem)
                continue
            say(f"{system}: half within {turns[system][-1]['p50_ms']:.2f} ms")
    least = {s: min((one["p50_ms"] for one in found), default=None) for s, found in turns.items()}
    ours, theirs = least["weft"], least["nats"]
    return {
        "latency_p50_ratio_nats_1_9": ours / theirs if ours and theirs else None,
        "missing": missing,
        "turns": turns,
    }
