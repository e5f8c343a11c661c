"""On its way to the store: what is to be made durable, and what follows once it is.

What one step releases goes to the store together. Until the store has said that it holds it,
received events are at hand here for whoever asks; events of this peer's own are not: nobody may
see them before they are durable.

Retention: now and then each topic that has a limit is pruned (`seam.Prune`).
"""

from __future__ import annotations

from collections.abc import Callable

from weft.documents.descriptor import Event, TopicVersion
from weft.documents.record import Record
from weft.ids import GENERAL, Cid, Topic
from weft.protocol.context import Context
from weft.protocol.seam import Prune, Store, Stored
from weft.store.interface import Retention

PRUNE = "history.prune"
_UNLIMITED = Retention()

Then = Callable[[str], None]
"""Told once the store has answered: why it failed, or nothing."""


class Storing:
    """What one peer has sent, or is about to send, to its store."""

    def __init__(self, ctx: Context, failed: Callable[[tuple[Event, ...]], None]) -> None:
        """`failed` is told of events that could not be stored."""
        self._ctx = ctx
        self._failed = failed
        self.unstored: dict[Cid, Event] = {}  # received, and to be had from here meanwhile
        self._events: list[Event] = []
        self._lost: list[tuple[Topic, Cid]] = []
        self._topics: list[TopicVersion] = []
        self._records: list[tuple[bytes, bytes]] = []
        self._under_way: dict[int, tuple[tuple[Event, ...], Then | None]] = {}

    def start(self) -> None:
        self._ctx.set_timer(self._ctx.config.history.prune_every_ms, PRUNE, GENERAL)

    # --- what is to be stored ---------------------------------------------------------------------

    def add(self, event: Event) -> None:
        """A received event, with what else this step releases."""
        self._events.append(event)
        self.unstored[event.cid] = event

    def add_version(self, version: TopicVersion) -> None:
        """A topic version that others may want from here."""
        self._topics.append(version)

    def add_record(self, record: Record) -> None:
        self._records.append((record.name, record.encoded))

    def lose(self, topic: Topic, cid: Cid) -> None:
        """Nobody has this block any more: the store need not miss it."""
        self._lost.append((topic, cid))

    def publish(self, event: Event, then: Then) -> None:
        """An event of this peer's own."""
        self._send((event,), then)

    def publish_topic(
        self, versions: list[TopicVersion], records: list[Record], then: Then
    ) -> None:
        named = tuple((record.name, record.encoded) for record in records)
        self._send((), then, tuple(versions), named)

    def flush(self) -> None:
        """At the end of each step."""
        if self._events or self._lost or self._topics or self._records:
            events, topics = tuple(self._events), tuple(self._topics)
            records, lost = tuple(self._records), tuple(self._lost)
            self._events, self._topics, self._records, self._lost = [], [], [], []
            self._send(events, None, topics, records, lost)

    def _send(
        self,
        events: tuple[Event, ...],
        then: Then | None,
        topics: tuple[TopicVersion, ...] = (),
        records: tuple[tuple[bytes, bytes], ...] = (),
        lost: tuple[tuple[Topic, Cid], ...] = (),
    ) -> None:
        token = self._ctx.next_serial()
        self._under_way[token] = events, then
        self._ctx.out.append(Store(token, events, topics, records, lost))

    # --- what the store says ----------------------------------------------------------------------

    def on_stored(self, fact: Stored) -> None:
        events, then = self._under_way.pop(fact.token, ((), None))
        for event in events:
            self.unstored.pop(event.cid, None)
        if fact.error:
            self._ctx.counters["history_store_failed"] += max(1, len(events))
            self._failed(events)
        if then is not None:
            then(fact.error)

    # --- retention --------------------------------------------------------------------------------

    def on_prune_timer(self, topics: list[Topic]) -> None:
        history = self._ctx.config.history
        for topic in topics:
            retention = history.retention(topic)
            if retention != _UNLIMITED:
                self._ctx.out.append(Prune(topic, retention))
        self._ctx.set_timer(history.prune_every_ms, PRUNE, GENERAL)
