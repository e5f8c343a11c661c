"""A subscription as the application sees it: awaitable, iterable, bounded.

    sub = peer.subscribe("/sports/football")
    await sub                     # joined (or started) the topic's overlay
    async for note in sub: ...

Notifications wait in a queue that is bounded in number and bytes. When it is full, the
connection that brought the event is not read from (and a local publisher is suspended) until the
application has taken half of them, but no longer than `subscription_patience_ms`; after that what
does not fit is dropped: `dropped` says how many, the peer counts them, the trace has a
REJECT_MESSAGE for each (see `congestion` for why this cannot lock up).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from functools import lru_cache

from weft.documents.descriptor import Event as Described
from weft.ids import PeerId, Topic, cid_text, peer_text
from weft.net.config import Network
from weft.net.congestion import Congestion
from weft.net.errors import ClosedError, UsageError
from weft.net.timers import Timers
from weft.protocol.delivery import message_id
from weft.protocol.seam import Outcome
from weft.protocol.wire import Event

_NOTE_BYTES = 400  # measured: what a notification weighs besides its payload

publisher_text = lru_cache(maxsize=4_096)(peer_text)


class Notification:
    """One event, handed to a subscriber."""

    __slots__ = ("_event", "descriptor", "hops", "published_in", "topic")

    def __init__(
        self,
        topic: Topic,
        event: Event,
        hops: int,
        descriptor: Described | None = None,
        published_in: Topic | None = None,
    ) -> None:
        self.topic = topic  # of the subscription
        self.published_in = published_in or topic  # in a hierarchy perhaps a sub-topic of it
        self.hops = hops
        self.descriptor = descriptor  # with history: the signed event as it is stored
        self._event = event

    @property
    def payload(self) -> bytes:
        return self._event.payload

    @property
    def publisher(self) -> str:
        """The publisher's peer id."""
        return publisher_text(PeerId(self._event.publisher))

    @property
    def event_id(self) -> str:
        """The same for this event everywhere, and in the trace."""
        return message_id(self.topic, self._event)

    @property
    def cid(self) -> str:
        """With history: the event's content identifier; else empty."""
        return cid_text(self.descriptor.cid) if self.descriptor is not None else ""

    @property
    def number(self) -> int:
        """The publisher numbers its events in a topic 1, 2, 3, …"""
        return self._event.number

    @property
    def published_at(self) -> float:
        """Seconds since 1970, by the publisher's clock."""
        return self._event.published_ms / 1_000

    def __repr__(self) -> str:
        size = len(self.payload)
        return f"Notification({self.event_id!r}, {size} bytes, hops={self.hops})"


class Subscription:
    """See the module's text. Made by `Peer.subscribe`."""

    def __init__(
        self,
        topic: Topic,
        settings: Network,
        timers: Timers,
        unsubscribe: Callable[[Subscription], Awaitable[None]],
    ) -> None:
        self.topic = topic
        self.dropped = 0  # notifications that found no room
        self.outcome: Outcome | None = None  # "joined" or "instantiated", once it is known
        self._settings = settings
        self._unsubscribe = unsubscribe
        self._notes: deque[Notification] = deque()
        self._bytes = 0
        self._congestion = Congestion(timers, settings.subscription_patience_ms)
        self._reader: asyncio.Future[None] | None = None
        self._joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closed = False
        self._when_read: Callable[[], None] | None = None

    def __repr__(self) -> str:
        state = "closed" if self._closed else self.outcome or "joining"
        return f"Subscription({self.topic!r}, {state}, {len(self._notes)} waiting)"

    # --- for the application --------------------------------------------------------------------

    def __await__(self) -> Generator[None, None, Subscription]:
        return self._wait_joined().__await__()

    async def _wait_joined(self) -> Subscription:
        await asyncio.shield(self._joined)
        return self

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Notification:
        while not self._notes:
            if self._closed:
                raise StopAsyncIteration
            if self._reader is not None and not self._reader.done():
                raise UsageError("two tasks read from one subscription; subscribe twice")
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        return self._take()

    def get_nowait(self) -> Notification | None:
        """The next notification if there is one."""
        return self._take() if self._notes else None

    def __len__(self) -> int:
        """Notifications that wait to be read."""
        return len(self._notes)

    async def __aenter__(self) -> Subscription:
        return await self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Unsubscribe. What waits can still be read; then the iteration ends."""
        if not self._closed:
            await self._unsubscribe(self)
            self.end()

    @property
    def closed(self) -> bool:
        return self._closed

    def _take(self) -> Notification:
        note = self._notes.popleft()
        self._bytes -= len(note.payload) + _NOTE_BYTES
        if not self._over(2):
            if self._congestion.since:
                self._congestion.clear()
            if self._when_read is not None:
                again, self._when_read = self._when_read, None
                again()
        return note

    # --- for the driver -------------------------------------------------------------------------

    def put(self, note: Notification) -> Congestion | None:
        """Take a notification in; returns what to wait for if the queue is full now."""
        self._notes.append(note)
        self._bytes += len(note.payload) + _NOTE_BYTES
        if self._reader is not None:
            self._wake()
        if not self._over(1):
            return None
        self._congestion.begin()
        return self._congestion

    def when_read(self, again: Callable[[], None]) -> None:
        """Call once the application has read half of what waits."""
        self._when_read = again

    def has_room(self) -> bool:
        """False once the queue is full and has been waited for in vain."""
        return not (self._congestion.given_up and self._over(1))

    def _over(self, divisor: int) -> bool:
        """Whether the queue holds more than its bounds divided by `divisor`."""
        settings = self._settings
        return (
            len(self._notes) * divisor > settings.subscription_events_max
            or self._bytes * divisor > settings.subscription_bytes_max
        )

    def answered(self, outcome: Outcome) -> None:
        self.outcome = outcome
        if not self._joined.done():
            self._joined.set_result(None)

    def end(self) -> None:
        """No more notifications will come."""
        self._closed = True
        self._congestion.clear()
        if not self._joined.done():
            self._joined.set_exception(ClosedError(f"closed before {self.topic} was joined"))
            self._joined.exception()  # nobody need be waiting
        self._wake()

    def _wake(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and not reader.done():
            reader.set_result(None)
