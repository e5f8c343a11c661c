"""Sub-topics for those who do not own a topic: they ask the owners."""

from __future__ import annotations

from test_history_topics import change, history

from history_kit import T, Town
from weft.ids import Topic
from weft.protocol import seam
from weft.protocol.messages_history import SubTopicReply, SubTopicRequest
from weft.protocol.seam import Answer


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
    assert history(town, 0).asking.wishes(T) == {"tennis": town.nodes[1].contact.peer}
    assert segments(town, 1) == []
    assert change(town, 0, sub_topic="tennis").outcome == "stored"
    town.run(5_000)
    assert segments(town, 1) == ["tennis"]
    assert history(town, 0).asking.wishes(T) == {}
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
    node, liar = town.nodes[0], town.nodes[2].contact
    machine = node.machine
    assert machine is not None
    for segment, reason in (("x", "not_allowed"), ("a/b", "outside_parent")):
        request = SubTopicRequest(T, 7, segment)
        effects = machine.handle(
            seam.Received(liar, request), node.clock.local_ms(town.world.now_ms)
        )
        [reply] = [e.message for e in effects if isinstance(e, seam.Send)]
        assert isinstance(reply, SubTopicReply) and not reply.granted and not reply.waits
        assert history(town, 0)._ctx.counters[f"history_refused_{reason}"] == 1


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
    assert list(history(town, 0).asking.wishes(T)) == ["tennis"]
