"""Durable reading: every event of a topic once, whatever is killed in between.

A cursor reads what is *stored*, never what is only on its way, and says after each event where it
stands (`position`, a text that means nothing to its user). A program that keeps the position
together with its results, in one transaction, gets each event exactly once.

What was read is not one place in the stream's order: events are concurrent, and a lower one may
arrive after a higher one was read. So a position is a *frontier*: those events read that no other
event read follows, like the heads of a stream. For the store that was read from, the position also
says how far in the order of *arrival* reading has come, which makes going on a look-up:

- first, what was there when reading began: in the stream's order, up to `upto`;
- then what came in since, in the order of arrival, in which parents come before their children.

Another store, or one that was restored from an older copy, numbers its arrivals in another way. The
cursor recognises it (by `store`, and by the number of the event read last) and goes on from the
frontier: it reads all stored events that are not in the frontier's past.

A reading that begins at "now", or goes on in another store, has a *base*: a frontier whose past is
not handed out. More of that past may come into the store later, when this peer asks other members
for it. An arrival that is as high as the base or higher cannot lie in its past; a lower one is
looked for there, walking down from the base. That walk cannot tell while events on the way are
lacking. Then the reader waits until the past has been read from members (`waits`), and goes by
what lay before the beginning of its peer (`Before`). The base stays in the position, so a later
life tells old from new in the same way.

Retention may overtake a reader. What was dropped unread is an error that names the gap
(`PositionGap`), not a silence. A position of another topic, or one that names events that were
never here (`PositionUnknown`), is an error, too.

Invariants: an event is read after its parents, as far as they arrived before it; no event is read
twice from one position on, and none of the base's past as far as can be told; `position` after an
event covers that event and all read before it.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from heapq import nsmallest
from typing import Annotated, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta, Struct

from weft.documents.dag import surely_pruned
from weft.documents.descriptor import SealedEvent
from weft.documents.position import START, Position, position
from weft.ids import Cid, Topic, cid_text
from weft.store.interface import PAGE, Store, StoreError

FRONTIER_MAX = 4_096
"""guess: concurrent branches that a position names, one for each publisher that has not heard of
the others yet. So many make a text of 250 kB, which a row of any database holds. Where there are
more, the lowest are left out and the position says so. The store that the position was taken from
goes on by its numbers of arrival; another store refuses it, for it would repeat events."""
_FRONTIER_BEFORE = 256
"""The branches that positions of earlier versions name at most; these do not say that more were
left out."""
_MARKS_AT_ONCE = 1 << 18
"""guess: branches that the positions of one page name together, some 15 MB of text."""
PASSED_AT_ONCE = 1_024
"""guess: older events passed over in one reading, some 20 ms."""

After: TypeAlias = str | None
"""Where reading begins: after a position; at "now"; None: at the beginning."""
NOW: Literal["now"] = "now"

Before: TypeAlias = Callable[[SealedEvent], bool]
"""Whether an event lies before the beginning of this store's peer in the topic, as it was told."""

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
    """The content of a position."""

    topic: str
    store: bytes
    arrival: Annotated[int, Meta(ge=0)]  # what arrived later was not read
    upto: _Mark | None  # of the rest only what lies up to here in the stream's order; None: all
    last: bytes  # the event read last; empty if none was
    frontier: list[_Mark]
    # Events in the past of these are not handed out: of those stored when reading began, as long
    # as there is `upto`; and of those that arrive later.
    base: list[_Mark] = []
    whole: bool | None = None  # whether the frontier names every branch; None: not said
    now: bool = False  # reading began at "now" in this store


_decode = msgspec.msgpack.Decoder(_Place).decode
_encode = msgspec.msgpack.Encoder().encode


class Read(NamedTuple):
    """One event, and the position after it."""

    event: SealedEvent
    position: str


class Cursor:
    """One reading of one topic. It holds no lock and no transaction: whatever happens to it, the
    next one goes on from the last position that was kept."""

    def __init__(
        self,
        store: Store,
        topic: Topic,
        after: After = None,
        past_read: bool = True,
        before: Before = lambda _: False,
    ) -> None:
        """`past_read`: other members, if there are any, have been asked for the past, so that
        parents which are lacking now will not come."""
        self._store = store
        self._topic = topic
        self._before = before
        self._identity = store.identity()
        self._arrival = store.last_arrival()
        self._upto: Position | None = START
        self._last = b""
        self._frontier: dict[Cid, _Mark] = {}
        self._whole = True  # whether the frontier names every branch
        self._base: dict[Cid, _Mark] = {}
        self._base_height = 0
        self._now = False
        self._past: set[Cid] = set()  # of the base, as far as it was looked at when reading began
        self._walk: _Walk | None = None
        self.lacks_past = False
        """Whether events that the position covers, or parents of stored events, may come into this
        store later, and so after their children."""
        self.waits = False
        """Whether reading stopped at an event that may be old: that shows once the past is read."""
        self.passed = False
        """Whether reading stopped after passing over many old events; there may be more to read."""
        self._looked = 0  # all arrivals up to this number, of all topics, have been looked at
        if after == NOW:
            self._upto = None
            self._now = True
            self._frontier = _marks(store.heads(topic))
            self._shorten()
            self._begin_at(self._frontier)
        elif after is not None:
            self._go_on(_parse(after, topic), past_read)
        else:
            self.lacks_past = bool(store.missing(topic, 1) or store.lost(topic, 1))

    def _begin_at(self, base: Mapping[Cid, _Mark]) -> None:
        self._base = dict(base)
        self._base_height = max((mark.height for mark in base.values()), default=0)

    @property
    def position(self) -> str:
        """The position after all events read so far."""
        upto = self._upto
        place = _Place(
            self._topic,
            self._identity,
            self._arrival,
            None if upto is None else _Mark(*upto),
            self._last,
            list(self._frontier.values()),
            list(self._base.values()),
            self._whole,
            self._now,
        )
        packed = _encode(place)
        return _PREFIX + urlsafe_b64encode(_check(packed) + packed).decode().rstrip("=")

    @property
    def wants_past(self) -> bool:
        """Whether there may be something to read in what other members have of the past. A reading
        that began at "now" before there was anything has all of the stream to read."""
        return not (self._now and self._base)

    def begin_after(self, told: Iterable[tuple[Cid, int]], is_own: Before) -> None:
        """For a reading that begins at "now" and has read nothing yet: other members have told
        their heads (`told`), which have come in since or cannot be had. Those heads and their past
        are older than now, too; but not what this peer has published since (`is_own`), nor what
        follows that."""
        came: dict[Cid, tuple[int, tuple[Cid, ...]]] = {}
        new: set[Cid] = set()
        upto = self._arrival
        while page := self._store.arrivals(self._topic, upto):
            upto = page[-1][0]
            for _, event in page:
                came[event.cid] = (event.height, event.parents)
                if is_own(event) or not new.isdisjoint(event.parents):
                    new.add(event.cid)
        named = list(dict.fromkeys(cid for cid, _ in told))
        noted = set(named)
        marks: dict[Cid, _Mark] = {}
        for cid in named:  # which grows
            if cid in new:
                below = [parent for parent in came[cid][1] if parent not in noted]
                named += below
                noted.update(below)
            elif cid in came:
                marks[cid] = _Mark(came[cid][0], cid)
        self._frontier |= marks
        self._shorten()
        self._begin_at(self._base | marks)

    def read(self, limit: int = PAGE, past_read: bool = True) -> list[Read]:
        """The next events, at most `limit`; none: there are no more for now, or `waits`, or
        `passed`. `past_read`: see `__init__`; if it holds, `waits` is never set."""
        self._check_gap()
        self.waits = self.passed = False
        limit = min(limit, 1 + _MARKS_AT_ONCE // (1 + len(self._frontier) + len(self._base)))
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
            self._read_arrivals(found, limit, past_read)
        return found

    def _read_arrivals(self, found: list[Read], limit: int, past_read: bool) -> None:
        passed = 0
        while len(found) < limit:
            room, newest = limit - len(found), self._store.last_arrival()
            page = self._store.arrivals(self._topic, max(self._arrival, self._looked), room)
            for arrival, event in page:
                old = self._is_old(event, arrival, past_read)
                if old is None:
                    self.waits = True
                    return
                self._arrival = arrival
                if old:
                    self._last = event.cid
                    passed += 1
                else:
                    found.append(self._note(event))
            if len(page) < room:
                self._looked = newest
                if not self._whole:
                    self._name_all()
                return
            if passed >= PASSED_AT_ONCE:
                self.passed = True
                return

    def _is_old(self, event: SealedEvent, arrival: int, past_read: bool) -> bool | None:
        """Whether an event that came in lies in the base's past; None: that shows once the past has
        been read."""
        if event.cid in self._base or event.cid in self._past:
            return True
        if event.height >= self._base_height:
            return False
        if self._now and self._before(event):  # a store's peer has not begun after its events
            return True
        if not past_read:
            return None
        if self._walk is None or arrival > self._walk.began:
            self._walk = _Walk(self._store, self._topic, self._base.values())
        return self._walk.reaches(event)

    def _note(self, event: SealedEvent) -> Read:
        for parent in event.parents:
            self._frontier.pop(parent, None)
        self._frontier[event.cid] = _Mark(event.height, event.cid)
        self._shorten()
        self._last = event.cid
        return Read(event, self.position)

    def _shorten(self) -> None:
        """Leave out the lowest branches, where there are more than a position names."""
        over = len(self._frontier) - FRONTIER_MAX
        if over > 0:
            self._whole = False
            for lowest in nsmallest(over, map(_position, self._frontier.values())):
                del self._frontier[lowest.cid]

    def _name_all(self) -> None:
        """All stored events have been read, so the frontier is the heads of the stored stream, and
        those events of the frontier that are not stored."""
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
            self._begin_at(_named(place.base))
            self._now = place.now
        elif not _names_all(place):
            raise PositionError(
                f"the position was taken while more publishers of {self._topic} than it can name "
                "were ahead of each other: it can be read on from only in the store that it was "
                "taken from, and another one would repeat what it leaves out"
            )
        else:
            self._begin_at(_named(place.frontier))
        self._frontier = _named(place.frontier)
        self._whole = _names_all(place)
        if self._base and self._upto is not None:
            self._past = self._past_of(self._base.values(), past_read)

    def _is_where_it_was(self, place: _Place) -> bool:
        """Whether this is the store that the position was taken from, and not one that was restored
        from an older copy of it and has taken in other events since."""
        if place.arrival > self._store.last_arrival():
            return False
        if not place.last:
            return True
        arrived = self._store.arrival(self._topic, Cid(place.last))
        if arrived is None:
            height = next((m.height for m in place.frontier if m.cid == place.last), 0)
            return Position(height, Cid(place.last)) <= self._store.summary(self._topic).floor
        return arrived == place.arrival if place.upto is None else arrived <= place.arrival

    def _past_of(self, marks: Iterable[_Mark], past_read: bool) -> set[Cid]:
        """The stored events of a frontier and all stored events that they follow. Events of the
        frontier that are not stored must have been dropped, by this store or by all members;
        otherwise the position is refused."""
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
        """Where the search for the past of a frontier begins, going down. An event of the frontier
        that is not stored must lie below all stored events or at most at the floor; otherwise it
        was never here."""
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
        """Retention drops the lowest events of the order; an error if it has dropped events that
        were not read."""
        if self._upto == START:
            return  # "from the beginning" means of what is kept; `_past_of` has looked at a base
        if self._store.dropped(self._topic) > self._arrival and not self._dropped_older():
            raise self._gap(self._height())
        if self._upto is not None and self._store.summary(self._topic).floor > self._upto:
            raise self._gap(self._upto.height)

    def _dropped_older(self) -> bool:
        """Whether all that was dropped lies below the frontier, and so in the base's past."""
        if not self._base or self._upto is not None:
            return False
        lowest = min(map(_position, self._frontier.values()), default=START)
        return self._store.summary(self._topic).floor < lowest

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


class _Walk:
    """The stored past of a frontier, walked down only as far as `reaches` needs."""

    def __init__(self, store: Store, topic: Topic, marks: Iterable[_Mark]) -> None:
        self.began = store.last_arrival()
        """The last arrival before the walk began; it does not see later ones."""
        self._past: set[Cid] = set()
        top = START
        for mark in marks:
            self._past.add(Cid(mark.cid))
            if store.height(topic, Cid(mark.cid)) is not None:
                top = max(top, _position(mark))
        self._reached = Position(top.height + 1, Cid(b""))
        self._down = store.downwards(topic, top)

    def reaches(self, event: SealedEvent) -> bool:
        """Whether a stored event lies in the past, as far as the stored events show it."""
        place = position(event)
        if place < self._reached:
            self._reached = place
            for cid, parents in self._down:
                if cid in self._past:
                    self._past.update(parents)
                if cid == event.cid:
                    break
        return event.cid in self._past


def _names_all(place: _Place) -> bool:
    """Whether a position names every branch that was read."""
    whole = place.whole
    return len(place.frontier) < _FRONTIER_BEFORE if whole is None else whole


def check_position(after: After, topic: Topic) -> None:
    """Raise a `PositionError` if the text shows that reading cannot begin there."""
    if after is not None and after != NOW:
        _parse(after, topic)


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


def _named(marks: Iterable[_Mark]) -> dict[Cid, _Mark]:
    return {Cid(mark.cid): mark for mark in marks}


def _position(mark: _Mark) -> Position:
    return Position(mark.height, Cid(mark.cid))
