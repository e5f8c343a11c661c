"""Owned topics: who may, who says so, and how everybody learns of it."""

from __future__ import annotations

import pytest

from history_kit import T, Town, change, hear, history, id_of
from weft.documents.record import RENEW_MS
from weft.ids import Cid, Topic
from weft.protocol import seam
from weft.protocol.history.ownership import SubTopicReply, SubTopicRequest
from weft.protocol.seam import Answer, FollowTopic, Started


def newest(town: Town, number: int, topic: Topic = T) -> Cid | None:
    version = history(town, number).versions.newest(topic)
    return version.cid if version is not None else None


@pytest.fixture
def town() -> Town:
    town = Town(5)
    town.subscribe(0, 1, 2, 3)
    town.run(20_000)
    return town


def test_a_version_reaches_every_subscriber_and_their_stores(town: Town) -> None:
    answer = change(town, 0, create=True, allow=(id_of(town, 1),))
    assert answer.outcome == "stored" and answer.value is not None
    cid = Cid(answer.value)
    assert [newest(town, number) for number in range(4)] == [cid] * 4
    assert all(town.nodes[number].store.has(cid) for number in range(4))  # type: ignore[union-attr]
    assert newest(town, 4) is None


def test_only_the_allowed_publish(town: Town) -> None:
    change(town, 0, create=True, allow=(id_of(town, 1),))
    town.publish(0, 1, 2)
    town.run(3_000)
    assert town.answers() == ["delivered", "delivered", "refused"]
    assert [len(town.stream(number)) for number in range(4)] == [2] * 4


def test_an_outsider_that_knows_of_no_owner_is_refused_by_members(town: Town) -> None:
    change(town, 0, create=True)
    town.publish(4)
    town.run(60_000)
    assert town.answers() == ["dropped"]
    assert town.stream(0) == []
    assert town.counter("history_refused_not_allowed") > 0
    status = town.peer(0).status()["history"]
    refused = [history(town, n).status()["refused"] for n in range(4)]
    assert isinstance(status, dict)
    assert any("not_allowed" in counts for counts in refused if isinstance(counts, dict))


def test_revoked_publishers_publish_no_more_and_their_past_stays(town: Town) -> None:
    change(town, 0, create=True, allow=(id_of(town, 1),))
    town.publish(1, 0, 1, 0)
    town.run(3_000)
    change(town, 0, revoke=(id_of(town, 1),))
    town.publish(1)
    town.publish(0)
    town.run(3_000)
    assert town.answers()[-2:] == ["refused", "delivered"]
    assert len(town.stream(3)) == 5
    # Whoever comes later gets the revoked publisher's past as well: what followed vouches for it.
    town.subscribe(4, since="beginning")
    town.run(30_000)
    assert town.stream(4) == town.stream(0)
    assert newest(town, 4) == newest(town, 0)


def test_a_revoked_publisher_cannot_slip_events_in(town: Town) -> None:
    """It publishes under the old version, which it still believes, and tells its heads."""
    change(town, 0, create=True, allow=(id_of(town, 1),))
    town.publish(0)
    town.run(3_000)
    old = history(town, 1).versions.newest(T)
    assert old is not None
    change(town, 0, revoke=(id_of(town, 1),))
    history(town, 1).versions.set_newest(old)
    town.publish(1)
    town.run(30_000)
    assert [len(town.stream(number)) for number in (0, 2, 3)] == [1, 1, 1]
    assert len(town.stream(1)) == 2


def test_only_holders_change_a_topic(town: Town) -> None:
    change(town, 0, create=True, owners=(id_of(town, 2),))
    assert change(town, 1, anyone=True).outcome == "refused"
    assert change(town, 1, create=True).outcome == "refused"
    answer = change(town, 2, anyone=True)
    assert answer.outcome == "stored"
    assert newest(town, 0) == newest(town, 3) == answer.value
    town.publish(3)
    assert town.answers() == ["delivered"]


def test_what_cannot_be_is_refused(town: Town) -> None:
    assert change(town, 0, allow=(id_of(town, 1),)).outcome == "refused"  # no version yet
    change(town, 0, create=True, anyone=True)
    assert "anyone may" in change(town, 0, allow=(id_of(town, 1),)).reason
    assert "owner's right" in change(town, 0, anyone=False, revoke=(id_of(town, 0),)).reason
    assert change(town, 0, sub_topic="a/b").outcome == "refused"


def test_sub_topics_hang_under_their_parent(town: Town) -> None:
    change(town, 0, create=True)
    answer = change(town, 0, sub_topic="football")
    assert answer.outcome == "stored" and answer.count == 2
    version = history(town, 0).versions.newest(T)
    child = history(town, 0).versions.newest(Topic(f"{T}/football"))
    assert version is not None and child is not None
    assert version.sub_topics == {"football": child.cid}
    assert change(town, 0, sub_topic="football").outcome == "refused"
    follower = history(town, 3).versions.newest(T)
    assert follower is not None and follower.sub_topics == version.sub_topics


def test_a_topic_in_use_cannot_be_taken_over(town: Town) -> None:
    town.publish(1, 2)
    town.run(3_000)
    change(town, 0, create=True)
    assert newest(town, 0) is not None
    assert [newest(town, number) for number in (1, 2, 3)] == [None] * 3
    assert town.counter("history_refused_not_holder") > 0
    town.publish(1)
    town.run(3_000)
    assert [len(town.stream(number)) for number in (1, 2, 3)] == [3] * 3


def test_who_follows_believes_the_holders_it_was_told(town: Town) -> None:
    town.world.ask(town.nodes[3], lambda t: FollowTopic(t, T, (id_of(town, 2),)))
    change(town, 0, create=True)
    assert newest(town, 1) is not None
    assert newest(town, 3) is None
    town.world.ask(town.nodes[3], lambda t: FollowTopic(t, T, (id_of(town, 0),)))
    town.run(60_000)
    assert newest(town, 3) == newest(town, 0)


def test_versions_are_known_after_a_restart_and_missed_ones_come(town: Town) -> None:
    change(town, 0, create=True)
    town.world.crash(town.nodes[3], silent=False)
    change(town, 0, allow=(id_of(town, 1),))
    town.world.start(town.nodes[3], [town.nodes[0].contact])
    assert newest(town, 3) is not None
    town.subscribe(3)
    town.run(60_000)
    assert newest(town, 3) == newest(town, 0)


def test_holders_renew_their_records(town: Town) -> None:
    change(town, 0, create=True)
    before = history(town, 3).ownership.record(T)
    node = town.nodes[0]
    local = node.clock.local_ms(town.world.now_ms)
    later = Started(1, (), wall_ms=local + RENEW_MS)  # its wall clock is put forward
    town.world.carry_out(node, town.peer(0).handle(later, local))
    town.run(700_000)
    after = history(town, 3).ownership.record(T)
    assert before is not None and after is not None
    assert after.sequence == before.sequence and after.expires_ms > before.expires_ms
    assert town.counter("history_records_renewed") == 1


def test_a_peer_that_slept_believes_fresh_records_again(town: Town) -> None:
    """While it slept its own clock stood still: by that, what others date is of the day after."""
    day_ms = 26 * 3_600_000

    def wake(number: int) -> None:
        node = town.nodes[number]
        local = node.clock.local_ms(town.world.now_ms)
        town.world.carry_out(node, town.peer(number).handle(seam.ClockMoved(local + day_ms), local))

    for number in (0, 1, 2):
        wake(number)
    change(town, 0, create=True)
    assert newest(town, 1) is not None
    assert newest(town, 3) is None  # it does not know yet that it slept
    wake(3)
    town.run(30_000)
    assert newest(town, 3) == newest(town, 0)


def test_who_is_not_subscribed_finds_the_version_in_the_dht() -> None:
    town = Town(8, dht=True)
    town.run(60_000)
    assert change(town, 0, create=True).outcome == "stored"
    town.run(10_000)
    token = town.world.ask(town.nodes[5], lambda t: FollowTopic(t, T, (id_of(town, 0),)))
    town.run(10_000)
    found = town.world.record.answers[token]
    assert found is not None and found[1].outcome == "found"
    assert newest(town, 5) == newest(town, 0)


# --- sub-topics for peers that do not own a topic -------------------------------------------------


def owned(**settings: object) -> Town:
    """Peer 0 owns the topic and lets 1 publish; 1 and 2 are subscribed."""
    town = Town(4, **settings)  # type: ignore[arg-type]
    town.subscribe(0, 1, 2)
    town.run(20_000)
    assert change(town, 0, create=True, allow=(town.nodes[1].contact.peer,)).outcome == "stored"
    town.run(5_000)
    return town


def ask(town: Town, number: int, segment: str, topic: Topic = T) -> Answer:
    token = town.world.ask(
        town.nodes[number], lambda token: seam.AskSubTopic(token, topic, segment)
    )
    town.run(15_000)
    answered = town.world.record.answers[token]
    assert answered is not None
    return answered[1]


def segments(town: Town, number: int) -> list[str]:
    version = history(town, number).versions.newest(T)
    return list(version.sub_topics) if version is not None else []


def test_an_owner_sees_the_wish_and_grants_it() -> None:
    town = owned()
    assert ask(town, 1, "tennis").outcome == "queued"
    assert history(town, 0).wishes.of(T) == {"tennis": town.nodes[1].contact.peer}
    assert segments(town, 1) == []
    assert change(town, 0, sub_topic="tennis").outcome == "stored"
    town.run(5_000)
    assert segments(town, 1) == ["tennis"]
    assert history(town, 0).wishes.of(T) == {}
    again = ask(town, 1, "tennis")
    assert (again.outcome, again.reason) == ("refused", "it hangs there already")


def test_an_owner_may_let_every_wish_come_true() -> None:
    town = owned(accept_sub_topics=True)
    assert ask(town, 1, "tennis").outcome == "stored"
    town.run(5_000)
    assert segments(town, 2) == ["tennis"]
    known = history(town, 2).versions.newest(Topic("/t/tennis"))
    assert known is None or known.owners == (town.nodes[0].contact.peer,)


def test_who_may_not_is_refused() -> None:
    town = owned()
    assert "may publish" in ask(town, 2, "tennis").reason
    assert "one segment" in ask(town, 1, "a/b").reason
    assert "one segment" in ask(town, 1, "").reason
    assert "own: add" in ask(town, 0, "tennis").reason
    assert "nobody is known" in ask(town, 1, "x", Topic("/unknown")).reason


def test_the_owner_judges_by_itself() -> None:
    """A liar that does not look first is refused as well, and counted."""
    town = owned()
    for segment, reason in (("x", "not_allowed"), ("a/b", "outside_parent")):
        effects = hear(town, 0, 2, SubTopicRequest(T, 7, segment))
        [reply] = [e.message for e in effects if isinstance(e, seam.Send)]
        assert isinstance(reply, SubTopicReply) and not reply.granted and not reply.waits
        assert town.peer(0).counters[f"history_refused_{reason}"] == 1


def test_wishes_are_bounded() -> None:
    town = owned()
    for number in range(8):
        assert ask(town, 1, f"s{number}").outcome == "queued"
    assert ask(town, 1, "s0").outcome == "queued"  # the same wish takes no more room
    refused = ask(town, 1, "one-more")
    assert (refused.outcome, refused.reason) == ("refused", "too many wishes wait already")


def test_no_owner_to_be_reached() -> None:
    town = owned()
    town.world.crash(town.nodes[0], silent=True)
    town.run(60_000)
    answer = ask(town, 1, "tennis")
    assert answer.outcome == "not_found" and "could be reached" in answer.reason


def test_an_owner_that_is_no_member_is_found_in_the_dht() -> None:
    town = owned(dht=True)
    town.world.unsubscribe(town.nodes[0], T)
    town.run(60_000)
    assert ask(town, 1, "tennis").outcome == "queued"
    assert list(history(town, 0).wishes.of(T)) == ["tennis"]
