"""The publisher of `behind`, in a process of its own, with a store on disk.

    python -m benchmarks.history.behind_worker STORE

Prints its address. Then each line on standard input is a request: `publish` so many events as fast
as the disk takes them, `pace` so many a second from now on (0: none), `count` (how many so far).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.history.dag_worker import config, publish
from benchmarks.history.events import PAYLOAD_BYTES, TOPIC
from benchmarks.peer.idle_worker import commands

import weft

TICK_S = 0.01


class Publisher:
    """Publishes at a pace, and counts."""

    def __init__(self, peer: weft.Peer) -> None:
        self.peer = peer
        self.count = 0
        self.task: asyncio.Task[None] | None = None

    async def pace(self, rate: int) -> None:
        """So many events a second: what is due is published together, every tick."""
        begun, sent = time.monotonic(), 0
        while True:
            due = int((time.monotonic() - begun) * rate) - sent
            notes = (self.peer.publish(TOPIC, os.urandom(PAYLOAD_BYTES)) for _ in range(due))
            await asyncio.gather(*notes)
            sent += due
            self.count += due
            await asyncio.sleep(TICK_S)

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "publish" in request:
            await publish(self.peer, request["publish"])
            self.count += request["publish"]
        if "pace" in request:
            if self.task is not None:
                self.task.cancel()
                self.task = None
            if request["pace"]:
                self.task = asyncio.create_task(self.pace(request["pace"]))
        return {"count": self.count, "cpu_s": time.process_time()}


async def serve(store: Path) -> None:
    lines = await commands()
    async with weft.Peer.open(config=config(), store=store) as peer:
        subscription = await peer.subscribe(TOPIC)
        own = asyncio.create_task(drain(subscription))
        publisher = Publisher(peer)
        print(json.dumps({"address": peer.address}), flush=True)
        while line := await lines.readline():
            print(json.dumps(await publisher.answer(json.loads(line))), flush=True)
        await publisher.answer({"pace": 0})
        own.cancel()


async def drain(subscription: weft.Subscription) -> None:
    async for _ in subscription:
        pass


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
