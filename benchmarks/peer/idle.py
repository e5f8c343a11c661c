"""What a peer costs that nobody publishes to: memory, and CPU over several cycles.

200 peers on loopback in four processes, each in three of twelve topics, all settings as they come.
After a warm-up the processes are watched from outside: memory is the proportional set size of
the four processes (shared pages counted once), interpreters included, divided by 200, the larger
of the values before and after the window; CPU is user and system time over the window, so view
exchanges, advertisements, pings and the handshakes they cause are all in it.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

from benchmarks.peer import reference
from benchmarks.peer.machine import process_cpu_seconds, proportional_set_kb, say
from benchmarks.peer.worker import Worker

PEERS = 200
PROCESSES = 4
WARMUP_S = 60.0
WINDOW_S = 120.0


def start(stack: ExitStack, peers: int) -> list[Worker]:
    each = peers // PROCESSES
    workers: list[Worker] = []
    join: list[str] = []
    for index in range(PROCESSES):
        arguments = [str(each), str(index * each), *join]
        worker = stack.enter_context(Worker("idle_worker", arguments))
        workers.append(worker)
        join = [worker.hear()["address"]]
        say(f"idle: {each * (index + 1)} peers are up")
    return workers


def memory_mb(workers: list[Worker]) -> float:
    return sum(proportional_set_kb(worker.pid) for worker in workers) / 1024


def cpu_s(workers: list[Worker]) -> float:
    return sum(process_cpu_seconds(worker.pid) for worker in workers)


def counters(answers: list[dict[str, Any]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for answer in answers:
        for name, value in answer["counters"].items():
            total[name] = total.get(name, 0) + value
    return total


def ask_all(workers: list[Worker]) -> list[dict[str, Any]]:
    return [worker.ask({}) for worker in workers]


def measure(quick: bool) -> dict[str, Any]:
    peers, warmup_s, window_s = (40, 10.0, 20.0) if quick else (PEERS, WARMUP_S, WINDOW_S)
    with ExitStack() as stack:
        workers = start(stack, peers)
        say(f"idle: warming up for {warmup_s:.0f} s")
        time.sleep(warmup_s)
        before = counters(ask_all(workers))
        memory_before, cpu, began = memory_mb(workers), cpu_s(workers), time.monotonic()
        say(f"idle: watching for {window_s:.0f} s")
        time.sleep(window_s)
        cpu, seconds = cpu_s(workers) - cpu, time.monotonic() - began
        memory_after = memory_mb(workers)
        answers = ask_all(workers)
    after = counters(answers)
    grown = {name: value - before.get(name, 0) for name, value in sorted(after.items())}
    return {
        "idle_peer_mb": max(memory_before, memory_after) / peers,
        "idle_peer_cpu_percent": cpu / seconds / peers * 100,
        "memory_mb_before": memory_before / peers,
        "memory_mb_after": memory_after / peers,
        "peers": peers,
        "processes": PROCESSES,
        "warmup_s": warmup_s,
        "window_s": seconds,
        "links_per_peer": sum(answer["links"] for answer in answers) / peers,
        "counted_per_peer_and_minute": {
            name: value / peers / seconds * 60 for name, value in grown.items() if value
        },
        "reference": reference.connections(),
    }
