"""What waits to be sent, to all peers: bounded queues, one write per connection and loop turn.

Above the soft limit publishers wait (see `congestion`), above the hard limit messages that carry
events are dropped, above that and some headroom everything; each drop is counted and traced.
"""

from __future__ import annotations

import asyncio
from collections import deque

from weft.ids import Contact, PeerId
from weft.net import codec
from weft.net.codec import Encoder
from weft.net.config import Network
from weft.net.congestion import Congestion
from weft.net.connection import Connection
from weft.net.counters import Counters
from weft.net.timers import now_ms
from weft.net.tracing import Tracer
from weft.protocol.messages import PAYLOAD_KINDS
from weft.protocol.wire import Message

BATCH_BYTES = 64 << 10  # guess: four TLS records; how much is encrypted in one go


class Remote:
    """Exists as long as there is a connection, a dial in progress or a caller in waiting."""

    __slots__ = (
        "address",
        "congestion",
        "connection",
        "dial",
        "dirty",
        "dropped",
        "frames",
        "overloaded_since",
        "peer",
        "queued",
        "waiting",
    )

    def __init__(self, contact: Contact, congestion: Congestion) -> None:
        self.peer: PeerId = contact.peer
        self.address = contact.address
        self.connection: Connection | None = None  # open, and used for sending
        self.dial: Connection | None = None  # being made by us
        self.waiting: Connection | None = None  # made by them, in case our dial fails
        self.frames: deque[bytes] = deque()
        self.queued = 0  # bytes in `frames`
        self.dirty = False  # has frames for the next flush
        self.congestion = congestion
        self.overloaded_since = 0  # when the hard limit was hit; 0: has drained since
        self.dropped = 0  # messages that found no room

    @property
    def contact(self) -> Contact:
        return Contact(self.peer, self.address)

    def take_batch(self) -> tuple[bytes, int]:
        """Frames to send now, joined, and how many they are."""
        frames = self.frames
        if self.queued <= BATCH_BYTES:
            batch, count = b"".join(frames), len(frames)
            frames.clear()
            self.queued = 0
            return batch, count
        parts, size = [], 0
        while frames and size < BATCH_BYTES:
            frame = frames.popleft()
            size += len(frame)
            parts.append(frame)
        self.queued -= size
        return b"".join(parts), len(parts)


class Outbox:
    """Queues frames and hands them to connections."""

    def __init__(self, settings: Network, counters: Counters, tracer: Tracer | None) -> None:
        self._settings = settings
        self._soft = settings.queue_soft_bytes
        self._counters = counters
        self._tracer = tracer
        self._loop = asyncio.get_running_loop()
        self._encoder = Encoder()
        self._dirty: list[Remote] = []
        self._overloaded: dict[PeerId, Remote] = {}

    def enqueue(self, remote: Remote, message: Message) -> Remote | None:
        """Queue a message. Returns the receiver if its queue is full (or was, and the message
        dropped), None in the usual case."""
        frame = self._encoder.frame(message)
        queued = remote.queued + len(frame)
        crowded = queued > self._soft
        if crowded and not self._has_room(remote, message, len(frame)):
            return remote
        remote.frames.append(frame)
        remote.queued = queued
        if self._tracer is not None:
            self._tracer.sent(remote.peer, message, len(frame))
        if not remote.dirty and remote.connection is not None:
            remote.dirty = True
            self._dirty.append(remote)
            if len(self._dirty) == 1:
                self._loop.call_soon(self._flush)
        return remote if crowded else None

    def _has_room(self, remote: Remote, message: Message, size: int) -> bool:
        """The queue is over the soft limit: may this message still enter?"""
        settings = self._settings
        if size > settings.frame_bytes_max + codec.HEADER_BYTES:
            self.drop(remote.peer, message, "too large")
            return False
        remote.congestion.begin()
        limit = settings.queue_hard_bytes
        if not isinstance(message, PAYLOAD_KINDS):
            limit += settings.queue_control_bytes
        if remote.queued + size <= limit:
            return True
        if not remote.overloaded_since:
            remote.overloaded_since = now_ms()
            self._overloaded[remote.peer] = remote
        remote.dropped += 1
        self.drop(remote.peer, message, "queue full")
        return False

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        for remote in dirty:
            remote.dirty = False
            self.pump(remote)

    def pump(self, remote: Remote) -> None:
        """Hand frames to the peer's connection as long as it takes them."""
        counters = self._counters
        while remote.frames:
            connection = remote.connection
            if connection is None or not connection.writable:
                break
            batch, count = remote.take_batch()
            counters.frames_sent += count
            counters.writes += 1
            connection.write(batch)
        if remote.congestion.since and remote.queued <= self._soft // 2:
            self._relieve(remote)

    def _relieve(self, remote: Remote) -> None:
        remote.overloaded_since = 0
        self._overloaded.pop(remote.peer, None)
        remote.congestion.clear()

    # --- dropping -----------------------------------------------------------------------------

    def drop(self, peer: PeerId, message: Message, reason: str) -> None:
        """Nothing is dropped without being counted and traced."""
        self._counters.dropped(message, reason)
        if self._tracer is not None:
            self._tracer.dropped(peer, message, reason)

    def drop_queue(self, remote: Remote, reason: str) -> None:
        """Nothing more will be sent to this peer."""
        for frame in remote.frames:
            message = codec.decode(frame[codec.HEADER_BYTES :])
            if not isinstance(message, codec.Goodbye):
                self.drop(remote.peer, message, reason)
        remote.frames.clear()
        remote.queued = 0
        self._relieve(remote)

    def stuck(self, now: int) -> list[Remote]:
        """Peers that hit the hard limit and have not drained for too long."""
        limit = now - self._settings.overload_ms
        return [remote for remote in self._overloaded.values() if remote.overloaded_since <= limit]

    def forget_message(self) -> None:
        """Let go of the message encoded last, which may be large."""
        self._encoder.forget()
