"""Events of one stream that wait for parents: bounded, and the highest give way.

A stream is completed from below: what is lowest is released first, and what is high can be had
again once everything before it is there. So where all places are taken, an event that is lower than
the highest one takes its place, and only what is higher than all of them finds none. Were it first
come, first served, the events at the end of a stream would keep out those they wait for.

Invariants: at most `most` events and `bytes_most` bytes wait; none is kept out or has to go while a
higher one stays. Each event costs O(log of how many wait).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from weft.ids import Cid
from weft.rules.descriptor import Event

WAITING_MAX = 4_096
"""guess: events of one stream that wait for parents."""
WAITING_BYTES_MAX = 32 << 20
"""guess: and how large they may be together."""
_STALE_MAX = 64
"""guess: entries of events long gone that are not worth clearing away."""


class Waiting:
    """An event and how many of its parents are not there yet."""

    __slots__ = ("event", "lacking")

    def __init__(self, event: Event, lacking: int) -> None:
        self.event = event
        self.lacking = lacking


class WaitingRoom:
    """See the module's text."""

    __slots__ = ("_by_cid", "_highest", "bytes_most", "most", "size")

    def __init__(self, most: int = WAITING_MAX, bytes_most: int = WAITING_BYTES_MAX) -> None:
        self.most = most
        self.bytes_most = bytes_most
        self.size = 0  # of all blocks together
        self._by_cid: dict[Cid, Waiting] = {}
        # A heap, the highest first; entries of events that wait no more are passed over.
        self._highest: list[tuple[int, Cid]] = []

    def __len__(self) -> int:
        return len(self._by_cid)

    def __contains__(self, cid: Cid) -> bool:
        return cid in self._by_cid

    def __getitem__(self, cid: Cid) -> Waiting:
        return self._by_cid[cid]

    def lowest(self) -> int:
        """The height of the lowest event that waits; 0 where none does."""
        return min((waiting.event.height for waiting in self._by_cid.values()), default=0)

    def admits(self, event: Event) -> bool:
        """Whether one more event may wait, be it in another's place."""
        if self._fits(event):
            return True
        highest = self._find_highest()
        return highest is not None and event.height < highest.height

    def put(self, event: Event, lacking: int) -> tuple[bool, list[Event]]:
        """Let an event wait; whether there is room, and who had to go for it."""
        gone: list[Event] = []
        while not self._fits(event):
            highest = self._find_highest()
            if highest is None or highest.height <= event.height:
                return False, gone
            gone.append(self.take(highest.cid))
        self._by_cid[event.cid] = Waiting(event, lacking)
        self.size += len(event.block)
        heappush(self._highest, (-event.height, event.cid))
        return True, gone

    def take(self, cid: Cid) -> Event:
        """An event waits no more."""
        event = self._by_cid.pop(cid).event
        self.size -= len(event.block)
        if len(self._highest) > 2 * len(self._by_cid) + _STALE_MAX:
            self._highest = [(-one.event.height, cid) for cid, one in self._by_cid.items()]
            heapify(self._highest)
        return event

    def _fits(self, event: Event) -> bool:
        return len(self._by_cid) < self.most and self.size + len(event.block) <= self.bytes_most

    def _find_highest(self) -> Event | None:
        """The highest event that waits."""
        while self._highest:
            height, cid = self._highest[0]
            waiting = self._by_cid.get(cid)
            if waiting is not None and waiting.event.height == -height:
                return waiting.event
            heappop(self._highest)
        return None
