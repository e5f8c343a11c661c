"""How a peer reaches forwarders: it finds them, is found by them, and speaks with them.

*Finding.* From outside a topic the way leads over the topic's *hosts*, the peers of the lobby that
lie closest to hash(topic), towards the topic's own location, hash(topic) ∘ hash(topic); it ends at
the first forwarder of the topic (`enter`). Inside, only forwarders of the topic are asked, by
lookups `within` its prefix (`find`): no parasite messages (Baehni and others 2004, Lemma 4.1).

*Being found.* A peer looks its own location in the lobby up, and in every topic that it forwards it
goes the way of a newcomer (`announce`): at first, when there are new neighbours, and every few
periods, less often while its tables stay as they are (`Pace`).

Deviation: the paper's newcomer looks for its own location, hash(topic) ∘ hash(peer), which leads to
other peers for every newcomer as long as they know of no forwarder: of a hundred that subscribed at
once, those whose hashes begin alike made a topic of their own, for good. Here all newcomers ask the
same hosts the same question, so two parts of a topic hear of the same forwarders, and meet. Later
only the forwarders closest to the topic's own location, as far as their part knows, do so again;
the others meet them there.

*Speaking.* The layers about roles count what they say (`Layer`). A request waits for its answer
among the DHT's own calls, so it is repeated, and ends exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from weft.ids import Contact, PeerId, Topic
from weft.protocol.context import Context
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.kademlia.lookup import Done, Outcome, Question, Search
from weft.protocol.kademlia.rpc import PROVIDERS, FindReply, Neighbour
from weft.protocol.kademlia.table import Entry, Place
from weft.protocol.topic_dht.roles import (
    LOBBY,
    TOPIC_BITS,
    TOPICS,
    Pace,
    Role,
    RoleReply,
    Roles,
    hosts_place,
    meeting_place,
)
from weft.protocol.wire import Message
from weft.rules.draw import stream_of
from weft.rules.multicast import tree_key
from weft.rules.prefix import common_prefix, joined

FEW = 4
"""guess: how many of the closest are sought where only the closest is wanted, since the closest
known one may be gone."""
_RANGE = stream_of("topic_dht.range")
_STRANGER = stream_of("topic_dht.stranger")

Found = Callable[[list[Entry]], None]
"""Told of the forwarders that were found, closest first."""
Met = Callable[[list[Contact]], None]
"""Told of members that say so themselves."""
Answered = Callable[[RoleReply | None], None]
"""Told of the answer, or None if there was none."""


# --- finding, and being found ---------------------------------------------------------------------


class Lookup:
    """Lookups of one peer for forwarders."""

    def __init__(self, ctx: Context, dht: Kademlia, roles: Roles) -> None:
        self._ctx = ctx
        self._dht = dht
        self._roles = roles
        self._config = ctx.config.topic_dht
        self._lobby = dht.settle(TOPICS, LOBBY, refreshed=False)
        self._lobby_pace = Pace()

    def enter(self, topic: Topic, target: int, then: Found, avoid: Collection[PeerId] = ()) -> None:
        """Find the closest forwarders from outside the topic: from what this peer knows of the
        lobby, and if that leads to none, over the topic's hosts. The first forwarder met names
        the others, and may lie: peers to `avoid` are passed by, and the way goes on to another one
        (a simple form of S/Kademlia's disjoint paths, Baumgart and Mies 2007). With peers to avoid,
        the lookup seeks only a few peers more than these; without, as many as any lookup."""
        gates: list[Contact] = []
        count = min(self._ctx.config.dht.k, FEW + len(avoid)) if avoid else 0

        def seen(entry: Entry, reply: FindReply) -> bool:
            if entry.role == topic and entry.contact.peer not in avoid:
                gates.append(entry.contact)
            return bool(gates)

        def look(others: tuple[Neighbour, ...], otherwise: Callable[[], None]) -> None:
            def ended(outcome: Outcome) -> None:
                if gates:
                    others = [one for one in self.heard_of(topic) if one.peer not in avoid]
                    self.find(topic, target, then, FEW, [*gates, *others])
                else:
                    otherwise()

            question = Question(TOPICS, meeting_place(topic), sender_role=LOBBY, count=count)
            search = Search(question, (self._lobby.table,), ended, seen, False, others)
            if not self._dht.searches.start(search):
                then([])

        def look_over_hosts() -> None:
            def hosted(outcome: Outcome) -> None:
                look(_as_neighbours(outcome.closest), lambda: then([]))

            if not self._find_hosts(topic, LOBBY, hosted):
                then([])

        look(self._everybody(), look_over_hosts)

    def _find_hosts(self, topic: Topic, role: Topic, then: Done, count: int = FEW) -> bool:
        """Find the peers of the lobby that lie closest to a topic's hash; `role` is the one in
        which they get to know this peer. False if too many lookups wait already."""
        question = Question(TOPICS, hosts_place(topic), sender_role=role, count=count)
        tables = (self._lobby.table,)
        search = Search(question, tables, then, None, False, self._everybody())
        return self._dht.searches.start(search)

    def find(
        self,
        topic: Topic,
        target: int,
        then: Found,
        count: int = FEW,
        others: Iterable[Contact] = (),
    ) -> None:
        """Find the closest forwarders among those of the topic, this peer excepted."""
        forwarder = self._roles.forwarding(topic)
        role = topic if forwarder is not None else LOBBY
        tables = (forwarder.place.table,) if forwarder is not None else ()
        question = Question(TOPICS, target, sender_role=role, within=TOPIC_BITS, count=count)
        gates = tuple(Neighbour(one, topic) for one in others)

        def ended(outcome: Outcome) -> None:
            then(outcome.closest)

        if not self._dht.searches.start(Search(question, tables, ended, None, False, gates)):
            then([])

    def find_closest(self, topic: Topic, then: Found, gates: Sequence[Contact]) -> None:
        """Find the forwarders closest to this peer: starting from `gates`, and if these are gone,
        from outside."""
        own = self._roles.own(topic)

        def found(entries: list[Entry]) -> None:
            if entries:
                then(entries)
            else:
                self.enter(topic, own, then)

        self.find(topic, own, found, FEW, gates)

    def find_members(self, topic: Topic, then: Met) -> None:
        """Ask as many peers of the lobby as any lookup does, others each time, whether they are in
        a topic. Children are found by no lookup inside of it, so where its forwarders lie, by none.
        """
        members: dict[PeerId, Contact] = {}

        def seen(entry: Entry, reply: FindReply) -> bool:
            peer = entry.contact.peer
            if any(one.peer == peer for one in reply.providers):  # what is said of others is not
                members[peer] = entry.contact
            return False

        def ended(outcome: Outcome) -> None:
            then(list(members.values()))

        target = joined(LOBBY.encode(), self._ctx.bits(_STRANGER).to_bytes(8, "big"))
        question = Question(TOPICS, target, PROVIDERS, tree_key(topic), sender_role=LOBBY)
        tables = (self._lobby.table,)
        search = Search(question, tables, ended, seen, False, self._everybody())
        if not self._dht.searches.start(search):
            then([])

    def announce(self, role: Role, place: Place, again: bool = False, outside: bool = True) -> None:
        """Make this forwarder of a topic known. `outside` it goes a newcomer's way: the topic's
        hosts learn of it, many at first and few later (`again`), and parts of the topic that do not
        know each other meet. Forwarders that announced themselves to this peer are asked, too,
        since the other hosts may be gone. Inside, it meets the forwarders closest to the topic's
        own location, then the neighbours of its own. At last it looks into the ranges of other
        topics."""
        topic, count = role.topic, FEW if again else 0

        def hosted(outcome: Outcome) -> None:
            question = Question(TOPICS, meeting_place(topic), sender_role=topic, count=count)
            hosts = _as_neighbours(outcome.closest)
            search = Search(question, (place.table,), entered, None, True, hosts, anew=True)
            self._dht.searches.start(search)

        def entered(outcome: Outcome) -> None:
            met([entry for entry in outcome.closest if entry.role == topic])

        def met(entries: list[Entry]) -> None:
            if role.forwarder is not None and role.forwarder.place is place:
                k, near = self._ctx.config.dht.k, [entry.contact for entry in entries]
                gates = [*near, *self.heard_of(topic)]
                further = lambda entries: self._look_further(place, again)  # noqa: E731
                self.find(topic, place.table.own, further, k, gates)

        if outside:
            self._find_hosts(topic, topic, hosted, count)
        else:
            self.find(topic, meeting_place(topic), met)

    def _look_further(self, place: Place, again: bool) -> None:
        """Look into the ranges of other topics, so that this peer can show lookups for these the
        way: into all of them at first, later (`again`) into one at a time."""
        ranges: Sequence[int] = _ranges(place)
        if again and ranges:
            ranges = [self._ctx.pick(_RANGE, ranges)]
        for bucket in ranges:
            self._dht.look_into(place, bucket, FEW)

    def announce_lobby(self, again: bool = False) -> None:
        """Look up this peer's own location in the lobby, through all peers that it knows."""
        place = self._lobby
        question = Question(TOPICS, place.table.own, sender_role=LOBBY, count=FEW if again else 0)
        search = Search(
            question,
            (place.table,),
            lambda outcome: self._look_further(place, again),
            None,
            True,
            self._everybody(),
        )
        self._dht.searches.start(search)

    def look_around(self) -> None:
        """There are (new) neighbours: make this peer known to them, and meet other parts of its
        topics."""
        self._lobby_pace.restart()
        self.announce_lobby()
        for role in self._roles.by_topic.values():
            if role.forwarder is not None:
                role.pace.restart()
                self.announce(role, role.forwarder.place, again=True)

    def refresh(self, role: Role, period: int) -> None:
        """Keep the table of a forwarder in touch with the topic, and with what is around it."""
        forwarder, every = role.forwarder, self._config.refresh_periods
        if forwarder is not None and role.pace.is_due(period, every, forwarder.fingerprint()):
            root = forwarder.is_among_closest(meeting_place(role.topic), FEW)
            self.announce(role, forwarder.place, again=True, outside=root)

    def refresh_lobby(self, period: int) -> None:
        if self._lobby_pace.is_due(period, self._config.refresh_periods, 1):
            self.announce_lobby(again=True)

    def heard_of(self, topic: Topic) -> list[Contact]:
        """Forwarders of a topic that announced themselves to this peer, as to a host of it."""
        return [entry.contact for entry in self._lobby.table if entry.role == topic]

    def _everybody(self) -> tuple[Neighbour, ...]:
        return tuple(Neighbour(contact, LOBBY) for contact in self._dht.known())


def _as_neighbours(entries: Iterable[Entry]) -> tuple[Neighbour, ...]:
    return tuple(Neighbour(entry.contact, entry.role) for entry in entries)


def _ranges(place: Place) -> range:
    """The buckets of a place in which other topics may lie: up to the deepest one known. Between
    that and the own topic lie some two hundred empty ranges."""
    own, bits = place.table.own, place.space.bits
    shared = (common_prefix(own, entry.key, bits) for entry in place.table)
    return range(2 + max((one for one in shared if one < TOPIC_BITS), default=-2))


# --- speaking -------------------------------------------------------------------------------------


class Layer:
    """What the layers above share: roles, lookups of forwarders, and messages to them."""

    def __init__(self, ctx: Context, dht: Kademlia, roles: Roles, lookup: Lookup) -> None:
        self._ctx = ctx
        self._dht = dht
        self._roles = roles
        self._lookup = lookup
        self._config = ctx.config.topic_dht

    def _send(self, to: Contact, message: Message) -> None:
        self._ctx.counters["topic_dht_messages"] += 1
        self._ctx.send(to, message)

    def _ask(self, to: Contact, make: Callable[[int], Message], then: Answered) -> None:
        """Send the message that `make` makes for a request's number; it is repeated while it is
        not answered, so the receiver may get it twice."""
        self._ctx.counters["topic_dht_messages"] += 1
        self._dht.calls.ask(to, make, RoleReply, then)


def after_all(count: int, then: Callable[[], None]) -> Callable[..., None]:
    """A function that is called `count` times, with any arguments; after the last call it calls
    `then` (at once if `count` is 0)."""
    waiting = count
    if not waiting:
        then()

    def one(*_: object) -> None:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            then()

    return one
