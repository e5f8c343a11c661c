"""What is on its way to the store, and how much of a topic stays there (paper 004, Section 4.4).

Reading the store is a question that it answers at once (memory, or SQLite's page cache), so the
layers ask it directly. Writing takes a disk's time: it is an effect (`seam.Store`), which the
driver answers with a fact (`seam.Stored`).

All that one step of the peer releases goes to the store together. Until the store has said that it
holds an event, a received event can be had from here; an event of this peer's own cannot, since
nobody may see it before it is durable.

Retention: at intervals each topic that has a limit is pruned (`seam.Prune`).

Quota: what one publisher may have stored in a topic is bounded (`Keep.publisher_bytes`): beyond it
its events are refused, neither stored nor passed on, until some of them were pruned; its own peer
tells the user so. Members do not all store the same events at the same moment, so one may take an
event that another refuses, and another publisher may name it. An event that another one waits for
is therefore taken up to twice the quota, so that no member falls behind. (An event that waits for
its parents counts once it is stored; until then `waiting_bytes_max` bounds it.)

Deviation: paper 004 bounds nothing. One publisher that sent 60 MB made 8 members store 514 MB.

Invariant: each event handed in is in exactly one `Store` effect, in the order it came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import NamedTuple

from weft.bounded import BoundedDict
from weft.documents.descriptor import SealedEvent, TopicVersion
from weft.documents.record import Record
from weft.ids import GENERAL, Cid, PeerId, Topic
from weft.protocol.context import Context
from weft.protocol.seam import Prune, Store, Stored
from weft.store.interface import Retention
from weft.store.interface import Store as Library

PRUNE = "history.prune"


_UNLIMITED = Retention()
_USED_MAX = 4_096
"""guess: publishers, per topic, whose stored bytes are remembered; others are looked up."""
_VOUCHED_TIMES = 2
"""guess: how many times its quota a publisher gets for events that other events wait for."""

Then = Callable[[str], None]
"""Called once the store has answered, with the reason why it failed or an empty text."""


class Written(NamedTuple):
    """What one `Store` effect holds, and what follows once it is answered."""

    events: tuple[SealedEvent, ...]
    then: Then | None


class Storage:
    """What one peer has sent, or is about to send, to its store."""

    def __init__(self, ctx: Context, library: Library) -> None:
        self._ctx = ctx
        self._library = library
        self._used: BoundedDict[tuple[Topic, PeerId], int] = BoundedDict(_USED_MAX)
        self._unstored: dict[Cid, SealedEvent] = {}  # received, and not known to be stored yet
        self._events: list[SealedEvent] = []
        self._lost: dict[tuple[Topic, Cid], None] = {}
        self._beginnings: list[tuple[Topic, bytes]] = []
        self._versions: list[TopicVersion] = []
        self._records: list[tuple[bytes, bytes]] = []
        self._under_way: dict[int, Written] = {}

    def start(self) -> None:
        self._ctx.set_timer(self._ctx.config.history.prune_every_ms, PRUNE, GENERAL)

    # --- what the store and the clock say ---------------------------------------------------------

    def on_stored(self, fact: Stored) -> Written:
        """The store has answered; returns what it was asked to write."""
        written = self._under_way.pop(fact.token, Written((), None))
        for event in written.events:
            self._unstored.pop(event.cid, None)
        if fact.error:
            self._used.clear()
            self._ctx.counters["history_store_failed"] += max(1, len(written.events))
        return written

    def on_prune_timer(self, topics: Iterable[Topic]) -> None:
        history = self._ctx.config.history
        for topic in topics:
            retention = history.retention(topic)
            if retention != _UNLIMITED:
                self._ctx.out.append(Prune(topic, retention))
        self._ctx.set_timer(history.prune_every_ms, PRUNE, GENERAL)

    def on_pruned(self) -> None:
        """The store has dropped events: there is room again for their publishers."""
        self._used.clear()

    # --- how much one publisher may have stored ---------------------------------------------------

    def quota(self, topic: Topic) -> int:
        """In bytes; 0: without limit."""
        history = self._ctx.config.history
        return history.keep_topics.get(topic, history.keep).publisher_bytes

    def used(self, topic: Topic, publisher: PeerId) -> int:
        """The bytes that a publisher has stored in a topic, or on their way there."""
        used = self._used.get((topic, publisher))
        if used is None:
            under_way = chain(self._events, *(one.events for one in self._under_way.values()))
            used = self._library.signer_bytes(topic, publisher) + sum(
                len(event.block)
                for event in under_way
                if event.topic == topic and event.publisher == publisher
            )
            self._used[topic, publisher] = used
        return used

    def over_quota(self, event: SealedEvent, vouched: bool) -> bool:
        """Whether there is no room for an event of this publisher; `vouched`: another event of the
        stream waits for it."""
        quota = self.quota(event.topic) * (_VOUCHED_TIMES if vouched else 1)
        used = self.used(event.topic, event.publisher)
        return bool(quota) and used + len(event.block) > quota

    def _count(self, event: SealedEvent) -> None:
        used = self.used(event.topic, event.publisher)
        self._used[event.topic, event.publisher] = used + len(event.block)

    # --- what is to be stored ---------------------------------------------------------------------

    def block(self, cid: Cid) -> bytes | None:
        """The block of a received event that is not known to be stored yet."""
        event = self._unstored.get(cid)
        return event.block if event is not None else None

    def under_way(self, topic: Topic) -> list[SealedEvent]:
        """Received events of a topic that are not known to be stored yet, parents first."""
        return [event for event in self._unstored.values() if event.topic == topic]

    def add(self, event: SealedEvent) -> None:
        """A received event, stored with all else that this step releases."""
        self._count(event)
        self._events.append(event)
        self._unstored[event.cid] = event

    def add_version(self, version: TopicVersion) -> None:
        """A topic version that other peers may ask for."""
        self._versions.append(version)

    def add_record(self, record: Record) -> None:
        self.add_named(record.name, record.encoded)

    def add_named(self, name: bytes, encoded: bytes) -> None:
        """A record, or a note that is stored like one; replaces the one of that name."""
        self._records.append((name, encoded))

    def lose(self, topic: Topic, cid: Cid) -> None:
        """No peer has this block any more: the store need not miss it."""
        self._lost[topic, cid] = None

    def begin(self, topic: Topic, told: bytes) -> None:
        """Where a subscription began, encoded, for a later life of this peer."""
        self._beginnings.append((topic, told))

    def publish(self, events: tuple[SealedEvent, ...], then: Then) -> None:
        """Events of this peer's own."""
        for event in events:
            self._count(event)
        self._send(events, then)

    def publish_topic(
        self, versions: list[TopicVersion], records: list[Record], then: Then
    ) -> None:
        """Versions that this peer wrote, and the records that point at them."""
        self._send((), then, versions, [(record.name, record.encoded) for record in records])

    def flush(self) -> None:
        """The end of a step: send what it released."""
        begun = tuple(self._beginnings)
        if self._events or self._lost or self._versions or self._records or begun:
            events, versions = tuple(self._events), self._versions
            records, lost = self._records, tuple(self._lost)
            self._events, self._versions, self._records, self._lost = [], [], [], {}
            self._beginnings = []
            self._send(events, None, versions, records, lost, begun)

    def _send(
        self,
        events: tuple[SealedEvent, ...],
        then: Then | None,
        versions: Iterable[TopicVersion] = (),
        records: Iterable[tuple[bytes, bytes]] = (),
        lost: tuple[tuple[Topic, Cid], ...] = (),
        begun: tuple[tuple[Topic, bytes], ...] = (),
    ) -> None:
        token = self._ctx.next_serial()
        self._under_way[token] = Written(events, then)
        self._ctx.out.append(Store(token, events, tuple(versions), tuple(records), lost, begun))
