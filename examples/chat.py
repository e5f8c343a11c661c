"""A chat of any number of people: no server, no account.

    python examples/chat.py ANN
    python examples/chat.py BEN ADDRESS      the address that Ann's prints

What is typed goes to everybody. The peer that was first may leave; the others go on.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterable, AsyncIterator

import weft

TOPIC = "/chat"


async def main(name: str, join: list[str], lines: AsyncIterable[str]) -> None:
    async with weft.Peer.open(join=join, encode=json.dumps, decode=json.loads) as peer:

        def show(note: weft.Notification) -> None:
            if note.publisher != peer.id:
                said = note.value
                assert isinstance(said, dict)
                print(f"{said['from']}: {said['text']}", flush=True)

        await peer.subscribe(TOPIC, callback=show)
        print(f"others join by {peer.address}", flush=True)
        async for line in lines:
            await peer.publish(TOPIC, {"from": name, "text": line})


async def typed() -> AsyncIterator[str]:
    while line := await asyncio.to_thread(sys.stdin.readline):
        yield line.rstrip("\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:], typed()))
