"""How long an event takes from one publisher to nine readers at 1,000 events a second.

From the publisher's call to the readers' application, in processes of their own, over all readers;
weft and NATS take turns, and the least median counts. Beside it stands what an event costs each
process, and the same with 19 and 49 readers at a lower rate: what the publisher does for others
there is its load.
"""

from __future__ import annotations

from typing import Any

from benchmarks.peer.machine import say
from benchmarks.peer.worker import WorkerFailed
from benchmarks.rivals.environment import Missing
from benchmarks.rivals.swarm import Swarm

RATE = 1_000.0
EVENTS = 5_000
WARMUP = 1_000
READERS = 9
TURNS = 3
LARGER = (19, 49)
"""Readers in the larger topics."""
LARGER_RATE = 100.0
LARGER_EVENTS = 1_000
LARGER_SYSTEMS = ("weft", "nats")


def run(system: str, events: int, readers: int, rate: float) -> dict[str, float]:
    warmup = WARMUP * events // EVENTS
    with Swarm(system, 1, readers) as swarm:
        before = swarm.publish(warmup, warmup, rate)
        broker = swarm.cpu_seconds([])
        for reader in swarm.readers:
            reader.ask(delays=True)
        after = swarm.publish(events, warmup + events, rate)
        broker = swarm.cpu_seconds([]) - broker
        delays = sorted(delay for one in swarm.readers for delay in one.ask(told=True)["delays"])
    used = [b["cpu_s"] - a["cpu_s"] for a, b in zip(before, after, strict=True)]
    return {
        "p50_ms": delays[len(delays) // 2] / 1e6,
        "p99_ms": delays[len(delays) * 99 // 100] / 1e6,
        "publisher_cpu_us": used[0] / events * 1e6,
        "reader_cpu_us": sum(used[1:]) / readers / events * 1e6,
        "broker_cpu_us": broker / events * 1e6,
    }


def measure(quick: bool) -> dict[str, Any]:
    turns: dict[str, list[dict[str, float]]] = {"weft": [], "nats": [], "zenoh": []}
    missing: dict[str, str] = {}
    for _ in range(1 if quick else TURNS):
        for system in [one for one in turns if one not in missing]:
            try:
                turns[system].append(run(system, EVENTS // 5 if quick else EVENTS, READERS, RATE))
            except Missing as problem:
                missing[system] = str(problem)
                continue
            except WorkerFailed as problem:  # its other turns count
                say(f"{system}: {problem}")
                continue
            say(f"{system}: half within {turns[system][-1]['p50_ms']:.2f} ms")
    larger = [] if quick else [_larger(readers, missing) for readers in LARGER]
    least = {s: min((one["p50_ms"] for one in found), default=None) for s, found in turns.items()}
    ours, theirs = least["weft"], least["nats"]
    return {
        "latency_p50_ratio_nats_1_9": ours / theirs if ours and theirs else None,
        "missing": missing,
        "turns": turns,
        "larger": larger,
    }


def _larger(readers: int, missing: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {"readers": readers, "events_per_s": LARGER_RATE}
    for system in [one for one in LARGER_SYSTEMS if one not in missing]:
        try:
            found[system] = run(system, LARGER_EVENTS, readers, LARGER_RATE)
        except WorkerFailed as problem:
            say(f"{system}, {readers} readers: {problem}")
            continue
        say(f"{system}, {readers} readers: half within {found[system]['p50_ms']:.2f} ms")
    return found
