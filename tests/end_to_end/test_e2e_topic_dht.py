"""Sixty real peers that route by the topic-aware DHT, over processes of which some are killed.

By hand, with a process for each peer:

    PYTHONPATH=src:tests/end_to_end python tests/end_to_end/test_e2e_topic_dht.py 60
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from dataclasses import dataclass
from typing import Any, get_args

import pytest

from weft.demo.swarm import Swarm, Worker
from weft.protocol.topic_dht.settings import Scheme

PEERS = 60
TOPICS = ("/news", "/music", "/games")
PATIENCE_S = 120.0
KILLED_SHARE = 5
"""Every fifth process dies."""


def interests() -> dict[int, list[str]]:
    """Everybody is in one topic, a third in two, a sixth in all; nobody outside is in none."""
    return {
        index: [
            TOPICS[(index + more) % 3] for more in range(1 + (index % 3 == 0) + (index % 6 == 0))
        ]
        for index in range(PEERS)
    }


def settings(scheme: Scheme) -> dict[str, Any]:
    """Short periods, so that nobody has to wait for what takes some of them."""
    return {
        "protocol": {
            "routing": "topic-dht",
            "cyclon": {"cycle_ms": 4_000},
            "topic_dht": {"scheme": scheme, "children_max": 4, "period_ms": 8_000},
        }
    }


@dataclass
class Seen:
    """What came of one run."""

    killed: int
    missing: list[tuple[int, str, int]]  # live subscriber, topic, event
    twice: int
    uninvited: int  # to who is not subscribed
    refused: list[str]
    parasites: int
    seconds_until_all: float


class Field:
    """A swarm of which some processes die."""

    def __init__(self, swarm: Swarm) -> None:
        self.swarm = swarm
        self.dead: list[Worker] = []
        self.interests = interests()
        self.events: dict[int, tuple[int, str]] = {}  # publisher and topic, by number

    @property
    def alive(self) -> list[Worker]:
        return [worker for worker in self.swarm.workers if worker not in self.dead]

    def worker_of(self, index: int) -> Worker:
        return self.swarm.workers[index % self.swarm.processes]

    def is_alive(self, index: int) -> bool:
        return self.worker_of(index) not in self.dead

    def kill(self) -> None:
        """SIGKILL, without a word to anybody."""
        for worker in self.swarm.workers[1::KILLED_SHARE]:
            worker.process.kill()
            self.dead.append(worker)

    async def publish(self, publishers: list[int], every_ms: int) -> None:
        """One event of each in one of its topics, or (every fourth) in one it is not in."""
        start_ns = time.monotonic_ns()
        for turn, index in enumerate(publishers):
            mine = self.interests[index]
            others = [topic for topic in TOPICS if topic not in mine]
            topic = others[0] if turn % 4 == 3 and others else mine[turn % len(mine)]
            number = len(self.events)
            self.events[number] = index, topic
            what = [[turn * every_ms, index, topic, f"event {number} "]]
            await self.worker_of(index).ask("play", start_ns=start_ns, publications=what)

    def owed(self) -> list[tuple[int, str, int]]:
        """Every live subscriber is owed every event whose publisher is alive."""
        return [
            (index, topic, number)
            for number, (publisher, topic) in self.events.items()
            for index, mine in self.interests.items()
            if topic in mine and self.is_alive(index) and self.is_alive(publisher)
        ]

    async def harvest(self) -> tuple[list[list[Any]], list[str]]:
        parts = await asyncio.gather(*(worker.ask("harvest") for worker in self.alive))
        received = [one for part in parts for one in part["received"]]
        return received, [one[2] for part in parts for one in part["published"]]

    async def settle(self, seconds: float) -> Seen:
        """Wait until everybody has what it is owed."""
        begun = time.monotonic()
        while True:
            received, outcomes = await self.harvest()
            got = [(index, topic, number) for index, topic, number, _, _ in received]
            missing = sorted(set(self.owed()) - set(got))
            if not missing or time.monotonic() - begun > seconds:
                break
            await asyncio.sleep(0.5)
        status = [one for w in self.alive for one in (await w.ask("status")).values()]
        uninvited = [one for one in got if one[1] not in self.interests[one[0]]]
        return Seen(
            len(self.dead),
            missing,
            len(got) - len(set(got)),
            len(uninvited),
            [outcome for outcome in outcomes if outcome != "delivered"],
            sum(one["counters"].get("parasites", 0) for one in status),
            time.monotonic() - begun,
        )


async def play(scheme: Scheme, processes: int) -> Seen:
    async with Swarm(PEERS, processes, seed=1, config=settings(scheme)) as swarm:
        field = Field(swarm)
        await swarm.open(0, 1)
        await swarm.open(1, PEERS)
        await swarm.subscribe(field.interests, record=True)
        await field.publish(list(range(0, PEERS, 2)), every_ms=50)
        field.kill()
        survivors = [index for index in range(PEERS) if field.is_alive(index)]
        await field.publish(survivors[::2], every_ms=100)
        seen = await field.settle(PATIENCE_S)
        for worker in field.dead:
            await worker.process.wait()
            swarm.workers.remove(worker)
        return seen


@pytest.mark.timeout(300)
def test_sixty_peers_and_a_fifth_of_the_processes_killed() -> None:
    """Four peers to a process, which saves the time that sixty processes take to start."""
    seen = asyncio.run(play("forward-treecast", 15))
    assert seen.killed == 3
    assert seen.missing == [] and seen.twice == 0 and seen.uninvited == 0
    assert seen.refused == []


if __name__ == "__main__":
    for name in sys.argv[2:] or get_args(Scheme):
        used = os.times()
        found = asyncio.run(play(name, int(sys.argv[1])))
        now = os.times()
        cpu = now.children_user + now.children_system - used.children_user - used.children_system
        print(name, f"{cpu:.0f} s of CPU", found)
