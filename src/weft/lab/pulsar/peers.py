"""Gaps and latecomers among real peers: sockets on loopback, TLS, stores on disk, the clock's time.

All peers of a run live in this process, so what is measured is the work of both ends.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import weft
from weft.ids import Cid, Topic
from weft.lab.pulsar.world import PAYLOAD_BYTES
from weft.net.identity import Identity
from weft.protocol import config as c
from weft.store.reader import read_all
from weft.store.sqlite import SqliteStore

TOPIC = Topic("/lab")
MEMBERS = 3
CYCLE_MS = 1_000
"""guess: so that a few peers have soon found each other."""
AT_ONCE = 64
"""Publishes that wait for the disk at once."""
_POLL_S = 0.02
PATIENCE_S = 120.0
"""guess: for a busy machine."""


class Member:
    """A peer with its store, and an application that reads what comes."""

    def __init__(self, peer: weft.Peer, store: SqliteStore) -> None:
        self.peer = peer
        self.store = store
        self.read: list[tuple[float, Cid, tuple[Cid, ...]]] = []
        self.news = asyncio.Event()

    async def follow(self, subscription: weft.Subscription) -> None:
        async for note in subscription:
            event = note.descriptor
            assert event is not None
            self.read.append((time.monotonic(), event.cid, tuple(event.parents)))
            self.news.set()

    async def has_read(self, count: int, held: int = 0) -> None:
        """Until the application got so many events, and the store has so many."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.read) < count:
                self.news.clear()
                await self.news.wait()
            while self.store.summary(TOPIC).events < held:  # noqa: ASYNC110  (a disk rings no bell)
                await asyncio.sleep(_POLL_S)

    def stream(self) -> list[Cid]:
        return [event.cid for event in read_all(self.store, TOPIC)]

    def misplaced(self) -> int:
        """As `world.misplaced`."""
        place: dict[Cid, int] = {}
        for number, (_, cid, _) in enumerate(self.read):
            place.setdefault(cid, number)
        return sum(
            place[cid] != number or any(place.get(parent, -1) > number for parent in parents)
            for number, (_, cid, parents) in enumerate(self.read)
        )


@asynccontextmanager
async def member(
    routing: c.Routing, store: Path, join: list[str], key: Identity | None = None
) -> AsyncGenerator[Member, None]:
    """A peer that reads the topic from its beginning."""
    config = weft.Config(protocol=c.Config(cyclon=c.Cyclon(cycle_ms=CYCLE_MS)))
    kept = SqliteStore(store)
    opened = weft.Peer.open(
        "127.0.0.1:0", join=join, key=key, config=config, store=kept, routing=routing
    )
    async with opened as peer:
        one = Member(peer, kept)
        subscription = peer.subscribe(TOPIC, since="beginning")
        reader = asyncio.create_task(one.follow(subscription))
        try:
            async with asyncio.timeout(PATIENCE_S):
                await subscription
            yield one
        finally:
            reader.cancel()


async def publish(members: list[Member], count: int) -> None:
    """So many events in all, from all members at once."""
    left = count

    async def publisher(peer: weft.Peer) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            receipt = await peer.publish(TOPIC, b"%d".ljust(PAYLOAD_BYTES, b".") % left)
            if receipt.outcome != "delivered":
                raise RuntimeError(f"an event was not taken: {receipt.outcome} {receipt.reason}")

    peers = [one.peer for one in members] * (AT_ONCE // len(members))
    await asyncio.gather(*(publisher(peer) for peer in peers))


# --- a gap ----------------------------------------------------------------------------------------


def repair(routing: c.Routing, gap: int) -> dict[str, Any]:
    """A subscriber goes away, misses so many events, and comes back with its store."""
    with tempfile.TemporaryDirectory(prefix="weft-lab-") as folder:
        return asyncio.run(_repair(routing, gap, Path(folder)))


async def _repair(routing: c.Routing, gap: int, folder: Path) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        members = await _members(stack, routing, folder)
        join, key, store = [members[0].peer.address], Identity.generate(), folder / "away.db"
        async with member(routing, store, join, key) as away:
            await publish(members[:1], 1)
            await away.has_read(1)
        await publish(members[:1], gap)
        async with member(routing, store, join, key) as back:
            begun = time.monotonic()
            await publish(members[:1], 1)
            with suppress(TimeoutError):  # what is missing is told below
                await back.has_read(gap + 1, gap + 2)
            taken_ms = (back.read[-1][0] - begun) * 1e3 if back.read else math.nan
            return {
                "missing": gap + 2 - len(back.stream()),
                "repair_ms": taken_ms,
                "messages": math.nan,
            }


# --- a latecomer ----------------------------------------------------------------------------------


def replay(routing: c.Routing, events: int) -> dict[str, Any]:
    """A peer reads so many events of the past, every one verified, stored and handed over."""
    with tempfile.TemporaryDirectory(prefix="weft-lab-") as folder:
        return asyncio.run(_replay(routing, events, Path(folder)))


async def _replay(routing: c.Routing, events: int, folder: Path) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        members = await _members(stack, routing, folder)
        await publish(members, events)
        await asyncio.gather(*(one.has_read(events, events) for one in members))
        asked, cpu_s = time.monotonic(), time.process_time()
        join = [members[0].peer.address]
        async with member(routing, folder / "late.db", join) as late:
            with suppress(TimeoutError):  # what is missing is told below
                await late.has_read(events, events)
            cpu_s = time.process_time() - cpu_s
            times = [at for at, _, _ in late.read]
            return {
                "lacking": events - len(times),
                "misplaced": late.misplaced(),
                "same": late.stream() == members[0].stream(),
                "waited_s": times[0] - asked if times else math.nan,
                "read_s": times[-1] - times[0] if times else math.nan,
                "read_s_allowed": math.nan,
                "cpu_s": cpu_s,
                "messages": math.nan,
                "messages_allowed": math.nan,
            }


async def _members(stack: AsyncExitStack, routing: c.Routing, folder: Path) -> list[Member]:
    members: list[Member] = []
    for number in range(MEMBERS):
        join = [one.peer.address for one in members[:1]]
        one = member(routing, folder / f"{number}.db", join)
        members.append(await stack.enter_async_context(one))
    return members
