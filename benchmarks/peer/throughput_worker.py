"""The reading peer of `throughput`, in a process of its own.

Each event carries its number in its first eight bytes; the reader insists on 0, 1, 2, … and says
at which instant of the system's monotonic clock the last one of a batch was there.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from benchmarks.peer.scenario import TOPIC
from benchmarks.peer.swarm import LISTEN

import weft


class Disorder(RuntimeError):
    """An event came twice, out of order or not at all."""


async def read_batch(subscription: weft.Subscription, count: int) -> dict[str, float]:
    """Read `count` events in order; when the first and the last one came, and the CPU used."""
    cpu, first_at = time.process_time(), 0.0
    for number in range(count):
        note = await anext(subscription)
        if number == 0:
            first_at = time.monotonic()
        got = int.from_bytes(note.payload[:8], "big")
        if got != number:
            raise Disorder(f"event {got} came where {number} was due")
    return {"first_at": first_at, "last_at": time.monotonic(), "cpu_s": time.process_time() - cpu}


async def serve(join: str, counts: list[int]) -> None:
    async with weft.Peer.open(listen=LISTEN, join=[join]) as peer:
        subscription = await peer.subscribe(TOPIC)
        print(json.dumps({"address": peer.address}), flush=True)
        for count in counts:
            figures = await read_batch(subscription, count)
            print(json.dumps(figures | {"dropped": subscription.dropped}), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], [int(count) for count in sys.argv[2:]]))
