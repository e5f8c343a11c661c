"""History for one subscription: what the store already holds, before what comes.

While it reads, live events wait; those that the reader meets too are taken out. When it has come to
the end, the ones that are left (on their way to the store when they came) follow in the order they
came, and from then on the subscription is live. So each event comes once, parents first.

What waits is bounded: an application that reads slowly gets what came meanwhile from the store.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.documents.dag import position
from weft.documents.descriptor import Event
from weft.ids import Cid, Topic
from weft.net.subscription import Notification, Subscription
from weft.protocol.history.stream import routed
from weft.rules.hierarchy import claimed_origin
from weft.store.interface import NotHeld, Store
from weft.store.reader import Reader, Since

HELD_MAX = 4_096
"""guess: live events that wait; older ones have long reached the store."""
PAGE = 256
"""guess: events read from the store at once, some 10 ms."""


class Replay:
    """Reads the past into a subscription; ends when it has caught up with what is stored."""

    def __init__(self, store: Store, topic: Topic, since: Since, done: Callable[[], None]) -> None:
        self._topic = topic
        self._done = done
        self._held: dict[Cid, Notification] = {}
        self._subscription: Subscription | None = None
        try:
            self._reader: Reader | None = Reader(store, topic, since)
        except NotHeld:  # then other peers are asked
            self._reader = None

    def hold(self, event: Event, note: Notification) -> None:
        """A live event came meanwhile."""
        self._held[event.cid] = note
        if len(self._held) > HELD_MAX:
            oldest = self._held.pop(next(iter(self._held)))
            if self._reader is None or not self._will_read(oldest):
                assert self._subscription is not None
                self._subscription.dropped += 1

    def _will_read(self, note: Notification) -> bool:
        """Whether an event lies above what was read so far, and so comes from the store."""
        assert self._reader is not None and note.descriptor is not None
        return position(note.descriptor) > self._reader.after

    def start(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._read()

    def _read(self) -> None:
        """A page at a time; a full subscription is waited for."""
        subscription = self._subscription
        assert subscription is not None
        while not subscription.closed:
            page = self._reader.read(PAGE) if self._reader is not None else []
            if not page:
                break
            full = None
            for event in page:
                self._held.pop(event.cid, None)
                origin = claimed_origin(self._topic, event.metadata)
                note = Notification(self._topic, routed(event, event.payload), 0, event, origin)
                full = subscription.put(note)
            if full is not None:
                subscription.when_read(self._read)
                return
        for note in self._held.values():
            subscription.put(note)
        self._held.clear()
        self._done()
