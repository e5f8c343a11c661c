"""Payload copies per delivery, and order, while all publish as fast as they can.

Ten processes publish without a pause: as ten peers all to all, then with four and with nine more
subscribers in each process, 50 and 100 peers. Everything is counted as in `copies`; beside that,
each subscriber counts the notifications whose number is below one of the same publisher that it was
handed before.

A short warm-up shapes the tree. The figures are the worst of all runs, each with a fresh swarm.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from benchmarks.peer.copies import PROCESSES, Tally, publish_everywhere, start, wait_for_all
from benchmarks.peer.machine import say

WARMUP_EVENTS = 20
DELIVERIES = 300_000
"""Of each run, about: with more subscribers there are fewer events."""
COPIES_MOST = 1.05
TURNS = {1: 4, 5: 2, 10: 1}
"""By how many peers a process has."""


def run(peers_each: int, deliveries: int) -> dict[str, Any]:
    peers = PROCESSES * peers_each
    events = deliveries // (PROCESSES * (peers - 1))
    with ExitStack() as stack:
        parts = start(stack, peers_each)
        publish_everywhere(parts, WARMUP_EVENTS)
        if wait_for_all(parts, peers_each):
            raise RuntimeError("events were lost before the measurement began")
        before = Tally(parts)
        publish_everywhere(parts, events, pace_s=0)
        lost = wait_for_all(parts, peers_each)
        after = Tally(parts)
    disorder = after.total("out_of_order") - before.total("out_of_order")
    result = after.since(before) | {"peers": peers, "lost": lost, "out_of_order": disorder}
    say(
        f"{peers} peers flat out: {result['copies_per_delivery']:.4f} copies per delivery, "
        f"{disorder} of {result['deliveries']} out of order, {result['grafts']} grafts, {lost} lost"
    )
    return result


def measure(quick: bool, peers: int = 0, runs: int = 1) -> dict[str, Any]:
    """With `peers`, so many `runs` of that size alone."""
    deliveries = DELIVERIES // 10 if quick else DELIVERIES
    turns = {1: 1} if quick else TURNS
    if peers:
        turns = {peers // PROCESSES: runs}
    played = [run(each, deliveries) for each, count in turns.items() for _ in range(count)]
    return {
        "copies_burst": max(one["copies_per_delivery"] for one in played),
        "out_of_order_burst": sum(one["out_of_order"] for one in played),
        "lost_burst": sum(one["lost"] for one in played),
        "runs": played,
        "runs_as_asked": sum(
            one["copies_per_delivery"] <= COPIES_MOST and not one["out_of_order"] + one["lost"]
            for one in played
        ),
        "publishers": PROCESSES,
        "reference": {"copies_per_delivery_least": 1.0},
    }
