"""Kademlia of one peer: its locations and their tables, lookups, and what it answers others
(Maymounkov, Mazières 2002).

The plain space, where records and peers are found, has one place of this peer, `home`; `settle` and
`quit` make and drop further ones in other spaces (the generalised DHT has one per topic that the
peer forwards).

A table fills with the peers that speak: those that answer lookups and those that ask. Looking after
it: soon after the first neighbour is known, then at growing intervals, the peer looks itself up,
which makes it known to those closest to it, and then looks into ranges where it may have missed a
peer; ranges that no lookup touched for an hour are looked into again (Kademlia, Section 2.3).
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ids import GENERAL, Contact, PeerId, Topic
from weft.protocol import seam
from weft.protocol.context import Commands, Context, Handlers, Timers
from weft.protocol.defence import Crowds
from weft.protocol.kademlia import rpc
from weft.protocol.kademlia.lookup import Done, News, Outcome, Question, Search, Searches, Seen
from weft.protocol.kademlia.records import Operations, Providers, Values
from weft.protocol.kademlia.rpc import (
    NEIGHBOURS_MAX,
    PROVIDERS,
    VALUE,
    AddProvider,
    Calls,
    FindReply,
    FindRequest,
    Neighbour,
    Probe,
    ProbeReply,
    StoreReply,
    StoreValue,
)
from weft.protocol.kademlia.table import PLAIN, Entry, Place, Space, Table
from weft.rules.draw import absorb, below, stream_of
from weft.rules.prefix import common_prefix, in_bucket, location_of

REFRESH = "dht.refresh"
UPKEEP = "dht.upkeep"
TIMERS = (rpc.TIMER, REFRESH, UPKEEP)
_PHASE = stream_of("dht.phase")
_TARGET = stream_of("dht.target")
_STRANGER = stream_of("dht.stranger")
_UPKEEP_MS = 60_000
"""guess: how often expired records are dropped and due ones renewed."""
_DUE_AT_ONCE = 64
"""guess: records renewed per upkeep."""
_ANEW_EVERY = 3
"""guess: refreshes from one attempt to find lost parts of the DHT to the next."""
_ENTER_MS = 500
"""guess: between knowing the first neighbour and the first lookup."""


Provides = Callable[[bytes], bool]
"""Whether this peer has what a key names although no record says so."""


def _provides_nothing(key: bytes) -> bool:
    return False


class Kademlia:
    """One peer's part in the DHT."""

    def __init__(self, ctx: Context, known: Callable[[], list[Contact]]) -> None:
        """`known` names peers of the general overlay, with which an empty table begins."""
        self._ctx = ctx
        self.known = known
        self.calls = Calls(ctx)
        self.searches = Searches(ctx, self.calls, known, self._note)
        self.places: dict[tuple[int, Topic], Place] = {}
        self.home = self.settle(PLAIN, GENERAL)
        table = self.home.table
        self.values = Values(ctx, table.own)
        self.providers = Providers(ctx)
        self.operations = Operations(
            ctx, self.calls, self.searches, table, self.values, self.providers
        )
        settings = ctx.config.dht
        shortest = min(
            settings.republish_ms,
            settings.provide_again_ms,
            settings.provide_retry_ms,
            settings.value_life_ms,
        )
        self._upkeep_ms = min(_UPKEEP_MS, max(1, shortest // 8))
        self._refresh_serial = 0
        self._refreshes = 0
        self._pause_ms = settings.refresh_first_ms

    # --- what the peer is asked for ---------------------------------------------------------------

    def handlers(self, provides: Provides = _provides_nothing) -> Handlers:
        """The handlers of its messages."""
        return {
            FindRequest: lambda sender, message: self.on_find(sender, message, provides),
            StoreValue: self.on_store,
            AddProvider: self.on_add_provider,
            Probe: self.on_probe,
            FindReply: self.calls.on_reply,
            StoreReply: self.calls.on_reply,
            ProbeReply: self.calls.on_reply,
        }

    def commands(self) -> Commands:
        """The handlers of the user's commands."""
        operations = self.operations
        return {
            seam.DhtPut: operations.put,
            seam.DhtGet: operations.get,
            seam.DhtProvide: operations.provide,
            seam.DhtFindProviders: operations.find_providers,
            seam.DhtFindPeer: operations.find_peer,
            seam.DhtClosest: operations.closest_peers,
        }

    def timers(self) -> Timers:
        return dict.fromkeys(TIMERS, self.on_timer)

    # --- places -----------------------------------------------------------------------------------

    def settle(self, space: Space, role: Topic, refreshed: bool = True) -> Place:
        """Take up the location of a role in a space."""
        own = space.locate(role, self._ctx.me.peer)
        if own is None:
            raise ValueError(f"no role {role!r} in space {space.number}")
        settings = self._ctx.config.dht
        table = Table(
            own,
            space.bits,
            k=settings.k,
            spare=settings.spare,
            failures_max=settings.failures_max,
            fresh_ms=settings.fresh_ms,
            takes=lambda contact, others: Crowds(self._ctx, others).takes(contact),
        )
        place = Place(space, role, table, refreshed)
        self.places[space.number, role] = place
        return place

    def quit(self, space: Space, role: Topic) -> None:
        """Give the location of a role up."""
        self.places.pop((space.number, role), None)

    # --- lookups ----------------------------------------------------------------------------------

    def find(self, question: Question, done: Done, seen: Seen | None = None) -> bool:
        """Look up from home; False if too many lookups wait already."""
        return self.searches.start(Search(question, (self.home.table,), done, seen))

    def refresh(self, place: Place) -> None:
        """Look up this peer's own location, then into ranges where a peer may have been missed."""
        own, bits, k = place.table.own, place.space.bits, self._ctx.config.dht.k

        def found(outcome: Outcome) -> None:
            near = outcome.closest
            # Closer to this peer than the k-th there is none that has not answered.
            complete_from = common_prefix(own, near[-1].key, bits) if len(near) == k else 0
            since = self._ctx.now - self._ctx.config.dht.bucket_refresh_ms
            thin = [bucket for bucket in place.table.thin() if bucket < complete_from]
            for bucket in sorted({*thin, *place.table.untouched(since)}):
                self.look_into(place, bucket)

        question = Question(place.space, own, sender_role=place.role)
        self.searches.start(Search(question, (place.table,), found, background=True))

    def look_into(self, place: Place, bucket: int, count: int = 0) -> None:
        """Look up a random location of a bucket's range; `count` as in `Question`."""
        key = self._ctx.next_key(_TARGET)
        randomness = 0
        for word in range(place.space.bits // 64):
            randomness = randomness << 64 | absorb(key, word)
        target = in_bucket(place.table.own, bucket, place.space.bits, randomness)
        question = Question(place.space, target, sender_role=place.role, count=count)
        self.searches.start(Search(question, (place.table,), _nothing, background=True))

    # --- tables -----------------------------------------------------------------------------------

    def meet(self, space: Space, table: Table, key: int, role: Topic, contact: Contact) -> None:
        """A peer spoke for itself: a table may take it in."""
        self.searches.lost.spoke(contact.peer)
        oldest = table.heard(key, role, contact, self._ctx.now)
        if oldest is not None:
            self.probe(space, table, oldest)

    def probe(self, space: Space, table: Table, entry: Entry) -> None:
        """Ask a peer in a table whether it is still there."""
        self._ctx.counters["dht_probes"] += 1

        def answered(reply: ProbeReply | None) -> None:
            if reply is not None:
                self._note(space, table, entry, "answered" if reply.member else "gone")
            elif table.failed(entry.key):
                self.probe(space, table, entry)

        self.calls.ask(
            entry.contact,
            lambda number: Probe(number, space.number, entry.role),
            ProbeReply,
            answered,
        )

    def _note(self, space: Space, table: Table, entry: Entry, news: News) -> None:
        """A table learns what became of a request to one of its peers."""
        if news == "answered":
            self.meet(space, table, entry.key, entry.role, entry.contact)
        elif news == "gone":
            table.remove(entry.key)
        else:
            table.failed(entry.key)

    # --- handlers: the peer's life ----------------------------------------------------------------

    def start(self) -> None:
        self._ctx.set_timer(self._jitter(self._upkeep_ms), UPKEEP, GENERAL)
        self._arm_refresh(self._pause_ms)

    def on_neighbours(self) -> None:
        """The peer has found its way into the network."""
        if not len(self.home.table):
            self._pause_ms = self._ctx.config.dht.refresh_first_ms
            self._arm_refresh(_ENTER_MS)

    def on_timer(self, timer: seam.Timer) -> None:
        if timer.kind == rpc.TIMER:
            self.calls.on_timer(timer.serial)
        elif timer.kind == REFRESH and timer.serial == self._refresh_serial:
            self._arm_refresh(self._pause_ms)
            self._pause_ms = min(2 * self._pause_ms, self._ctx.config.dht.refresh_ms)
            for place in self.places.values():
                if place.refreshed:
                    self.refresh(place)
            self._refreshes += 1
            if self._refreshes % _ANEW_EVERY == 0:
                self._enter_anew()
        elif timer.kind == UPKEEP:
            self._ctx.set_timer(self._upkeep_ms, UPKEEP, GENERAL)
            self.values.expire()
            self.providers.expire()
            self.operations.republish(_DUE_AT_ONCE)
            self.operations.provide_again(_DUE_AT_ONCE)

    def on_peer_lost(self, peer: PeerId) -> None:
        """The peer cannot be reached."""
        self.searches.on_peer_lost(peer)

    def on_peer_doubted(self, peer: PeerId) -> None:
        """The peer may be gone: lookups need not wait for it any longer."""
        self.calls.on_peer_lost(peer)

    def on_peer_back(self, peer: PeerId) -> None:
        """A lost peer speaks again."""
        self.searches.lost.spoke(peer)

    def forget(self, peer: PeerId) -> None:
        """The peer said that it leaves."""
        self.calls.on_peer_lost(peer)
        for place in self.places.values():
            key = place.space.locate(place.role, peer)
            if key is not None:
                place.table.remove(key)

    def close(self) -> None:
        self.searches.close()
        self.operations.close()
        self.calls.close()

    # --- handlers: requests of others -------------------------------------------------------------

    def on_find(self, sender: Contact, message: FindRequest, provides: Provides) -> None:
        place = self.places.get((message.space, message.role))
        target = place.space.target(message.target) if place is not None else None
        asker = place.space.locate(message.sender_role, sender.peer) if place is not None else None
        if place is None or target is None or asker is None:
            self._ctx.send(sender, FindReply(message.request, False))
            return
        most = min(message.most, NEIGHBOURS_MAX)
        lost, now = self.searches.lost, self._ctx.now
        closer = [
            Neighbour(entry.contact, entry.role)
            for entry in place.table.closest(target, most + 1, sound=True)
            if entry.key != asker and not lost.has(entry.contact.peer, now)
        ][:most]
        value = self.values.get(message.key) if message.want == VALUE else None
        providers = []
        if message.want == PROVIDERS:
            own = [self._ctx.me] if provides(message.key) else []
            providers = [*own, *self.providers.get(message.key)][:NEIGHBOURS_MAX]
        reply = FindReply(message.request, True, closer, value is not None, value or b"", providers)
        self._ctx.send(sender, reply)
        self.meet(place.space, place.table, asker, message.sender_role, sender)

    def on_store(self, sender: Contact, message: StoreValue) -> None:
        verdict = self.values.store(sender.peer, message.key, message.value, message.life_ms)
        self._ctx.send(sender, StoreReply(message.request, verdict in ("stored", "held")))

    def on_add_provider(self, sender: Contact, message: AddProvider) -> None:
        self._ctx.send(sender, StoreReply(message.request, self.providers.add(sender, message.key)))

    def on_probe(self, sender: Contact, message: Probe) -> None:
        member = (message.space, message.role) in self.places
        self._ctx.send(sender, ProbeReply(message.request, member))

    # --- helpers ----------------------------------------------------------------------------------

    def _enter_anew(self) -> None:
        """Look up this peer's own location through a random stranger, as a newcomer would.

        Deviation: Kademlia has nothing that brings parts together that lost each other, and a
        table that lacks a whole range never learns of it from peers that lack it too.
        """
        strangers = [
            contact
            for contact in self.known()
            if self.home.table.get(location_of(contact.peer)) is None
        ]
        if strangers:
            entry = Neighbour(self._ctx.pick(_STRANGER, strangers))
            question = Question(PLAIN, self.home.table.own)
            tables = (self.home.table,)
            self.searches.start(Search(question, tables, _nothing, None, True, (entry,), anew=True))

    def _arm_refresh(self, pause_ms: int) -> None:
        self._refresh_serial = self._ctx.next_serial()
        self._ctx.set_timer(self._jitter(pause_ms), REFRESH, GENERAL, self._refresh_serial)

    def _jitter(self, pause_ms: int) -> int:
        """Peers that start together must not all act together."""
        return pause_ms // 2 + below(self._ctx.bits(_PHASE), pause_ms) + 1

    def status(self) -> dict[str, object]:
        return {
            "contacts": len(self.home.table),
            "lookups": self.searches.running,
            "requests": len(self.calls),
            "values": len(self.values),
            "value_bytes": self.values.bytes,
            "providers": len(self.providers),
            "provided": self.operations.provided,
        }


def _nothing(outcome: Outcome) -> None:
    """The tables have learned from it already."""


def refusals(ctx: Context) -> Handlers:
    """Handlers of a peer without a DHT: it says so, and is not waited for."""
    return {
        FindRequest: lambda sender, m: ctx.send(sender, FindReply(m.request, False)),
        StoreValue: lambda sender, m: ctx.send(sender, StoreReply(m.request, False)),
        AddProvider: lambda sender, m: ctx.send(sender, StoreReply(m.request, False)),
        Probe: lambda sender, m: ctx.send(sender, ProbeReply(m.request, False)),
        FindReply: lambda sender, m: None,
        StoreReply: lambda sender, m: None,
        ProbeReply: lambda sender, m: None,
    }
