"""Some idle peers in a process of their own, for `idle`.

Arguments: how many peers, the number of the first one, and an address to join by (or none).
Prints its first peer's address when all are open and subscribed; then answers each line on
standard input with what its peers counted so far.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

from benchmarks.peer.swarm import LISTEN

import weft
from weft.rules.draw import key_of, slots_in, stream_of, subset_mask

TOPICS = 12
TOPICS_PER_PEER = 3
SEED = 1


def topics_of(number: int) -> list[str]:
    """Three of the twelve topics, drawn for this peer."""
    key = key_of(SEED, stream_of("bench.idle"), number, 0)
    return [f"/bench/idle/{slot}" for slot in slots_in(subset_mask(key, TOPICS, TOPICS_PER_PEER))]


async def commands() -> asyncio.StreamReader:
    """Standard input without a thread."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    return reader


def counted(peers: list[weft.Peer]) -> dict[str, Any]:
    total: Counter[str] = Counter()
    for peer in peers:
        total.update(peer.counters)
    links = [
        len(topic["links"])
        for peer in peers
        for topic in peer.status()["topics"].values()  # type: ignore[attr-defined]
    ]
    return {"counters": dict(total), "links": sum(links), "links_least": min(links)}


async def serve(count: int, first: int, join: list[str]) -> None:
    lines = await commands()
    async with AsyncExitStack() as stack:
        peers: list[weft.Peer] = []
        for number in range(first, first + count):
            known = [peers[len(peers) // 2].address] if peers else join
            opened = weft.Peer.open(listen=LISTEN, join=known)
            peers.append(await stack.enter_async_context(opened))
            for topic in topics_of(number):
                await peers[-1].subscribe(topic)
        print(json.dumps({"address": peers[0].address}), flush=True)
        while await lines.readline():
            print(json.dumps(counted(peers)), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
