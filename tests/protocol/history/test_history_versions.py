"""Whose word counts in a topic, and what a stranger's is worth: nothing is owned by hearsay."""

from __future__ import annotations

import pytest

from history_kit import T, Town, change, follow, hear, history, id_of, newest
from stranger import Stranger
from weft.documents.dagcbor import Scalar
from weft.ids import Topic, owned_name
from weft.protocol.history.stream import Heads
from weft.protocol.wire import Payload
from weft.rules.hierarchy import ROOT

A = Topic(f"{T}/a")


def members(count: int, **settings: object) -> tuple[Town, Stranger]:
    """Subscribers of the topic, and a stranger."""
    town = Town(count + 1, **settings)  # type: ignore[arg-type]
    town.subscribe(*range(count))
    town.run(20_000)
    return town, Stranger(town, count)


# --- nobody takes a topic by hearsay --------------------------------------------------------------


def test_a_fresh_topic_is_not_taken_by_news() -> None:
    town, stranger = members(8)
    stranger.say(0, stranger.record(stranger.version()))
    town.run(10_000)
    assert not any(stranger.is_believed(number) for number in range(8))
    town.publish(*range(8))
    assert town.answers() == ["delivered"] * 8
    assert town.peer(0).counters["history_refused_not_holder"] == 1


def test_newcomers_to_a_busy_topic_are_not_captured() -> None:
    town, stranger = members(4)
    town.publish(0, 1, 2, 3)
    for _ in range(8):
        town.enter([0])
    newcomers = range(5, 13)
    town.run(5_000)
    town.subscribe(*newcomers)
    news = stranger.record(stranger.version())
    for _ in range(20):
        for number in newcomers:
            stranger.say(number, news)
        town.run(500)
    town.run(20_000)
    assert not any(stranger.is_believed(number) for number in newcomers)
    town.publish(*newcomers)
    assert set(town.answers()) == {"delivered"}


def test_claims_are_shown_and_believed_once_the_user_says_so() -> None:
    town, stranger = members(3)
    version = stranger.version()
    stranger.say(0, stranger.record(version))
    ownership = history(town, 0).ownership
    assert ownership.claims(T) == [(stranger.peer,)]
    follow(town, (3,), 0)
    town.run(1_000)
    assert ownership.claims(T) == []
    stranger.say(0, Heads(T, [], False, 1, version.cid))
    stranger.say(0, stranger.record(version))
    assert stranger.is_believed(0)


def test_claims_are_bounded() -> None:
    town = Town(12)
    town.subscribe(0)
    town.run(10_000)
    for number in range(1, 12):
        stranger = Stranger(town, number)
        for name in range(40):
            topic = Topic(f"/u{name}")
            stranger.say(0, stranger.record(stranger.version(topic)))
        stranger.say(0, stranger.record(stranger.version()))
    ownership = history(town, 0).ownership
    assert 0 < len(ownership.claims(T)) <= 4
    assert ownership.claims(Topic("/u1")) == []  # of topics that are nothing to this peer


def test_the_word_of_the_user_outlives_the_peer() -> None:
    """No record had come before the restart; strangers are refused all the same."""
    town, stranger = members(3)
    follow(town, (1,), 0)
    town.run(1_000)
    town.world.crash(town.nodes[0], silent=False)
    town.world.start(town.nodes[0], [town.nodes[1].contact])
    town.subscribe(0)
    town.run(20_000)
    stranger.push(0, stranger.event())
    assert town.peer(0).counters["history_refused_not_allowed"] == 1
    assert town.stream(0) == []


# --- the owner's key in the topic's name ----------------------------------------------------------


def named(count: int) -> tuple[Town, Stranger, Topic]:
    """Subscribers of a topic that is 0's by its name, and a stranger."""
    town = Town(count + 1)
    topic = owned_name(id_of(town, 0), "/orders")
    for number in range(1, count):
        town.world.subscribe(town.nodes[number], topic)
    town.run(20_000)
    return town, Stranger(town, count), topic


def test_a_name_with_its_owners_key_needs_no_agreement() -> None:
    """The owner is not even subscribed, made no version, and there is no DHT."""
    town, stranger, topic = named(4)
    before = town.world.sent[Payload]
    for event in (
        stranger.event(topic=topic),
        stranger.event(stranger.version(topic, allowed=None).cid, topic),
    ):
        stranger.push(1, event)
    stranger.say(1, stranger.record(stranger.version(topic)))
    town.run(10_000)
    assert [newest(town, number, topic) for number in (1, 2, 3)] == [None] * 3
    assert town.world.sent[Payload] == before
    assert all(town.nodes[number].store.summary(topic).events == 0 for number in (1, 2, 3))  # type: ignore[union-attr]
    town.world.publish(town.nodes[0], topic, b"mine")
    town.run(5_000)
    assert [town.nodes[number].store.summary(topic).events for number in (1, 2, 3)] == [1] * 3  # type: ignore[union-attr]


def test_an_event_without_a_link_is_refused_without_a_question() -> None:
    town, stranger, topic = named(3)
    sent = sum(town.world.sent.values())
    stranger.push(1, stranger.event(topic=topic))
    assert sum(town.world.sent.values()) == sent
    assert town.peer(1).counters["history_refused_not_allowed"] == 1


def test_the_owner_of_a_name_lets_others_publish_and_revokes_from_outside() -> None:
    town, _, topic = named(4)
    assert change(town, 0, topic, allow=(id_of(town, 2),)).outcome == "stored"
    town.run(20_000)
    assert [newest(town, number, topic) == newest(town, 0, topic) for number in (1, 2, 3)] == [
        True
    ] * 3
    town.world.publish(town.nodes[2], topic, b"allowed")
    town.world.publish(town.nodes[3], topic, b"not allowed")
    town.run(5_000)
    assert town.answers() == ["delivered", "refused"]
    assert change(town, 0, topic, revoke=(id_of(town, 2),)).outcome == "stored"
    town.run(20_000)
    town.world.publish(town.nodes[2], topic, b"revoked")
    assert town.answers()[-1] == "refused"


def test_nobody_else_makes_or_follows_a_named_topic_otherwise() -> None:
    town, _, topic = named(3)
    assert "by its name" in change(town, 1, topic, create=True).reason
    assert "one owner" in change(town, 0, topic, create=True, owners=(id_of(town, 1),)).reason
    follow(town, (1,), 2, topic=topic)
    town.run(1_000)
    assert history(town, 2).versions.holders(topic) == (id_of(town, 0),)
    assert history(town, 2).versions.holders(Topic(f"{topic}/eu")) == (id_of(town, 0),)


def test_a_publisher_from_outside_learns_that_it_may() -> None:
    """Neither it nor the owner is subscribed, and there is no DHT."""
    town, _, topic = named(4)
    change(town, 0, topic, allow=(id_of(town, 4),))
    town.run(20_000)
    town.world.publish(town.nodes[4], topic, b"too early")
    assert town.answers() == ["refused"]
    follow(town, (0,), 4, topic=topic)
    town.run(10_000)
    town.world.publish(town.nodes[4], topic, b"now")
    town.run(10_000)
    assert town.answers() == ["refused", "delivered"]


# --- self-made versions ---------------------------------------------------------------------------


def test_events_under_self_made_versions_are_neither_passed_on_nor_stored() -> None:
    town, stranger = members(5)
    follow(town, (0,), 1, 2, 3, 4)
    change(town, 0, create=True, allow=(id_of(town, 1),))
    town.run(5_000)
    before = town.world.sent[Payload]
    made = []
    for number in range(50):
        version = stranger.version(allowed=(id_of(town, 1), stranger.peer), metadata={"n": number})
        made.append(version.cid)
        stranger.push(1, stranger.event(version.cid))
        town.run(50)
    town.run(20_000)
    assert town.world.sent[Payload] == before
    stores = [town.nodes[number].store for number in range(5)]
    assert not any(store.has(cid) for store in stores if store is not None for cid in made)
    assert [town.stream(number) for number in range(5)] == [[]] * 5


@pytest.mark.parametrize("anyone", [True, False])
def test_a_publishers_own_version_is_not_the_owners(anyone: bool) -> None:
    """A publisher may not publish under a version that no holder wrote."""
    town, stranger = members(3)
    follow(town, (0,), 1, 2)
    change(town, 0, create=True, anyone=anyone, allow=() if anyone else (stranger.peer,))
    town.run(5_000)
    version = stranger.version(allowed=None)
    stranger.push(1, stranger.event(version.cid))
    town.run(10_000)
    assert town.stream(1) == []
    assert not town.nodes[1].store.has(version.cid)  # type: ignore[union-attr]
    assert town.peer(1).counters["history_refused_not_owner"] == 1


def test_where_no_version_is_known_an_event_waits_and_is_not_passed_on() -> None:
    town, stranger = members(3)
    follow(town, (0,), 1, 2)
    town.run(1_000)
    before = town.world.sent[Payload]
    unknown = stranger.version(allowed=None)
    stranger.push(1, stranger.event(unknown.cid))
    town.run(20_000)
    assert town.world.sent[Payload] == before
    assert town.stream(1) == [] and history(town, 1).versions.held(T) is None
    assert town.peer(1).counters["history_refused_not_owner"] == 1


def test_held_events_are_bounded_per_topic_and_sender() -> None:
    town = Town(4, held_max=32)
    versions = history(town, 0).versions
    for number in (1, 2, 3):
        stranger = Stranger(town, number)
        for count in range(40):
            event = stranger.event(stranger.version(metadata={"n": count}).cid)
            assert event.link is not None
            versions.hold(event.link, event, stranger.contact, 1)
            last = event
        assert last.link is not None and versions.expects(last.link)  # the oldest gave way
    held = versions.held(T)
    assert held is not None and len(held) == len(held.versions) == 3 * 4
    assert town.peer(0).counters["history_held_dropped"] == 3 * 36


# --- sub-topics and those above -------------------------------------------------------------------


def test_a_sub_topics_owner_does_not_become_its_parents() -> None:
    """It owns /t/a, says that this is in a hierarchy under /t, and makes a version of /t."""
    town = Town(4)
    for number in (0, 1):
        town.world.subscribe(town.nodes[number], A)
        town.world.subscribe(town.nodes[number], T)
    follow(town, (3,), 0, topic=A)
    town.run(20_000)
    stranger = Stranger(town, 3)
    stranger.say(0, stranger.record(stranger.version(A, metadata={ROOT: T})))
    stranger.say(0, stranger.record(stranger.version(T)))
    town.run(10_000)
    assert stranger.is_believed(0, A)
    assert not stranger.is_believed(0, T)
    assert history(town, 0).versions.holders(T) is None
    town.publish(0, 1)
    assert town.answers() == ["delivered"] * 2


def test_what_hangs_under_a_topic_is_that_sub_topic() -> None:
    """A holder's version hangs a version of another topic in a sub-topic's place."""
    town, holder = members(3)
    follow(town, (3,), 0, 1)
    town.run(1_000)
    other = holder.version(Topic("/elsewhere"))
    first = holder.version()
    holder.say(0, holder.record(first))
    history(town, 0).versions.note(other)
    wrong = holder.version(parent=first.cid, sub_topics={"a": other.cid})
    holder.say(0, holder.record(wrong, 2))
    town.run(5_000)
    assert newest(town, 0) == first.cid
    assert town.peer(0).counters["history_refused_outside_parent"] == 1
    assert history(town, 0).versions.holders(A) is None


def test_a_version_follows_the_one_before() -> None:
    """A later record points at a version that names another topic's, or nobody's, as its parent."""
    town, holder = members(3)
    follow(town, (3,), 0)
    town.run(1_000)
    first = holder.version(allowed=(id_of(town, 1),))
    holder.say(0, holder.record(first))
    elsewhere = holder.version(Topic("/elsewhere"))
    wrong = holder.version(parent=elsewhere.cid, allowed=(id_of(town, 2),))
    holder.say(0, holder.record(wrong, 2))
    assert newest(town, 0) == first.cid
    assert town.peer(0).counters["history_refused_wrong_topic"] == 1
    right = holder.version(parent=first.cid)
    far = holder.version(parent=right.cid, metadata={"far": True})
    holder.say(0, holder.record(far, 3))  # what lies between is fetched
    assert newest(town, 0) == far.cid


def test_what_lies_between_two_versions_may_be_lost() -> None:
    """Then the holder's word on the newest counts; an older one said again does not."""
    town, holder = members(2, give_up_ms=20_000)
    follow(town, (2,), 0)
    town.run(1_000)
    first = holder.version()
    holder.say(0, holder.record(first))
    lost = holder.version(parent=first.cid, metadata={"n": 1})
    last = holder.version(parent=lost.cid, metadata={"n": 2})
    holder.forget(lost.cid)
    holder.say(0, holder.record(last, 3))
    assert newest(town, 0) == first.cid
    town.run(60_000)
    assert newest(town, 0) == last.cid
    holder.say(0, holder.record(first))
    town.run(60_000)
    assert newest(town, 0) == last.cid


def test_what_hangs_in_a_believed_topic_is_held_by_its_owners() -> None:
    town = Town(5)
    for number in (1, 2, 3):
        town.world.subscribe(town.nodes[number], A)
    follow(town, (0,), 1, 2, 3)
    town.run(20_000)
    change(town, 0, create=True)
    change(town, 0, sub_topic="a")
    for number in (1, 2, 3):
        town.world.subscribe(town.nodes[number], T)
    town.run(700_000)  # the owner is not subscribed, and looks for members now and then
    assert [history(town, n).versions.holders(A) for n in (1, 2, 3)] == [(id_of(town, 0),)] * 3
    stranger = Stranger(town, 4)
    stranger.push(1, stranger.event(topic=A))
    assert town.peer(1).counters["history_refused_not_allowed"] == 1


def test_metadata_can_hold_no_false_merge() -> None:
    """A version that says it takes over what is no version changes nothing."""
    town, holder = members(2)
    follow(town, (2,), 0)
    town.run(1_000)
    first = holder.version()
    odd: dict[str, Scalar] = {"merges": "no cid"}
    holder.say(0, holder.record(first))
    second = holder.version(parent=first.cid, metadata=odd)
    holder.say(0, holder.record(second, 2))
    assert newest(town, 0) == second.cid
    hear(town, 0, 1, Heads(T, [], False))
