"""Owned topics: which peers may publish, which may say so, and how all learn of it."""

from __future__ import annotations

from random import Random

import pytest

from history_kit import T, Town, change, follow, hear, history, id_of, newest
from stranger import Stranger
from weft.documents.record import RENEW_MS, read_record
from weft.ids import Cid, PeerId, Topic, peer_text
from weft.protocol import seam
from weft.protocol.history.wishes import SubTopicReply, SubTopicRequest
from weft.protocol.seam import Answer, FollowTopic, Started
from weft.store.interface import Batch
from weft.store.reader import read_through


@pytest.fixture
def town() -> Town:
    """0 to 3 are subscribed, and follow 0."""
    town = Town(5)
    town.subscribe(0, 1, 2, 3)
    follow(town, (0,), 1, 2, 3)
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
    assert town.answers() == ["refused"]
    assert town.stream(0) == []
    assert town.counter("history_refused_not_allowed") > 0
    shown = [town.peer(number).status()["history"] for number in range(4)]
    assert any("not_allowed" in one["refused"] for one in shown)  # type: ignore[index]


def test_a_publisher_from_outside_that_is_refused_asks_whether_it_may_by_now(town: Town) -> None:
    change(town, 0, create=True)
    follow(town, (0,), 4)
    town.run(5_000)
    change(town, 0, allow=(id_of(town, 4),))
    assert newest(town, 4) != newest(town, 0)  # nobody tells it
    town.publish(4)
    town.run(3_000)
    town.publish(4)
    town.run(3_000)
    assert town.answers() == ["refused", "delivered"]


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
    # A later member gets the revoked publisher's past as well: what followed vouches for it.
    follow(town, (0,), 4)
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
    follow(town, (0, 2), 1, 2, 3)
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


def test_a_topic_in_use_cannot_be_taken_over() -> None:
    town = Town(5)
    town.subscribe(0, 1, 2, 3)
    town.run(20_000)
    town.publish(1, 2)
    town.run(3_000)
    change(town, 0, create=True)
    assert newest(town, 0) is not None
    assert [newest(town, number) for number in (1, 2, 3)] == [None] * 3
    assert town.counter("history_refused_not_holder") > 0
    town.publish(1)
    town.run(3_000)
    assert [len(town.stream(number)) for number in (1, 2, 3)] == [3] * 3


def test_a_follower_believes_the_holders_that_it_was_told(town: Town) -> None:
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


def test_a_peer_that_is_not_subscribed_finds_the_version_in_the_dht() -> None:
    town = Town(8, dht=True)
    town.run(60_000)
    assert change(town, 0, create=True).outcome == "stored"
    town.run(10_000)
    token = town.world.ask(town.nodes[5], lambda t: FollowTopic(t, T, (id_of(town, 0),)))
    town.run(10_000)
    found = town.world.record.answers[token]
    assert found is not None and found[1].outcome == "found"
    assert newest(town, 5) == newest(town, 0)


# --- several holders, and changes at once ---------------------------------------------------------


@pytest.fixture
def shared() -> Town:
    """0 and 1 hold the topic; 2 and 3 follow them and may publish, 4 may not."""
    town = Town(6)
    town.subscribe(0, 1, 2, 3, 4)
    follow(town, (0, 1), 1, 2, 3, 4)
    town.run(20_000)
    allow = (id_of(town, 2), id_of(town, 3))
    assert change(town, 0, create=True, owners=(id_of(town, 1),), allow=allow).outcome == "stored"
    town.run(5_000)
    return town


def allowed(town: Town, number: int) -> set[int]:
    """The peers that may publish beside the holders, as a peer believes."""
    version = history(town, number).versions.newest(T)
    assert version is not None and version.allowed is not None
    return {node.index for node in town.nodes if node.contact.peer in version.allowed}


def ask_change(town: Town, number: int, **fields: object) -> int:
    make = lambda token: seam.ChangeTopic(token, T, **fields)  # type: ignore[arg-type]  # noqa: E731
    return town.world.ask(town.nodes[number], make)


def test_two_holders_that_change_at_once_both_keep_their_change(shared: Town) -> None:
    first = ask_change(shared, 0, revoke=(id_of(shared, 2),))
    second = ask_change(shared, 1, revoke=(id_of(shared, 3),), allow=(id_of(shared, 4),))
    shared.run(30_000)
    answers = [shared.world.record.answers[token] for token in (first, second)]
    assert [answer[1].outcome for answer in answers if answer] == ["stored", "stored"]
    assert [allowed(shared, number) for number in range(5)] == [{4}] * 5
    assert len({newest(shared, number) for number in range(5)}) == 1
    assert shared.counter("history_versions_merged") == 1


def test_one_holder_that_is_told_two_changes_at_once_makes_both(shared: Town) -> None:
    ask_change(shared, 0, revoke=(id_of(shared, 2),))
    ask_change(shared, 0, revoke=(id_of(shared, 3),))
    shared.run(10_000)
    assert [allowed(shared, number) for number in range(5)] == [set()] * 5
    record = history(shared, 4).ownership.record(T)
    assert record is not None and record.sequence == 3


def test_a_revocation_by_a_holder_that_was_away_is_not_lost(shared: Town) -> None:
    """It did not hear of three changes, made its own on top of an old version, and came back."""
    town = shared
    town.world.crash(town.nodes[1], silent=False)
    for number in (4, 5):
        change(town, 0, allow=(id_of(town, number),))
    change(town, 0, sub_topic="a")
    node = town.nodes[1]
    town.world.start(node, [])  # alone
    town.run(5_000)
    assert change(town, 1, revoke=(id_of(town, 2),)).outcome == "stored"
    back = seam.Join((town.nodes[0].contact,))
    local = node.clock.local_ms(town.world.now_ms)
    town.world.carry_out(node, town.peer(1).handle(back, local))
    town.subscribe(1)
    town.run(60_000)
    assert [allowed(town, number) for number in range(5)] == [{3, 4, 5}] * 5
    version = history(town, 4).versions.newest(T)
    assert version is not None and list(version.sub_topics) == ["a"]


def test_a_revocation_counts_before_it_is_taken_over(shared: Town) -> None:
    """The holder that revoked is gone for good, and the other one, whose change stands, away."""
    town = shared
    base = history(town, 0).versions.newest(T)
    assert base is not None
    gone, away = Stranger(town, 1), Stranger(town, 0)
    for number in (0, 1):
        town.world.crash(town.nodes[number], silent=False)
    town.run(5_000)
    rest = tuple(peer for peer in base.allowed or () if peer != id_of(town, 2))
    revoked = gone.version(owners=base.owners, allowed=rest, parent=base.cid)
    other = away.version(
        owners=base.owners, allowed=base.allowed, parent=base.cid, metadata={"n": 1}
    )
    gone.say(3, gone.record(revoked, 2))
    town.run(5_000)
    away.say(3, away.record(other, 3))
    town.run(30_000)
    assert [newest(town, number) for number in (2, 3, 4)] == [other.cid] * 3
    assert [history(town, n).versions.refuses_me(T) for n in (2, 3)] == [True, False]
    town.world.crash(town.nodes[3], silent=False)  # a restart does not forget it
    town.world.start(town.nodes[3], [town.nodes[2].contact])
    assert list(history(town, 3).versions.rivals(T)) == [revoked.cid]
    town.world.start(town.nodes[0], [town.nodes[3].contact])  # a holder comes back, and takes over
    town.subscribe(0, 3)
    town.run(700_000)
    assert [allowed(town, number) for number in (0, 2, 3, 4)] == [{3}] * 4
    assert all(not history(town, number).versions.rivals(T) for number in (0, 2, 3, 4))
    gone.say(4, gone.record(revoked, 2))  # said again, it is known to be taken over
    assert not history(town, 4).versions.rivals(T)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_holders_do_at_once_every_change_stays(seed: int) -> None:
    """Three holders let in and revoke, each peer once, over a network that loses messages; one of
    them crashes and comes back."""
    rng = Random(seed)
    town = Town(7, seed=seed, loss_percent=10, topics_every_ms=30_000)
    holders = (0, 1, 2)
    follow(town, holders, *range(7))
    town.subscribe(*range(rng.choice((0, 1)), 7))  # 0 may hold it from outside
    town.run(20_000)
    before, after = [PeerId(bytes([n]) * 32) for n in range(1, 9)], PeerId(b"\xff" * 32)
    others = (id_of(town, 1), id_of(town, 2))
    change(town, 0, create=True, owners=others, allow=tuple(before))
    town.run(20_000)
    tokens = []
    for count, peer in enumerate([*before[:5], after]):
        fields = {"allow": (peer,)} if peer == after else {"revoke": (peer,)}
        tokens.append(ask_change(town, rng.choice(holders), **fields))
        town.run(rng.choice((0, 0, 5, 50, 3_000)))
        if count == 2:
            town.run(1_000)
            town.world.crash(town.nodes[2], silent=False)
            town.world.start(town.nodes[2], [town.nodes[3].contact, town.nodes[4].contact])
            town.subscribe(2)
    town.run(300_000)
    answers = [town.world.record.answers[token] for token in tokens]
    assert all(answer is not None and answer[1].outcome == "stored" for answer in answers)
    for number in range(1, 7):
        version = history(town, number).versions.newest(T)
        assert version is not None and set(version.allowed or ()) == {*before[5:], after}
        assert not history(town, number).versions.rivals(T)


def test_an_owner_that_is_not_subscribed_protects_its_topic() -> None:
    """Without a DHT: it looks for members as a publisher from outside does."""
    town = Town(6)
    town.subscribe(1, 2, 3)
    follow(town, (0,), 1, 2, 3)
    town.run(20_000)
    change(town, 0, create=True, allow=(id_of(town, 2),))
    town.run(20_000)
    assert [newest(town, number) for number in (1, 2, 3)] == [newest(town, 0)] * 3
    change(town, 0, revoke=(id_of(town, 2),))
    town.run(20_000)
    town.publish(2, 4)
    town.run(30_000)
    assert town.answers() == ["refused", "refused"]
    assert [town.stream(number) for number in (1, 2, 3)] == [[]] * 3


def test_records_of_an_earlier_life_are_believed_without_a_note() -> None:
    """So do stores of the tree before, which wrote none."""
    town = Town(3)
    town.subscribe(1)
    stranger = Stranger(town, 2)
    version = stranger.version()
    record = read_record(stranger.record(version).record)
    batch = Batch(0, (), (version,), ((record.name, record.encoded),))
    town.world.crash(town.nodes[1], silent=False)
    town.nodes[1].store.commit([batch])  # type: ignore[union-attr]
    town.world.start(town.nodes[1], [town.nodes[0].contact])
    assert newest(town, 1) == version.cid
    assert history(town, 1).versions.holders(T) == (stranger.peer,)


# --- sub-topics for peers that do not own a topic -------------------------------------------------


def owned(**settings: object) -> Town:
    """Peer 0 owns the topic and lets 1 publish; 1 and 2 are subscribed and follow it."""
    town = Town(4, **settings)  # type: ignore[arg-type]
    town.subscribe(0, 1, 2)
    follow(town, (0,), 1, 2)
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


def test_wishes_outlive_the_owners_restart() -> None:
    town = owned()
    for segment in ("tennis", "golf"):
        assert ask(town, 1, segment).outcome == "queued"
    town.world.crash(town.nodes[0], silent=False)
    town.world.start(town.nodes[0], [town.nodes[1].contact])
    assert sorted(history(town, 0).wishes.of(T)) == ["golf", "tennis"]
    assert newest(town, 0) is not None


def test_an_owner_may_let_every_wish_come_true() -> None:
    town = owned(accept_sub_topics=True)
    assert ask(town, 1, "tennis").outcome == "stored"
    town.run(5_000)
    assert segments(town, 2) == ["tennis"]
    made = history(town, 0).versions.newest(Topic("/t/tennis"))
    assert made is not None and made.owners == (town.nodes[0].contact.peer,)


def test_a_peer_that_may_not_ask_for_a_sub_topic_is_refused() -> None:
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


def test_wishes_that_came_true_make_room_for_those_of_other_topics() -> None:
    town = Town(2)
    town.run(20_000)
    for number in range(257):
        topic = Topic(f"/t{number}")
        created = change(town, 0, topic, create=True, anyone=True)
        assert created.outcome == "stored"
        effects = hear(town, 0, 1, SubTopicRequest(topic, 7, "x"))
        [reply] = [e.message for e in effects if isinstance(e, seam.Send)]
        assert isinstance(reply, SubTopicReply) and reply.waits, number
        assert change(town, 0, topic, sub_topic="x").outcome == "stored"


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


def test_wishes_whose_owner_is_looked_for_are_bounded() -> None:
    town = owned(dht=True)
    town.world.crash(town.nodes[0], silent=True)
    town.run(600_000)
    tokens = [
        town.world.ask(town.nodes[1], lambda token: seam.AskSubTopic(token, T, "tennis"))
        for _ in range(65)
    ]
    assert town.world.record.answers[tokens[0]] is None  # the DHT is still looking
    answered = town.world.record.answers[tokens[-1]]
    assert answered is not None
    assert answered[1].reason == "too many wishes are on their way"
    town.run(60_000)
    assert "could be reached" in ask(town, 1, "tennis").reason  # there is room again


@pytest.mark.parametrize("seed", range(3))
def test_a_publisher_that_is_let_in_and_publishes_at_once_is_heard_at_once(seed: int) -> None:
    """Its event overtakes the news at some members, which ask for the version it links to."""
    town = Town(8, seed=seed, loss_percent=10)
    town.subscribe(*range(7))
    follow(town, (0,), *range(1, 7))
    town.run(30_000)
    change(town, 0, create=True)
    town.run(20_000)
    ask_change(town, 0, allow=(id_of(town, 5),))
    while history(town, 5).versions.refuses_me(T):
        town.run(2)
    town.publish(5)
    town.run(2_000)
    assert [len(town.stream(number)) for number in range(7)] == [1] * 7


# --- a topic that is created twice ----------------------------------------------------------------


def warnings(town: Town, number: int) -> list[str]:
    return [text for _, peer, text in town.world.record.warnings if peer == number]


def test_a_second_create_warns_both_that_call_themselves_owners() -> None:
    town = Town(3)
    town.subscribe(0, 1, 2)
    town.run(20_000)
    change(town, 0, create=True)
    town.run(20_000)
    assert change(town, 1, create=True).outcome == "stored"
    town.run(20_000)
    for number, other in ((0, 1), (1, 0)):
        (said,) = warnings(town, number)
        assert said.startswith(f"/t is claimed by {peer_text(id_of(town, other))}, too")
    again = change(town, 0, create=True)
    assert again.outcome == "refused" and "is this peer's already" in again.reason


# --- topics made from others ----------------------------------------------------------------------

U, V = Topic("/u"), Topic("/v")


def test_a_topic_made_from_anothers_has_its_history_and_none_of_its_future(town: Town) -> None:
    version = Cid(change(town, 0, create=True, allow=(id_of(town, 2),)).value or b"")
    town.publish(0, 2, 0)
    town.run(3_000)
    before = town.stream(1)
    assert len(before) == 3
    # 1 owns nothing of it, and the owner need not be there.
    town.crash(0)
    assert change(town, 1, U, create=True, anyone=True, made_from=version).outcome == "stored"
    for number in (1, 3):
        town.world.subscribe(town.nodes[number], U)
    follow(town, (1,), 3, topic=U)
    town.run(20_000)
    town.publish(2)  # still in the other topic
    for number in (1, 3):
        town.world.publish(town.nodes[number], U, b"own %d" % number)
    town.run(10_000)
    change(town, 1, U, allow=(id_of(town, 4),))  # a later version says so, too
    for number in (1, 3):
        store = town.nodes[number].store
        assert store is not None
        found = list(read_through(store, U))
        assert [event.cid for event in found[:3]] == before
        assert sorted((event.topic, event.payload) for event in found[3:]) == [
            (U, b"own 1"),
            (U, b"own 3"),
        ]
        assert len(town.stream(number)) == 4
        last = found[3].cid
        assert [event.cid for event in read_through(store, U, last)] == [found[4].cid]
        assert len(list(read_through(store, U, town.world.now_ms * 2))) == 0


def test_topics_are_made_from_each_other_in_a_row(town: Town) -> None:
    first = Cid(change(town, 0, create=True, anyone=True).value or b"")
    town.publish(0)
    second = Cid(change(town, 1, U, create=True, made_from=first).value or b"")
    town.world.publish(town.nodes[1], U, b"in between")
    town.run(1_000)
    assert change(town, 1, V, create=True, made_from=second).outcome == "stored"
    store = town.nodes[1].store
    assert store is not None
    assert [event.topic for event in read_through(store, V)] == [T, U]


def test_a_topic_is_made_from_another_that_is_known(town: Town) -> None:
    nowhere = change(town, 0, U, create=True, made_from=Cid(bytes(36)))
    assert nowhere.outcome == "refused" and "not known here" in nowhere.reason
    version = Cid(change(town, 0, U, create=True).value or b"")
    itself = change(town, 1, U, create=True, made_from=version)
    assert itself.outcome == "refused"
