"""Full queues: which writers wait for them, and for how long.

Two things fill up: the outgoing queue to a peer that reads slowly, and the queue of a
subscription whose application reads slowly. Backpressure means that every writer to a full queue
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
not even arise in a circle: a connection stops being read only for the sake of a queue that its
own events go into, events travel along a tree away from their publisher, and in a tree the
directed edges that wait for each other never form a circle.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.net.timers import Timers, now_ms


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
        """Whether to wait for it."""
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
