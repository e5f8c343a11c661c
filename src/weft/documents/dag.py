"""The stream of a topic as a DAG: its one order, its heads, its gaps (paper 004, 4.1 and 4.5).

An event names as parents the heads its publisher knew: the events that no other one followed yet.
Alone, a publisher makes a chain; several at once make branches, which the next event joins.

**The order** of a stream is by (height, CID). A parent is always lower than its child, so this is
an order in which causes come before effects; it needs nothing but the events themselves; peers that
hold the same events have the same order, whichever came first, and even if the beginning is pruned.
A late branch slips in no lower than where it forked off: an event that all later ones descend from
keeps its place for ever.

**Live delivery** cannot wait for branches that may still come. It promises: each event once, none
before its parents. Between branches two subscribers may see different orders while it happens;
reading the stream again (replay, `store.events`) gives both the same.

A parent that is not known is a *gap*: the event waits, the gap is fetched, and the events that
waited for it are released. A gap that no peer can fill (pruned everywhere) is given up, which
releases them, too. If it comes after all, it is *late*, and so is what it follows itself: its
children were released first.

Invariants: `heads` are the released events that no released event names; heights of known parents
are checked exactly, so a height can be trusted once the parents are there; waiting events are
bounded, and for want of room the highest are dropped (`WaitingRoom`). Each event costs O(its
parents), whenever it comes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush

from msgspec import Struct, field

from weft.bounded import BoundedDict
from weft.documents.descriptor import SealedEvent
from weft.documents.position import START, Position, position
from weft.documents.refusal import Reason
from weft.documents.shape import PARENTS_MAX
from weft.ids import Cid, PeerId

WAITING_MAX = 4_096
"""guess: events of one stream that wait for parents."""
WAITING_BYTES_MAX = 32 << 20
"""guess: bytes of these events together."""
_STALE_MAX = 64
"""guess: entries of events long gone that are not worth clearing away."""
REMEMBERED_MAX = 65_536
"""guess: parents given up that are remembered."""
HEIGHTS_MAX = 8_192
"""measured: heights of the latest events kept at hand, at 300 bytes each; older ones are looked up.
An event is asked for by those that follow it, which is soon after it came: with 65,536 of them a
peer's memory grew for hours, and nothing was faster."""
HEIGHT_BELIEVED = 1 << 40
CLIMB_BELIEVED = 1 << 20
"""guess: no honest stream is that high, and none climbs so far unseen. Heights that cannot be
checked, because the parents are gone, are believed within both bounds, so that nobody can use up
all heights by naming parents that never were."""
_BELOW_MAX = 64
"""guess: waiting events gone through for the gaps below one of them."""
QUIET_RUN = 1_024
"""guess: positions without an unknown event after which none is expected further down."""


def surely_pruned(parent: Cid, child_height: int, floor: Position) -> bool:
    """Whether a parent must lie at or below the floor, where its child is. A parent of a much
    lower height may lie there, too; that shows when it comes."""
    return Position(child_height - 1, parent) <= floor


def choose_parents(heads: Mapping[Cid, int]) -> dict[Cid, int]:
    """The heads that a new event names: all, or where there are too many the highest. The others
    stay heads, and each event after this one names more of them."""
    if len(heads) <= PARENTS_MAX:
        return dict(heads)
    highest = sorted(heads, key=lambda cid: (heads[cid], cid), reverse=True)
    return {cid: heads[cid] for cid in highest[:PARENTS_MAX]}


class Added(Struct):
    """What came of adding an event, or of giving one up."""

    refused: Reason | None = None  # why the event was not taken; None also where it was known
    missing: list[Cid] = field(default_factory=list)  # to fetch, not known to be missing before
    released: list[SealedEvent] = field(default_factory=list)  # deliverable, parents first
    late: list[Cid] = field(default_factory=list)  # of these, those that released ones follow
    dropped: list[SealedEvent] = field(default_factory=list)  # waited, with a wrong height
    displaced: list[Cid] = field(default_factory=list)  # parents no longer waited for: no room


class _Waiting(Struct):
    """An event and how many of its parents are not there yet."""

    event: SealedEvent
    lacking: int


class WaitingRoom:
    """The events of one stream that wait for parents: bounded, and the highest are dropped first.

    A stream is completed from below: the lowest events are released first, and a high event can be
    fetched again once all its ancestors are there. So where all places are taken, a new event that
    is lower than the highest waiting one displaces it, and a new event that is higher than all of
    them is not kept. With first come, first served, the events at the end of a stream would keep
    out their own ancestors.

    Invariants: at most `most` events and `bytes_most` bytes wait; none is kept out or has to go
    while a higher one stays. Each event costs O(log of how many wait).
    """

    __slots__ = ("_by_cid", "_highest", "bytes_most", "most", "size")

    def __init__(self, most: int = WAITING_MAX, bytes_most: int = WAITING_BYTES_MAX) -> None:
        self.most = most
        self.bytes_most = bytes_most
        self.size = 0  # of all blocks together
        self._by_cid: dict[Cid, _Waiting] = {}
        # A heap, the highest first; entries of events that wait no more are passed over.
        self._highest: list[tuple[int, Cid]] = []

    def __len__(self) -> int:
        return len(self._by_cid)

    def __contains__(self, cid: Cid) -> bool:
        return cid in self._by_cid

    def __getitem__(self, cid: Cid) -> _Waiting:
        return self._by_cid[cid]

    def publishers(self) -> set[PeerId]:
        """The publishers whose events wait."""
        return {waiting.event.publisher for waiting in self._by_cid.values()}

    def lowest(self) -> int:
        """The height of the lowest event that waits; 0 where none does."""
        return min((waiting.event.height for waiting in self._by_cid.values()), default=0)

    def admits(self, event: SealedEvent) -> bool:
        """Whether there is room for one more event, perhaps in the place of another one."""
        if self._fits(event):
            return True
        highest = self._find_highest()
        return highest is not None and event.height < highest.height

    def put(self, event: SealedEvent, lacking: int) -> tuple[bool, list[SealedEvent]]:
        """Let an event wait; returns whether there is room, and the events dropped for it."""
        gone: list[SealedEvent] = []
        while not self._fits(event):
            highest = self._find_highest()
            if highest is None or highest.height <= event.height:
                return False, gone
            gone.append(self.take(highest.cid))
        self._by_cid[event.cid] = _Waiting(event, lacking)
        self.size += len(event.block)
        heappush(self._highest, (-event.height, event.cid))
        return True, gone

    def take(self, cid: Cid) -> SealedEvent:
        """An event waits no more."""
        event = self._by_cid.pop(cid).event
        self.size -= len(event.block)
        if len(self._highest) > 2 * len(self._by_cid) + _STALE_MAX:
            self._highest = [(-one.event.height, cid) for cid, one in self._by_cid.items()]
            heapify(self._highest)
        return event

    def _fits(self, event: SealedEvent) -> bool:
        return len(self._by_cid) < self.most and self.size + len(event.block) <= self.bytes_most

    def _find_highest(self) -> SealedEvent | None:
        """The highest event that waits."""
        while self._highest:
            height, cid = self._highest[0]
            waiting = self._by_cid.get(cid)
            if waiting is not None and waiting.event.height == -height:
                return waiting.event
            heappop(self._highest)
        return None


class Stream:
    """One topic's stream as one peer knows it."""

    def __init__(
        self,
        heads: Mapping[Cid, int] | None = None,
        lookup: Callable[[Cid], int | None] = lambda cid: None,
        floor: Position = START,
        waiting_max: int = WAITING_MAX,
        missing: Iterable[Cid] = (),
        waiting_bytes_max: int = WAITING_BYTES_MAX,
    ) -> None:
        """`heads` as stored, `lookup` the height of a stored event, `floor` how far the stored
        stream is pruned, `missing` the parents of stored events that are not stored."""
        self.heads: dict[Cid, int] = dict(heads or {})
        self.floor = floor
        self._lookup = lookup
        self._top = max(self.heads.values(), default=0)
        self._forgotten_top = self._top  # no event that only the store remembers is higher
        # Ordered, since a plain dict slows down when its front is taken repeatedly.
        self._heights = OrderedDict(self.heads)
        self.room = WaitingRoom(waiting_max, waiting_bytes_max)
        self._children: dict[Cid, list[Cid]] = {}  # of what is missing or waits itself
        # Parents that released events name; no heads if they come after all.
        self._given_up: OrderedDict[Cid, None] = OrderedDict((cid, None) for cid in missing)
        # What those follow in their turn, as far as that is known, and not released.
        self._past: BoundedDict[Cid, None] = BoundedDict(REMEMBERED_MAX)

    @property
    def waiting(self) -> int:
        """How many events wait for parents."""
        return len(self.room)

    def missing(self) -> list[Cid]:
        """The parents that waiting events lack and that have not come themselves, oldest first."""
        return [cid for cid in self._children if cid not in self.room]

    def missing_below(self, cid: Cid) -> list[Cid]:
        """The gaps that keep a waiting event waiting, near or far, as far as they are found among
        `_BELOW_MAX` events."""
        found: list[Cid] = []
        ahead = [cid]
        noted = {cid}
        for one in ahead:  # which grows
            if one in self.room and len(noted) <= _BELOW_MAX:
                new = [parent for parent in self.room[one].event.parents if parent not in noted]
                ahead += new
                noted.update(new)
            elif one in self._children and one not in self.room:
                found.append(one)
        return found

    def lowest_waiting(self) -> int:
        """The height of the lowest event that waits; 0 where none does."""
        return self.room.lowest()

    def height(self, cid: Cid) -> int | None:
        """The height of a released event."""
        known = self._heights.get(cid)
        return known if known is not None else self._lookup(cid)

    def knows(self, cid: Cid, height: int = 0) -> bool:
        """Whether an event has come, released or not. Given its height, the store is not
        asked about an event higher than all those that only the store knows."""
        if cid in self.room or cid in self._heights:
            return True
        return not height > self._forgotten_top and self._lookup(cid) is not None

    def prune(self, floor: Position) -> None:
        """The store has dropped all events at or below `floor`: they are not taken in again."""
        self.floor = max(self.floor, floor)

    def awaits(self, cid: Cid) -> bool:
        """Whether an event that was taken in names this one as its parent, and waits for it."""
        return cid in self._children

    def lowest_child(self, cid: Cid) -> int | None:
        """The height of the lowest event that waits for this one."""
        children = [child for child in self._children.get(cid, ()) if child in self.room]
        return min((self.room[child].event.height for child in children), default=None)

    def publishers_above(self, cid: Cid) -> set[PeerId]:
        """The publishers of the events that wait for this one."""
        children = [child for child in self._children.get(cid, ()) if child in self.room]
        return {self.room[child].event.publisher for child in children}

    def has_given_up(self, cid: Cid) -> bool:
        """Whether events that name this parent do not wait for it: it was given up, or passed over,
        or is missed by a stored event."""
        return cid in self._given_up

    def note_past(self, event: SealedEvent) -> None:
        """If released events follow this one, which has come or is about to, they follow its
        ancestors as well: those are late, too, whichever comes first."""
        ahead = [event] if self._is_followed(event.cid) else []
        while ahead:
            for parent in ahead.pop().parents:
                if parent not in self._past and self.height(parent) is None:
                    self._past[parent] = None
                    if parent in self.room:
                        ahead.append(self.room[parent].event)

    def _is_followed(self, cid: Cid) -> bool:
        """Whether it is known that released events follow this one, which is not released."""
        return cid in self._given_up or cid in self._past

    def parents(self) -> dict[Cid, int]:
        """The parents of an event published now."""
        return choose_parents(self.heads)

    def go_on_from(self, released: Iterable[SealedEvent]) -> None:
        """Know events that were released before, and are still on their way to the store."""
        for event in released:
            if not self.knows(event.cid):
                self._note(event)

    # --- adding -------------------------------------------------------------------------------

    def add(self, event: SealedEvent, new: bool = False) -> Added:
        """Take in an event that was verified and may be in this stream. `new`: the caller has
        just seen that it is not known.

        Refused for want of room, an event lies above a gap that is too deep to be walked back: the
        caller reads the stream in its order instead, where every event comes after its parents.
        """
        if not new and self.knows(event.cid, event.height):
            return Added()
        if position(event) <= self.floor:
            added = self.give_up(event.cid)
            added.refused = Reason.PRUNED
            return added
        if self._is_hopeless(event):
            return Added(Reason.NO_ROOM)
        self.note_past(event)
        lacking = [cid for cid in event.parents if not self._is_settled(event, cid)]
        if self._has_wrong_height(event, complete=not lacking):
            return Added(Reason.WRONG_HEIGHT)
        if not lacking:
            added = Added()
            self._release(event, added)
            self._settle([event.cid], added)
            return added
        return self._wait(event, lacking)

    def _wait(self, event: SealedEvent, lacking: list[Cid]) -> Added:
        """Let an event wait for these parents; for want of room the highest ones are dropped."""
        has_room, gone = self.room.put(event, len(lacking))
        added = Added(None if has_room else Reason.NO_ROOM)
        if has_room:
            for parent in lacking:
                if parent not in self._children and parent not in self.room:
                    added.missing.append(parent)
                self._children.setdefault(parent, []).append(event.cid)
        for other in gone:
            added.displaced += self._orphan(other)
        return added

    def _orphan(self, event: SealedEvent) -> list[Cid]:
        """An event waits no more; returns the parents that no event waits for any longer."""
        left = []
        for parent in event.parents:
            others = self._children.get(parent)
            if others is not None and event.cid in others:
                others.remove(event.cid)
                if not others:
                    del self._children[parent]
                    left.append(parent)
        return left

    def give_up(self, cid: Cid) -> Added:
        """Stop waiting for an event that no peer has any more; release the events that did."""
        added = Added()
        if cid in self._children and cid not in self.room:
            self._forgo(cid)
            self._settle([cid], added)
        return added

    def pass_over(self, cid: Cid) -> Added:
        """An event has come and is not wanted: no event waits for it, now or later."""
        added = Added()
        if cid not in self.room:
            self._forgo(cid)
            self._settle([cid], added)
        return added

    def _forgo(self, cid: Cid) -> None:
        self._given_up[cid] = None
        if len(self._given_up) > REMEMBERED_MAX:
            self._given_up.popitem(last=False)

    def _is_hopeless(self, event: SealedEvent) -> bool:
        """Whether there is no room for an event, and a parent is surely lacking, since no event
        just below it has come. The store is not asked, since a peer that is far behind is brought
        many such events."""
        if event.height <= self._top + 1 or self.room.admits(event):
            return False
        return not any(self._is_gone(event, parent) for parent in event.parents)

    def _is_settled(self, event: SealedEvent, parent: Cid) -> bool:
        return self._released_height(parent) is not None or self._is_gone(event, parent)

    def _released_height(self, cid: Cid) -> int | None:
        """As `height`, without asking the store about an event that is known to be missing."""
        return None if cid in self._children or cid in self.room else self.height(cid)

    def _is_gone(self, event: SealedEvent, parent: Cid) -> bool:
        return parent in self._given_up or surely_pruned(parent, event.height, self.floor)

    def _has_wrong_height(self, event: SealedEvent, complete: bool) -> bool:
        """Whether what is known of the parents proves the height wrong. Exact if all are there;
        the height of a parent that is gone cannot be known."""
        heights = [self._released_height(parent) for parent in event.parents]
        highest = max((height for height in heights if height is not None), default=0)
        if complete and None not in heights:
            return event.height != highest + 1
        believed = max(self._top, HEIGHT_BELIEVED) + CLIMB_BELIEVED
        return not highest < event.height <= believed

    def _settle(self, arrived: list[Cid], added: Added) -> None:
        """Release the events that waited for these, then those that waited for them, and so on;
        lowest first."""
        while arrived:
            ready: list[SealedEvent] = []
            for cid in arrived:
                for child in self._children.pop(cid, ()):
                    waiting = self.room[child]
                    waiting.lacking -= 1
                    if not waiting.lacking:
                        ready.append(self.room.take(child))
            arrived = []
            for event in sorted(ready, key=position):
                if self._has_wrong_height(event, complete=True):
                    added.dropped.append(event)
                    self._drop_descendants(event.cid, added)
                else:
                    self._release(event, added)
                    arrived.append(event.cid)

    def _drop_descendants(self, cid: Cid, added: Added) -> None:
        """Drop the events that wait for one that turned out wrong: they can never be complete."""
        doomed = [cid]
        while doomed:
            gone = doomed.pop()
            for child in self._children.pop(gone, ()):
                event = self.room.take(child)
                self._orphan(event)
                added.dropped.append(event)
                doomed.append(child)

    def _release(self, event: SealedEvent, added: Added) -> None:
        if self._is_followed(event.cid):
            added.late.append(event.cid)
            self._past.pop(event.cid, None)
        self._note(event)
        added.released.append(event)

    def _note(self, event: SealedEvent) -> None:
        for parent in event.parents:
            self.heads.pop(parent, None)
        if event.cid in self._given_up:  # it comes after all, and its children were released
            del self._given_up[event.cid]
        else:
            self.heads[event.cid] = event.height
        self._top = max(self._top, event.height)
        self._heights[event.cid] = event.height
        if len(self._heights) > HEIGHTS_MAX:
            _, height = self._heights.popitem(last=False)
            self._forgotten_top = max(self._forgotten_top, height)


# --- reading on from an event ---------------------------------------------------------------------


def not_before(
    heads: Iterable[Cid], downwards: Iterable[tuple[Cid, tuple[Cid, ...]]]
) -> Iterator[Cid]:
    """The events that a reader which has everything up to `heads` may lack: those of `downwards`
    (the order going down from the highest head, each event with its parents) that are neither heads
    nor their ancestors.

    Ends after a long run of ancestors: branches are joined soon after they fork off.
    """
    past = set(heads)
    run = 0
    for cid, parents in downwards:
        if cid in past:
            past.discard(cid)
            past.update(parents)
            run += 1
            if run >= QUIET_RUN:
                return
        else:
            run = 0
            yield cid
