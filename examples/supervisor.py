"""Watches a peer and says so when it is cut off from all others, and for how long it was.

    python examples/supervisor.py ADDRESS…

A real one would page somebody, or stop a program that must not go on alone.
"""

from __future__ import annotations

import asyncio
import sys
import time

import weft


async def watch(peer: weft.Peer) -> None:
    """Until the peer is closed."""
    alone_since: float | None = None
    async for event in peer.events():
        if event.kind == "isolated":
            alone_since = time.monotonic()
            reasons = "; ".join(peer.unanswered.values())
            print(f"isolated {reasons}".rstrip(), flush=True)
        elif event.kind == "joined":
            alone_s = 0.0 if alone_since is None else time.monotonic() - alone_since
            print(f"among others again, after {alone_s:.0f} s", flush=True)
        elif event.kind == "topic_changed":
            print(f"{event.topic} was changed by its owners", flush=True)


async def main(join: list[str]) -> None:
    async with weft.Peer.open(join=join) as peer:
        await watch(peer)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
