"""Finding forwarders: into a topic from outside, and inside a topic.

From outside the way leads over whoever lies closest to the topic, from the lobby on; it ends at the
first forwarder of the topic. Inside, only forwarders of the topic are asked (`within` its prefix):
no parasite messages (Lemma 4.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from weft.ids import Contact, Topic
from weft.protocol.context import Context
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.kademlia.lookup import Outcome, Question, Search
from weft.protocol.kademlia.rpc import FindReply, Neighbour
from weft.protocol.kademlia.table import Entry, Place
from weft.protocol.topic_dht.space import LOBBY, TOPIC_BITS, TOPICS
from weft.protocol.topic_dht.state import Roles
from weft.rules.draw import stream_of
from weft.rules.prefix import common_prefix

_RANGE = stream_of("topic_dht.range")
FEW = 4
"""guess: so many of the closest are sought where only the closest is wanted; more than one, since
the closest of those that are known may be gone."""

Found = Callable[[list[Entry]], None]


class Routing:
    """See the module's text."""

    def __init__(self, ctx: Context, dht: Kademlia, roles: Roles) -> None:
        self._ctx = ctx
        self._dht = dht
        self._roles = roles
        self.lobby = dht.settle(TOPICS, LOBBY, refreshed=False)

    def enter(self, topic: Topic, target: int, then: Found, count: int = FEW) -> None:
        """Find the closest forwarders from outside the topic."""
        gates: list[Contact] = []

        def seen(entry: Entry, reply: FindReply) -> bool:
            if entry.role == topic:
                gates.append(entry.contact)
            return bool(gates)

        def ended(outcome: Outcome) -> None:
            if gates:
                self.find(topic, target, then, count, gates)
            else:
                then([])

        question = Question(TOPICS, target, sender_role=LOBBY)
        search = Search(question, (self.lobby.table,), ended, seen, False, self._everybody())
        if not self._dht.searches.start(search):
            then([])

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

    def announce(self, place: Place, again: bool = False) -> None:
        """Look an own location up through the lobby, as a newcomer would: those around learn of
        it, and parts of a topic that do not know each other meet. Then look into the ranges of
        other topics, so that who comes by on the way to them is shown the way: into all of them
        at first, later (`again`) into one at a time, and not so wide."""
        count = FEW if again else 0
        question = Question(TOPICS, place.table.own, sender_role=place.role, count=count)
        near = tuple(
            Neighbour(entry.contact, entry.role)
            for entry in self.lobby.table.closest(place.table.own, self._ctx.config.dht.k)
        )
        tables = (place.table,)
        everybody = (*near, *self._everybody())

        def found(outcome: Outcome) -> None:
            ranges: Sequence[int] = self._ranges(place)
            if again and ranges:
                ranges = [self._ctx.pick(_RANGE, ranges)]
            for bucket in ranges:
                self._dht.look_into(place, bucket, FEW)

        self._dht.searches.start(Search(question, tables, found, None, True, everybody))

    def _ranges(self, place: Place) -> range:
        """The buckets of a place in which other topics may lie: up to the deepest one known.
        Beyond it and up to the own topic there is nobody, in some two hundred empty ranges."""
        own, bits = place.table.own, place.space.bits
        shared = (common_prefix(own, entry.key, bits) for entry in place.table)
        return range(2 + max((one for one in shared if one < TOPIC_BITS), default=-2))

    def _everybody(self) -> tuple[Neighbour, ...]:
        return tuple(Neighbour(contact, LOBBY) for contact in self._dht.known())


def _nothing(outcome: Outcome) -> None:
    """The tables have learned from it already."""
