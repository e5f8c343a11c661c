"""What users ask of the DHT: put, get, provide, find providers, find peer, closest peers.

Each is a lookup, and for those that store something a round of requests to the k closest peers
found. Every command gets exactly one `Answer`.

A value that may change is asked for until a quorum of valid ones has come; the best one wins, and
peers that answered with an older one are given it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from weft.ids import GENERAL, Contact, PeerId
from weft.protocol import seam
from weft.protocol.context import Context
from weft.protocol.kademlia.calls import Calls
from weft.protocol.kademlia.kinds import Kinds, kind_of
from weft.protocol.kademlia.polling import Poll, Vote
from weft.protocol.kademlia.question import Done, Outcome, Question, Seen
from weft.protocol.kademlia.records import Providers, Values
from weft.protocol.kademlia.space import PLAIN
from weft.protocol.kademlia.table import Entry, Table
from weft.protocol.messages_dht import (
    KEY_BYTES_MAX,
    NEIGHBOURS_MAX,
    NODES,
    PROVIDERS,
    VALUE,
    AddProvider,
    FindReply,
    StoreValue,
)
from weft.rules.draw import absorb, stream_of
from weft.rules.prefix import closest, location_of

_PROVIDERS = stream_of("dht.order")
_WITNESSES = 2
"""guess: holders that must name a provider before a search for providers may end early."""

Make = Callable[[int], StoreValue | AddProvider]


class Finder(Protocol):
    """Who runs lookups, one after another if need be."""

    def find(
        self, question: Question, done: Done, seen: Seen | None = None, background: bool = False
    ) -> bool: ...

    def known(self) -> list[Contact]: ...


class Operations:
    """Commands in progress."""

    def __init__(
        self,
        ctx: Context,
        calls: Calls,
        finder: Finder,
        table: Table,
        values: Values,
        providers: Providers,
        kinds: Kinds,
    ) -> None:
        self._ctx = ctx
        self._calls = calls
        self._finder = finder
        self._table = table
        self._values = values
        self._providers = providers
        self._kinds = kinds
        self._open: dict[int, None] = {}  # tokens without an answer
        self._provided: dict[bytes, seam.Millis] = {}  # own ones, and when to tell again

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
        if not self._finder.find(Question(PLAIN, location, want, key), done, seen):
            self._answer(token, "dropped")

    # --- values -----------------------------------------------------------------------------------

    def put(self, command: seam.DhtPut) -> None:
        ctx, key, value = self._ctx, command.key, command.value
        self._open[command.token] = None
        kind = kind_of(self._kinds, key) if len(key) <= KEY_BYTES_MAX else None
        life_ms = command.life_ms or ctx.config.dht.value_life_ms
        if (
            kind is None
            or len(value) > ctx.config.dht.value_bytes_max
            or not kind.valid(key, value, ctx.wall_ms)
        ):
            self._answer(command.token, "refused")
            return

        def stored(count: int) -> None:
            self._answer(command.token, "stored" if count else "failed", count=count)

        def found(outcome: Outcome) -> None:
            self.store(outcome.closest, key, value, life_ms, stored)

        self._find(command.token, location_of(key), NODES, b"", found)

    def store(
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
        self, peers: list[Entry], make: Make, count: int, then: Callable[[int], None]
    ) -> None:
        if not peers:
            then(count)
            return
        poll = Poll(len(peers), count, then)
        for entry in peers:
            self._calls.ask(entry.contact, make, Vote(poll))

    def get(self, command: seam.DhtGet) -> None:
        self._open[command.token] = None
        kind = kind_of(self._kinds, command.key) if len(command.key) <= KEY_BYTES_MAX else None
        if kind is None:
            self._answer(command.token, "refused")
            return
        search = _ValueSearch(self, command)
        local = self._values.get(command.key)
        if local is not None and search.take(None, local):
            self._answer(command.token, "found", value=local)
            return
        location = location_of(command.key)
        self._find(command.token, location, VALUE, command.key, search.done, search.seen)

    # --- providers --------------------------------------------------------------------------------

    def provide(self, command: seam.DhtProvide) -> None:
        key = command.key
        self._open[command.token] = None
        if command.stop:
            had = self._provided.pop(key, None) is not None
            self._answer(command.token, "left" if had else "already")
            return
        full = len(self._provided) >= self._ctx.config.dht.provided_max
        if not 1 <= len(key) <= KEY_BYTES_MAX or (full and key not in self._provided):
            self._answer(command.token, "refused")
            return

        def told(count: int) -> None:
            self._answer(command.token, "stored" if count else "failed", count=count)

        self._put_off(key)
        if not self._tell_providing(key, told, background=False):
            self._answer(command.token, "dropped")

    def _put_off(self, key: bytes) -> None:
        self._provided[key] = self._ctx.now + self._ctx.config.dht.provide_again_ms

    def _tell_providing(self, key: bytes, then: Callable[[int], None], background: bool) -> bool:
        location = location_of(key)

        def found(outcome: Outcome) -> None:
            others, mine = self._closest_with_me(outcome.closest, location)
            count = int(mine and self._providers.add(self._ctx.me, key))
            self._ask_all(others, lambda number: AddProvider(number, key), count, then)

        return self._finder.find(Question(PLAIN, location), found, None, background)

    def provide_again(self, most: int) -> None:
        """Renew what is due, at most so many at a time."""
        now = self._ctx.now
        due = [key for key, due_ms in self._provided.items() if due_ms <= now][:most]
        for key in due:
            if self._tell_providing(key, lambda count: None, background=True):
                self._put_off(key)

    @property
    def provided(self) -> int:
        return len(self._provided)

    def find_providers(self, command: seam.DhtFindProviders) -> None:
        token, key = command.token, command.key
        self._open[token] = None
        if not 1 <= len(key) <= KEY_BYTES_MAX:
            self._answer(token, "refused")
            return
        # What this peer was told itself counts as sure.
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
            done(Outcome([], 0, 0, True))
        else:
            self._find(token, location_of(key), PROVIDERS, key, done, seen)

    def _best_first(self, named: Counter[Contact]) -> list[Contact]:
        """Providers by whether they are known to be up, then by how many name them; else each
        search puts them in another order, so that whoever asks again for want of a live one among
        the first gets to the others."""
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
        return next((one for one in self._finder.known() if one.peer == peer), None)

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

    # --- for searches -----------------------------------------------------------------------------

    def finish_get(self, token: int, key: bytes, value: bytes | None, behind: list[Entry]) -> None:
        self._answer(token, "found" if value is not None else "not_found", value=value)
        if value is None:
            return
        life_ms = self._values.life_ms(key) or self._ctx.config.dht.value_life_ms
        self._ask_all(
            behind,
            lambda number: StoreValue(number, key, value, life_ms),
            0,
            lambda count: None,
        )

    def judge(self, key: bytes, value: bytes) -> bool:
        """Whether a value that came from somewhere is valid."""
        kind = kind_of(self._kinds, key)
        return (
            kind is not None
            and len(value) <= self._ctx.config.dht.value_bytes_max
            and kind.valid(key, value, self._ctx.wall_ms)
        )

    def is_newer(self, key: bytes, new: bytes, old: bytes) -> bool:
        kind = kind_of(self._kinds, key)
        return kind is not None and kind.newer(new, old)

    def quorum(self, command: seam.DhtGet) -> int:
        kind = kind_of(self._kinds, command.key)
        if kind is not None and kind.single:
            return 1
        return command.quorum or self._ctx.config.dht.quorum

    def count_lie(self) -> None:
        self._ctx.counters["dht_values_refused"] += 1


class _ValueSearch:
    """The values that a `get` has met."""

    def __init__(self, operations: Operations, command: seam.DhtGet) -> None:
        self._operations = operations
        self._command = command
        self._wanted = operations.quorum(command)
        self._best: bytes | None = None
        self._by_holder: list[tuple[Entry | None, bytes]] = []

    def take(self, holder: Entry | None, value: bytes) -> bool:
        """Consider a value; True when there are enough."""
        operations, key = self._operations, self._command.key
        if value != self._best:
            if not operations.judge(key, value):
                operations.count_lie()
                return False
            if self._best is None or operations.is_newer(key, value, self._best):
                self._best = value
        self._by_holder.append((holder, value))
        return len(self._by_holder) >= self._wanted

    def seen(self, entry: Entry, reply: FindReply) -> bool:
        return reply.found and self.take(entry, reply.value)

    def done(self, outcome: Outcome) -> None:
        best = self._best
        behind = [
            holder for holder, value in self._by_holder if holder is not None and value != best
        ]
        self._operations.finish_get(self._command.token, self._command.key, best, behind)
