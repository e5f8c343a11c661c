"""Most processes of a swarm are killed at once: what the others still deliver.

110 peers in 22 processes, all in one topic; all but the first have entered by one that was there,
and the process of the first dies too. Once the swarm has settled, or has had its time (`settled`
says how many peers had), 18 processes are killed by SIGKILL. From then on the peers left publish
four events a second for a minute. By the time after the kill in which an event was published: how
many of its deliveries to the peers left happened within 10 s, and how many at all. Two figures are
held to goals: in the worst of these times those within 10 s, and of all those at the end. A peer
left that had not got in before, since the machine was too busy, has nobody to ask any more
(`isolated_before`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from benchmarks.peer.machine import say

from weft.lab.census import Census, Look
from weft.lab.processes import Swarm, Worker
from weft.net.config import Config

PEERS, PROCESSES, KILLED = 110, 22, 18
QUICK_PEERS, QUICK_PROCESSES, QUICK_KILLED = 20, 5, 3
TOPIC = "/news"
SETTLE_S = 60
EVENTS, QUICK_EVENTS = 240, 60
EVERY_MS = 250
LEAD_MS = 200
"""Between the kill and the first event: the time to tell all processes of their events."""
IN_TIME_S = 10
PATIENCE_S = 60
BUCKETS_S = ((0, 5), (5, 15), (15, 30), (30, 60))


def measure(quick: bool) -> dict[str, Any]:
    if quick:
        return asyncio.run(_run(QUICK_PEERS, QUICK_PROCESSES, QUICK_KILLED, QUICK_EVENTS))
    return asyncio.run(_run(PEERS, PROCESSES, KILLED, EVENTS))


async def _run(peers: int, processes: int, killed: int, events: int) -> dict[str, Any]:
    async with Swarm(peers, processes, seed=1) as swarm:
        await swarm.open(0, 1)
        await swarm.open(1, peers)
        await swarm.subscribe({index: [TOPIC] for index in range(peers)}, record=True)
        census, settled, settled_s = await _settle(swarm)
        say(f"{settled} of {peers} peers in {processes} processes settled in {settled_s:.0f} s")
        left = swarm.workers[killed:]
        alive = [index for index in range(peers) if index % processes >= killed]
        for worker in swarm.workers[:killed]:
            worker.process.kill()
        begun_ns = time.monotonic_ns() + LEAD_MS * 1_000_000
        await _play(left, _publications(alive, events), begun_ns, processes, killed)
        await _wait(left, len(alive) * events, events * EVERY_MS / 1_000 + PATIENCE_S)
        found = [await worker.ask("harvest") for worker in left]
        looks = [await worker.ask("census") for worker in left]
    isolated_before = sum(census.looks[index].isolated for index in alive)
    isolated_after = sum(Look(*one).isolated for part in looks for one in part["looks"].values())
    say(f"of {len(alive)} left knew nobody: {isolated_before} before, {isolated_after} at the end")
    published = {event: at_ns for part in found for event, at_ns, _ in part["published"]}
    arrived = {(row[2], row[0]): row[3] for part in found for row in part["received"]}
    rows = [_row(bucket, published, arrived, alive, begun_ns) for bucket in BUCKETS_S]
    rows = [row for row in rows if row["wanted"]]
    for row in rows:
        say(
            f"published {row['from_s']} to {row['to_s']} s after: {row['in_time_percent']:.2f} % "
            f"within {IN_TIME_S} s, {row['at_end_percent']:.2f} % at the end"
        )
    wanted = sum(row["wanted"] for row in rows)
    at_end = sum(row["at_end_percent"] * row["wanted"] for row in rows) / wanted
    return {
        "killed_in_time_percent": min(row["in_time_percent"] for row in rows),
        "killed_at_end_percent": at_end,
        "settled": settled,
        "settled_s": settled_s,
        "isolated_before": isolated_before,
        "isolated_after": isolated_after,
        "peers": peers,
        "processes": processes,
        "killed": killed,
        "rows": rows,
        "reference": {"deliveries_percent_most": 100.0},
    }


async def _settle(swarm: Swarm) -> tuple[Census, int, float]:
    """Wait until all links stand; the swarm then, how many had settled, how long it took."""
    begun_s = time.monotonic()
    config = Config().protocol
    while True:
        census = await swarm.census()
        settled, took_s = census.settled(swarm.peers, 1, config), time.monotonic() - begun_s
        if settled == swarm.peers or took_s > SETTLE_S:
            return census, settled, took_s
        await asyncio.sleep(0.5)


def _publications(alive: list[int], events: int) -> list[tuple[int, int, str, str]]:
    """When, by which peer, where and what."""
    return [
        (number * EVERY_MS, alive[number % len(alive)], TOPIC, f"event {number} after the kill")
        for number in range(events)
    ]


async def _play(
    left: list[Worker],
    publications: list[tuple[int, int, str, str]],
    begun_ns: int,
    processes: int,
    killed: int,
) -> None:
    """Have the processes that are left publish. (The clock of a machine is one for all.)"""
    for number, worker in enumerate(left, start=killed):
        mine = [one for one in publications if one[1] % processes == number]
        await worker.ask("play", start_ns=begun_ns, publications=mine)


async def _wait(left: list[Worker], deliveries: int, most_s: float) -> None:
    """Until all is there, or for as long as it may take."""
    until_s = time.monotonic() + most_s
    while time.monotonic() < until_s:
        progress = [await worker.ask("progress") for worker in left]
        if sum(part["received"] for part in progress) >= deliveries:
            return
        await asyncio.sleep(0.5)


def _row(
    bucket_s: tuple[int, int],
    published: dict[int, int],
    arrived: dict[tuple[int, int], int],
    alive: Iterable[int],
    begun_ns: int,
) -> dict[str, Any]:
    from_ns, to_ns = (begun_ns + second * 1_000_000_000 for second in bucket_s)
    took_ns = [
        arrived[event, peer] - at_ns if (event, peer) in arrived else None
        for event, at_ns in published.items()
        if from_ns <= at_ns < to_ns
        for peer in alive
    ]
    there = [each for each in took_ns if each is not None]
    in_time = sum(each <= IN_TIME_S * 1_000_000_000 for each in there)
    wanted = max(1, len(took_ns))
    return {
        "from_s": bucket_s[0],
        "to_s": bucket_s[1],
        "wanted": len(took_ns),
        "in_time_percent": 100 * in_time / wanted,
        "at_end_percent": 100 * len(there) / wanted,
    }
