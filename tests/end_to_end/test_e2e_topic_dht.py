"""Real peers that route by the topic-aware DHT, over processes of which some are killed.

The test is small, since processes take long to start. By hand, with 60 peers in 15 processes, or
60, by all schemes or some:

    PYTHONPATH=src python tests/end_to_end/test_e2e_topic_dht.py 60 15
    PYTHONPATH=src python tests/end_to_end/test_e2e_topic_dht.py 60 60 full-treecast
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from typing import Any, get_args

from processes import now_ns, seconds_until
from weft.lab.processes import Swarm, Worker
from weft.protocol.rooms import Scheme

TOPICS = ("/news", "/music", "/games")
KILL_EVERY = 5
"""Every fifth process dies, from the second on."""


def interests(peers: int) -> dict[int, list[str]]:
    """Everybody is in one topic, a third in two, a sixth in all."""
    return {
        index: [
            TOPICS[(index + more) % 3] for more in range(1 + (index % 3 == 0) + (index % 6 == 0))
        ]
        for index in range(peers)
    }


def settings(scheme: Scheme) -> dict[str, Any]:
    """Short periods, so that tests need not wait for what takes some of them; but peers are patient
    with each other, since on a busy machine a slow peer is not a dead one."""
    return {
        "protocol": {
            "routing": "topic-dht",
            "cyclon": {"cycle_ms": 4_000},
            "dht": {"slow_ms": 5_000, "timeout_ms": 30_000},
            "topic_dht": {"scheme": scheme, "children_max": 4, "period_ms": 8_000},
        }
    }


@dataclass
class Seen:
    """What came of one run."""

    killed: int
    missing: list[tuple[int, str, int]]  # live subscriber, topic, event
    twice: int
    uninvited: int  # to peers that are not subscribed
    refused: list[str]
    parasites: int
    seconds_until_all: float


class Field:
    """A swarm of which some processes die."""

    def __init__(self, swarm: Swarm) -> None:
        self.swarm = swarm
        self.dead: list[Worker] = []
        self.interests = interests(swarm.peers)
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
        for worker in self.swarm.workers[1::KILL_EVERY]:
            worker.process.kill()
            self.dead.append(worker)

    async def publish(self, publishers: list[int], every_ms: int) -> None:
        """One event of each in one of its topics, or (every fourth) in one it is not in."""
        start_ns = now_ns()
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

    async def harvest(self) -> tuple[list[tuple[int, str, int]], list[str]]:
        """Which subscriber received which event in which topic; how publications ended."""
        parts = await asyncio.gather(*(worker.ask("harvest") for worker in self.alive))
        received = [(one[0], one[1], one[2]) for part in parts for one in part["received"]]
        return received, [one[2] for part in parts for one in part["published"]]

    async def has_all(self) -> bool:
        """Whether every live subscriber has what it is owed."""
        return set(self.owed()) <= set((await self.harvest())[0])

    async def settle(self) -> Seen:
        """Wait until every live subscriber has what it is owed."""
        seconds = await seconds_until(self.has_all)
        got, outcomes = await self.harvest()
        status = [one for w in self.alive for one in (await w.ask("status")).values()]
        uninvited = [one for one in got if one[1] not in self.interests[one[0]]]
        return Seen(
            len(self.dead),
            sorted(set(self.owed()) - set(got)),
            len(got) - len(set(got)),
            len(uninvited),
            [outcome for outcome in outcomes if outcome not in ("sent", "taken")],
            sum(one["counters"].get("parasites", 0) for one in status),
            seconds,
        )


async def play(scheme: Scheme, peers: int, processes: int) -> Seen:
    async with Swarm(peers, processes, seed=1, config=settings(scheme)) as swarm:
        field = Field(swarm)
        await swarm.open(0, 1)
        await swarm.open(1, peers)
        await swarm.subscribe(field.interests, record=True)
        await field.publish(list(range(0, peers, 2)), every_ms=50)
        field.kill()
        survivors = [index for index in range(peers) if field.is_alive(index)]
        await field.publish(survivors[::2], every_ms=100)
        seen = await field.settle()
        for worker in field.dead:
            await worker.process.wait()
            swarm.workers.remove(worker)
        return seen


def test_some_processes_are_killed_and_the_others_get_everything() -> None:
    seen = asyncio.run(play("forward-treecast", peers=18, processes=6))
    assert seen.killed == 1  # three peers
    assert seen.missing == [] and seen.twice == 0 and seen.uninvited == 0
    assert seen.refused == [] and seen.parasites == 0


if __name__ == "__main__":
    peers, processes = (int(word) for word in sys.argv[1:3])
    for name in sys.argv[3:] or get_args(Scheme):
        used = os.times()
        found = asyncio.run(play(name, peers, processes))
        now = os.times()
        cpu = now.children_user + now.children_system - used.children_user - used.children_system
        print(name, f"{cpu:.0f} s of CPU", found, flush=True)
