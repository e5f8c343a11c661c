"""Some of the peers of `copies` or of `burst`, in a process of their own; the first one also
publishes.

Prints its address once they are up. Then each line on standard input is a request: `publish` so
many events at a pace, or without a pause (answered when the last one is out), or `count`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from typing import Any

from benchmarks.peer.idle_worker import commands
from benchmarks.peer.scenario import TOPIC, Load
from benchmarks.peer.swarm import Member, Swarm

import weft


class Part:
    """The peers here, what they received from which, and how late it came."""

    def __init__(self, swarm: Swarm) -> None:
        self.swarm = swarm
        self.publisher = swarm.members[0]
        self.received: Counter[str] = Counter()
        self.out_of_order = 0  # notifications of a number below one that came before
        self._latest: Counter[tuple[str, str]] = Counter()  # by receiver and publisher
        self.delays_ms: list[float] = []
        swarm.watch = self._note

    def _note(self, member: Member, note: weft.Notification) -> None:
        publisher, number = note.publisher, note.number
        self.received[publisher] += 1
        key = (member.name, publisher)
        if number < self._latest[key]:
            self.out_of_order += 1
        else:
            self._latest[key] = number
        self.delays_ms.append((time.time() - note.published_at) * 1e3)

    async def publish(self, events: int, pace_s: float) -> None:
        payload, self.delays_ms = Load().payload(), []
        for _ in range(events):
            await self.publisher.peer.publish(TOPIC, payload)
            if pace_s:
                await asyncio.sleep(pace_s)

    def count(self) -> dict[str, Any]:
        """The counters so far, and the delays of what came since publishing was last asked for."""
        delays = sorted(self.delays_ms)
        return {
            "received": dict(self.received),
            "out_of_order": self.out_of_order,
            "copies": self.swarm.copies(),
            "control": self.swarm.control(),
            "grafts": self.swarm.counter("grafts_sent"),
            "links": self.swarm.links_mean(),
            "links_least": min(member.links(TOPIC) for member in self.swarm.members),
            "delay_ms_median": delays[len(delays) // 2] if delays else 0.0,
            "delay_ms_max": delays[-1] if delays else 0.0,
        }


async def serve(count: int, join: list[str]) -> None:
    lines = await commands()
    async with Swarm(TOPIC) as swarm:
        await swarm.grow(count, join=join)
        part = Part(swarm)
        me = {"address": part.publisher.peer.address, "publisher": part.publisher.name}
        print(json.dumps(me), flush=True)
        while line := await lines.readline():
            request = json.loads(line)
            if "publish" in request:
                await part.publish(request["publish"], request["pace_s"])
                print(json.dumps({}), flush=True)
            else:
                print(json.dumps(part.count()), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2:]))
