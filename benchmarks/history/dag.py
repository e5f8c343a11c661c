"""One topic, three publishers, ten peers, lost messages: everybody ends with the identical DAG.

Ten peers on loopback in five processes, each with a store on disk and an application that reads;
three of them publish as fast as their receipts come (a receipt means synced to disk). A share of
all messages is dropped by their senders (`loss.py`). When everybody holds everything, the streams
are compared event by event. Then a latecomer with an empty store subscribes since the beginning:
how fast does it read the past, every signature and CID verified, stored and handed to its
application?
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.peer.machine import say
from benchmarks.peer.worker import Worker

PEERS = 10
PER_PROCESS = 2
PUBLISHERS = 3
LOSS_PERCENT = 5.0
PATIENCE_S = 3_000.0
"""For all to hold everything; the machine may be busy."""


def states(workers: list[Worker]) -> list[dict[str, Any]]:
    return [state for worker in workers for state in worker.ask({"state": True})["states"]]


def wait_for_all(workers: list[Worker], events: int, patience_s: float) -> list[dict[str, Any]]:
    """Until every peer holds every event, or the patience is over."""
    deadline = time.monotonic() + patience_s
    told = 0.0
    while True:
        found = states(workers)
        least = min(state["held"] for state in found)
        if least >= events or time.monotonic() > deadline:
            return found
        if time.monotonic() - told > 10:
            told = time.monotonic()
            say(f"dag: everybody holds {least:,} of {events:,} events")
        time.sleep(0.2)


def run(
    events: int,
    place: Path,
    peers: int = PEERS,
    percent: float = LOSS_PERCENT,
    patience_s: float = PATIENCE_S,
) -> dict[str, Any]:
    """The figures of one run, with the stores below `place`."""
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(dir=place, prefix=".dag-"))
        workers: list[Worker] = []
        join: list[str] = []
        for number in range(0, peers, PER_PROCESS):
            count = min(PER_PROCESS, peers - number)
            arguments = [name, str(count), str(percent), str(number), *join]
            worker = stack.enter_context(Worker("benchmarks.history.dag_worker", arguments))
            workers.append(worker)
            join = join or [worker.hear()["address"]]
            if len(workers) > 1:
                worker.hear()
        publishers = workers[:PUBLISHERS]
        share = events // len(publishers)
        started = time.monotonic()
        for worker in publishers:
            worker.tell({"publish": share})
        published_s = max(worker.hear()["seconds"] for worker in publishers)
        total = share * len(publishers)
        found = wait_for_all(workers, total, patience_s)
        spread_s = time.monotonic() - started
        cpu_s = sum(worker.ask({"state": True})["cpu_s"] for worker in workers)
        digests = [each for worker in workers for each in worker.ask({"digest": True})["digests"]]
        result = figures(total, peers, published_s, spread_s, cpu_s, found, digests)
        return result | replay(stack, name, join, total, digests[0], patience_s)


def figures(
    total: int,
    peers: int,
    published_s: float,
    spread_s: float,
    cpu_s: float,
    found: list[dict[str, Any]],
    digests: list[dict[str, Any]],
) -> dict[str, Any]:
    same = all(digest == digests[0] for digest in digests)
    return {
        "identical_dags": same and digests[0]["events"] == total,
        "events": total,
        "peers": peers,
        "publish_seconds": published_s,
        "publishes_per_s": total / published_s,
        "spread_seconds": spread_s,
        "cpu_us_per_event_and_peer": cpu_s / total / peers * 1e6,
        "lost_percent": 100 * sum(s["lost"] for s in found) / max(1, sum(s["sent"] for s in found)),
        "delivered_least": min(state["read"] for state in found),
        **{
            name: sum(state[name] for state in found)
            for name in ("history_gaps", "history_given_up", "history_caught_up", "repaired")
        },
        "refused": sum(state["refused"] for state in found),
        "digests": digests,
    }


def replay(
    stack: ExitStack,
    name: str,
    join: list[str],
    total: int,
    wanted: dict[str, Any],
    patience_s: float,
) -> dict[str, Any]:
    """A latecomer reads everything."""
    say("dag: a latecomer reads everything")
    started = time.monotonic()
    late = stack.enter_context(
        Worker("benchmarks.history.dag_worker", [name, "1", "0", "999", *join])
    )
    late.hear()
    up = time.monotonic()
    read = late.ask({"read": total, "patience_s": patience_s})
    [digest] = late.ask({"digest": True})["digests"]
    seconds = max(read["seconds"], 1e-9)
    return {
        "replay_events_per_s": read["read"] / seconds,
        "replay_seconds": seconds,
        "replay_cpu_us_per_event": read["cpu_s"] / max(1, read["read"]) * 1e6,
        "replay_identical": digest == wanted,
        "replay_start_seconds": up - started,
    }


def measure(quick: bool) -> dict[str, Any]:
    return run(3_000 if quick else 100_000, Path(__file__).parent)
