"""What the experiments on Pulsarcast share: networks in virtual time, runs of real peers, and how
routings are drawn.

In virtual time (`Net`) peers have one topic under any routing, with or without history. They come
up one after the other, each by some that are there already; subscribers are drawn. Settings are a
peer's defaults, unless an experiment says otherwise.

Real peers (`repair`, `replay`) have sockets on loopback, TLS, stores on disk and the clock's time.
All peers of a run live in this process, so what is measured is the work of both ends.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import weft
from weft.documents.position import position
from weft.ids import Cid, Topic
from weft.lab.experiment import Columns
from weft.lab.figures import look
from weft.net.identity import Identity
from weft.protocol.config import Config, Cyclon, Routing
from weft.protocol.peer import Peer
from weft.protocol.pulsar.branch import Branch
from weft.protocol.pulsar.pulsar import Pulsar
from weft.sim.builder import OneTopic
from weft.sim.network import Conditions
from weft.sim.node import Node
from weft.sim.record import Delivery
from weft.sim.world import Observer, SizeOf
from weft.store.reader import read_all
from weft.store.sqlite import SqliteStore
from weft.trace import Writer

TOPIC = Topic("/lab")
PAYLOAD_BYTES = 200
"""The size that benchmarks measure with."""
CONTACTS = 3
"""How many peers a starting peer knows, as in `sim/scenario.py`."""
START_MS = 10
"""guess: between the starts of two peers."""
ENTER_CYCLES = 3
"""measured: by then peers and DHT tables know each other."""
JOIN_CYCLES = 3
"""measured: by then subscribers are in their overlay or tree."""


# --- in virtual time --------------------------------------------------------------------------


class Net(OneTopic):
    """Peers with one topic under any routing, with or without history, all up already."""

    topic = TOPIC

    def __init__(
        self,
        seed: int,
        peers: int,
        config: Config,
        conditions: Conditions | None = None,
        observers: Sequence[Observer] = (),
        contacts: int = CONTACTS,
        writer: Writer | None = None,
        size_of: SizeOf | None = None,
    ) -> None:
        """`contacts`: how many peers one knows when it comes up."""
        super().__init__(
            *(seed, config, conditions), writer=writer, observers=observers, size_of=size_of
        )
        self.contacts = contacts
        for _ in range(peers):
            self.come()
        self.run_cycles(ENTER_CYCLES)

    def come(self) -> Node:
        """Start one more peer, which knows some of those that are up."""
        known = self.dice.some("lab.join", self.alive(), self.contacts, len(self.nodes))
        return self.enter(known, START_MS)

    def branch(self, number: int) -> Branch | None:
        """A peer's place in the topic's tree."""
        machine = self.nodes[number].machine
        routing = machine.routing if isinstance(machine, Peer) else None
        return routing.trees.get(self.topic) if isinstance(routing, Pulsar) else None

    def draw_subscribers(self, count: int) -> list[int]:
        return self.dice.some("lab.subscribers", range(len(self.nodes)), count)

    def publish_next(self, number: int) -> None:
        """An event with a payload of its own."""
        text = b"event %d " % len(self.world.record.publications)
        self.publish(number, payload=text.ljust(PAYLOAD_BYTES, b"."))

    def publish_all(self, publishers: Sequence[int], count: int, every_ms: int) -> None:
        """Publish `count` events, one every `every_ms`; the publishers take turns."""
        for number in range(count):
            self.publish_next(publishers[number % len(publishers)])
            self.run(every_ms)

    def held(self, numbers: Iterable[int]) -> list[Cid]:
        """All events that any of these peers holds, in the stream's order."""
        found = {event.cid: event for number in numbers for event in self.stored(number)}
        return [event.cid for event in sorted(found.values(), key=position)]

    def sent(self, kinds: Iterable[type]) -> int:
        """How many messages of these kinds were sent so far."""
        return sum(self.world.sent[kind] for kind in kinds)


def misplaced(deliveries: Sequence[Delivery]) -> int:
    """How many events one application got twice, or before a parent that it got as well."""
    place: dict[Cid, int] = {}
    wrong = 0
    for number, one in enumerate(deliveries):
        assert one.descriptor is not None
        wrong += one.descriptor.cid in place
        place.setdefault(one.descriptor.cid, number)
    for number, one in enumerate(deliveries):
        assert one.descriptor is not None
        wrong += any(place.get(parent, -1) > number for parent in one.descriptor.parents)
    return wrong


# --- real peers -------------------------------------------------------------------------------

MEMBERS = 3
CYCLE_MS = 1_000
"""guess: so that a few peers have soon found each other."""
AT_ONCE = 64
"""Publishes that wait for the disk at once."""
_POLL_S = 0.02
PATIENCE_S = 120.0
"""guess: for a busy machine."""


class Member:
    """A peer with its store, and an application that reads its notifications."""

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
        """Wait until the application got `count` events, and the store has `held`."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.read) < count:
                self.news.clear()
                await self.news.wait()
            while self.store.summary(TOPIC).events < held:  # noqa: ASYNC110  (a disk rings no bell)
                await asyncio.sleep(_POLL_S)

    def stream(self) -> list[Cid]:
        return [event.cid for event in read_all(self.store, TOPIC)]

    def misplaced(self) -> int:
        """How many events this application got twice, or before a parent; as `misplaced` above."""
        place: dict[Cid, int] = {}
        for number, (_, cid, _) in enumerate(self.read):
            place.setdefault(cid, number)
        return sum(
            place[cid] != number or any(place.get(parent, -1) > number for parent in parents)
            for number, (_, cid, parents) in enumerate(self.read)
        )


@asynccontextmanager
async def member(
    routing: Routing, store: Path, join: list[str], key: Identity | None = None
) -> AsyncGenerator[Member, None]:
    """A peer that reads the topic from its beginning."""
    config = weft.Config(protocol=Config(cyclon=Cyclon(cycle_ms=CYCLE_MS)))
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
    """Publish `count` events in all, from all members at once."""
    left = count

    async def publisher(peer: weft.Peer) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            receipt = await peer.publish(TOPIC, b"%d".ljust(PAYLOAD_BYTES, b".") % left)
            if receipt.outcome not in ("taken", "sent", "alone"):
                raise RuntimeError(f"an event was not taken: {receipt.outcome} {receipt.reason}")

    peers = [one.peer for one in members] * (AT_ONCE // len(members))
    await asyncio.gather(*(publisher(peer) for peer in peers))


# --- a gap ----------------------------------------------------------------------------------------


def repair(routing: Routing, gap: int) -> Columns:
    """A subscriber goes away, misses so many events, and comes back with its store."""
    with tempfile.TemporaryDirectory(prefix="weft-lab-") as folder:
        return asyncio.run(_repair(routing, gap, Path(folder)))


async def _repair(routing: Routing, gap: int, folder: Path) -> Columns:
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


def replay(routing: Routing, events: int) -> Columns:
    """A peer reads so many events of the past, every one verified, stored and handed over."""
    with tempfile.TemporaryDirectory(prefix="weft-lab-") as folder:
        return asyncio.run(_replay(routing, events, Path(folder)))


async def _replay(routing: Routing, events: int, folder: Path) -> Columns:
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


async def _members(stack: AsyncExitStack, routing: Routing, folder: Path) -> list[Member]:
    members: list[Member] = []
    for number in range(MEMBERS):
        join = [one.peer.address for one in members[:1]]
        one = member(routing, folder / f"{number}.db", join)
        members.append(await stack.enter_async_context(one))
    return members


# --- names and looks of the routings ----------------------------------------------------------

ROUTINGS = ("tera", "pulsarcast", "flood", "topic-dht")
NAMES = {
    "tera": "TERA",
    "pulsarcast": "Pulsarcast's trees",
    "flood": "flood",
    "topic-dht": "topic-aware DHT",
}


def style(routing: str) -> dict[str, Any]:
    """How a routing is drawn."""
    return {**look(ROUTINGS.index(routing))}
