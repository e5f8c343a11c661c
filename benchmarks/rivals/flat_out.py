"""CPU per notification, flat out: 1 → 1, 1 → 9, and ten clients all to all.

Each client is a process of its own; CPU time of all of them and of the broker counts, from the
first event after a warm-up to the last one read. Payloads of 200 bytes, no store, the connections
encrypted (TLS; CURVE in ZeroMQ), and weft's events signed, as always. Systems take turns, and the
least of a system's turns counts: what else a machine does can only add to it.

A ratio is weft's figure divided by the other's, the worse of 1 → 1 and 1 → 9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.peer.machine import say
from benchmarks.peer.worker import WorkerFailed
from benchmarks.rivals.environment import Missing
from benchmarks.rivals.swarm import WITH_TLS, Swarm

TURNS = 3


@dataclass(frozen=True)
class Pattern:
    publishers: int
    readers: int
    both: bool  # all publish and read
    events: int  # of each publisher
    warmup: int

    @property
    def notifications(self) -> int:
        readers = self.readers - 1 if self.both else self.readers
        return self.publishers * self.events * readers


PATTERNS = {
    "1_1": Pattern(1, 1, False, 60_000, 2_000),
    "1_9": Pattern(1, 9, False, 20_000, 1_000),
    "all_to_all": Pattern(10, 10, True, 1_500, 100),
}
KEYS = {
    "nats_tls_ratio": "nats",
    "zenoh_tls_ratio": "zenoh",
    "mqtt_tls_ratio": "mqtt",
    "redis_tls_ratio": "redis",
    "zmq_curve_ratio": "zmq",
}
JUDGED = ("1_1", "1_9")


def run(system: str, pattern: Pattern, quick: bool) -> dict[str, Any]:
    events = pattern.events // 10 if quick else pattern.events
    with Swarm(system, pattern.publishers, pattern.readers, pattern.both) as swarm:
        before = swarm.publish(pattern.warmup, pattern.warmup)
        used = swarm.cpu_seconds(before)
        after = swarm.publish(events, pattern.warmup + events)
        used = swarm.cpu_seconds(after) - used
    notifications = pattern.notifications // pattern.events * events
    return {
        "cpu_us_per_notification": used / notifications * 1e6,
        "out_of_order": sum(one["wrong"] for one in after),
    }


def measure(quick: bool) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {system: {} for system in WITH_TLS}
    for name, pattern in PATTERNS.items():
        for _ in range(1 if quick else TURNS):
            for system in WITH_TLS:
                if "missing" in found[system]:
                    continue
                try:
                    turn = run(system, pattern, quick)
                except Missing as problem:
                    found[system]["missing"] = str(problem)
                    say(f"{system}: {problem}")
                    continue
                except WorkerFailed as problem:  # its other turns count
                    say(f"{system}, {name}: {problem}")
                    continue
                cpu_us = turn["cpu_us_per_notification"]
                say(f"{system}, {name}: {cpu_us:.2f} µs, {turn['out_of_order']} out of order")
                found[system].setdefault(name, []).append(turn)
    least = {
        system: {
            name: min(turn["cpu_us_per_notification"] for turn in turns)
            for name, turns in figures.items()
            if name != "missing"
        }
        for system, figures in found.items()
    }
    ratios = {key: _worse(least["weft"], least[system]) for key, system in KEYS.items()}
    missing = {name: one["missing"] for name, one in found.items() if "missing" in one}
    return {**ratios, "cpu_us_per_notification": least, "missing": missing, "turns": found}


def _worse(ours: dict[str, float], theirs: dict[str, float]) -> float | None:
    if any(name not in theirs or name not in ours for name in JUDGED):
        return None
    return max(ours[name] / theirs[name] for name in JUDGED)
