"""Kademlia of one peer: its locations and their tables, lookups, and what it answers others.

A *place* is one location of this peer in one space, with a table of its own. The plain space,
where records and peers are found, has one place, `home`; `settle` and `quit` make and drop further
ones in other spaces (the generalised DHT has one per topic that the peer forwards).

The table fills from whoever speaks: those who answer lookups and those who ask. Looking after it:
soon after the first neighbour is known, then at growing intervals, the peer looks itself up, which
makes it known to those closest to it, and then looks into ranges where it may have missed
somebody; ranges that no lookup touched for an hour are looked into again (Kademlia, Section 2.3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from weft.ids import GENERAL, Contact, PeerId, Topic
from weft.protocol import seam
from weft.protocol.context import Context
from weft.protocol.kademlia import calls as calling
from weft.protocol.kademlia import kinds as all_kinds
from weft.protocol.kademlia.calls import Calls, Reply
from weft.protocol.kademlia.operations import Operations
from weft.protocol.kademlia.question import Done, News, Outcome, Question, Seen
from weft.protocol.kademlia.records import Providers, Values
from weft.protocol.kademlia.searches import Search, Searches
from weft.protocol.kademlia.space import PLAIN, Space
from weft.protocol.kademlia.table import Entry, Table
from weft.protocol.messages_dht import (
    NEIGHBOURS_MAX,
    PROVIDERS,
    VALUE,
    AddProvider,
    FindReply,
    FindRequest,
    Neighbour,
    Probe,
    ProbeReply,
    StoreReply,
    StoreValue,
)
from weft.rules.draw import absorb, below, stream_of
from weft.rules.prefix import common_prefix, in_bucket, location_of

REFRESH = "dht.refresh"
UPKEEP = "dht.upkeep"
TIMERS = (calling.TIMER, REFRESH, UPKEEP)
_PHASE = stream_of("dht.phase")
_TARGET = stream_of("dht.target")
_STRANGER = stream_of("dht.stranger")
_UPKEEP_MS = 60_000
"""guess: how often it is seen to that nothing has expired or is due."""
_DUE_AT_ONCE = 64
"""guess: records renewed per upkeep."""
_ANEW_EVERY = 3
"""guess: refreshes from one attempt to find parts that were lost to the next."""
_ENTER_MS = 500
"""guess: between knowing the first neighbour and the first lookup."""

Handler = Callable[[Contact, Any], None]


class Place:
    """One location of this peer."""

    __slots__ = ("refreshed", "role", "space", "table")

    def __init__(self, space: Space, role: Topic, table: Table, refreshed: bool) -> None:
        self.space = space
        self.role = role
        self.table = table
        self.refreshed = refreshed  # here, and not by whoever settled in it


class Kademlia:
    """See the module's text."""

    def __init__(
        self,
        ctx: Context,
        known: Callable[[], list[Contact]],
        kinds: all_kinds.Kinds = all_kinds.KINDS,
    ) -> None:
        """`known` names peers outside the tables, by which an empty table begins."""
        self._ctx = ctx
        self.known = known
        self.calls = Calls(ctx)
        self.searches = Searches(ctx, self.calls, known, self._note)
        self.places: dict[tuple[int, Topic], Place] = {}
        self.home = self.settle(PLAIN, GENERAL)
        own = self.home.table.own
        self.values = Values(ctx, own, kinds)
        self.providers = Providers(ctx)
        self.operations = Operations(
            ctx, self.calls, self, self.home.table, self.values, self.providers, kinds
        )
        self.also_provides: Callable[[bytes], bool] = lambda key: False  # without a record of it
        self._refresh_serial = 0
        self._refreshes = 0
        self._pause_ms = ctx.config.dht.refresh_first_ms

    # --- places -----------------------------------------------------------------------------------

    def settle(self, space: Space, role: Topic, refreshed: bool = True) -> Place:
        """Take up the location of a role in a space."""
        own = space.locate(role, self._ctx.me.peer)
        if own is None:
            raise ValueError(f"no role {role!r} in space {space.number}")
        place = Place(space, role, Table(own, space.bits, self._ctx.config.dht), refreshed)
        self.places[space.number, role] = place
        return place

    def quit(self, space: Space, role: Topic) -> None:
        self.places.pop((space.number, role), None)

    # --- starting and looking after it ------------------------------------------------------------

    def start(self) -> None:
        settings = self._ctx.config.dht
        shortest = min(settings.republish_ms, settings.provide_again_ms, settings.value_life_ms)
        self._upkeep_ms = min(_UPKEEP_MS, max(1, shortest // 8))
        self._ctx.set_timer(self._jitter(self._upkeep_ms), UPKEEP, GENERAL)
        self._arm_refresh(self._pause_ms)

    def on_neighbours(self) -> None:
        """The peer has found its way into the network."""
        if not len(self.home.table):
            self._pause_ms = self._ctx.config.dht.refresh_first_ms
            self._arm_refresh(_ENTER_MS)

    def _jitter(self, pause_ms: int) -> int:
        """Peers that start together must not all act together."""
        return pause_ms // 2 + below(self._ctx.bits(_PHASE), pause_ms) + 1

    def _arm_refresh(self, pause_ms: int) -> None:
        self._refresh_serial = self._ctx.next_serial()
        self._ctx.set_timer(self._jitter(pause_ms), REFRESH, GENERAL, self._refresh_serial)

    def on_timer(self, timer: seam.Timer) -> None:
        if timer.kind == calling.TIMER:
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
            self._look_after_records()

    def refresh(self, place: Place) -> None:
        """Look the own location up, then into ranges where somebody may have been missed."""
        own, bits, k = place.table.own, place.space.bits, self._ctx.config.dht.k

        def found(outcome: Outcome) -> None:
            near = outcome.closest
            # Closer to this peer than the k-th there is nobody who has not answered.
            complete_from = common_prefix(own, near[-1].key, bits) if len(near) == k else 0
            since = self._ctx.now - self._ctx.config.dht.bucket_refresh_ms
            thin = [bucket for bucket in place.table.thin() if bucket < complete_from]
            for bucket in sorted({*thin, *place.table.untouched(since)}):
                self.look_into(place, bucket)

        question = Question(place.space, own, sender_role=place.role)
        self.searches.start(Search(question, (place.table,), found, background=True))

    def _enter_anew(self) -> None:
        """Look the own location up through a random stranger, as a newcomer would.

        Deviation: Kademlia has nothing that brings parts together that lost each other, and a
        table that lacks a whole range never learns of it from those who lack it too.
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

    def look_into(self, place: Place, bucket: int, count: int = 0) -> None:
        """Look up a random location of a bucket's range; `count` as in `Question`."""
        key = self._ctx.next_key(_TARGET)
        randomness = 0
        for word in range(place.space.bits // 64):
            randomness = randomness << 64 | absorb(key, word)
        target = in_bucket(place.table.own, bucket, place.space.bits, randomness)
        question = Question(place.space, target, sender_role=place.role, count=count)
        self.searches.start(Search(question, (place.table,), _nothing, background=True))

    def _look_after_records(self) -> None:
        self.values.expire()
        self.providers.expire()
        for key in self.values.take_due(_DUE_AT_ONCE):
            self._republish(key)
        self.operations.provide_again(_DUE_AT_ONCE)

    def _republish(self, key: bytes) -> None:
        def found(outcome: Outcome) -> None:
            value, life_ms = self.values.get(key), self.values.life_ms(key)
            if value is not None and outcome.closest:
                self._ctx.counters["dht_republished"] += 1
                self.operations.store(outcome.closest, key, value, life_ms, lambda count: None)

        question = Question(PLAIN, location_of(key))
        self.find(question, found, None, background=True)

    # --- lookups ----------------------------------------------------------------------------------

    def find(
        self, question: Question, done: Done, seen: Seen | None = None, background: bool = False
    ) -> bool:
        """Look up from home; False if too many lookups wait already."""
        return self.searches.start(Search(question, (self.home.table,), done, seen, background))

    def find_from(
        self,
        place: Place,
        target: int,
        done: Done,
        seen: Seen | None = None,
        others: tuple[Neighbour, ...] = (),
    ) -> bool:
        """Look up from another place of this peer, in its space; `others` help it to begin."""
        question = Question(place.space, target, sender_role=place.role)
        return self.searches.start(Search(question, (place.table,), done, seen, False, others))

    # --- the tables -------------------------------------------------------------------------------

    def _note(self, space: Space, table: Table, entry: Entry, news: News) -> None:
        if news == "answered":
            self.meet(space, table, entry.key, entry.role, entry.contact)
        elif news == "gone":
            table.remove(entry.key)
        else:
            table.failed(entry.key)

    def meet(self, space: Space, table: Table, key: int, role: Topic, contact: Contact) -> None:
        oldest = table.heard(key, role, contact, self._ctx.now)
        if oldest is not None:
            self.probe(space, table, oldest)

    def probe(self, space: Space, table: Table, entry: Entry) -> None:
        """See whether somebody in a table is still there."""
        self._ctx.counters["dht_probes"] += 1

        def report(news: News) -> None:
            if news == "silent" and table.failed(entry.key):
                self.probe(space, table, entry)
            elif news != "silent":
                self._note(space, table, entry, news)

        self.calls.ask(
            entry.contact,
            lambda number: Probe(number, space.number, entry.role),
            _Probing(report),
        )

    def on_peer_lost(self, peer: PeerId) -> None:
        self.calls.on_peer_lost(peer)

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

    # --- others' requests -------------------------------------------------------------------------

    def on_find(self, sender: Contact, message: FindRequest) -> None:
        place = self.places.get((message.space, message.role))
        target = place.space.target(message.target) if place is not None else None
        asker = place.space.locate(message.sender_role, sender.peer) if place is not None else None
        if place is None or target is None or asker is None:
            self._ctx.send(sender, FindReply(message.request, False))
            return
        most = min(message.most, NEIGHBOURS_MAX)
        closer = [
            Neighbour(entry.contact, entry.role)
            for entry in place.table.closest(target, most + 1, sound=True)
            if entry.key != asker
        ][:most]
        value = self.values.get(message.key) if message.want == VALUE else None
        providers = self._providers_of(message.key) if message.want == PROVIDERS else []
        reply = FindReply(message.request, True, closer, value is not None, value or b"", providers)
        self._ctx.send(sender, reply)
        self.meet(place.space, place.table, asker, message.sender_role, sender)

    def _providers_of(self, key: bytes) -> list[Contact]:
        known = self.providers.get(key)
        return [self._ctx.me, *known][:NEIGHBOURS_MAX] if self.also_provides(key) else known

    def on_store(self, sender: Contact, message: StoreValue) -> None:
        verdict = self.values.store(sender.peer, message.key, message.value, message.life_ms)
        self._ctx.send(sender, StoreReply(message.request, verdict in ("stored", "held")))

    def on_add_provider(self, sender: Contact, message: AddProvider) -> None:
        self._ctx.send(sender, StoreReply(message.request, self.providers.add(sender, message.key)))

    def on_probe(self, sender: Contact, message: Probe) -> None:
        member = (message.space, message.role) in self.places
        self._ctx.send(sender, ProbeReply(message.request, member))

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


class _Probing:
    """Is the least recently seen of a full bucket still there?"""

    __slots__ = ("_report",)
    expects = ProbeReply

    def __init__(self, report: Callable[[News], None]) -> None:
        self._report = report

    def answered(self, reply: Reply) -> None:
        assert isinstance(reply, ProbeReply)
        self._report("answered" if reply.member else "gone")

    def slow(self) -> None:
        pass

    def failed(self) -> None:
        self._report("silent")


def handlers(ctx: Context, dht: Kademlia | None) -> dict[type, Handler]:
    """Where the DHT's messages go. A peer without one says so, and nobody waits for it."""
    if dht is None:
        return {
            FindRequest: lambda sender, m: ctx.send(sender, FindReply(m.request, False)),
            StoreValue: lambda sender, m: ctx.send(sender, StoreReply(m.request, False)),
            AddProvider: lambda sender, m: ctx.send(sender, StoreReply(m.request, False)),
            Probe: lambda sender, m: ctx.send(sender, ProbeReply(m.request, False)),
            FindReply: lambda sender, m: None,
            StoreReply: lambda sender, m: None,
            ProbeReply: lambda sender, m: None,
        }
    return {
        FindRequest: dht.on_find,
        StoreValue: dht.on_store,
        AddProvider: dht.on_add_provider,
        Probe: dht.on_probe,
        FindReply: dht.calls.on_reply,
        StoreReply: dht.calls.on_reply,
        ProbeReply: dht.calls.on_reply,
    }


def commands(ctx: Context, dht: Kademlia | None) -> dict[type, Callable[[Any], None]]:
    """Where the user's commands go."""
    if dht is None:

        def refuse(command: seam.DhtCommand) -> None:
            ctx.out.append(seam.Answer(command.token, "refused"))

        return dict.fromkeys(get_args(seam.DhtCommand), refuse)
    operations = dht.operations
    return {
        seam.DhtPut: operations.put,
        seam.DhtGet: operations.get,
        seam.DhtProvide: operations.provide,
        seam.DhtFindProviders: operations.find_providers,
        seam.DhtFindPeer: operations.find_peer,
        seam.DhtClosest: operations.closest_peers,
    }
