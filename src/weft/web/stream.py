"""One topic as Server-Sent Events, and its history: subscribing over plain HTTP.

With a store, each event's `id` is a position in it (`Peer.consume`), so that a client that comes
back with `Last-Event-ID`, as browsers do by themselves, gets each event after that position once.
Events of publishers without a store are stored nowhere: a client gets them only while it is
connected, and without an `id`. A client whose position is unknown here and to all members that were
asked (as after a restart of a peer that keeps events in memory) gets the event `lost`; it begins
anew then.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator
from contextlib import AsyncExitStack, suppress
from itertools import islice

import msgspec

import weft
from weft.documents.descriptor import SealedEvent, known_event
from weft.documents.headers import in_metadata
from weft.documents.position import Position
from weft.ids import Cid, cid_text, parse_cid, parse_topic, peer_text
from weft.net.consumer import Consumed
from weft.net.control import fields_of
from weft.net.errors import usable
from weft.rules.hierarchy import claimed_origin
from weft.store.cursor import PositionError
from weft.store.interface import Since

WAITING_MAX = 64
"""guess: events read ahead for a client that takes them slowly."""
ALIVE_S = 15.0
"""guess: how often a comment is sent while nothing happens, to learn that a client is gone."""
HISTORY_MAX = 1_000
HISTORY_USUAL = 100
"""guess: events in one answer: at most, and if the request names no number."""
HISTORY_BYTES_MAX = 2_000_000
"""guess: bytes of payloads in one answer, which stays in memory until its client has read it."""
_NOW_SECONDS = 5.0
"""guess: how long to wait for another member to tell where the stream ends."""
_RETRY_MS = 1_000


def note_fields(note: weft.Notification) -> dict[str, object]:
    """The fields of a notification in JSON."""
    told = fields_of(note)
    del told["payload"]
    return {**payload_fields(note.payload), **told}


def payload_fields(payload: bytes) -> dict[str, str]:
    """A payload: as text if it is UTF-8, else in base64."""
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}


def event_fields(event: SealedEvent) -> dict[str, object]:
    """The fields of a stored event in JSON."""
    return {
        "cid": cid_text(event.cid),
        "topic": event.topic,
        "published_in": claimed_origin(event.topic, event.metadata),
        **payload_fields(event.payload),
        "headers": in_metadata(event.metadata),
        "publisher": peer_text(event.publisher),
        "published_at": event.created_ms / 1_000,
        "height": event.height,
    }


def history(peer: weft.Peer, topic: str, after: str | None, limit: int) -> list[dict[str, object]]:
    """Stored events in the stream's order: the first ones after an event, or the latest ones. At
    least one event, if there is any; more only up to `HISTORY_BYTES_MAX`."""
    if after is not None:
        since: Since = "beginning" if after == "beginning" else usable(parse_cid, after)
        return [event_fields(event) for event in _fitting(peer.history.read(topic, since, limit))]
    # Read from the end, so that the cost depends on the answer and not on the stream's length.
    store, name = peer.history.store, usable(parse_topic, topic)
    highest = Position(max(store.heads(name).values(), default=0) + 1, Cid(b""))
    latest = (cid for cid, _ in islice(store.downwards(name, highest), limit))
    blocks = ((cid, store.get(cid)) for cid in latest)
    events = (known_event(block, cid) for cid, block in blocks if block is not None)
    return [event_fields(event) for event in _fitting(events)][::-1]


def _fitting(events: Iterable[SealedEvent]) -> Iterator[SealedEvent]:
    size = 0
    for number, event in enumerate(events):
        size += len(event.payload)
        if number and size > HISTORY_BYTES_MAX:
            return
        yield event


def has_store(peer: weft.Peer) -> bool:
    return "history" in peer.status()


class Stream:
    """The events of one topic for one client, as Server-Sent Events."""

    def __init__(self, peer: weft.Peer, topic: str, after: str | None) -> None:
        """`after`: the last id that the client knows, "now", or None for the beginning."""
        self._peer = peer
        self._topic = topic
        self._after = after
        self._stack = AsyncExitStack()
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue(WAITING_MAX)
        self._tasks: list[asyncio.Task[None]] = []
        self._first = f"retry: {_RETRY_MS}\n\n".encode()

    async def open(self) -> None:
        """Subscribe; a wrong topic or position raises here, before anything was sent."""
        if has_store(self._peer):
            consumer = self._peer.consume(self._topic, after=self._after)
            await self._stack.enter_async_context(consumer)
            if self._after == "now":
                # The first id must be where "now" is: a client may come back with it.
                with suppress(TimeoutError):
                    async with asyncio.timeout(_NOW_SECONDS):
                        await consumer
                self._first = f"id: {consumer.position}\n".encode() + self._first
            self._read(consumer, stored=True)
        plain = await self._stack.enter_async_context(self._peer.subscribe(self._topic))
        self._read(plain, stored=False)

    def _read(self, notes: AsyncIterable[weft.Notification], *, stored: bool) -> None:
        self._tasks.append(asyncio.create_task(self._fill(notes, stored)))

    async def _fill(self, notes: AsyncIterable[weft.Notification], stored: bool) -> None:
        async for note in notes:
            if stored == (note.descriptor is not None):
                await self._waiting.put(_event(note))

    async def pieces(self, closing: asyncio.Event) -> AsyncGenerator[bytes, None]:
        """The text of the stream, until the client goes away or the server closes. The caller must
        call `close` then: this generator is cancelled when the client goes, and cannot await."""
        end = asyncio.create_task(closing.wait())
        following: asyncio.Task[bytes] | None = None
        try:
            yield self._first
            while not closing.is_set():
                following = asyncio.create_task(self._waiting.get())
                watched: list[asyncio.Task[object]] = [following, end, *self._tasks]
                done, _ = await asyncio.wait(
                    watched, timeout=ALIVE_S, return_when=asyncio.FIRST_COMPLETED
                )
                if following in done:
                    yield following.result()
                    continue
                following.cancel()
                if done:
                    if (lost := self._lost()) is not None:
                        yield lost
                    return  # also if the peer has closed: the client connects again
                yield b":\n\n"
        finally:
            end.cancel()
            if following is not None:
                following.cancel()

    def _lost(self) -> bytes | None:
        """The event for a client whose position nobody knows any more. Its empty `id` makes the
        client forget the position: otherwise it would come back with it for ever, and get
        nothing."""
        for task in self._tasks:
            error = task.exception() if task.done() and not task.cancelled() else None
            if isinstance(error, PositionError):
                said = msgspec.json.encode({"error": str(error)})
                return b"id: \nevent: lost\ndata: " + said + b"\n\n"
        return None

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()


def _event(note: weft.Notification) -> bytes:
    line = b"data: " + msgspec.json.encode(note_fields(note)) + b"\n\n"
    return f"id: {note.position}\n".encode() + line if isinstance(note, Consumed) else line
