"""Payload copies per delivery over the push tree: in steady state, and while it heals.

50 peers on loopback, one topic, ten publishers: ten processes of five peers, one of which
publishes ten events a second. A copy is an event inside any message that reached a peer:
pushed, routed or repaired. A delivery is an event handed to the application of a subscriber other
than its publisher, so one copy per delivery is the least possible. Control messages are counted
apart.

Steady: after enough events for the tree to form. Healing: one process with its five peers is
killed while all publish; counted at the survivors, from the kill on for three seconds and until
everything is there. Where in the tree the five were is chance, so there are several runs, each
with a fresh swarm, and the figure is all their copies divided by all their deliveries: a run in
which the tree falls apart weighs as much as it costs. `killed_rank` says how many of the ten
publishers have a smaller peer id than the killed one.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

from benchmarks.peer.machine import say
from benchmarks.peer.scenario import ROUND_TIMEOUT_S, SETTLE_TIMEOUT_S
from benchmarks.peer.worker import Worker

from weft.ids import parse_peer

PROCESSES = 10
PEERS_EACH = 5
PEERS = PROCESSES * PEERS_EACH
PACE_S = 0.1
WARMUP_EVENTS = 60
EVENTS = 100
HEALING_S = 3.0
TURNS = 5


class Part:
    """One process of the swarm, as seen from here."""

    def __init__(self, worker: Worker, publisher: str) -> None:
        self.worker = worker
        self.publisher = publisher
        self.published = 0

    def start_publishing(self, events: int, pace_s: float = PACE_S) -> None:
        self.worker.tell({"publish": events, "pace_s": pace_s})
        self.published += events


class Tally:
    """What some processes have counted so far."""

    def __init__(self, parts: list[Part]) -> None:
        self.answers = [part.worker.ask({"count": True}) for part in parts]
        self.delivered = sum(sum(answer["received"].values()) for answer in self.answers)
        self.copies = self.total("copies")

    def total(self, name: str) -> int:
        return sum(answer[name] for answer in self.answers)

    def received_from(self, parts: list[Part]) -> int:
        return sum(a["received"].get(part.publisher, 0) for a in self.answers for part in parts)

    def since(self, before: Tally) -> dict[str, Any]:
        delivered, copies = self.delivered - before.delivered, self.copies - before.copies
        control = self.total("control") - before.total("control")
        medians = sorted(answer["delay_ms_median"] for answer in self.answers)
        return {
            "deliveries": delivered,
            "copies": copies,
            "copies_per_delivery": copies / delivered,
            "control_per_delivery": control / delivered,
            "grafts": self.total("grafts") - before.total("grafts"),
            "delay_ms_median": medians[len(medians) // 2],
            "delay_ms_max": max(answer["delay_ms_max"] for answer in self.answers),
        }


def start(stack: ExitStack, peers_each: int = PEERS_EACH) -> list[Part]:
    parts: list[Part] = []
    join: list[str] = []
    for _ in range(PROCESSES):
        worker = stack.enter_context(Worker("copies_worker", [str(peers_each), *join]))
        answer = worker.hear()
        parts.append(Part(worker, answer["publisher"]))
        join = [answer["address"]]
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while min(answer["links_least"] for answer in Tally(parts).answers) < 2:
        if time.monotonic() > deadline:
            raise TimeoutError("some peer found fewer than two links")
        time.sleep(0.2)
    return parts


def wait_for_all(parts: list[Part], peers_each: int = PEERS_EACH) -> int:
    """Wait until these have all events of each other; returns how many never came."""
    peers = len(parts) * peers_each
    expected = sum(part.published for part in parts) * (peers - 1)
    deadline = time.monotonic() + ROUND_TIMEOUT_S
    missing = expected
    while missing and time.monotonic() < deadline:
        time.sleep(0.1)
        missing = expected - Tally(parts).received_from(parts)
    return missing


def publish_everywhere(parts: list[Part], events: int, pace_s: float = PACE_S) -> None:
    """Every part publishes, and is waited for."""
    for part in parts:
        part.start_publishing(events, pace_s)
    for part in parts:
        part.worker.hear()


def steady(parts: list[Part], events: int) -> dict[str, Any]:
    publish_everywhere(parts, WARMUP_EVENTS)
    if wait_for_all(parts):
        raise RuntimeError("events were lost before the measurement began")
    before = Tally(parts)
    publish_everywhere(parts, events)
    lost = wait_for_all(parts)
    return Tally(parts).since(before) | {"lost": lost}


def healing(parts: list[Part]) -> dict[str, Any]:
    """Kill the process in the middle of the list while all publish."""
    victim, survivors = parts[PROCESSES // 2], [p for p in parts if p is not parts[PROCESSES // 2]]
    publish_everywhere(parts, int(1 / PACE_S))
    before = Tally(survivors)
    for part in parts:
        part.start_publishing(int(HEALING_S / PACE_S))
    victim.worker.kill()
    for part in survivors:
        part.worker.hear()
    lost = wait_for_all(survivors)
    result = Tally(survivors).since(before)
    smaller = sum(parse_peer(p.publisher) < parse_peer(victim.publisher) for p in survivors)
    return result | {
        "killed": PEERS_EACH,
        "killed_rank": smaller,
        "lost": lost,
        "window_s": HEALING_S,
    }


def run(events: int) -> dict[str, Any]:
    with ExitStack() as stack:
        parts = start(stack)
        calm = steady(parts, events)
        hurt = healing(parts)
        links = Tally([part for part in parts if part.worker.alive]).total("links")
    say(
        f"copies per delivery: steady {calm['copies_per_delivery']:.4f}, "
        f"healing {hurt['copies_per_delivery']:.4f}"
    )
    return {"steady": calm, "healing": hurt, "links_per_peer": links / (PROCESSES - 1)}


def pooled(runs: list[dict[str, Any]], phase: str) -> float:
    """Copies per delivery over all runs together."""
    deliveries = sum(int(run[phase]["deliveries"]) for run in runs)
    return sum(int(run[phase]["copies"]) for run in runs) / deliveries


def measure(quick: bool) -> dict[str, Any]:
    runs = [run(EVENTS // 4 if quick else EVENTS) for _ in range(1 if quick else TURNS)]
    return {
        "payload_copies_per_delivery": pooled(runs, "steady"),
        "payload_copies_per_delivery_healing": pooled(runs, "healing"),
        "runs": runs,
        "peers": PEERS,
        "publishers": PROCESSES,
        "events_per_s": PROCESSES / PACE_S,
        "reference": {"copies_per_delivery_least": 1.0},
    }
