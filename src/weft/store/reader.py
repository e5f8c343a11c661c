"""Reading a stream, from wherever the reader left off.

- since `"beginning"`: all stored events;
- since a time: those that are no older;
- since an event: all events but that one and its ancestors. Events concurrent with it come too,
  though they may have been read before;
- since a set of heads: all events that are not in their past, which a peer with these heads lacks;
  heads that are not stored here are passed over.

Events come in the order of the stream, each once. A reader that has come to the end goes on when
there are higher events; live delivery hands out events that arrive late below where it stands.

A topic that was made from another's descriptor has that one's history before its own (paper 004,
Section 4.5): `read_through` reads the heads that its version names and all they follow, as far as
that is stored here, and then its own stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from weft.documents.authority import MadeFrom, made_from
from weft.documents.dag import Stream, not_before
from weft.documents.descriptor import SealedEvent, known_event, open_topic
from weft.documents.position import START, Position, position
from weft.documents.record import Record, read_record
from weft.documents.refusal import Refused
from weft.ids import Cid, Topic
from weft.store.interface import PAGE, NotHeld, Since, Store


class Reader:
    """One reading of one stream, which goes on where the last call of `read` stopped."""

    def __init__(
        self,
        store: Store,
        topic: Topic,
        since: Since = "beginning",
        beside_max: int | None = None,
    ) -> None:
        """`NotHeld` if the event to read on from is not in the store (any more). `beside_max`
        bounds how many positions are searched for what is concurrent with it."""
        self._store = store
        self._topic = topic
        self._since_ms = since if isinstance(since, int) else 0
        self._after = START
        self._beside: list[Cid] = []  # the next one last
        self.searched = 0
        """Positions that were looked at to find what is concurrent with where the reader begins."""
        if isinstance(since, bytes):
            heads: tuple[Cid, ...] = (Cid(since),)
        else:
            heads = since if isinstance(since, tuple) else ()
        held = self._held(heads)
        if isinstance(since, bytes) and not held:
            raise NotHeld("the event to read on from is not in the store (any more)")
        if held:
            self._after = max(held)
            down = islice(store.downwards(topic, self._after), beside_max)
            self._beside = list(not_before((place.cid for place in held), self._counted(down)))
        summary = store.summary(topic)
        self.pruned = self._after < summary.floor and self._since_ms <= summary.floor_ms
        """Whether retention has dropped events that this reading would have begun with."""

    @property
    def after(self) -> Position:
        """Where the part of the order that has been read ends."""
        return self._after

    def _held(self, heads: tuple[Cid, ...]) -> list[Position]:
        heights = {cid: self._store.height(self._topic, cid) for cid in heads}
        return [Position(height, cid) for cid, height in heights.items() if height is not None]

    def _counted(
        self, down: Iterable[tuple[Cid, tuple[Cid, ...]]]
    ) -> Iterator[tuple[Cid, tuple[Cid, ...]]]:
        for each in down:
            self.searched += 1
            yield each

    def read(self, limit: int = PAGE) -> list[SealedEvent]:
        """The next events, at most `limit`; none: there are no more for now."""
        found: list[SealedEvent] = []
        while self._beside and len(found) < limit:
            cid = self._beside.pop()
            block = self._store.get(cid)
            if block is not None:  # else it was pruned meanwhile
                found.append(known_event(block, cid))
        if len(found) < limit:
            room = limit - len(found)
            found += self._store.events(self._topic, self._after, self._since_ms, room)
            if found:
                self._after = max(self._after, position(found[-1]))
        return found


def stream_of(store: Store, topic: Topic) -> Stream:
    """A topic's stream, to go on from what is stored."""
    return Stream(
        store.heads(topic),
        lambda cid: store.height(topic, cid),
        store.summary(topic).floor,
        missing=store.missing(topic),
    )


def read_all(store: Store, topic: Topic, since: Since = "beginning") -> Iterator[SealedEvent]:
    """A whole stream, read page by page."""
    reader = Reader(store, topic, since)
    while page := reader.read():
        yield from page


# --- topics made from others ----------------------------------------------------------------------

_MADE_MAX = 16
"""guess: topics that were made from each other, one after the other."""


def origin_of(store: Store, topic: Topic) -> MadeFrom | None:
    """The topic and version that a topic was made from, by its newest version with a record."""
    found = [record for record in _records(store) if record.topic == topic]
    newest = max(found, key=lambda record: record.rank, default=None)
    block = store.get(newest.value) if newest is not None else None
    try:
        return made_from(open_topic(block)) if block is not None else None
    except Refused:
        return None


def _records(store: Store) -> Iterator[Record]:
    for encoded in store.records().values():
        try:
            yield read_record(encoded)
        except Refused:  # something else that is kept under a name
            continue


def read_through(store: Store, topic: Topic, since: Since = "beginning") -> Iterator[SealedEvent]:
    """A whole stream, after those of the topics that it was made from, the first one first. An
    event or heads to read on from are of the topic itself, so there is nothing before them."""
    past: list[MadeFrom] = []
    if since == "beginning" or isinstance(since, int):
        known = {topic}
        origin = origin_of(store, topic)
        while origin is not None and origin.topic not in known and len(past) < _MADE_MAX:
            past.append(origin)
            known.add(origin.topic)
            origin = origin_of(store, origin.topic)
    for origin in reversed(past):
        yield from _up_to(store, origin, since)
    yield from read_all(store, topic, since)


def _up_to(store: Store, origin: MadeFrom, since: Since) -> Iterator[SealedEvent]:
    """The heads of another topic, and the stored events that they follow."""
    heights = {cid: store.height(origin.topic, cid) for cid in origin.heads}
    held = [Position(height, cid) for cid, height in heights.items() if height is not None]
    if not held:
        return
    last = max(held)
    wanted = set(heights)
    for cid, parents in store.downwards(origin.topic, last):
        if cid in wanted:
            wanted.update(parents)
    for event in read_all(store, origin.topic, since):
        if position(event) > last:
            return
        if event.cid in wanted:
            yield event
