"""Inner-cluster dissemination: an event floods its topic's overlay (TERA, Section 4).

A member that gets an event for the first time notifies its application and, one cycle later,
sends the event to every neighbour in its view as it then is. The baseline floods the general
overlay in the same way, as one topic that all peers are members of.

Events under way live in columns: for each, the rows that are to send in the next cycle (the
front) and which rows have it (`seen`, a byte per member of the topic).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from weft.engine.core.draws import absorb, base_key, subset_mask
from weft.engine.core.jit import compiled, i64, u64
from weft.engine.core.layout import Array, Octets, Rows, Words, get_count, get_id
from weft.engine.core.vector import trailing_zeros
from weft.rules.draw import stream_of

_ONE = np.uint64(1)


@dataclass
class Flood:
    """Events that spread through overlays; row ranges are given by `offsets`."""

    rows: Rows
    offsets: npt.NDArray[np.int64]
    members_alive: Array | None = None  # rows that are gone lose what is sent to them
    handled: Array | None = None  # counts messages sent or received, per row
    forwarded: Array | None = None  # counts messages sent, per row
    fanout: Array | None = None  # rows send to so many random neighbours; None: to all
    seed: int = 0  # of those choices
    keep_seen: bool = False  # whether `seen` can be asked for events that have ended
    front_rows: Array = field(init=False)
    front_events: Array = field(init=False)
    messages: int = 0
    notified: int = 0
    _topics: list[int] = field(default_factory=list)
    _seen: dict[int, Array] = field(default_factory=dict)
    reached: dict[int, int] = field(default_factory=dict)
    _waiting: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.front_rows = np.empty(0, np.int32)
        self.front_events = np.empty(0, np.int32)

    @property
    def is_over(self) -> bool:
        return len(self.front_rows) == 0 and not self._waiting

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
            self.front_events = np.concatenate([self.front_events, events])
            self.front_rows = np.concatenate([self.front_rows, rows])
            self._waiting = []
        if len(self.front_rows) == 0:
            return
        active = np.unique(self.front_events)
        sizes = np.array([len(self._seen[int(event)]) for event in active], np.int64)
        seen_at = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        seen = np.concatenate([self._seen[int(event)] for event in active])
        first_row = np.array([self.offsets[self._topics[int(e)]] for e in active], np.int64)
        left = sizes.sum() - int(seen.sum(dtype=np.int64))
        next_rows, next_events = np.empty(left, np.int32), np.empty(left, np.int32)
        fresh = np.zeros(len(active), np.int64)
        found, messages = _send_on(
            self.rows.words,
            self.rows.octets,
            self.front_rows,
            np.searchsorted(active, self.front_events).astype(np.int32),
            first_row,
            seen_at,
            seen,
            next_rows,
            next_events,
            fresh,
            self.members_alive,
            self.handled,
            self.forwarded,
            self.fanout,
            base_key(self.seed, stream_of("engine.flood")),
            active,
        )
        self.messages += int(messages)
        self.notified += int(found)
        self.front_rows = next_rows[:found].copy()
        self.front_events = active[next_events[:found]].astype(np.int32)
        for index, event in enumerate(active):
            self.reached[int(event)] += int(fresh[index])
            self._seen[int(event)] = seen[seen_at[index] : seen_at[index + 1]]
            if fresh[index] == 0 and not self.keep_seen:
                del self._seen[int(event)]

    def front(self) -> list[tuple[int, int]]:
        """The events and rows that send in the next `advance`, in its order."""
        under_way = zip(self.front_events.tolist(), self.front_rows.tolist(), strict=True)
        return [*under_way, *self._waiting]

    def seen(self, event: int) -> Array:
        """Which members of its topic have an event, a byte each."""
        return self._seen[event]


@compiled
def _send_on(
    words: Words,
    octets: Octets,
    front_rows: Array,
    front_events: Array,
    first_row: Array,
    seen_at: Array,
    seen: Array,
    next_rows: Array,
    next_events: Array,
    fresh: Array,
    alive: Array | None,
    handled: Array | None,
    forwarded: Array | None,
    fanout: Array | None,
    base: Any,
    numbers: Array,
) -> tuple[int, int]:
    """Send from every row of the front to its view; returns rows found, messages."""
    found = messages = 0
    for item in range(len(front_rows)):
        row, event = i64(front_rows[item]), i64(front_events[item])
        if alive is not None and not alive[row]:
            continue
        count = get_count(octets, row)
        mask = (_ONE << u64(count)) - _ONE
        if fanout is not None:
            count = min(count, i64(fanout[row]))
            key = absorb(absorb(base, i64(numbers[event])), row)
            mask = subset_mask(key, get_count(octets, row), count)
        messages += count
        if handled is not None:
            handled[row] += count
        if forwarded is not None:
            forwarded[row] += count
        while mask != u64(0):
            slot = i64(trailing_zeros(mask))
            mask &= mask - _ONE
            other = get_id(words, row, slot)
            if alive is not None and not alive[other]:
                continue
            if handled is not None:
                handled[other] += 1
            at = seen_at[event] + other - first_row[event]
            if seen[at] == 0:
                seen[at] = 1
                next_rows[found] = other
                next_events[found] = event
                fresh[event] += 1
                found += 1
    return found, messages


def flood_general(rows: Rows, peers: int) -> Flood:
    """The baseline: events flood the general overlay."""
    return Flood(rows, np.array([0, peers], np.int64))
