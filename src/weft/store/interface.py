"""The interface of all stores.

A store holds verified documents: events with their order, heads and gaps per topic, topic versions,
topic records. It judges nothing: `documents` has checked everything that goes in. A batch is stored
whole or not at all, with the heads and the index that follow from it, so no reader sees a half.

Retention takes the lowest events in the stream's order first, so that what remains is the end of
the stream without holes. It never takes heads: the next event must name them. How far a stream is
pruned is its *floor*: nothing at or below it is taken in again, and a reader that begins further
down is told so (`reader.Reader.pruned`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from msgspec import Struct

from weft.documents.position import START, Position
from weft.errors import WeftError
from weft.ids import Cid, PeerId, Topic

if TYPE_CHECKING:
    from weft.documents.descriptor import SealedEvent, TopicVersion

PAGE = 1_000
"""guess: events read at once; some 500 kB where they are small."""

Outcome: TypeAlias = Literal[
    "stored",
    "known",  # was there before
    "pruned",  # at or below the floor of its stream: not stored
]

Since: TypeAlias = Literal["beginning"] | int | bytes | tuple[Cid, ...]
"""The beginning, a time in milliseconds, an event (a `Cid`) or heads."""


class StoreError(WeftError):
    """The store cannot do what it should; the text says why and what to do. Nothing was stored."""


class StoreFull(StoreError):
    """No room left on the disk, or the store has reached its own limit."""


class StoreCorrupt(StoreError):
    """The file is damaged, or not a store."""


class StoreReadOnly(StoreError):
    """The place may not be written to."""


class StoreBusy(StoreError):
    """Another process holds the store."""


class NotHeld(StoreError):
    """The event to read on from is not (any more) in the store."""


class Batch(Struct, frozen=True, gc=False):
    """Documents and notes that are stored together, or not at all."""

    now_ms: int  # wall clock
    events: tuple[SealedEvent, ...] = ()
    topics: tuple[TopicVersion, ...] = ()
    records: tuple[tuple[bytes, bytes], ...] = ()  # name and record; replaces the one held
    lost: tuple[
        tuple[Topic, Cid], ...
    ] = ()  # parents that no peer has any more: not missing from now on
    beginnings: tuple[
        tuple[Topic, bytes], ...
    ] = ()  # what a peer was told of a stream when it began; replaces what was held
    acks: tuple[tuple[Topic, str, str], ...] = ()  # topic, consumer, and how far it has got


class Summary(Struct, frozen=True, gc=False):
    """How much a store holds of a topic, and how far the topic is pruned."""

    events: int = 0
    bytes: int = 0
    floor: Position = START  # pruned up to here
    floor_ms: int = -1  # the latest time of what was pruned


class Retention(Struct, frozen=True):
    """How much of a topic is kept; None: without limit."""

    age_ms: int | None = None
    events: int | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("age_ms", "events", "bytes"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"retention.{name} must not be negative")


def event_time(event: SealedEvent, now_ms: int) -> int:
    """The time an event counts as: its publisher's, but no later than it came in, so that a fast
    clock does not keep it for ever."""
    return min(event.created_ms, now_ms)


class Store(Protocol):
    """Every store. Reads see what has been committed, and nothing else."""

    def commit(self, batches: Sequence[Batch]) -> list[list[Outcome]]:
        """Store batches together. When this returns they are as durable as the store can make
        them; if it raises, none of them is stored. The outcomes are those of the events."""

    def stage(self, batches: Sequence[Batch]) -> list[list[Outcome]]:
        """The first half of `commit`: quick, and lost unless `settle` follows."""

    def settle(self) -> None:
        """The second half, which waits for the disk; another thread may do it. If it raises,
        nothing that was staged is stored."""

    def get(self, cid: Cid) -> bytes | None:
        """The block of an event or a topic version."""

    def has(self, cid: Cid) -> bool: ...

    def height(self, topic: Topic, cid: Cid) -> int | None:
        """The height of an event of this topic."""

    def heads(self, topic: Topic) -> dict[Cid, int]:
        """The events that no other one follows, with their heights."""

    def missing(self, topic: Topic, most: int = PAGE) -> list[Cid]:
        """Parents of stored events that are not stored (and were not pruned)."""

    def lost(self, topic: Topic, most: int = PAGE) -> list[Cid]:
        """Parents that are not stored and that the search was given up for: no peer had them, or
        they lay before the beginning of a subscription."""
        ...

    def events(
        self,
        topic: Topic,
        after: Position = START,
        since_ms: int = 0,
        limit: int = PAGE,
        arrived: int | None = None,
    ) -> list[SealedEvent]:
        """Events of a stream in its order: those after a position that are no older than
        `since_ms`, with a number of arrival of at most `arrived`. Fewer than `limit`: there are no
        more. See `reader` for reading on from an event."""

    def identity(self) -> bytes:
        """Tells this store's numbers of arrival from those of any other store."""

    def arrivals(
        self, topic: Topic, after: int, limit: int = PAGE
    ) -> list[tuple[int, SealedEvent]]:
        """Events of a topic in the order they were stored, with the numbers of their arrival."""

    def arrival(self, topic: Topic, cid: Cid) -> int | None: ...

    def last_arrival(self) -> int:
        """The number of the event stored last. Numbers grow, and none is used again."""

    def dropped(self, topic: Topic) -> int:
        """The highest number of arrival among what retention has dropped of a topic."""

    def acked(self, topic: Topic, consumer: str) -> str:
        """How far a consumer has got; empty if nothing is known of it."""

    def downwards(self, topic: Topic, start: Position) -> Iterator[tuple[Cid, tuple[Cid, ...]]]:
        """The stream backwards, from a position that is included: events and their parents."""

    def topics(self) -> dict[Topic, Summary]: ...

    def summary(self, topic: Topic) -> Summary: ...

    def signer_bytes(self, topic: Topic, signer: PeerId) -> int:
        """How much of a topic one publisher has signed, of what is stored."""

    def signers(self, topic: Topic, most: int = PAGE) -> list[tuple[PeerId, int]]:
        """The publishers of what is stored of a topic with their bytes, most bytes first."""

    def beginning(self, topic: Topic) -> bytes:
        """The note of `Batch.beginnings` about the beginning of a subscription; empty: none."""
        ...

    def records(self) -> dict[bytes, bytes]:
        """All records by name."""

    def prune(self, topic: Topic, retention: Retention, now_ms: int, most: int = 10_000) -> int:
        """Drop the lowest events that need not be kept, at most `most`; how many were dropped."""

    def close(self) -> None: ...
