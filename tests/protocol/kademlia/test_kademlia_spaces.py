"""Tables and lookups serve other spaces too: a location per topic, as in a topic-aware DHT."""

from __future__ import annotations

from kademlia_kit import ON, Network
from protocol_kit import contact, number_of

from weft.ids import GENERAL, PeerId, Topic
from weft.protocol.kademlia.lookup import Outcome, Question, Search
from weft.protocol.kademlia.rpc import FindRequest, Neighbour
from weft.protocol.kademlia.table import PLAIN, Place, Space
from weft.protocol.seam import Timer, TimerFired
from weft.rules.prefix import BITS, closest, joined

A, B = Topic("/a"), Topic("/b")


def _locate(role: Topic, peer: PeerId) -> int | None:
    return joined(role.encode(), peer) if role != GENERAL else None


TOPICS = Space(1, 2 * BITS, _locate)


class Topical:
    """Peers with a location for each of their topics; each joins through the one before it."""

    def __init__(self) -> None:
        self.network = Network(30, ON)
        self.places: dict[tuple[int, Topic], Place] = {}
        for topic, members in ((A, range(1, 21)), (B, range(11, 31))):
            for number in members:
                self._join(number, topic, members[0])
        self.network.run(60_000, steps_max=2_000_000)

    def _join(self, number: int, topic: Topic, entry: int) -> None:
        place = self.places[number, topic] = self.network.dht(number).settle(TOPICS, topic)
        if number != entry:
            self.find(number, topic, place.table.own, (Neighbour(contact(entry), topic),))

    def find(
        self, number: int, topic: Topic, target: int, others: tuple[Neighbour, ...] = ()
    ) -> Outcome:
        found: list[Outcome] = []
        place = self.places[number, topic]
        question = Question(place.space, target, sender_role=topic)
        self.network.dht(number).searches.start(
            Search(question, (place.table,), found.append, others=others)
        )
        self.network.do(number, TimerFired(Timer("none of the peer's")))  # carries out the wishes
        while not found:
            self.network.run(50, steps_max=2_000_000)
        return found[0]


def test_a_topic_is_looked_up_among_its_subscribers_only() -> None:
    topical = Topical()
    start = topical.network.now
    subscribers = {A: set(range(1, 21)), B: set(range(11, 31))}
    for number, topic in ((3, A), (15, A), (15, B), (28, B)):
        for wanted in sorted(subscribers[topic])[::5]:
            target = TOPICS.locate(topic, contact(wanted).peer)
            assert target is not None
            outcome = topical.find(number, topic, target)
            keys = {_locate(topic, contact(n).peer): n for n in subscribers[topic] - {number}}
            truth = [keys[key] for key in closest(target, keys, 19)]  # type: ignore[type-var]
            assert [number_of(entry.contact) for entry in outcome.closest] == truth
    parasites = [
        (sender, to)
        for sender, to, message in topical.network.since(start, FindRequest)
        if message.space == TOPICS.number and to not in subscribers[message.role]
    ]
    assert parasites == []


def test_who_left_a_role_says_so() -> None:
    topical = Topical()
    topical.network.dht(5).quit(TOPICS, A)
    gone = TOPICS.locate(A, contact(5).peer)
    assert gone is not None
    outcome = topical.find(3, A, gone)
    assert 5 not in [number_of(entry.contact) for entry in outcome.closest]
    assert topical.places[3, A].table.get(gone) is None
    assert topical.network.dht(3).home.table.get(gone) is None


def test_the_plain_space_has_no_roles() -> None:
    assert PLAIN.locate(A, contact(1).peer) is None
    assert PLAIN.target(bytes(64)) is None and TOPICS.target(bytes(32)) is None
