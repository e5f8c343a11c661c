"""Inner-cluster dissemination: an event floods its topic's overlay (TERA, Section 3).

A member that gets an event for the first time notifies its application and, one cycle later,
sends the event to every neighbour in its view as it then is. The baseline floods the general
overlay in the same way, as one topic that all peers are members of.

Events under way live in columns: for each, the rows that are to send in the next cycle (the
front) and which rows have it (`seen`, a byte per member of the topic).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from weft.engine.core.arrays import RECEIVED, SENT, Ids, Loads, Numbers, Octets, offsets_of
from weft.engine.core.draws import absorb, base_key, subset_mask
from weft.engine.core.jit import ONE, Bits, compiled, i64, u64
from weft.engine.core.layout import Rows, get_count, get_id
from weft.engine.core.vector import trailing_zeros
from weft.rules.draw import stream_of


class Front(NamedTuple):
    """The rows that send in one cycle, each with the place of its event among those under way."""

    rows: Ids
    events: Ids


class Spread(NamedTuple):
    """Events under way, in columns."""

    numbers: Numbers  # of the events, ascending
    first_row: Numbers  # of the event's topic
    seen_at: Numbers  # where the event's part of `seen` begins
    seen: Octets  # whether each member of the topic has it
    fresh: Numbers  # members that got it in this cycle
    onward: Front  # these members: they send in the next one


class Fanout(NamedTuple):
    """Rows send to so many of their neighbours, at random."""

    most: Ids
    key: Bits


@dataclass
class Flood:
    """Events that spread through overlays; row ranges are given by `offsets`."""

    rows: Rows
    offsets: Numbers
    members_alive: Octets | None = None  # rows that are gone lose what is sent to them
    loads: Loads | None = None  # counts messages sent and received, per row
    forwarded: Numbers | None = None  # counts messages sent, per row
    fanout: Ids | None = None  # rows send to so many random neighbours; None: to all
    seed: int = 0  # of those choices
    keep_seen: bool = False  # whether `seen` can be asked for events that have ended
    messages: int = 0
    notified: int = 0
    reached: dict[int, int] = field(default_factory=dict)
    _rows: Ids = field(init=False)  # that send in the next cycle,
    _events: Ids = field(init=False)  # and what each of them sends
    _topics: list[int] = field(default_factory=list)
    _seen: dict[int, Octets] = field(default_factory=dict)
    _waiting: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rows = np.empty(0, np.int32)
        self._events = np.empty(0, np.int32)

    @property
    def is_over(self) -> bool:
        return len(self._rows) == 0 and not self._waiting

    def start(self, topic: int, row: int) -> int:
        """An event enters its topic at a member; returns the event's number."""
        event = len(self._topics)
        self._topics.append(topic)
        size = int(self.offsets[topic + 1] - self.offsets[topic])
        self._seen[event] = np.zeros(size, np.uint8)
        self._seen[event][row - self.offsets[topic]] = 1
        self._waiting.append((event, row))
        self.reached[event] = 1
        self.notified += 1
        return event

    def advance(self) -> None:
        """All members that got an event last cycle send it on."""
        if self._waiting:
            events, rows = np.array(self._waiting, np.int32).T
            self._events = np.concatenate([self._events, events])
            self._rows = np.concatenate([self._rows, rows])
            self._waiting = []
        if len(self._rows) == 0:
            return
        active = np.unique(self._events)
        sizes = np.array([len(self._seen[int(event)]) for event in active], np.int64)
        seen_at = offsets_of(sizes)
        seen = np.concatenate([self._seen[int(event)] for event in active])
        first_row = np.array([self.offsets[self._topics[int(e)]] for e in active], np.int64)
        left = sizes.sum() - int(seen.sum(dtype=np.int64))
        onward = Front(np.empty(left, np.int32), np.empty(left, np.int32))
        fresh = np.zeros(len(active), np.int64)
        fanout = None
        if self.fanout is not None:
            fanout = Fanout(self.fanout, base_key(self.seed, stream_of("engine.flood")))
        found, messages = _send_on(
            self.rows,
            Front(self._rows, np.searchsorted(active, self._events).astype(np.int32)),
            Spread(active.astype(np.int64), first_row, seen_at, seen, fresh, onward),
            self.members_alive,
            self.loads,
            self.forwarded,
            fanout,
        )
        self.messages += int(messages)
        self.notified += int(found)
        self._rows = onward.rows[:found].copy()
        self._events = active[onward.events[:found]].astype(np.int32)
        for index, event in enumerate(active):
            self.reached[int(event)] += int(fresh[index])
            self._seen[int(event)] = seen[seen_at[index] : seen_at[index + 1]]
            if fresh[index] == 0 and not self.keep_seen:
                del self._seen[int(event)]

    def front(self) -> list[tuple[int, int]]:
        """The events and rows that send in the next `advance`, in its order."""
        under_way = zip(self._events.tolist(), self._rows.tolist(), strict=True)
        return [*under_way, *self._waiting]

    def seen(self, event: int) -> Octets:
        """Which members of its topic have an event, a byte each."""
        return self._seen[event]


@compiled
def _send_on(
    rows: Rows,
    front: Front,
    spread: Spread,
    alive: Octets | None,
    loads: Loads | None,
    forwarded: Numbers | None,
    fanout: Fanout | None,
) -> tuple[int, int]:
    """Send from every row of the front to its view; returns rows found, messages."""
    found = messages = 0
    for item in range(len(front.rows)):
        row, event = i64(front.rows[item]), i64(front.events[item])
        if alive is not None and not alive[row]:
            continue
        count = get_count(rows.octets, row)
        mask = (ONE << u64(count)) - ONE
        if fanout is not None:
            key = absorb(absorb(fanout.key, i64(spread.numbers[event])), row)
            mask = subset_mask(key, count, i64(fanout.most[row]))
            count = min(count, i64(fanout.most[row]))
        messages += count
        if loads is not None:
            loads[row, SENT] += count
        if forwarded is not None:
            forwarded[row] += count
        while mask != u64(0):
            slot = i64(trailing_zeros(mask))
            mask &= mask - ONE
            other = get_id(rows.words, row, slot)
            if alive is not None and not alive[other]:
                continue
            if loads is not None:
                loads[other, RECEIVED] += 1
            at = spread.seen_at[event] + other - spread.first_row[event]
            if spread.seen[at] == 0:
                spread.seen[at] = 1
                spread.onward.rows[found] = other
                spread.onward.events[found] = event
                spread.fresh[event] += 1
                found += 1
    return found, messages


def flood_general(rows: Rows, peers: int) -> Flood:
    """The baseline: events flood the general overlay."""
    return Flood(rows, np.array([0, peers], np.int64))
