"""Access points: for some topics, one peer that is subscribed; and how to look one up (TERA,
Sections 3 and 4.2.2).

The table (`AccessPoints`) is filled by advertisements under the rules of `rules/tera.py`. It also
estimates how many topics are active, by comparing samples of other peers' tables with this one.

A lookup (`Lookup`) asks its own table first, then sends random walks through the general overlay.
Each visited peer answers from its table and (unless switched off, as in the paper's experiments)
from its own subscriptions; a walk that ends without an answer says so, and a walk that is lost is
given up after a timeout. Walks that died, with the peer they began at or on their way, say nothing
about the topic: further walks are sent, and if those die too, the outcome says so
(`LookupDone.lost`). Lookups beyond a bound wait for their turn.

A lookup yields a list, one access point for each walk that found one, and all are tried (Algorithms
1 to 3). The first one is the result; the others are kept for a caller that asks for the topic again
because the first was stale. A peer whose table named a stale access point is told so (`Stale`), and
forgets it.

Deviation: an entry remembers the overlay id it was advertised with. When two advertisements for
one topic name different overlays, the table's owner tells one advertiser of the other (`Hint`),
so parts of an unpopular topic find each other long before one advertises to the other.

Deviation: a newcomer is given a copy of the table of the peer that lets it in. Advertisements alone
would need thousands of cycles to fill a table, and where peers come and go all the time most tables
would stay nearly empty (measured, `tera-churn`: at 1 % a cycle, copies are what keeps lookups
successful).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from weft.bounded import BoundedDict
from weft.ids import Contact, OverlayId, PeerId, Topic, WirePeerId, WireTopic
from weft.protocol.context import Context, Late, LookupDone
from weft.protocol.liveness import topic_fingerprint
from weft.protocol.membership import Advert, AdvertList, Cyclon
from weft.protocol.publication import AVOID_MAX, KNOWN_MAX
from weft.protocol.quota import Quota
from weft.protocol.seam import Millis
from weft.protocol.settings import Settings, require, require_positive
from weft.protocol.wire import LIST_MAX, Counter, Message
from weft.rules import tera as rules
from weft.rules.draw import slots_in, stream_of, subset_mask

PASSED_MAX = 8
"""guess: peers that a walk does not go back to; among ten peers it ends when it has visited all."""
_TRIES_MAX = 3
"""guess: times walks are sent in one lookup, where some were lost and none found anything."""
Attempt = Annotated[int, Meta(ge=0, le=_TRIES_MAX)]


class Advertisement(Message, frozen=True, tag=10):
    """Topics that the sender is subscribed to."""

    adverts: AdvertList


class Hint(Message, frozen=True, tag=29):
    """From a third peer that heard of two overlays of one topic: the other one is there."""

    topic: WireTopic
    overlay: Counter
    member: Contact


class TableEntry(Struct, frozen=True, array_like=True, gc=False):
    """A topic's access point, as one peer's table has it."""

    topic: WireTopic
    overlay: Counter
    access_point: Contact


class TableCopy(Message, frozen=True, tag=39):
    """A page of the sender's access point table, for a peer that has just joined."""

    entries: Annotated[list[TableEntry], Meta(max_length=LIST_MAX)]


class LookupWalk(Message, frozen=True, tag=11):
    """Looks for an access point of a topic, step by step, on behalf of its origin."""

    topic: WireTopic
    origin: Contact
    lookup: Counter
    steps: Annotated[int, Meta(ge=0, le=4096)]
    avoid: Annotated[list[WirePeerId], Meta(max_length=AVOID_MAX)] = []  # known to be stale
    attempt: Attempt = 0  # of the lookup: walks of the one before may still report
    passed: Annotated[list[WirePeerId], Meta(max_length=PASSED_MAX)] = []  # visited last
    avoid_too: Annotated[list[WirePeerId], Meta(max_length=KNOWN_MAX)] = []  # or asked already


class LookupHit(Message, frozen=True, tag=12):
    """To the origin of a walk: an access point of the topic that it looks for."""

    reports: ClassVar[bool] = True

    lookup: Counter
    access_point: Contact


class LookupMiss(Message, frozen=True, tag=13):
    """A walk ended without an answer; the origin need not wait for it."""

    reports: ClassVar[bool] = True

    lookup: Counter
    attempt: Attempt = 0  # of the walk


class Stale(Message, frozen=True, tag=38):
    """The access point that the receiver named is not there, or is not subscribed any more."""

    topic: WireTopic
    access_point: WirePeerId


LOOKUP = "lookup"
LOOKUP_LATE = "lookup.late"


class Config(Settings):
    """Subscription management, access point table, lookup, event management."""

    advertise_to: int = 5  # paper (D): neighbours that hear of a new subscription at once
    advert_page: int = 256  # guess: topics that ride on an exchange, or in one advertisement
    advert_pages_per_cycle: int = 4  # guess: bounds what a peer with very many topics sends at once
    table_size: int = 400  # paper (largest of Fig. 4a)
    walks: int = 4  # paper (r)
    lookup_success: float = 0.999  # guess: wanted probability, from which K follows
    # guess: bound on K. 256 visits give 0.999 up to 15,000 topics with tables of 400; from there on
    # a larger table is cheaper than longer walks: 10⁵ topics take 1,724 visits with tables of 400,
    # each a message and some 50 ms of its walk's time, and 166 with tables of 4,096 (some 1.2 MB).
    lookup_visits_max: int = 256
    lookup_visits_unknown: int = 40  # guess: K while the number of topics is unknown
    lookup_timeout_ms: Millis = 5_000  # guess: some ten hops, each with a handshake
    answer_from_subscriptions: bool = True  # off in the paper's experiments
    route_timeout_ms: Millis = 5_000  # guess
    route_attempts: int = 4  # guess: access points tried before giving up
    pending_max: int = 1_024  # guess: publishes in progress or waiting for a network
    pending_ms_max: Millis = 120_000  # guess: how long a queued event is kept

    def __post_init__(self) -> None:
        require(1 <= self.advert_page <= 512, "tera.advert_page must be 1 to 512")
        require_positive(self, "tera")
        for name in ("lookup_visits_max", "lookup_visits_unknown", "table_size"):
            require(getattr(self, name) <= 4_096, f"tera.{name} must be at most 4096")
        require(0 < self.lookup_success < 1, "tera.lookup_success must lie between 0 and 1")


_ADMIT = stream_of("apt.admit")
_EVICT = stream_of("apt.evict")
_SAMPLE = stream_of("apt.sample")
_SAMPLE_SIZE = 8
_COPY_PAGE = 64
"""guess: entries of a copied table in one message, some 5 to 20 kB."""
_FORGET_AFTER = 4_096
"""guess: the tallies behind the topic estimate are halved after so many sampled topics."""
_NUMBER = stream_of("lookup.number")
_LATE_MS = 2_000
"""guess: a walk takes a few hops of some 50 ms each; after that the peers that it began at are
asked whether they live."""
_SPARES_MAX = 8
"""guess: access points kept of one topic beside the first …"""
_SPARE_MS = 10_000
"""guess: … for so long: by then an asker has noticed that the first one was stale."""
_TOLD_MAX = 1_024
"""guess: access points whose teller is remembered, topics with spare ones, answered lookups."""
_STALE_MAX = 16
"""guess: entries that one peer may declare stale in a minute; a table refills by itself."""
_STALE_PERIOD_MS = 60_000
_FARTHER = 2
"""guess: by how much another's walk may be longer than this peer's own would be now: peers'
estimates of the number of topics differ, and a newcomer's walks are longer, being fewer."""
_AT_ONCE_MAX = 64
"""guess: lookups under way at once, so that a peer that subscribes to very many topics does not
send all their walks in one moment."""


class Entry(Struct, frozen=True, gc=False):
    contact: Contact
    overlay: OverlayId
    fingerprint: int
    copied: bool = False  # from another table, so it is no sample of the active topics


class AccessPoints:
    """The access point table of one peer."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._entries: dict[Topic, Entry] = {}
        self._topics: list[Topic] = []  # the same topics, for uniform eviction
        self._slots: dict[Topic, int] = {}
        self._fingerprints: dict[int, Topic] = {}
        # By peer: the topics that it is the access point of, in the order in which they came.
        self._by_peer: dict[PeerId, dict[Topic, None]] = {}
        self._own = 0  # entries that were not copied
        self._offered = 0
        self._shared = 0

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, topic: Topic) -> Contact | None:
        entry = self._entries.get(topic)
        return entry.contact if entry is not None else None

    # --- advertisements ---------------------------------------------------------------------------

    def on_advert(self, sender: Contact, advert: Advert) -> None:
        old = self._entries.get(advert.topic)
        overlay = OverlayId(advert.overlay)
        if old is not None:
            if old.overlay != overlay and old.contact.peer != sender.peer:
                self._ctx.counters["hints_sent"] += 1
                self._ctx.send(sender, Hint(advert.topic, old.overlay, old.contact))
            copied = old.copied and not rules.admits(self._ctx.bits(_ADMIT), advert.popularity)
            self._own += old.copied and not copied
            if old.contact.peer != sender.peer:
                self._withdraw(old.contact.peer, advert.topic)
                self._assign(sender.peer, advert.topic)
            self._entries[advert.topic] = Entry(sender, overlay, old.fingerprint, copied)
        elif rules.admits(self._ctx.bits(_ADMIT), advert.popularity):
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
        """Take copied entries as long as there is room; they replace nothing."""
        room = self._ctx.config.tera.table_size - len(self._topics)
        for copied in message.entries:
            if room <= 0:
                return
            if copied.topic in self._entries or copied.access_point.peer == self._ctx.me.peer:
                continue
            fingerprint = topic_fingerprint(copied.topic)
            entry = Entry(copied.access_point, OverlayId(copied.overlay), fingerprint, True)
            self._insert(copied.topic, entry)
            room -= 1

    def _insert(self, topic: Topic, entry: Entry) -> None:
        self._entries[topic] = entry
        self._slots[topic] = len(self._topics)
        self._topics.append(topic)
        self._fingerprints[entry.fingerprint] = topic
        self._own += not entry.copied
        self._assign(entry.contact.peer, topic)
        while len(self._topics) > self._ctx.config.tera.table_size:
            self.forget(self._evicted(entry.contact.peer))

    def _evicted(self, peer: PeerId) -> Topic:
        """The entry that makes room for a new one of this access point's: where it has its share of
        the table, one of its own."""
        bits, config = self._ctx.bits(_EVICT), self._ctx.config
        choices = self._topics
        if config.defence.rates:
            own = self._by_peer[peer]
            choices = list(own) if rules.has_share(len(own), config.tera.table_size) else choices
        return choices[rules.evicted_slot(bits, len(choices))]

    def _assign(self, peer: PeerId, topic: Topic) -> None:
        self._by_peer.setdefault(peer, {})[topic] = None

    def _withdraw(self, peer: PeerId, topic: Topic) -> None:
        topics = self._by_peer[peer]
        del topics[topic]
        if not topics:
            del self._by_peer[peer]

    def forget(self, topic: Topic) -> None:
        entry = self._entries.pop(topic, None)
        if entry is None:
            return
        self._fingerprints.pop(entry.fingerprint, None)
        self._withdraw(entry.contact.peer, topic)
        self._own -= not entry.copied
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
        for topic in list(self._by_peer.get(peer, ())):
            self.forget(topic)

    # --- how many topics there are ----------------------------------------------------------------

    def sample(self) -> list[int]:
        """Fingerprints of a few random topics in the table."""
        mask = subset_mask(self._ctx.next_key(_SAMPLE), len(self._topics), _SAMPLE_SIZE)
        return [self._entries[self._topics[slot]].fingerprint for slot in slots_in(mask)]

    def on_sample(self, fingerprints: list[int]) -> None:
        self._offered += len(fingerprints)
        self._shared += sum(1 for f in fingerprints if self._has_own(f))
        if self._offered > _FORGET_AFTER:
            self._offered //= 2
            self._shared //= 2

    def _has_own(self, fingerprint: int) -> bool:
        topic = self._fingerprints.get(fingerprint)
        return topic is not None and not self._entries[topic].copied

    def topics_active(self) -> int:
        """The estimated number of active topics; 0 while unknown.

        Copied entries do not count: tables that were copied from one another share their topics
        however many others there are (newcomers took 1,000 topics for 120)."""
        return rules.topics_active(self._own, self._offered, self._shared)


class _Search(Struct):
    """A lookup by walks."""

    topic: Topic
    avoid: list[PeerId]
    done: type[LookupDone]  # the signal that tells its end
    tries: int = 0
    serial: int = 0  # of the timer that counts
    walks: int = 0  # that have not reported yet
    starts: dict[PeerId, Contact] = field(default_factory=dict)  # the peers they began at
    died: bool = False  # one of these walks was lost
    found: list[Contact] = field(default_factory=list)


_Spares: TypeAlias = BoundedDict[PeerId, tuple[Contact, Millis]]  # and when they were found


class Lookup:
    """Lookups this peer has started, and its answers to others' walks."""

    def __init__(self, ctx: Context, table: AccessPoints, view: Cyclon) -> None:
        self._ctx = ctx
        self._table = table
        self._view = view
        self._searches: dict[int, _Search] = {}
        self._timers: dict[int, int] = {}  # timer serial -> lookup
        self._waiting: dict[int, _Search] = {}
        # Access points that further walks found, and the peers whose tables named them.
        self._spares: BoundedDict[Topic, _Spares] = BoundedDict(_TOLD_MAX)
        self._answered: BoundedDict[int, Topic] = BoundedDict(_TOLD_MAX)  # by lookup, of late
        self._named_by: BoundedDict[tuple[Topic, PeerId], Contact] = BoundedDict(_TOLD_MAX)
        self._stale: Quota[PeerId] = Quota(_STALE_MAX, _STALE_PERIOD_MS)

    def start(
        self, topic: Topic, avoid: Iterable[PeerId] = (), done: type[LookupDone] = LookupDone
    ) -> int:
        """Begin a lookup; the signal `done` with this number follows, perhaps at once.

        `avoid` names access points that turned out stale: others may still have them.
        """
        number = self._ctx.bits(_NUMBER) >> 1  # not to be guessed by strangers
        avoided = list(avoid)[: AVOID_MAX + KNOWN_MAX]
        known = self._known(topic, avoided)
        if known is not None:
            self._ctx.tell(done(number, topic, (known,)))
        else:
            self._waiting[number] = _Search(topic, avoided, done)
            self._start_waiting()
        return number

    def _known(self, topic: Topic, avoided: list[PeerId]) -> Contact | None:
        """This peer's own access point for a topic, else one that an earlier walk found."""
        since_ms = self._ctx.now - _SPARE_MS
        spares = self._spares.get(topic, {}).values()
        fresh = [contact for contact, found_ms in spares if found_ms >= since_ms]
        for contact in (self._table.find(topic), *fresh):
            if contact is not None and contact.peer not in (self._ctx.me.peer, *avoided):
                return contact
        return None

    def _start_waiting(self) -> None:
        while self._waiting and len(self._searches) < _AT_ONCE_MAX:
            number = next(iter(self._waiting))
            search = self._waiting.pop(number)
            self._searches[number] = search
            self._ctx.counters["lookups"] += 1
            self._walk(number, search)

    def _visits(self) -> int:
        """K for the wanted success, from the estimated number of topics."""
        tera = self._ctx.config.tera
        topics = self._table.topics_active()
        if not topics:
            return tera.lookup_visits_unknown
        visits = rules.visits_needed(
            tera.lookup_success, len(self._table), topics, tera.lookup_visits_max
        )
        return max(visits, tera.lookup_visits_unknown)

    def _walk(self, number: int, search: _Search) -> None:
        ctx, tera = self._ctx, self._ctx.config.tera
        starts = self._view.sample(tera.walks)
        if not starts:
            self._close(number, search, lost=True)
            return
        steps = rules.steps_of_each(self._visits(), len(starts))
        search.tries += 1
        search.walks = len(starts)
        search.starts = {contact.peer: contact for contact in starts}
        search.died = False
        search.serial = ctx.next_serial()
        self._timers[search.serial] = number
        walk = LookupWalk(
            search.topic,
            ctx.me,
            number,
            steps - 1,
            search.avoid[:AVOID_MAX],
            search.tries - 1,
            avoid_too=search.avoid[AVOID_MAX:],
        )
        for contact in starts:
            ctx.send(contact, walk)
        late_ms = min(_LATE_MS, tera.lookup_timeout_ms)
        ctx.set_timer(late_ms, LOOKUP_LATE, search.topic, search.serial)

    # --- others' walks ------------------------------------------------------------------------

    def on_walk(self, sender: Contact, message: LookupWalk, subscribed: bool) -> None:
        """Answer a walk if this peer can, else pass it on, or tell its origin that it ends here:
        it has taken its steps, or there is no neighbour that it has not been at. If its sender has
        had its share, say nothing: that it ends here says nothing about the topic, so it shall
        count as lost, and an origin that sends too many waits.

        Deviation: TERA's walks go to any neighbour, and in a network of two or three peers back and
        forth: one lookup took all its steps (40 to 256), and twenty at once more than peers take
        from each other (measured: 60 s for 20 topics with two peers, now 30 ms)."""
        ctx = self._ctx
        home = message.origin.peer == ctx.me.peer  # came back: the visit counts, we know nothing
        answer = None
        if subscribed and not home and ctx.config.tera.answer_from_subscriptions:
            answer = ctx.me
        elif not home:
            answer = self._table.find(message.topic)
        not_wanted = (message.origin.peer, *message.avoid, *message.avoid_too)
        if answer is not None and answer.peer not in not_wanted:
            self._report(sender, message, LookupHit(message.lookup, answer))
            return
        steps = self._steps_left(message)
        passed = [*message.passed, ctx.me.peer][-PASSED_MAX:]
        others = {message.origin.peer, sender.peer, *passed}
        onward = self._view.neighbour(others) if steps > 0 else None
        if onward is not None:
            if ctx.carries_walk(sender, self._visits_left(steps)):
                ctx.send(onward, replace(message, steps=steps - 1, passed=passed))
        elif home:
            self.on_miss(LookupMiss(message.lookup, message.attempt))
        else:
            self._report(sender, message, LookupMiss(message.lookup, message.attempt))

    def _report(self, sender: Contact, walk: LookupWalk, answer: LookupHit | LookupMiss) -> None:
        """Tell a walk's origin what came of it. A hostile peer may have made the origin up, and the
        answer would then be sent to anybody's address."""
        if self._view.informants.may_send(sender, walk.origin):
            self._ctx.send(walk.origin, answer)

    def _steps_left(self, walk: LookupWalk) -> int:
        """How many steps a walk has left: hardly more than one of this peer's own would take."""
        if not self._ctx.config.defence.rates:
            return walk.steps
        usual = rules.steps_of_each(self._visits(), self._ctx.config.tera.walks)
        return min(walk.steps, _FARTHER * usual)

    def _visits_left(self, steps: int) -> int:
        """How many messages it costs to pass a walk on: fewer than it has steps, if this peer knows
        so few others that it ends when it has been at all of them."""
        known = len(self._view.peers)
        return min(steps, known) if known <= PASSED_MAX + 1 else steps

    # --- answers ------------------------------------------------------------------------------

    def on_hit(self, sender: Contact, message: LookupHit) -> None:
        found = message.access_point
        if found.peer == self._ctx.me.peer:
            return
        search = self._searches.get(message.lookup)
        topic = search.topic if search is not None else self._answered.get(message.lookup)
        if topic is None:
            return
        if search is not None and found.peer in search.avoid:
            # Honest peers name none of these. A peer that does may want to be the only one that is
            # ever found, so its walk counts as lost.
            self._ctx.counters["hits_avoided"] += 1
            return
        self._named_by.renew((topic, found.peer), sender)
        if search is not None:
            search.found.append(found)
            self._answered[message.lookup] = topic
            self._end(message.lookup, search)
        else:
            spares = self._spares.setdefault(topic, BoundedDict(_SPARES_MAX))
            spares.renew(found.peer, (found, self._ctx.now))

    def on_miss(self, message: LookupMiss) -> None:
        search = self._searches.get(message.lookup)
        if search is not None and message.attempt == search.tries - 1:
            search.walks -= 1
            self._go_on(message.lookup, search)

    # --- access points that are not there ---------------------------------------------------------

    def disprove(self, topic: Topic, peer: PeerId) -> None:
        """The access point turned out stale: forget it, and tell the peer that named it."""
        self._table.forget_entry(topic, peer)
        spares = self._spares.get(topic)
        if spares is not None:
            spares.pop(peer, None)
        teller = self._named_by.pop((topic, peer), None)
        if teller is not None and teller.peer != peer:
            self._ctx.send(teller, Stale(topic, peer))

    def on_stale(self, sender: Contact, message: Stale) -> None:
        known = self._table.find(message.topic)
        named = known is not None and known.peer == message.access_point
        if named and self._stale.takes(sender.peer, self._ctx.now):
            self._table.forget_entry(message.topic, message.access_point)

    def on_peer_lost(self, peer: PeerId) -> None:
        """A walk that began at this peer has died, as far as can be seen."""
        for number, search in list(self._searches.items()):
            if search.starts.pop(peer, None) is not None:
                search.died = True
                search.walks -= 1
                self._go_on(number, search)

    def on_late_timer(self, serial: int) -> None:
        """No walk has reported yet: have the peers that the walks began at asked for a sign of
        life."""
        search = self._searches.get(self._timers.get(serial, 0))
        if search is not None and search.serial == serial:
            self._ctx.tell(Late(tuple(search.starts.values())))
            left_ms = max(0, self._ctx.config.tera.lookup_timeout_ms - _LATE_MS)
            self._ctx.set_timer(left_ms, LOOKUP, search.topic, serial)

    def on_timer(self, serial: int) -> None:
        """Walks that have not reported are lost: their silence says nothing, so walk again."""
        number = self._timers.pop(serial, 0)
        search = self._searches.get(number)
        if search is not None and search.serial == serial:
            search.died = True
            search.walks = 0
            self._go_on(number, search)

    def _go_on(self, number: int, search: _Search) -> None:
        """When all walks have reported or died, walk again or end."""
        if search.walks > 0:
            return
        self._timers.pop(search.serial, None)
        if search.died and search.tries < _TRIES_MAX:
            self._walk(number, search)
        else:
            self._close(number, search, lost=search.died)
        self._start_waiting()

    def _end(self, number: int, search: _Search) -> None:
        self._close(number, search, lost=False)
        self._start_waiting()

    def _close(self, number: int, search: _Search, lost: bool) -> None:
        del self._searches[number]
        self._timers.pop(search.serial, None)
        if not search.found:
            self._ctx.counters["lookups_empty"] += 1
        self._ctx.tell(search.done(number, search.topic, tuple(search.found), lost))
