"""Weft peers for a measurement: opened on loopback, subscribed, read, and waited for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Self

from benchmarks.peer.scenario import SETTLE_TIMEOUT_S

import weft

LISTEN = "127.0.0.1:0"
COPY_COUNTERS = ("payloads_received", "routed_received", "repaired", "repairs_duplicate")
EVENT_FRAME_COUNTERS = ("runs_received",)


async def until(
    condition: Callable[[], bool], what: str, timeout_s: float = SETTLE_TIMEOUT_S
) -> None:
    """Wait for a condition that only looking can tell, for example a counter."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s:.0f} s in vain for {what}")
        await asyncio.sleep(0.05)


class Member:
    """A peer subscribed to one topic, and how many events of others it was handed."""

    def __init__(self, peer: weft.Peer, subscription: weft.Subscription) -> None:
        self.peer = peer
        self.subscription = subscription
        self.name = peer.id
        self.received = 0

    async def read(self, arrived: Callable[[Member, weft.Notification], None]) -> None:
        me = self.name
        async for note in self.subscription:
            if note.publisher != me:
                self.received += 1
                arrived(self, note)

    def links(self, topic: str) -> int:
        return len(links_of(self.peer, topic))


def links_of(peer: weft.Peer, topic: str) -> Sequence[object]:
    """The stable links of a peer in a topic."""
    return peer.status()["topics"][topic]["links"]  # type: ignore[no-any-return, index]


class Swarm:
    """Peers of this process that share one topic; counts what arrives and wakes the publisher."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.members: list[Member] = []
        self.watch: Callable[[Member, weft.Notification], None] | None = None  # of every arrival
        self._stack = AsyncExitStack()
        self._readers: list[asyncio.Task[None]] = []
        self._missing = 0
        self._all_here = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *problem: object) -> None:
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        await self._stack.aclose()

    async def grow(
        self, count: int, join: Sequence[str] = (), config: weft.Config | None = None
    ) -> None:
        """Open peers, each joining by one that was there before it, and subscribe them."""
        for _ in range(count):
            known = [self.members[len(self.members) // 2].peer.address] if self.members else join
            opened = weft.Peer.open(listen=LISTEN, join=known, config=config)
            peer = await self._stack.enter_async_context(opened)
            member = Member(peer, peer.subscribe(self.topic))
            self.members.append(member)
            self._readers.append(asyncio.create_task(member.read(self._note_arrival)))
            await member.subscription

    async def settle(self, links: int) -> None:
        """Wait until every member has its links."""
        await until(
            lambda: all(member.links(self.topic) >= links for member in self.members),
            f"{links} links in {self.topic} at each of {len(self.members)} peers",
        )

    def _note_arrival(self, member: Member, note: weft.Notification) -> None:
        if self.watch is not None:
            self.watch(member, note)
        self._missing -= 1
        if self._missing == 0:
            self._all_here.set()

    def expect(self, notifications: int) -> None:
        self._missing, self._all_here = notifications, asyncio.Event()

    async def all_here(self, timeout_s: float) -> int:
        """Wait for what is expected; returns how many notifications never came."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_here.wait(), timeout_s)
        return self._missing

    def received(self) -> int:
        return sum(member.received for member in self.members)

    def counter(self, *names: str) -> int:
        """The sum of these counters over all members."""
        total = 0
        for member in self.members:
            counters = member.peer.counters
            total += sum(counters.get(name, 0) for name in names)
        return total

    def copies(self) -> int:
        """Events inside all messages that reached a member: pushed, routed, repaired."""
        return self.counter(*COPY_COUNTERS)

    def control(self) -> int:
        """Messages that reached a member and pushed or routed no event (repairs are in)."""
        return self.counter("net_frames_received") - self.counter(*EVENT_FRAME_COUNTERS)

    def links_mean(self) -> float:
        return sum(member.links(self.topic) for member in self.members) / len(self.members)
