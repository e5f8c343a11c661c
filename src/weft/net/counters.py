"""The network driver's counters. They are for people to look at (`exposition.py` explains each)."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from weft.net.errors import FAULTS, Fault
from weft.protocol.wire import Message

_WORD_START = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
_BYTES = (16.0, 64.0, 256.0, 1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0)
_DROPS = ("queue full", "peer lost", "disconnected", "too large", "unreachable")


class Histogram:
    """Counts values by bounds: how many were at most each bound."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0  # of all values

    def add(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self.total += value * times

    def cumulated(self) -> list[tuple[str, float]]:
        """For each bound, how many values were not above it; the last bound is infinite."""
        names = [*map(str, self._bounds), "+Inf"]
        return list(zip(names, accumulate(self._counts), strict=True))


class Counters:
    """The driver's counters, all monotone. Frequent ones are plain attributes, rare ones are in
    dictionaries: faults by their kind, in `dialled` the dials by the message that they were made
    for, and in `drops` the messages that did not leave, by reason and by what they carried."""

    def __init__(self) -> None:
        self.accepts = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.delivered = 0
        self.dials = 0
        self.events_dropped = 0  # event-carrying messages that did not leave
        self.evictions = 0
        self.frames_received = 0
        self.frames_sent = 0
        self.handler_errors = 0
        self.idle_closes = 0
        self.key_clashes = 0  # another process was found to use this peer's key
        self.notifications_dropped = 0
        self.opened = 0
        self.publish_waits_queue = 0  # publishes that waited for room in a queue
        self.publish_waits_window = 0  # publishes from outside that waited for an answer
        self.reads_held = 0  # times a connection was not read, since its events found a full queue
        self.store_errors = 0  # batches of events that could not be made durable
        self.writes = 0
        self.faults = dict.fromkeys((kind.counter for kind in FAULTS), 0)
        self.dialled: dict[str, int] = {}
        self.drops = {(kind, why): 0 for kind in ("event", "control") for why in _DROPS}
        self.latencies = Histogram(_SECONDS)
        self.sizes = Histogram(_BYTES)

    def observe(self, seconds: float, sizes: Sequence[int]) -> None:
        """Events with payloads of these sizes were delivered, `seconds` after they were published.
        A clock behind the publisher's makes that negative, which counts as 0."""
        self.latencies.add(max(0.0, seconds), len(sizes))
        if sizes.count(sizes[0]) == len(sizes):  # nearly always
            self.sizes.add(sizes[0], len(sizes))
        else:
            for size in sizes:
                self.sizes.add(size)

    @property
    def histograms(self) -> dict[str, Histogram]:
        return {"delivery_seconds": self.latencies, "payload_bytes": self.sizes}

    def fault(self, fault: Fault) -> None:
        self.faults[fault.counter] += 1

    def dial(self, message: object) -> None:
        """A connection is made because of this message."""
        self.dials += 1
        kind = _WORD_START.sub("_", type(message).__name__).lower()
        self.dialled[kind] = self.dialled.get(kind, 0) + 1

    def dropped(self, message: Message, reason: str) -> None:
        carries_event = message.carries
        self.events_dropped += carries_event
        self.drops["event" if carries_event else "control", reason] += 1

    def as_dict(self) -> dict[str, int]:
        counts = {name: count for name, count in vars(self).items() if isinstance(count, int)}
        counts.update(self.faults)
        counts.update({f"dials_for_{kind}": count for kind, count in self.dialled.items()})
        for (kind, reason), count in self.drops.items():
            counts[f"dropped_{kind}_{reason.replace(' ', '_')}"] = count
        return counts
