"""Real peers for the network tests: several in this process, and weft commands in their own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import weft
from net_kit import until
from weft.protocol.config import Routing
from weft.store.memory import MemoryStore


@asynccontextmanager
async def together(
    count: int,
    routing: Routing | None = None,
    history: bool = False,
    *,
    config: weft.Config,
    hierarchies: tuple[str, ...] = (),
) -> AsyncGenerator[list[weft.Peer], None]:
    """Peers that have joined each other, by way of the first."""
    async with AsyncExitStack() as stack:
        peers: list[weft.Peer] = []
        for _ in range(count):
            opened = weft.Peer.open(
                join=[peers[0].address] if peers else [],
                config=config,
                routing=routing,
                store=MemoryStore() if history else None,
                hierarchies=hierarchies,
            )
            peers.append(await stack.enter_async_context(opened))
        await until(lambda: count == 1 or not any(peer.isolated for peer in peers), "all to join")
        yield peers


@asynccontextmanager
async def command(*words: str, settings: Iterable[str]) -> AsyncGenerator[Process, None]:
    """A weft command with some protocol settings; it is killed in the end."""
    options = [word for one in settings for word in ("--set", f"protocol.{one}")]
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "weft.cli.main", *words, *options),
        env={**os.environ, "PYTHONPATH": str(Path(weft.__file__).parents[1])},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()
