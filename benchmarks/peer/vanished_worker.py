"""A peer at rest, for `vanished`.

Arguments: where to listen, a topic, and an address to join by (or none). Prints its address when
it is subscribed; then answers each line on standard input: `{"until": "linked"}` once it has a
link in the topic, `{"until": "alone"}` once it has none, with the time.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from benchmarks.peer.idle_worker import commands
from benchmarks.peer.swarm import until

import weft

CYCLE_MS = 600_000
"""Between two view exchanges: longer than all that is measured."""


def _linked(peer: weft.Peer, topic: str) -> bool:
    return bool(peer.status()["topics"][topic]["links"])  # type: ignore[index]


async def serve(listen: str, topic: str, join: list[str]) -> None:
    lines = await commands()
    settings = {"protocol": {"cyclon": {"cycle_ms": CYCLE_MS}}}
    async with weft.Peer.open(listen=listen, join=join, config=settings) as peer:
        await peer.subscribe(topic)
        print(json.dumps({"address": peer.address}), flush=True)
        while line := await lines.readline():
            wanted = json.loads(line)["until"] == "linked"
            await until(lambda wanted=wanted: _linked(peer, topic) is wanted, line.decode())  # type: ignore[misc]
            print(json.dumps({"at_ns": time.monotonic_ns()}), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], sys.argv[3:]))
