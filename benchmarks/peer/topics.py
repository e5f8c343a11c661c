"""Frames per delivery where events are spread over many topics.

Ten peers on loopback in one process are in the same 1,000 topics. Each of them publishes ten events
a second, in a hundred of the topics by turns, so that two events of a topic are seconds apart: what
a topic announces or acknowledges has to share frames with what others do. A frame is any message
that reached a peer, view exchanges and pings included; a delivery is an event handed to the
application of a subscriber other than its publisher.

View exchanges and announcements go by the clock, so a machine that is too busy for that many events
a second shows more frames per delivery: `seconds` says how long it took.

Counted is once every topic has had two events, which shape its tree.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

from benchmarks.peer.machine import say
from benchmarks.peer.scenario import ROUND_TIMEOUT_S, Load
from benchmarks.peer.swarm import LISTEN, until

import weft

PEERS = 10
TOPICS = 1_000
WARMUP_EVENTS = 2
EVENTS = 2
"""In each topic."""
RATE = 100
"""Events a second in all."""


class Reader:
    """One peer in all topics, and how many events of others it was handed."""

    def __init__(self, peer: weft.Peer, topics: list[str]) -> None:
        self.peer = peer
        self.subscription = peer.subscribe(topics)
        self.received = 0

    async def read(self) -> None:
        async for note in self.subscription:
            self.received += note.publisher != self.peer.id


def is_linked(reader: Reader) -> bool:
    """Whether the peer has a link in every topic."""
    topics: dict[str, Any] = reader.peer.status()["topics"]  # type: ignore[assignment]
    return all(topic["links"] for topic in topics.values())


def count(readers: list[Reader]) -> Counter[str]:
    total = Counter({"deliveries": sum(one.received for one in readers)})
    for one in readers:
        total.update(one.peer.counters)
    return total


async def publish(readers: list[Reader], topics: list[str], events: int) -> int:
    """So many events in each topic; how many never came."""
    payload = Load().payload()
    wanted = count(readers)["deliveries"] + events * len(topics) * (len(readers) - 1)
    for _ in range(events):
        for number, topic in enumerate(topics):
            await readers[number % len(readers)].peer.publish(topic, payload)
            await asyncio.sleep(1 / RATE)

    def lost() -> int:
        return wanted - count(readers)["deliveries"]

    try:
        await until(lambda: not lost(), "all events", ROUND_TIMEOUT_S)
    except TimeoutError:
        return lost()
    return 0


async def run(number: int) -> dict[str, Any]:
    topics = [f"/bench/{index}" for index in range(number)]
    readers: list[Reader] = []
    reading: list[asyncio.Task[None]] = []
    try:
        for _ in range(PEERS):
            join = [readers[-1].peer.address] if readers else []
            peer = await weft.Peer.open(listen=LISTEN, join=join)
            readers.append(Reader(peer, topics))
            reading.append(asyncio.create_task(readers[-1].read()))
        for one in readers:
            await one.subscription
        await until(
            lambda: all(map(is_linked, readers)),
            "a link of every peer in every topic",
        )
        await publish(readers, topics, WARMUP_EVENTS)
        before, began = count(readers), time.monotonic()
        lost = await publish(readers, topics, EVENTS)
        found, seconds = count(readers) - before, time.monotonic() - began
    finally:
        for task in reading:
            task.cancel()
        for one in readers:
            await one.peer.close()
    return {**found, "lost": lost, "seconds": seconds}


def measure(quick: bool) -> dict[str, Any]:
    found = asyncio.run(run(TOPICS // 20 if quick else TOPICS))
    frames = found["net_frames_received"] / found["deliveries"]
    meant_s = found["published"] / RATE
    took = f"{found['seconds']:.0f} s where {meant_s:.0f} were meant"
    say(f"{frames:.2f} frames per delivery, {found['lost']} lost, in {took}")
    return {
        "frames_per_delivery": frames,
        "counted": dict(sorted(found.items())),
        "reference": {"frames_per_delivery_least": 1.0},
    }
