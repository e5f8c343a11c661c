"""A peer's places: how it looks after its tables; and other spaces, with locations per topic."""

from __future__ import annotations

from kademlia_kit import ON, Network, asked, dht, location, machine, reply, request, rig
from protocol_kit import Rig, contact, number_of, timers
from weft.ids import GENERAL, PeerId, Topic
from weft.protocol.kademlia.lookup import Outcome, Question, Search
from weft.protocol.kademlia.rpc import FindRequest, Neighbour
from weft.protocol.kademlia.table import PLAIN, Place, Space
from weft.protocol.seam import Timer, TimerFired
from weft.rules.prefix import BITS, as_bytes, closest, common_prefix, joined

OWN = location(1)
NEAR = [n for n in range(2, 400) if common_prefix(OWN, location(n)) >= 4][:4]
FAR = [n for n in range(2, 400) if common_prefix(OWN, location(n)) == 0]
SMALL = dht(k=2, alpha=1, refresh_ms=20_000)


def whom_it_asks(one: Rig, refreshes: int) -> list[tuple[int, bool]]:
    """The peers it asks, and whether about itself, over some refreshes; all answer what is so."""
    found: list[tuple[int, bool]] = []
    while refreshes:
        effects = one.wait_for("dht.refresh")
        refreshes -= bool(timers(effects, "dht.refresh"))  # a stale timer sets no other
        waiting = asked(effects)
        while waiting:
            number, message = waiting.pop()
            found.append((number, message.target == as_bytes(OWN)))
            waiting += asked(one.hear(number, reply(message, *NEAR[:2])))
    return found


def test_a_peer_looks_itself_up() -> None:
    one = rig(SMALL, *NEAR[:2])
    assert {(NEAR[0], True), (NEAR[1], True)} <= set(whom_it_asks(one, 1))


def test_a_range_that_a_table_lacks_is_found_by_the_general_overlay() -> None:
    one = rig(SMALL, *NEAR[:2])
    one.meet(FAR[0])
    assert machine(one).home.table.get(location(FAR[0])) is None
    assert (FAR[0], False) in whom_it_asks(one, 1)
    assert machine(one).home.table.get(location(FAR[0])) is not None


def test_a_peer_enters_anew_through_strangers() -> None:
    """Its table has all the places for them taken, so no other lookup would ask them."""
    one = rig(SMALL, *NEAR[:2])
    for number in FAR[:2]:
        one.hear(number, request(0))
    one.meet(*FAR[2:5])
    before = {entry.key for entry in machine(one).home.table}
    strangers = {(number, True) for number in FAR[2:5]}
    assert not strangers & set(whom_it_asks(one, 2))
    assert strangers & set(whom_it_asks(one, 1))
    assert before <= {entry.key for entry in machine(one).home.table}


def test_a_range_nobody_looked_into_for_an_hour_is_looked_into() -> None:
    settings = dht(k=2, alpha=1, refresh_ms=20_000, bucket_refresh_ms=60_000)
    one = rig(settings, *NEAR[:2])
    for number in FAR[:2]:
        one.hear(number, request(0))
    known = {(number, False) for number in FAR[:2]}
    assert not known & set(whom_it_asks(one, 2))
    assert known <= set(whom_it_asks(one, 6))


def test_refreshes_become_rare() -> None:
    one = rig(dht(refresh_first_ms=1_000, refresh_ms=64_000), *NEAR)
    pauses = []
    for _ in range(12):
        before = one.now
        one.wait_for("dht.refresh")
        pauses.append(one.now - before)
    assert pauses[0] < 2_000
    assert all(32_000 <= pause <= 96_001 for pause in pauses[-4:])


# --- other spaces ---------------------------------------------------------------------------------

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


def test_a_peer_that_left_a_role_says_so() -> None:
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
