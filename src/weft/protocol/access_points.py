"""The access point table: for some topics, one peer that is subscribed (TERA, Section 3).

Filled by advertisements under the rules of `rules/apt.py`. Also estimates how many topics are
active, by comparing samples of other peers' tables with this one.

Deviation: an entry remembers the overlay id it was advertised with. When two advertisements for
one topic name different overlays, the table's owner tells one advertiser of the other (`Hint`),
so parts of an unpopular topic find each other long before one advertises to the other.
"""

from __future__ import annotations

from msgspec import Struct

from weft.ids import Contact, OverlayId, PeerId, Topic
from weft.protocol.context import Context
from weft.protocol.liveness import topic_fingerprint
from weft.protocol.messages import Advert, Hint
from weft.rules import apt as rules
from weft.rules.draw import slots_in, stream_of, subset_mask

_ADMIT = stream_of("apt.admit")
_EVICT = stream_of("apt.evict")
_SAMPLE = stream_of("apt.sample")
_SAMPLE_SIZE = 8
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
        elif rules.admits(self._ctx.bits(_ADMIT), advert.popularity):
            self._insert(advert.topic, Entry(sender, overlay, topic_fingerprint(advert.topic)))

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
            self.forget(self._topics[rules.evicted_slot(bits, len(self._topics))])

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
        return rules.topics_active(len(self._entries), self._offered, self._shared)
