"""Which events a member has had, by publisher and number: what lies before a subscription's
beginning.

A stream is a DAG, so "before" cannot be told by heights: a branch that forked off low may be newer
than everything above. But a publisher's events follow each other: whoever has had number 7 of one
of its lives has had, or passed over, what that one follows. So a member that tells a new subscriber
its heads also tells the highest number that it has had of each publisher; every ancestor of those
heads is covered by that. What is covered and comes later is not handed out any more; what is not
covered came after the beginning, or from elsewhere, and is.

Invariant: at most `publishers_max` publishers, the latest ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from weft.documents.descriptor import Event
from weft.ids import PeerId
from weft.protocol.delivery import number_of
from weft.protocol.messages_history import SEEN_MAX, Had


class Seen:
    """The highest number of each publisher, and of each of its lives."""

    __slots__ = ("_highest", "_most")

    def __init__(self, publishers_max: int, told: Iterable[Had] = ()) -> None:
        self._most = publishers_max
        self._highest: OrderedDict[tuple[PeerId, int], int] = OrderedDict()
        for had in told:
            self.add(had)

    def add(self, had: Had) -> None:
        self._note((had.publisher, had.incarnation), had.number)

    def note(self, event: Event) -> None:
        named = number_of(event)
        if named is not None:
            self._note(named[:2], named[2])

    def _note(self, key: tuple[PeerId, int], number: int) -> None:
        self._highest[key] = max(number, self._highest.get(key, 0))
        self._highest.move_to_end(key)
        if len(self._highest) > self._most:
            self._highest.popitem(last=False)

    def covers(self, event: Event) -> bool:
        named = number_of(event)
        return named is not None and named[2] <= self._highest.get(named[:2], 0)

    def told(self) -> list[Had]:
        """For a message: the latest publishers, oldest of them first."""
        latest = list(self._highest.items())[-SEEN_MAX:]
        return [Had(*key, number) for key, number in latest]
