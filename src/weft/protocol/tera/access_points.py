"""The access point table: for some topics, one peer that is subscribed (TERA, Section 3).

Filled by advertisements under the rules of `rules/tera.py`. Also estimates how many topics are
active, by comparing samples of other peers' tables with this one.

Deviation: an entry remembers the overlay id it was advertised with. When two advertisements for
one topic name different overlays, the table's owner tells one advertiser of the other (`Hint`),
so parts of an unpopular topic find each other long before one advertises to the other.

Deviation: a newcomer is given a copy of the table of whoever lets it in. Advertisements alone would
need thousands of cycles to fill a table, and where peers come and go all the time most tables
would stay nearly empty (measured, `tera-churn`: at 1 % a cycle, copies are what keeps lookups
successful).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta, Struct

from weft.ids import Contact, OverlayId, PeerId, Topic, WireTopic
from weft.protocol.context import Context, require
from weft.protocol.cyclon import MEMBERS_MAX
from weft.protocol.liveness import topic_fingerprint
from weft.protocol.seam import Millis
from weft.protocol.wire import LIST_MAX, Counter, Message
from weft.rules import tera
from weft.rules.draw import slots_in, stream_of, subset_mask


@dataclass(frozen=True)
class Config:
    """Subscription management, access point table, lookup, event management."""

    advertise_every_cycles: int = 5  # paper (T)
    advertise_to: int = 5  # paper (D)
    advert_page: int = 256  # guess: topics in one advertisement message
    advert_pages_per_cycle: int = 4  # guess: bounds what a peer with very many topics sends
    table_size: int = 400  # paper (largest of Fig. 4a)
    walks: int = 4  # paper (r)
    lookup_success: float = 0.999  # guess: wanted probability, from which K follows
    lookup_visits_max: int = 256  # guess: bound on K
    lookup_visits_unknown: int = 40  # guess: K while the number of topics is unknown
    lookup_timeout_ms: Millis = 5_000  # guess: some ten hops, each with a handshake
    answer_from_subscriptions: bool = True  # off in the paper's experiments
    route_timeout_ms: Millis = 5_000  # guess
    route_attempts: int = 4  # guess: access points tried before giving up
    pending_max: int = 1_024  # guess: publishes in progress or waiting for a network
    pending_ms_max: Millis = 120_000  # guess: how long a queued event is kept

    def __post_init__(self) -> None:
        for name in (
            "advertise_every_cycles",
            "advertise_to",
            "advert_pages_per_cycle",
            "table_size",
            "walks",
            "lookup_visits_max",
            "lookup_visits_unknown",
            "lookup_timeout_ms",
            "route_timeout_ms",
            "route_attempts",
            "pending_max",
            "pending_ms_max",
        ):
            require(getattr(self, name) >= 1, f"tera.{name} must be at least 1")
        for name in ("lookup_visits_max", "lookup_visits_unknown", "table_size"):
            require(getattr(self, name) <= 4_096, f"tera.{name} must be at most 4096")
        require(1 <= self.advert_page <= 512, "tera.advert_page must be 1 to 512")
        require(0 < self.lookup_success < 1, "tera.lookup_success must lie between 0 and 1")


class Advert(Struct, frozen=True, array_like=True, gc=False):
    topic: WireTopic
    overlay: Counter
    popularity: Annotated[int, Meta(ge=1, le=MEMBERS_MAX)]


class Advertisement(Message, frozen=True, tag=10):
    adverts: Annotated[list[Advert], Meta(max_length=LIST_MAX)]


class Hint(Message, frozen=True, tag=29):
    """From a third peer that heard of two overlays of one topic: the other one is there."""

    topic: WireTopic
    overlay: Counter
    member: Contact


class TableEntry(Struct, frozen=True, array_like=True, gc=False):
    topic: WireTopic
    overlay: Counter
    access_point: Contact


class TableCopy(Message, frozen=True, tag=39):
    """A page of the sender's access point table, for somebody who has just joined."""

    entries: Annotated[list[TableEntry], Meta(max_length=LIST_MAX)]


_ADMIT = stream_of("apt.admit")
_EVICT = stream_of("apt.evict")
_SAMPLE = stream_of("apt.sample")
_SAMPLE_SIZE = 8
_COPY_PAGE = 64
"""guess: entries of a copied table in one message, some 5 to 20 kB."""
_FORGET_AFTER = 4_096
"""guess: the tallies behind the topic estimate are halved after so many sampled topics."""


class Entry(Struct, frozen=True, gc=False):
    contact: Contact
    overlay: OverlayId
    fingerprint: int


class AccessPoints:
    """The access point table of one peer."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._entries: dict[Topic, Entry] = {}
        self._topics: list[Topic] = []  # the same topics, for uniform eviction
        self._slots: dict[Topic, int] = {}
        self._fingerprints: dict[int, Topic] = {}
        self._offered = 0
        self._shared = 0

    def __len__(self) -> int:
        return len(self._entries)

    def topics(self) -> list[Topic]:
        return list(self._topics)

    def find(self, topic: Topic) -> Contact | None:
        entry = self._entries.get(topic)
        return entry.contact if entry is not None else None

    # --- advertisements ---------------------------------------------------------------------------

    def on_advert(self, sender: Contact, advert: Advert) -> None:
        old = self._entries.get(advert.topic)
        overlay = OverlayId(advert.overlay)
        if old is not None:
            if old.overlay != overlay and old.contact.peer != sender.peer:
                self._introduce(sender, overlay, advert.topic, old)
            self._entries[advert.topic] = Entry(sender, overlay, old.fingerprint)
        elif tera.admits(self._ctx.bits(_ADMIT), advert.popularity):
            self._insert(advert.topic, Entry(sender, overlay, topic_fingerprint(advert.topic)))

    def copy(self) -> Iterator[TableCopy]:
        """The table in pages, for a newcomer."""
        for start in range(0, len(self._topics), _COPY_PAGE):
            yield TableCopy(
                [
                    TableEntry(topic, self._entries[topic].overlay, self._entries[topic].contact)
                    for topic in self._topics[start : start + _COPY_PAGE]
                ]
            )

    def on_copy(self, message: TableCopy) -> None:
        """Fill what room there is; nothing that was advertised gives way."""
        room = self._ctx.config.tera.table_size - len(self._topics)
        for copied in message.entries:
            if room <= 0:
                return
            if copied.topic in self._entries or copied.access_point.peer == self._ctx.me.peer:
                continue
            fingerprint = topic_fingerprint(copied.topic)
            entry = Entry(copied.access_point, OverlayId(copied.overlay), fingerprint)
            self._insert(copied.topic, entry)
            room -= 1

    def _introduce(self, sender: Contact, overlay: OverlayId, topic: Topic, old: Entry) -> None:
        self._ctx.counters["hints_sent"] += 1
        self._ctx.send(sender, Hint(topic, old.overlay, old.contact))

    def _insert(self, topic: Topic, entry: Entry) -> None:
        self._entries[topic] = entry
        self._slots[topic] = len(self._topics)
        self._topics.append(topic)
        self._fingerprints[entry.fingerprint] = topic
        while len(self._topics) > self._ctx.config.tera.table_size:
            bits = self._ctx.bits(_EVICT)
            self.forget(self._topics[tera.evicted_slot(bits, len(self._topics))])

    def forget(self, topic: Topic) -> None:
        entry = self._entries.pop(topic, None)
        if entry is None:
            return
        self._fingerprints.pop(entry.fingerprint, None)
        slot, last = self._slots.pop(topic), self._topics.pop()
        if last != topic:
            self._topics[slot] = last
            self._slots[last] = slot

    def forget_entry(self, topic: Topic, peer: PeerId) -> None:
        """The access point turned out stale; a newer entry stays."""
        entry = self._entries.get(topic)
        if entry is not None and entry.contact.peer == peer:
            self.forget(topic)

    def forget_peer(self, peer: PeerId) -> None:
        for topic in [t for t, entry in self._entries.items() if entry.contact.peer == peer]:
            self.forget(topic)

    # --- how many topics there are ----------------------------------------------------------------

    def sample(self) -> list[int]:
        """Fingerprints of a few random topics in the table."""
        mask = subset_mask(self._ctx.next_key(_SAMPLE), len(self._topics), _SAMPLE_SIZE)
        return [self._entries[self._topics[slot]].fingerprint for slot in slots_in(mask)]

    def on_sample(self, fingerprints: list[int]) -> None:
        self._offered += len(fingerprints)
        self._shared += sum(1 for f in fingerprints if f in self._fingerprints)
        if self._offered > _FORGET_AFTER:
            self._offered //= 2
            self._shared //= 2

    def topics_active(self) -> int:
        """The estimated number of active topics; 0 while unknown."""
        return tera.topics_active(len(self._entries), self._offered, self._shared)
