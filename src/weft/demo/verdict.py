"""Compares notifications with the workload: every subscriber gets every event once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from weft.lab.processes import event_number
from weft.sim.workload import Publication, Workload

SHOWN_MAX = 10


def events_of(workload: Workload) -> dict[int, Publication]:
    """The workload's events by number, in the order of their time."""
    return {event_number(event.payload): event for event in workload.publications}


@dataclass(frozen=True)
class Verdict:
    expected: int
    delivered: int  # different notifications that should have come and did
    missing: tuple[tuple[int, int], ...]  # (peer, event)
    twice: tuple[tuple[int, int], ...]
    unwanted: tuple[tuple[int, int], ...]  # handed to a peer not subscribed

    @property
    def holds(self) -> bool:
        return not (self.missing or self.twice or self.unwanted)


def judge(workload: Workload, received: Iterable[tuple[int, int]]) -> Verdict:
    """Compare (peer, event) pairs that arrived with what the workload asks for."""
    subscribers = workload.subscribers()
    expected = [
        (peer, event)
        for event, publication in events_of(workload).items()
        for peer in subscribers[publication.topic]
    ]
    wanted = set(expected)
    arrived = Counter(received)
    return Verdict(
        expected=len(expected),
        delivered=sum(pair in arrived for pair in expected),
        missing=tuple(pair for pair in expected if pair not in arrived),
        twice=tuple(sorted(pair for pair, times in arrived.items() if times > 1)),
        unwanted=tuple(sorted(pair for pair in arrived if pair not in wanted)),
    )


def explain(verdict: Verdict, workload: Workload) -> list[str]:
    """Lines for a user: which peer missed which event, or got it twice or in error."""
    lines = []
    events = events_of(workload)
    for pairs, what in (
        (verdict.missing, "did not get"),
        (verdict.twice, "got twice"),
        (verdict.unwanted, "is not subscribed but got"),
    ):
        for peer, event in pairs[:SHOWN_MAX]:
            lines.append(f"peer {peer} {what} event {event} on {events[event].topic}")
        if len(pairs) > SHOWN_MAX:
            lines.append(f"… and {len(pairs) - SHOWN_MAX} times more: a peer {what} an event")
    return lines
