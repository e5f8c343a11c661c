"""What the pool knows of one other peer: how it is connected, and what waits to be sent to it.

Frames wait here and not in a connection, so that they survive the change from one connection to
another (two sides that dial at once, a connection that was closed for idleness just now).
"""

from __future__ import annotations

from collections import deque

from weft.ids import Contact, PeerId
from weft.net.congestion import Congestion
from weft.net.connection import Connection

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
