"""Durable reading: every event of a topic once, whatever is killed in between.

A cursor reads what is *stored*, never what is only on its way, and says after each event where it
stands (`position`, a text that means nothing to its user). A program that keeps the position
together with its results, in one transaction, gets each event exactly once.

What was read is not one place in the stream's order: events are concurrent, and one that lies
further down may come in after one further up was read. So a position is a *frontier*, the events
that were read and that no event read follows, as in the stream's own heads. For the store that was
read from, the position also says how far in the order of *arrival* reading has come, which makes
going on a look-up:

- first, what was there when reading began: in the stream's order, up to `upto`;
- then what came in since, in the order of arrival, in which parents come before their children.

Another store, or one that was restored from an older copy, numbers its arrivals in another way. It
is recognised (`store`, and the event read last must have arrived as that number says), and reading
goes on from the frontier: all that is stored and not in its past.

Retention may overtake a reader. What was dropped unread is an error that names the gap
(`PositionGap`), not a silence. A position of another topic, or one that names events that were
never here (`PositionUnknown`), is an error, too.

Invariants: an event is read after its parents, as far as they arrived before it; no event is read
twice from one position on; `position` after an event covers that event and all read before it.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from heapq import nsmallest
from typing import Annotated, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta, Struct

from weft.documents.dag import START, Position, position, surely_pruned
from weft.documents.descriptor import SealedEvent
from weft.ids import Cid, Topic, cid_text
from weft.store.interface import PAGE, Store, StoreError

FRONTIER_MAX = 4_096
"""guess: concurrent branches that a position names, one for each publisher that has not heard of
the others yet. So many make a text of 250 kB, which a row of any database holds. Where there are
more, the lowest are left out and the position says so: the store that it was taken from goes on by
its numbers of arrival, another one would bring again what is left out, and refuses."""
_FRONTIER_BEFORE = 256
"""What earlier versions named at most, without a word about more."""
_MARKS_AT_ONCE = 1 << 18
"""guess: branches that the positions of one page name together, some 15 MB of text."""

After: TypeAlias = str | None
"""A position; "now"; None: from the beginning."""
NOW: Literal["now"] = "now"

_PREFIX = "weft1-"
_CHECK_BYTES = 6


class PositionError(StoreError):
    """A position that cannot be read on from; the text says why."""


class PositionUnknown(PositionError):
    """A position that names events that are not stored here."""


class PositionGap(PositionError):
    """Events after the position were dropped before they were read."""


class _Mark(Struct, frozen=True, array_like=True, gc=False):
    height: Annotated[int, Meta(ge=0)]
    cid: bytes


class _Place(Struct, frozen=True, array_like=True, gc=False):
    """What a position says."""

    topic: str
    store: bytes
    arrival: Annotated[int, Meta(ge=0)]  # what arrived later was not read
    upto: _Mark | None  # of the rest only what lies up to here in the stream's order; None: all
    last: bytes  # the event read last; empty if none was
    frontier: list[_Mark]
    base: list[_Mark] = []  # with `upto`: the frontier of what was read from another store
    whole: bool | None = None  # whether the frontier names every branch; None: not said


_decode = msgspec.msgpack.Decoder(_Place).decode
_encode = msgspec.msgpack.Encoder().encode


class Read(NamedTuple):
    """One event, and where a reader stands that has dealt with it."""

    event: SealedEvent
    position: str


class Cursor:
    """One reading of one topic. It holds no lock and no transaction: whatever happens to it, the
    next one goes on from the last position that was kept."""

    def __init__(
        self, store: Store, topic: Topic, after: After = None, past_read: bool = True
    ) -> None:
        """`past_read`: other members have been asked for the past, as far as there are any, so
        that what is lacking below what is stored will not come."""
        self._store = store
        self._topic = topic
        self._identity = store.identity()
        self._arrival = store.last_arrival()
        self._upto: Position | None = START
        self._last = b""
        self._frontier: dict[Cid, _Mark] = {}
        self._whole = True  # whether the frontier names every branch
        self._base: list[_Mark] = []
        self._past: set[Cid] = set()  # of the base
        self.lacks_past = False
        """Whether something that the position covers may come into this store later: it would be
        taken for news, since nothing tells that the position covers it."""
        self._looked = 0  # nothing that arrived up to then is left, of whatever topic
        if after == NOW:
            self._upto = None
            self._frontier = _marks(store.heads(topic))
            self._shorten()
        elif after is not None:
            self._go_on(_parse(after, topic), past_read)

    @property
    def position(self) -> str:
        """Where reading stands now."""
        upto = self._upto
        place = _Place(
            self._topic,
            self._identity,
            self._arrival,
            None if upto is None else _Mark(*upto),
            self._last,
            list(self._frontier.values()),
            self._base if upto is not None else [],
            self._whole,
        )
        packed = _encode(place)
        return _PREFIX + urlsafe_b64encode(_check(packed) + packed).decode().rstrip("=")

    def read(self, limit: int = PAGE) -> list[Read]:
        """The next events, at most so many; none: there are no more for now."""
        self._check_gap()
        limit = min(limit, 1 + _MARKS_AT_ONCE // (1 + len(self._frontier)))
        found: list[Read] = []
        while self._upto is not None and len(found) < limit:
            there = self._store.events(
                self._topic, self._upto, limit=limit - len(found), arrived=self._arrival
            )
            if not there:
                self._upto = None
            for event in there:
                self._upto = position(event)
                if event.cid not in self._past:
                    found.append(self._note(event))
        if self._upto is None and len(found) < limit:
            room, newest = limit - len(found), self._store.last_arrival()
            page = self._store.arrivals(self._topic, max(self._arrival, self._looked), room)
            for self._arrival, event in page:
                found.append(self._note(event))
            if len(page) < room:
                self._looked = newest
                if not self._whole:
                    self._name_all()
        return found

    def _note(self, event: SealedEvent) -> Read:
        for parent in event.parents:
            self._frontier.pop(parent, None)
        self._frontier[event.cid] = _Mark(event.height, event.cid)
        self._shorten()
        self._last = event.cid
        return Read(event, self.position)

    def _shorten(self) -> None:
        """Leave out the lowest branches that a position does not name any more."""
        over = len(self._frontier) - FRONTIER_MAX
        if over > 0:
            self._whole = False
            for lowest in nsmallest(over, map(_position, self._frontier.values())):
                del self._frontier[lowest.cid]

    def _name_all(self) -> None:
        """All that is stored has been read, so the frontier is where the stored stream ends, and
        what it names that is not stored."""
        heads = self._store.heads(self._topic)
        if self._store.last_arrival() == self._looked:  # and nothing has come meanwhile
            rest = {cid: mark for cid, mark in self._frontier.items() if not self._has(cid)}
            self._frontier, self._whole = {**rest, **_marks(heads)}, True
            self._shorten()

    def _has(self, cid: Cid) -> bool:
        return self._store.height(self._topic, cid) is not None

    # --- going on ---------------------------------------------------------------------------------

    def _go_on(self, place: _Place, past_read: bool) -> None:
        if place.store == self._identity and self._is_where_it_was(place):
            self._arrival = place.arrival
            self._upto = None if place.upto is None else _position(place.upto)
            self._last = place.last
            self._base = place.base
        elif not _names_all(place):
            raise PositionError(
                f"the position was taken while more publishers of {self._topic} than it can name "
                "were ahead of each other: it can be read on from only in the store that it was "
                "taken from, and another one would repeat what it leaves out"
            )
        else:
            self._base = place.frontier
        self._frontier = {Cid(mark.cid): mark for mark in place.frontier}
        self._whole = _names_all(place)
        if self._base and self._upto is not None:
            self._past = self._past_of(self._base, past_read)

    def _is_where_it_was(self, place: _Place) -> bool:
        """Whether this is the store that the position was taken from, and not an older copy of it
        that has gone another way since."""
        if place.arrival > self._store.last_arrival():
            return False
        if not place.last:
            return True
        arrived = self._store.arrival(self._topic, Cid(place.last))
        if arrived is None:
            height = next((m.height for m in place.frontier if m.cid == place.last), 0)
            return Position(height, Cid(place.last)) <= self._store.summary(self._topic).floor
        return arrived == place.arrival if place.upto is None else arrived <= place.arrival

    def _past_of(self, marks: list[_Mark], past_read: bool) -> set[Cid]:
        """The stored events of a frontier and all that they follow. What is lacking of the frontier
        must have been dropped, here or by all members, or the position is from elsewhere."""
        held: list[Position] = []
        absent: list[Position] = []
        for mark in marks:
            (held if self._has(Cid(mark.cid)) else absent).append(_position(mark))
        past: set[Cid] = {place.cid for place in held}
        lacking: dict[Cid, Cid] = {}  # parents not met so far, and an event that names each
        unread: set[Cid] = set()  # the same, of events outside the past
        for cid, parents in self._store.downwards(
            self._topic, self._top_of(held, absent, past_read)
        ):
            unread.discard(cid)
            if cid in past:
                past.update(parents)
                lacking.update(dict.fromkeys(parents, cid))
                lacking.pop(cid, None)
            elif absent:
                unread.update(parents)
        # What was dropped has descendants that were kept, for heads are. So if the frontier covers
        # all parents of theirs that are not here, it covers all that was dropped.
        if unread - past - {place.cid for place in absent}:
            if not past_read:
                raise self._unknown(absent[0])
            raise self._gap(absent[0].height, ", as far as can be told")
        floor = self._store.summary(self._topic).floor
        self.lacks_past = not all(
            surely_pruned(parent, self._store.height(self._topic, child) or 0, floor)
            for parent, child in lacking.items()
        )
        return past

    def _top_of(self, held: list[Position], absent: list[Position], past_read: bool) -> Position:
        """From where down to look for the past of a frontier; of which what is absent must lie
        below all that is stored, or at most where this store has dropped."""
        if not absent:
            return max(held)
        floor = self._store.summary(self._topic).floor
        lowest = self._store.events(self._topic, limit=1)
        kept_from = position(lowest[0]) if lowest and past_read else START
        for place in absent:
            if place > max(floor, kept_from):
                raise self._unknown(place)
        return max(Position(height, cid) for cid, height in self._store.heads(self._topic).items())

    def _unknown(self, place: Position) -> PositionUnknown:
        return PositionUnknown(
            f"the position names an event of {self._topic} that is not stored here "
            f"({cid_text(place.cid)})"
        )

    def _check_gap(self) -> None:
        """Retention drops the lowest events of the order. If it has dropped anything that was not
        read, that cannot be made good."""
        if self._upto == START:
            return  # from the beginning: of what is kept. Of a base, what is lacking was looked at
        if self._store.dropped(self._topic) > self._arrival:
            raise self._gap(self._height())
        if self._upto is not None and self._store.summary(self._topic).floor > self._upto:
            raise self._gap(self._upto.height)

    def _height(self) -> int:
        last = self._frontier.get(Cid(self._last))
        heights = [last] if last is not None else self._frontier.values()
        return max((mark.height for mark in heights), default=0)

    def _gap(self, height: int, reserve: str = "") -> PositionGap:
        lowest = self._store.events(self._topic, limit=1)
        floor = self._store.summary(self._topic).floor.height
        gone = max(floor, lowest[0].height - 1 if lowest else 0)
        return PositionGap(
            f"the position is at height {height} of {self._topic}, and what lay up to height "
            f"{gone} is not kept any more: some of it was not read{reserve}. To go on from the "
            "first that is kept: after=None, or Peer.reset_consumer where a name keeps the place"
        )


def _names_all(place: _Place) -> bool:
    """Whether a position names every branch that was read."""
    whole = place.whole
    return len(place.frontier) < _FRONTIER_BEFORE if whole is None else whole


def _parse(text: str, topic: Topic) -> _Place:
    coded = text.removeprefix(_PREFIX)
    try:
        raw = urlsafe_b64decode(coded + "=" * (-len(coded) % 4)) if coded != text else b""
        packed = raw[_CHECK_BYTES:]
        if not packed or _check(packed) != raw[:_CHECK_BYTES]:
            raise ValueError
        place = _decode(packed)
    except ValueError as error:  # msgspec's and base64's errors are ones, too
        raise PositionError(
            f"{text[:40]!r} is no position; take `note.position`, 'now', or None"
        ) from error
    if place.topic != topic:
        raise PositionError(f"the position is one in {place.topic}, not in {topic}")
    return place


def _check(packed: bytes) -> bytes:
    return sha256(packed).digest()[:_CHECK_BYTES]


def _marks(heads: Mapping[Cid, int]) -> dict[Cid, _Mark]:
    return {cid: _Mark(height, cid) for cid, height in heads.items()}


def _position(mark: _Mark) -> Position:
    return Position(mark.height, Cid(mark.cid))
