"""A store that lasts as long as its process: for the simulator, tests, and peers without disk."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count, islice

from weft.documents.dag import surely_pruned
from weft.documents.descriptor import SealedEvent
from weft.documents.position import START, Position, position
from weft.ids import Cid, PeerId, Topic
from weft.store.interface import (
    PAGE,
    Batch,
    Outcome,
    Retention,
    Summary,
    event_time,
)

_NUMBERS = count(1)


class _Stream:
    """The events of one topic, with their order, heads and gaps."""

    def __init__(self) -> None:
        self.order: list[Position] = []
        self.times: dict[Cid, int] = {}
        self.heads: dict[Cid, int] = {}
        self.wanted: dict[Cid, dict[Cid, None]] = {}  # parents not stored, and their children
        self.lost: dict[Cid, None] = {}  # of the wanted: no peer has them
        self.bytes = 0
        self.signers: Counter[PeerId] = Counter()  # bytes of each
        self.floor = START
        self.floor_ms = -1  # the latest time of what was pruned
        self.arrivals: dict[Cid, int] = {}  # in their order
        self.dropped = 0  # the highest number of arrival of what was pruned


class MemoryStore:
    """A store that is gone with its process (`interface.Store`)."""

    def __init__(self, identity: bytes | None = None) -> None:
        """`identity`: a name that no other store has. Without it the name differs from that of all
        other stores in this process; a peer's store needs a drawn one, since positions outlive the
        process."""
        self._identity = b"memory %d" % next(_NUMBERS) if identity is None else identity
        self._arrived = 0
        self._acks: dict[tuple[Topic, str], str] = {}
        self._events: dict[Cid, SealedEvent] = {}
        self._topics: dict[Cid, bytes] = {}
        self._records: dict[bytes, bytes] = {}
        self._beginnings: dict[Topic, bytes] = {}
        self._streams: dict[Topic, _Stream] = {}

    # --- writing ------------------------------------------------------------------------------

    def commit(self, batches: Sequence[Batch]) -> list[list[Outcome]]:
        return self.stage(batches)

    def settle(self) -> None:
        pass

    def stage(self, batches: Sequence[Batch]) -> list[list[Outcome]]:
        outcomes = []
        for batch in batches:
            for version in batch.topics:
                self._topics[version.cid] = version.block
            self._records.update(batch.records)
            self._beginnings.update(batch.beginnings)
            self._acks.update(((topic, name), at) for topic, name, at in batch.acks)
            outcomes.append([self._add(event, batch.now_ms) for event in batch.events])
            for topic, cid in batch.lost:
                self._give_up(topic, cid)
        return outcomes

    def _add(self, event: SealedEvent, now_ms: int) -> Outcome:
        if event.cid in self._events:
            return "known"
        stream = self._streams.setdefault(event.topic, _Stream())
        place = position(event)
        if place <= stream.floor:
            stream.wanted.pop(event.cid, None)
            stream.lost.pop(event.cid, None)
            return "pruned"
        self._events[event.cid] = event
        self._arrived += 1
        stream.arrivals[event.cid] = self._arrived
        stream.times[event.cid] = event_time(event, now_ms)
        stream.bytes += len(event.block)
        stream.signers[event.publisher] += len(event.block)
        if not stream.order or stream.order[-1] < place:
            stream.order.append(place)
        else:
            insort(stream.order, place)
        for parent in event.parents:
            if parent in stream.times:
                stream.heads.pop(parent, None)
            elif not surely_pruned(parent, event.height, stream.floor):
                stream.wanted.setdefault(parent, {})[event.cid] = None
        stream.lost.pop(event.cid, None)
        if stream.wanted.pop(event.cid, None) is None:
            stream.heads[event.cid] = event.height
        return "stored"

    def _give_up(self, topic: Topic, cid: Cid) -> None:
        stream = self._streams.get(topic)
        if stream is not None and cid in stream.wanted:
            stream.lost[cid] = None

    def prune(self, topic: Topic, retention: Retention, now_ms: int, most: int = 10_000) -> int:
        stream = self._streams.get(topic)
        if stream is None:
            return 0
        kept: list[Position] = []
        dropped = passed = 0
        for place in stream.order:
            over = (
                (retention.events is not None and len(stream.times) > retention.events)
                or (retention.bytes is not None and stream.bytes > retention.bytes)
                or (
                    retention.age_ms is not None
                    and stream.times[place.cid] < now_ms - retention.age_ms
                )
            )
            if not over or dropped >= most:
                break
            passed += 1
            if place.cid in stream.heads:
                kept.append(place)
                continue
            self._drop(stream, place)
            dropped += 1
        stream.order[:passed] = kept
        return dropped

    def _drop(self, stream: _Stream, place: Position) -> None:
        event = self._events.pop(place.cid)
        stream.bytes -= len(event.block)
        stream.signers[event.publisher] -= len(event.block)
        if not stream.signers[event.publisher]:
            del stream.signers[event.publisher]
        stream.floor_ms = max(stream.floor_ms, stream.times.pop(place.cid))
        stream.floor = max(stream.floor, place)
        stream.dropped = max(stream.dropped, stream.arrivals.pop(place.cid))
        for parent in event.parents:
            children = stream.wanted.get(parent)
            if children is not None:
                children.pop(place.cid, None)
                if not children:
                    del stream.wanted[parent]
                    stream.lost.pop(parent, None)

    def close(self) -> None:
        pass

    # --- reading ------------------------------------------------------------------------------

    def get(self, cid: Cid) -> bytes | None:
        event = self._events.get(cid)
        return event.block if event is not None else self._topics.get(cid)

    def has(self, cid: Cid) -> bool:
        return cid in self._events or cid in self._topics

    def height(self, topic: Topic, cid: Cid) -> int | None:
        event = self._events.get(cid)
        return event.height if event is not None and event.topic == topic else None

    def heads(self, topic: Topic) -> dict[Cid, int]:
        stream = self._streams.get(topic)
        return {} if stream is None else dict(sorted(stream.heads.items()))

    def missing(self, topic: Topic, most: int = PAGE) -> list[Cid]:
        stream = self._streams.get(topic)
        if stream is None:
            return []
        return sorted(cid for cid in stream.wanted if cid not in stream.lost)[:most]

    def lost(self, topic: Topic, most: int = PAGE) -> list[Cid]:
        stream = self._streams.get(topic)
        return sorted(stream.lost)[:most] if stream is not None else []

    def events(
        self,
        topic: Topic,
        after: Position = START,
        since_ms: int = 0,
        limit: int = PAGE,
        arrived: int | None = None,
    ) -> list[SealedEvent]:
        stream = self._streams.get(topic)
        if stream is None:
            return []
        rest = islice(stream.order, bisect_right(stream.order, after), None)
        recent = (place.cid for place in rest if stream.times[place.cid] >= since_ms)
        latest = self._arrived if arrived is None else arrived
        there = (cid for cid in recent if stream.arrivals[cid] <= latest)
        return [self._events[cid] for cid in islice(there, limit)]

    def identity(self) -> bytes:
        return self._identity

    def arrivals(
        self, topic: Topic, after: int, limit: int = PAGE
    ) -> list[tuple[int, SealedEvent]]:
        stream = self._streams.get(topic)
        later = stream.arrivals.items() if stream is not None else ()
        rows = ((number, self._events[cid]) for cid, number in later if number > after)
        return list(islice(rows, limit))

    def arrival(self, topic: Topic, cid: Cid) -> int | None:
        stream = self._streams.get(topic)
        return stream.arrivals.get(cid) if stream is not None else None

    def last_arrival(self) -> int:
        return self._arrived

    def dropped(self, topic: Topic) -> int:
        stream = self._streams.get(topic)
        return stream.dropped if stream is not None else 0

    def acked(self, topic: Topic, consumer: str) -> str:
        return self._acks.get((topic, consumer), "")

    def downwards(self, topic: Topic, start: Position) -> Iterator[tuple[Cid, tuple[Cid, ...]]]:
        stream = self._streams.get(topic)
        order = stream.order[: bisect_right(stream.order, start)] if stream is not None else []
        for place in reversed(order):
            yield place.cid, self._events[place.cid].parents

    def topics(self) -> dict[Topic, Summary]:
        return {topic: self.summary(topic) for topic in sorted(self._streams)}

    def summary(self, topic: Topic) -> Summary:
        stream = self._streams.get(topic)
        if stream is None:
            return Summary()
        return Summary(len(stream.order), stream.bytes, stream.floor, stream.floor_ms)

    def signer_bytes(self, topic: Topic, signer: PeerId) -> int:
        stream = self._streams.get(topic)
        return 0 if stream is None else stream.signers[signer]

    def signers(self, topic: Topic, most: int = PAGE) -> list[tuple[PeerId, int]]:
        stream = self._streams.get(topic)
        found = stream.signers.items() if stream is not None else ()
        return sorted(found, key=lambda one: (-one[1], one[0]))[:most]

    def beginning(self, topic: Topic) -> bytes:
        return self._beginnings.get(topic, b"")

    def records(self) -> dict[bytes, bytes]:
        return dict(sorted(self._records.items()))
