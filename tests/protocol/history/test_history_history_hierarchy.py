"""Events that climb and stay: each level's stream says where they were published, signed."""

from __future__ import annotations

import pytest

from history_kit import T, Town, change, follow, hear, history, id_of, routed
from weft.documents.dagcbor import Scalar
from weft.documents.descriptor import seal_event
from weft.ids import Topic
from weft.protocol.seam import FollowTopic
from weft.protocol.wire import Payload
from weft.rules.hierarchy import ORIGIN, ROOT
from weft.sim.node import keyed
from weft.store.reader import read_all

A = Topic(f"{T}/a")
B = Topic(f"{A}/b")


def subscribe(town: Town, topic: Topic, *numbers: int) -> None:
    for number in numbers:
        town.world.subscribe(town.nodes[number], topic)
    town.run(20_000)


def publish(town: Town, number: int, topic: Topic, payload: bytes = b"goal") -> list[str]:
    """As a driver does it; what became of the event at each level, its own topic first."""
    levels = town.peer(number).levels(topic)
    before = len(town.world.record.publications)
    town.world.publish_together(town.nodes[number], levels, payload)
    town.run(30_000)
    publications = list(town.world.record.publications.values())[before:]
    assert [one.topic for one in publications] == levels
    return [one.answers[-1][1].outcome for one in publications]


def notes(town: Town, number: int) -> list[tuple[Topic, Topic | None, bytes]]:
    found = [one for one in town.world.record.deliveries if one.peer == number]
    return [(one.topic, one.published_in, one.event.payload) for one in found]


def origins(town: Town, number: int, topic: Topic) -> list[Scalar | None]:
    """What the stored events of a topic say of where they were published."""
    store = town.nodes[number].store
    assert store is not None
    return [event.metadata.get(ORIGIN) for event in read_all(store, topic)]


@pytest.fixture
def town() -> Town:
    """0 and 1 follow the highest topic, 2 and 3 the lowest, nobody the one between."""
    town = Town(5, hierarchies=(T,))
    subscribe(town, T, 0, 1)
    subscribe(town, B, 2, 3)
    return town


def test_an_event_is_stored_in_the_stream_of_every_level(town: Town) -> None:
    assert publish(town, 3, B) == ["delivered", "no_subscriber", "delivered"]
    for number in (0, 1):
        assert notes(town, number) == [(T, B, b"goal")]
        assert origins(town, number, T) == [B]
    for number in (2, 3):
        assert notes(town, number) == [(B, None, b"goal")]
        assert origins(town, number, B) == [None]
    assert notes(town, 4) == []


def test_a_reader_of_the_past_learns_where_events_were_published(town: Town) -> None:
    publish(town, 3, B, b"from below")
    publish(town, 0, T, b"from above")
    town.world.subscribe(town.nodes[4], T, None, "beginning")
    town.run(60_000)
    assert notes(town, 4) == [(T, B, b"from below"), (T, None, b"from above")]


def forge(town: Town, number: int, claim: Scalar, topic: Topic = T) -> Payload:
    """An event of another peer's, truly signed, that claims to come from somewhere."""
    contact, sign = keyed(1, number)
    event = seal_event(
        sign,
        publisher=contact.peer,
        topic=topic,
        payload=b"forged",
        created_ms=0,
        metadata={"incarnation": 1, "number": 1, ORIGIN: claim},
    )
    return Payload(topic, routed(event), 1)


@pytest.mark.parametrize("claim", [T, "/", "/other/a", f"{T}x", f"{T}//a", "", 7, True])
def test_a_claim_that_cannot_be_is_refused_and_goes_no_further(town: Town, claim: Scalar) -> None:
    sent_before = town.world.sent[Payload]
    hear(town, 0, 1, forge(town, 4, claim))
    town.run(60_000)
    assert notes(town, 0) == notes(town, 1) == []
    assert town.world.sent[Payload] == sent_before
    assert town.peer(0).counters["history_refused_outside_hierarchy"] == 1


def test_a_claim_about_another_hierarchy_is_refused() -> None:
    town = Town(3, hierarchies=(A,))
    subscribe(town, T, 0, 1)
    hear(town, 0, 1, forge(town, 2, B))
    assert notes(town, 0) == []
    assert town.peer(0).counters["history_refused_outside_hierarchy"] == 1
    subscribe(town, A, 0, 1)
    hear(town, 0, 1, forge(town, 2, B, A))
    town.run(5_000)
    assert notes(town, 0) == [(A, B, b"forged")]  # that is what it says: its publisher signed it


def test_history_outlives_the_hierarchy(town: Town) -> None:
    """What was accepted once vouches for what came before it, whatever the settings are now."""
    publish(town, 3, B, b"below")
    publish(town, 0, T, b"above")
    for node in town.nodes[:2]:
        config = town.peer(node.index).config
        object.__setattr__(config, "hierarchies", ())
    town.world.subscribe(town.nodes[4], T, None, "beginning")
    town.run(60_000)
    assert [payload for _, _, payload in notes(town, 4)] == [b"below", b"above"]


# --- hierarchies that owners make -----------------------------------------------------------------


@pytest.fixture
def owned() -> Town:
    """0 owns T, and A under it, as a hierarchy; 1 follows T, 2 and 3 follow A. 2 may publish."""
    town = Town(5)
    subscribe(town, T, 0, 1)
    subscribe(town, A, 0, 2, 3)
    follow(town, (0,), 1, 2, 3)  # what hangs under T needs no word of its own
    assert change(town, 0, create=True, allow=(id_of(town, 2),), hierarchy=True).outcome == "stored"
    assert change(town, 0, sub_topic="a").outcome == "stored"
    town.run(60_000)
    return town


def test_sub_topics_belong_to_the_hierarchy_of_their_parent(owned: Town) -> None:
    assert change(owned, 0, A, sub_topic="b").outcome == "stored"
    for topic in (T, A, B):
        version = history(owned, 0).versions.newest(topic)
        assert version is not None and version.metadata == {ROOT: T}
    assert owned.peer(0).levels(B) == [B, A, T]
    change(owned, 0, allow=(id_of(owned, 3),))
    assert owned.peer(0).levels(A) == [A, T]  # a later version says so as well


def test_a_publisher_in_a_sub_topic_hears_of_those_above(owned: Town) -> None:
    assert owned.peer(2).levels(A) == [A, T]
    assert history(owned, 2).versions.newest(T) == history(owned, 0).versions.newest(T)
    assert publish(owned, 2, A) == ["delivered", "delivered"]
    assert notes(owned, 1) == [(T, A, b"goal")]
    assert notes(owned, 3) == [(A, None, b"goal")]
    assert notes(owned, 0) == [(A, None, b"goal"), (T, A, b"goal")]
    assert owned.counter("history_refused_wrong_topic") == 0


def test_a_change_above_reaches_those_below(owned: Town) -> None:
    change(owned, 0, revoke=(id_of(owned, 2),))
    owned.run(10_000)
    assert history(owned, 2).versions.newest(T) == history(owned, 0).versions.newest(T)
    assert publish(owned, 2, A) == ["delivered", "refused"]
    assert notes(owned, 1) == []


def test_each_level_judges_by_its_own_version(owned: Town) -> None:
    """A peer that may publish below but not above is refused above, and told so."""
    change(owned, 0, A, allow=(id_of(owned, 3),))
    owned.run(10_000)
    assert publish(owned, 3, A) == ["delivered", "refused"]
    last = list(owned.world.record.publications.values())[-1]
    assert "do not let this peer publish" in last.answers[-1][1].reason
    assert notes(owned, 1) == [] and notes(owned, 2) == [(A, None, b"goal")]


def test_a_level_whose_version_is_not_known_is_said_to_be_missing(owned: Town) -> None:
    history(owned, 2).versions.on_other_holders(T)
    assert publish(owned, 2, A) == ["delivered", "refused"]
    last = list(owned.world.record.publications.values())[-1]
    assert "no version of it is known" in last.answers[-1][1].reason
    assert owned.peer(2).counters["history_refused_unknown_topic"] == 1


def test_the_hierarchy_of_a_topic_is_known_after_a_restart(owned: Town) -> None:
    owned.world.crash(owned.nodes[2], silent=False)
    owned.world.start(owned.nodes[2], [owned.nodes[0].contact])
    assert owned.peer(2).levels(A) == [A, T]
    subscribe(owned, A, 2)
    assert publish(owned, 2, A) == ["delivered", "delivered"]


def test_an_owned_topic_by_itself_is_in_no_hierarchy() -> None:
    town = Town(3)
    subscribe(town, T, 0, 1)
    change(town, 0, create=True)
    change(town, 0, sub_topic="a")
    assert town.peer(0).levels(A) == [A]


def test_a_follower_of_a_sub_topic_finds_those_above_in_the_dht() -> None:
    town = Town(8, dht=True)
    town.run(60_000)
    change(town, 0, create=True, allow=(id_of(town, 5),), hierarchy=True)
    change(town, 0, sub_topic="a")
    town.run(10_000)
    follow(town, (0,), 1, 2)
    subscribe(town, T, 1, 2)
    for topic in (T, A):
        town.world.ask(
            town.nodes[5], lambda t, topic=topic: FollowTopic(t, topic, (id_of(town, 0),))
        )
    town.run(10_000)
    assert town.peer(5).levels(A) == [A, T]
    assert publish(town, 5, A)[1] == "delivered"
    assert notes(town, 1) == [(T, A, b"goal")]
