"""Full queues: which writers wait for them, and for how long.

Three things fill up: the outgoing queue to a peer that reads slowly, the queue of a subscription
whose application reads slowly, and the window of a topic that is published in from outside
(`Window`), whose access point answers slowly. Backpressure means that every writer to a full queue
waits: `publish` is suspended, and the connection that brought the event is not read from, so its
sender's queue fills in turn, up to the publisher.

A reader that is only slow is waited for again and again, as long as it drains half of a full queue
within the patience; with the defaults that is 256 KiB a second for a peer. One that is slower would
hold up all others, and is given up instead.

Why no wait is eternal, not even in a circle. A full queue is waited for only during its
patience, counted from the moment it became full, not from when the waiting began. After that it
is *given up*: all writers that waited go on, none waits for it again until it has drained, and
events that do not fit are dropped, counted and traced. So a circle of waits (A's publish waits for
B, which does not read because its application waits in a publish to A) is broken within one
patience, and a given-up queue cannot start another. Without a crowd of slow ones the wait does
not even arise in a circle: a connection stops being read only because of a queue that its own
events go into, events travel along a tree away from their publisher, and in a tree the directed
edges that wait for each other never form a circle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from weft.ids import Topic
from weft.net.errors import UsageError
from weft.net.timers import Timers, now_ms

WINDOW_RUNS = 128
"""guess: 32,768 small events; an answer takes 50 to 100 ms, as other access points are asked."""
WINDOW_BYTES = 4 << 20
"""guess: bytes of payloads on their way in one topic."""
WINDOWS_RUNS = 512
"""Runs on their way in all topics together: half of what a machine keeps (`tera.pending_max`)."""


class Congestion:
    """The state of one queue: clear, full and waited for, or full and given up."""

    __slots__ = ("_patience_ms", "_timers", "_waiters", "given_up", "since")

    def __init__(self, timers: Timers, patience_ms: int) -> None:
        self._timers = timers
        self._patience_ms = patience_ms
        self._waiters: list[Callable[[], object]] = []
        self.since = 0  # when it became full; 0: it is not
        self.given_up = False

    def begin(self) -> None:
        """The queue is full (again)."""
        if not self.since:
            self.since = now_ms()
            self._timers.after(self._patience_ms, self._expire, self.since)

    def clear(self) -> None:
        """The queue has drained."""
        self.since = 0
        self.given_up = False
        self._wake()

    @property
    def blocks(self) -> bool:
        """Whether a writer waits: the queue is full, and has not been given up."""
        return self.since > 0 and not self.given_up

    def wait(self, resume: Callable[[], object]) -> None:
        """Call back once when it is no longer to be waited for; only while it `blocks`."""
        self._waiters.append(resume)

    def _expire(self, since: int) -> None:
        if self.since == since:
            self.given_up = True
            self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for resume in waiters:
            resume()


class Seat:
    """Where the one task that reads from a queue waits while that queue is empty."""

    __slots__ = ("_reader",)

    def __init__(self) -> None:
        self._reader: asyncio.Future[None] | None = None

    async def wait(self, why_not_two: str) -> None:
        """Wait until `wake` is called; a second task gets a `UsageError` with `why_not_two`."""
        if self._reader is not None and not self._reader.done():
            raise UsageError(why_not_two)
        self._reader = asyncio.get_running_loop().create_future()
        await self._reader

    def wake(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and not reader.done():
            reader.set_result(None)


class Window:
    """The runs that are on their way to access points, in topics that this peer publishes in
    without being subscribed. While the window is full, `publish` waits: an answer always comes, at
    the latest when the machine gives the run up (`tera.pending_ms_max`)."""

    __slots__ = ("_bytes", "_runs", "_total", "_waiters")

    def __init__(self) -> None:
        self._runs: dict[Topic, int] = {}
        self._bytes: dict[Topic, int] = {}
        self._total = 0
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def total(self) -> int:
        return self._total

    def is_full(self, topic: Topic, begun: int) -> bool:
        """`begun`: runs of other topics that are about to be on their way."""
        if self._total + begun >= WINDOWS_RUNS:
            return True
        return self._runs.get(topic, 0) >= WINDOW_RUNS or self._bytes.get(topic, 0) >= WINDOW_BYTES

    def enter(self, topic: Topic, size: int) -> None:
        self._total += 1
        self._runs[topic] = self._runs.get(topic, 0) + 1
        self._bytes[topic] = self._bytes.get(topic, 0) + size

    def leave(self, topic: Topic, size: int) -> None:
        """A run of this size was answered, so all callers that wait look again for room."""
        self._total -= 1
        self._runs[topic] -= 1
        self._bytes[topic] -= size
        if not self._runs[topic]:
            del self._runs[topic], self._bytes[topic]
        waiters, self._waiters = self._waiters, []
        for answered in waiters:
            if not answered.done():
                answered.set_result(None)

    async def next_answer(self) -> None:
        """Wait until any run that is on its way has been answered."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(answered)
        await answered
