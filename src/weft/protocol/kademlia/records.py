"""Records of the DHT: those that a peer holds for others, and the commands that make and find them
(Kademlia, Sections 2.3 and 2.5; Pulsarcast, Section 4.2).

Values live for a time that the storing peer names, at most a day. Their holders republish them
every hour, so that the k closest peers hold them however peers come and go; a holder that has just
been given a value again puts that off, so one holder does it for all. A value is republished with
what is left of its life: it ends unless a peer that cares stores it again.

Provider records name their sender only, and are renewed by the provider.

Bounds: values and provider records are bounded in number, in bytes and per sender. When there is no
room for a value, one that lies farther from this peer is dropped: the closer a value, the more this
peer is meant to hold it. When there is none for a provider record, the oldest of its sender goes if
that has its share or more, else the oldest of the sender with most: peers look for what was
provided last, so a peer that provides without end keeps its latest records only, and neither one
peer nor several crowd out the records of others that provide less.

A peer renews what it provides as long as it has it. Of the keys that its own layers provide it
renews the latest `provided_max`; the records of a key beyond end at their holders with their life,
and are counted. A key that no peer took is provided again soon.

A key's first byte is its *kind*, which says whether a value is valid for its key, and which of two
valid ones stands (`documents/record.py`). Holders and askers both check that, since no peer between
them is trusted. Values of unknown kinds are refused.

Commands are put, get, provide, find providers, find peer, closest peers. Each is a lookup, and for
those that store something a round of requests to the k closest peers found. Every command gets
exactly one `Answer`. A value that may change is asked for until a quorum of valid ones has come;
the best one wins, and peers that answered with an older one are given it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from weft.documents.record import KINDS, Kind
from weft.ids import GENERAL, Contact, PeerId
from weft.protocol import seam
from weft.protocol.context import Context
from weft.protocol.kademlia.lookup import Done, Outcome, Question, Search, Searches, Seen
from weft.protocol.kademlia.rpc import (
    KEY_BYTES_MAX,
    NEIGHBOURS_MAX,
    NODES,
    PROVIDERS,
    VALUE,
    AddProvider,
    Calls,
    FindReply,
    StoreReply,
    StoreValue,
)
from weft.protocol.kademlia.table import PLAIN, Entry, Table
from weft.protocol.seam import Millis
from weft.rules.draw import absorb, below, stream_of
from weft.rules.prefix import closest, location_of

_JITTER = stream_of("dht.republish")
_CROWDED = stream_of("dht.providers")
_PROVIDERS = stream_of("dht.order")
_BEHIND = 2
"""guess: so many times k peers are asked where the k closest have nothing; 25 ground ids, as in
docs/threats.md, with k = 20 leave 15 honest ones among 40."""
_WITNESSES = 2
"""guess: holders that must name a provider before a search for providers may end early."""


def _kind_of(key: bytes) -> Kind | None:
    """The rules for what stands under a key; None: no kind that a peer knows."""
    return KINDS.get(key[0]) if 1 <= len(key) <= KEY_BYTES_MAX else None


# --- values ---------------------------------------------------------------------------------------


Verdict: TypeAlias = Literal["stored", "held", "older", "invalid", "oversized", "full"]


class _Held(Struct):
    """A value, and until when it is held."""

    value: bytes
    sender: PeerId  # the peer that stored it here
    distance: int
    ends_ms: Millis = 0
    due_ms: Millis = 0  # to be republished


class Values:
    """Values held for others (and own ones, where this peer is among the closest)."""

    def __init__(self, ctx: Context, own: int) -> None:
        self._ctx = ctx
        self._own = own
        self._held: dict[bytes, _Held] = {}
        self._by_sender: dict[PeerId, int] = defaultdict(int)
        self._far: list[tuple[int, bytes]] = []  # a heap, farthest first; some are gone already
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: bytes) -> bytes | None:
        held = self._held.get(key)
        return held.value if held is not None and held.ends_ms > self._ctx.now else None

    def life_ms(self, key: bytes) -> Millis:
        """What is left of a value's life."""
        held = self._held.get(key)
        return max(0, held.ends_ms - self._ctx.now) if held is not None else 0

    # --- taking values in -------------------------------------------------------------------------

    def store(self, sender: PeerId, key: bytes, value: bytes, life_ms: Millis) -> Verdict:
        verdict = self._store(sender, key, value, life_ms)
        self._ctx.counters[f"dht_store_{verdict}"] += 1
        return verdict

    def _store(self, sender: PeerId, key: bytes, value: bytes, life_ms: Millis) -> Verdict:
        settings = self._ctx.config.dht
        kind = _kind_of(key)
        if kind is None:
            return "invalid"
        if len(value) > settings.value_bytes_max:
            return "oversized"
        held = self._held.get(key)
        if held is not None and held.value == value:
            self._renew(held, life_ms)
            return "held"
        if not life_ms or not kind.is_valid(key, value, self._ctx.wall_ms):
            return "invalid"
        if held is not None:
            stands = kind.is_valid(key, held.value, self._ctx.wall_ms)
            if stands and not kind.is_newer(value, held.value):
                return "older"
            self._remove(key)
        distance = location_of(key) ^ self._own
        if not self._make_room(sender, len(value), distance):
            return "full"
        self._renew(self._insert(sender, key, value, distance), life_ms)
        return "stored"

    def _renew(self, held: _Held, life_ms: Millis) -> None:
        ctx, settings = self._ctx, self._ctx.config.dht
        ends_ms = ctx.now + min(life_ms, settings.value_life_ms)
        held.ends_ms = max(held.ends_ms, ends_ms)
        # Between three and five quarters of the interval: one holder is first, and the rest wait.
        quarter = max(1, settings.republish_ms // 4)
        held.due_ms = ctx.now + 3 * quarter + below(ctx.bits(_JITTER), 2 * quarter)

    def _make_room(self, sender: PeerId, size: int, distance: int) -> bool:
        settings = self._ctx.config.dht
        own = sender == self._ctx.me.peer
        crowded = self._by_sender.get(sender, 0) >= settings.values_per_sender_max
        if (crowded and not own) or size > settings.values_bytes_max:
            return False
        while (
            len(self._held) >= settings.values_max or self.bytes + size > settings.values_bytes_max
        ):
            while self._far[0][1] not in self._held:
                heappop(self._far)
            farthest = self._far[0][1]
            if self._held[farthest].distance <= distance:
                return False
            self._remove(farthest)
            self._ctx.counters["dht_values_evicted"] += 1
        return True

    def _insert(self, sender: PeerId, key: bytes, value: bytes, distance: int) -> _Held:
        held = self._held[key] = _Held(value, sender, distance)
        self._by_sender[sender] += 1
        self.bytes += len(value)
        heappush(self._far, (-distance, key))
        if len(self._far) > 2 * len(self._held) + 16:
            self._far = [(-held.distance, key) for key, held in self._held.items()]
            heapify(self._far)
        return held

    def _remove(self, key: bytes) -> None:
        held = self._held.pop(key)
        self.bytes -= len(held.value)
        self._by_sender[held.sender] -= 1
        if not self._by_sender[held.sender]:
            del self._by_sender[held.sender]

    # --- looking after values ---------------------------------------------------------------------

    def expire(self) -> None:
        now = self._ctx.now
        for key in [key for key, held in self._held.items() if held.ends_ms <= now]:
            self._remove(key)

    def take_due(self, most: int) -> list[bytes]:
        """Keys to be republished now, the longest due first; each is put off by that."""
        now = self._ctx.now
        due = [(held.due_ms, key) for key, held in self._held.items() if held.due_ms <= now]
        taken = [key for _, key in sorted(due)[:most]]
        for key in taken:
            self._held[key].due_ms = now + self._ctx.config.dht.republish_ms
        return taken


# --- providers ------------------------------------------------------------------------------------


class _Provider(NamedTuple):
    contact: Contact
    ends_ms: Millis


class Providers:
    """Provider records held for others. Every record lives equally long, so the oldest ends
    first."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._by_key: dict[bytes, dict[PeerId, _Provider]] = {}
        # The one renewed longest ago comes first.
        self._order: OrderedDict[tuple[bytes, PeerId], None] = OrderedDict()
        self._by_sender: dict[PeerId, dict[bytes, None]] = {}  # its keys, in the same order

    def __len__(self) -> int:
        return len(self._order)

    def get(self, key: bytes) -> list[Contact]:
        now = self._ctx.now
        known = self._by_key.get(key, {}).values()
        return [provider.contact for provider in known if provider.ends_ms > now]

    def add(self, sender: Contact, key: bytes) -> bool:
        settings = self._ctx.config.dht
        if not key or not sender.address:
            return False
        self.expire()
        if sender.peer in self._by_key.get(key, {}):
            self._remove(key, sender.peer)
        elif len(self._by_key.get(key, {})) >= settings.providers_per_key_max:
            # Neither the providers that came first nor those that came last keep all others out.
            self._remove(key, self._ctx.pick(_CROWDED, list(self._by_key[key])))
        own = self._by_sender.get(sender.peer, {})
        full = len(self._order) >= settings.providers_max
        share = settings.providers_max // (len(self._by_sender) or 1)
        if len(own) >= settings.providers_per_sender_max or (full and len(own) >= share):
            self._remove(next(iter(own)), sender.peer)
            self._ctx.counters["dht_providers_evicted"] += 1
        elif full:
            most = max(self._by_sender, key=lambda peer: len(self._by_sender[peer]))
            self._remove(next(iter(self._by_sender[most])), most)
            self._ctx.counters["dht_providers_evicted"] += 1
        ends_ms = self._ctx.now + settings.provider_life_ms
        self._by_key.setdefault(key, {})[sender.peer] = _Provider(sender, ends_ms)
        self._order[key, sender.peer] = None
        self._by_sender.setdefault(sender.peer, {})[key] = None
        return True

    def _remove(self, key: bytes, peer: PeerId) -> None:
        providers = self._by_key[key]
        del providers[peer]
        if not providers:
            del self._by_key[key]
        del self._order[key, peer]
        del self._by_sender[peer][key]
        if not self._by_sender[peer]:
            del self._by_sender[peer]

    def expire(self) -> None:
        now = self._ctx.now
        while self._order:
            key, peer = next(iter(self._order))
            if self._by_key[key][peer].ends_ms > now:
                return
            self._remove(key, peer)


# --- commands -------------------------------------------------------------------------------------


class Operations:
    """Commands in progress."""

    def __init__(
        self,
        ctx: Context,
        calls: Calls,
        searches: Searches,
        table: Table,
        values: Values,
        providers: Providers,
    ) -> None:
        self._ctx = ctx
        self._calls = calls
        self._searches = searches
        self._table = table
        self._values = values
        self._providers = providers
        self._open: dict[int, None] = {}  # tokens without an answer
        # What this peer provides, and when to tell again: for its user, and for its own layers.
        self._asked: dict[bytes, Millis] = {}
        self._provided: dict[bytes, Millis] = {}

    def close(self) -> None:
        """The peer leaves."""
        for token in list(self._open):
            self._answer(token, "dropped")

    def _answer(
        self,
        token: int,
        outcome: seam.Outcome,
        contact: Contact | None = None,
        value: bytes | None = None,
        contacts: tuple[Contact, ...] = (),
        count: int = 0,
    ) -> None:
        if token in self._open:
            del self._open[token]
            answer = seam.Answer(token, outcome, contact, None, value, contacts, count)
            self._ctx.answer(answer)

    def _find(
        self, token: int, location: int, want: int, key: bytes, done: Done, seen: Seen | None = None
    ) -> None:
        if not self._look_up(Question(PLAIN, location, want, key), done, seen):
            self._answer(token, "dropped")

    def _find_behind(
        self, token: int, want: int, key: bytes, done: Done, seen: Seen, found: Callable[[], bool]
    ) -> None:
        """Ask the k closest peers to a key for what it names; if all of them say that they have
        nothing, ask as many behind them, since liars whose ids were ground may lie closer to the
        key than its holders. A simple form of S/Kademlia's disjoint paths (Baumgart and Mies 2007);
        two paths to k peers each would both end at the liars."""

        def ended(outcome: Outcome) -> None:
            full = len(outcome.closest) >= self._ctx.config.dht.k
            question = Question(PLAIN, location_of(key), want, key, count=self._behind)
            if found() or not full or not self._look_up(question, done, seen):
                done(outcome)

        self._find(token, location_of(key), want, key, ended, seen)

    @property
    def _behind(self) -> int:
        return min(NEIGHBOURS_MAX, _BEHIND * self._ctx.config.dht.k)

    def _look_up(
        self, question: Question, done: Done, seen: Seen | None = None, background: bool = False
    ) -> bool:
        search = Search(question, (self._table,), done, seen, background)
        return self._searches.start(search)

    # --- values -----------------------------------------------------------------------------------

    def put(self, command: seam.DhtPut) -> None:
        ctx, key, value = self._ctx, command.key, command.value
        self._open[command.token] = None
        kind = _kind_of(key)
        life_ms = command.life_ms or ctx.config.dht.value_life_ms
        if kind is None or not _stands(ctx, kind, key, value):
            self._answer(command.token, "refused")
            return

        def stored(count: int) -> None:
            self._answer(command.token, "stored" if count else "failed", count=count)

        def found(outcome: Outcome) -> None:
            self._store(outcome.closest, key, value, life_ms, stored)

        self._find(command.token, location_of(key), NODES, b"", found)

    def _store(
        self,
        peers: list[Entry],
        key: bytes,
        value: bytes,
        life_ms: int,
        then: Callable[[int], None],
    ) -> None:
        """Have the k closest of these and of this peer hold a value."""
        others, mine = self._closest_with_me(peers, location_of(key))
        count = 0
        if mine:
            verdict = self._values.store(self._ctx.me.peer, key, value, life_ms)
            count = verdict in ("stored", "held")
        self._ask_all(others, lambda number: StoreValue(number, key, value, life_ms), count, then)

    def _closest_with_me(self, peers: list[Entry], location: int) -> tuple[list[Entry], bool]:
        by_key = {entry.key: entry for entry in peers}
        keys = closest(location, [*by_key, self._table.own], self._ctx.config.dht.k)
        return [by_key[key] for key in keys if key in by_key], self._table.own in keys

    def _ask_all(
        self,
        peers: list[Entry],
        make: Callable[[int], StoreValue | AddProvider],
        count: int,
        then: Callable[[int], None],
    ) -> None:
        """Ask several peers to hold something; `then` gets the number that do, added to `count`."""
        left = len(peers)
        if not left:
            then(count)

        def voted(reply: StoreReply | None) -> None:
            nonlocal left, count
            left -= 1
            count += reply is not None and reply.accepted
            if not left:
                then(count)

        for entry in peers:
            self._calls.ask(entry.contact, make, StoreReply, voted)

    def get(self, command: seam.DhtGet) -> None:
        token, key = command.token, command.key
        self._open[token] = None
        kind = _kind_of(key)
        if kind is None:
            self._answer(token, "refused")
            return
        quorum = 1 if kind.single else command.quorum or self._ctx.config.dht.quorum
        met = _ValuesMet(self._ctx, key, kind, quorum)
        local = self._values.get(key)
        if local is not None and met.take(None, local):
            self._answer(token, "found", value=local)
            return

        def seen(entry: Entry, reply: FindReply) -> bool:
            return reply.found and met.take(entry, reply.value)

        def done(outcome: Outcome) -> None:
            best = met.best
            if best is None:
                self._answer(token, "not_found")
                return
            self._answer(token, "found", value=best)
            life_ms = self._values.life_ms(key) or self._ctx.config.dht.value_life_ms
            self._ask_all(
                met.behind(), lambda number: StoreValue(number, key, best, life_ms), 0, _nothing
            )

        self._find_behind(token, VALUE, key, done, seen, lambda: met.best is not None)

    def republish(self, most: int) -> None:
        """Store the values anew that are due, `most` at a time."""
        for key in self._values.take_due(most):
            self._republish(key)

    def _republish(self, key: bytes) -> None:
        def found(outcome: Outcome) -> None:
            value, life_ms = self._values.get(key), self._values.life_ms(key)
            if value is not None and outcome.closest:
                self._ctx.counters["dht_republished"] += 1
                self._store(outcome.closest, key, value, life_ms, _nothing)

        self._look_up(Question(PLAIN, location_of(key)), found, background=True)

    # --- providers --------------------------------------------------------------------------------

    def provide(self, command: seam.DhtProvide) -> None:
        key = command.key
        self._open[command.token] = None
        of_layer = command.token < 0
        provided = self._provided if of_layer else self._asked
        if command.stop:
            had = provided.pop(key, None) is not None
            self._answer(command.token, "left" if had else "already")
            return
        full = len(provided) >= self._ctx.config.dht.provided_max and key not in provided
        if not 1 <= len(key) <= KEY_BYTES_MAX or (full and not of_layer):
            self._answer(command.token, "refused")
            return
        if full:
            del provided[next(iter(provided))]
            self._ctx.counters["dht_provided_dropped"] += 1

        def told(count: int) -> None:
            self._answer(command.token, "stored" if count else "failed", count=count)

        provided.pop(key, None)  # what was provided last comes last
        if not self._tell_providing(provided, key, told, background=False):
            provided[key] = self._ctx.now  # its turn comes with what is renewed
            self._answer(command.token, "dropped")

    def _tell_providing(
        self,
        provided: dict[bytes, Millis],
        key: bytes,
        then: Callable[[int], None],
        background: bool,
    ) -> bool:
        """Tell the closest peers of a key that is, or is to be, among those provided."""
        settings, location = self._ctx.config.dht, location_of(key)

        def told(count: int) -> None:
            if not count and key in provided:
                provided[key] = self._ctx.now + settings.provide_retry_ms
            then(count)

        def found(outcome: Outcome) -> None:
            others, mine = self._closest_with_me(outcome.closest, location)
            count = int(mine and self._providers.add(self._ctx.me, key))
            self._ask_all(others, lambda number: AddProvider(number, key), count, told)

        before = provided.get(key)
        provided[key] = self._ctx.now + settings.provide_again_ms
        if self._look_up(Question(PLAIN, location), found, None, background):
            return True
        if before is None:
            del provided[key]
        else:
            provided[key] = before
        return False

    def provide_again(self, most: int) -> None:
        """Renew the provided keys that are due, `most` at a time, those due longest first."""
        now = self._ctx.now
        due = [
            (due_ms, key, provided)
            for provided in (self._asked, self._provided)
            for key, due_ms in provided.items()
            if due_ms <= now
        ]
        for _, key, provided in sorted(due, key=lambda one: one[:2])[:most]:
            self._tell_providing(provided, key, _nothing, background=True)

    def on_slept(self, slept_ms: Millis) -> None:
        """The records of this peer have aged at their holders while its own clock stood still."""
        for provided in (self._asked, self._provided):
            for key in provided:
                provided[key] -= slept_ms

    @property
    def provided(self) -> int:
        return len(self._asked) + len(self._provided)

    def find_providers(self, command: seam.DhtFindProviders) -> None:
        token, key = command.token, command.key
        self._open[token] = None
        if not 1 <= len(key) <= KEY_BYTES_MAX:
            self._answer(token, "refused")
            return
        # A provider that has told this peer itself counts as sure.
        named = Counter(dict.fromkeys(self._providers.get(key), _WITNESSES))

        def enough() -> bool:
            sure = sum(1 for count in named.values() if count >= _WITNESSES)
            return sure >= command.wanted

        def seen(entry: Entry, reply: FindReply) -> bool:
            named.update(dict.fromkeys(reply.providers[:NEIGHBOURS_MAX], 1))
            return enough()

        def done(outcome: Outcome) -> None:
            found = self._best_first(named)[: command.wanted]
            self._answer(token, "found" if found else "not_found", contacts=tuple(found))

        if enough():
            done(Outcome([], 0, 0))
        else:
            self._find_behind(token, PROVIDERS, key, done, seen, lambda: bool(named))

    def _best_first(self, named: Counter[Contact]) -> list[Contact]:
        """Providers by whether they are known to be up, then by how many holders name them. Equal
        ones stand in another order in each search, so that a peer that asks again finds others if
        the first were dead."""
        key = self._ctx.next_key(_PROVIDERS)

        def rank(contact: Contact) -> tuple[int, int, int]:
            location = location_of(contact.peer)
            entry = self._table.get(location)
            doubt = 1 if entry is None else 2 * (entry.failures > 0)
            return doubt, -named[contact], absorb(key, location)

        return sorted(named, key=rank)

    # --- peers ------------------------------------------------------------------------------------

    def find_peer(self, command: seam.DhtFindPeer) -> None:
        token, peer = command.token, command.peer
        self._open[token] = None
        known = self._known_contact(peer)
        if known is not None or command.local:
            self._answer(token, "found" if known is not None else "not_found", known)
            return
        found: list[Contact] = []

        def seen(entry: Entry, reply: FindReply) -> bool:
            """Others may say anything of where a peer is; only itself can answer there."""
            if entry.contact.peer == peer:
                found.append(entry.contact)
            return bool(found)

        def done(outcome: Outcome) -> None:
            contact = found[0] if found else None
            self._answer(token, "found" if found else "not_found", contact)

        self._find(token, location_of(peer), NODES, b"", done, seen)

    def _known_contact(self, peer: PeerId) -> Contact | None:
        if peer == self._ctx.me.peer:
            return self._ctx.me
        entry = self._table.get(location_of(peer))
        if entry is not None and not entry.failures:
            return entry.contact
        return next((one for one in self._searches.known() if one.peer == peer), None)

    def closest_peers(self, command: seam.DhtClosest) -> None:
        token = command.token
        self._open[token] = None
        location = PLAIN.target(command.location)
        if location is None:
            self._answer(token, "refused")
            return

        def done(outcome: Outcome) -> None:
            me = Entry(self._table.own, GENERAL, self._ctx.me)
            everybody = {entry.key: entry for entry in (*outcome.closest, me)}
            keys = closest(location, everybody, self._ctx.config.dht.k)
            contacts = tuple(everybody[key].contact for key in keys)
            self._answer(token, "found", contacts=contacts)

        self._find(token, location, NODES, b"", done)


def _nothing(count: int) -> None:
    """No command waits for this round of requests."""


def _stands(ctx: Context, kind: Kind, key: bytes, value: bytes) -> bool:
    """Whether a value may stand under its key."""
    return len(value) <= ctx.config.dht.value_bytes_max and kind.is_valid(key, value, ctx.wall_ms)


class _ValuesMet:
    """The values that a `get` has been told, and their holders."""

    def __init__(self, ctx: Context, key: bytes, kind: Kind, quorum: int) -> None:
        self._ctx = ctx
        self._key = key
        self._kind = kind
        self._quorum = quorum
        self._by_holder: list[tuple[Entry | None, bytes]] = []
        self.best: bytes | None = None

    def take(self, holder: Entry | None, value: bytes) -> bool:
        """Consider a value; True when there are enough."""
        if value != self.best:
            if not _stands(self._ctx, self._kind, self._key, value):
                self._ctx.counters["dht_values_refused"] += 1
                return False
            if self.best is None or self._kind.is_newer(value, self.best):
                self.best = value
        self._by_holder.append((holder, value))
        return len(self._by_holder) >= self._quorum

    def behind(self) -> list[Entry]:
        """The holders of an older value than the best one."""
        return [
            holder for holder, value in self._by_holder if holder is not None and value != self.best
        ]
