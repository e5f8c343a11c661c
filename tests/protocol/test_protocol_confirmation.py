"""Copies of an event that other peers say they have."""

from __future__ import annotations

import pytest

from history_kit import T, Town, change, follow, hear, id_of
from weft.documents.descriptor import number_of
from weft.protocol import seam
from weft.protocol.history.blocks import (
    NO_WORD,
    REFUSED,
    STORED,
    TAKEN,
    BlocksReply,
    BlocksRequest,
)
from weft.protocol.wire import Span


def ask(
    town: Town,
    number: int,
    copies: int,
    strength: seam.Strength = "stored",
    within_ms: int = 10_000,
) -> int:
    """Ask for copies of the latest event of a peer; the token of the answer."""
    published = [p for p in town.world.record.publications.values() if p.peer == number]
    answer = published[-1].answers[-1][1]
    run, contact = answer.run, answer.contact
    assert run is not None
    return town.world.ask(
        town.nodes[number],
        lambda token: seam.Confirm(token, T, run, strength, copies, within_ms, contact),
    )


def answered(town: Town, token: int) -> seam.Answer | None:
    found = town.world.record.answers[token]
    return found[1] if found is not None else None


def copies_of(town: Town, answer: seam.Answer | None) -> set[int]:
    assert answer is not None and answer.outcome == "found", answer
    numbers = {node.contact.peer: place for place, node in enumerate(town.nodes)}
    return {numbers[contact.peer] for contact in answer.contacts}


def test_others_say_that_an_event_is_stored_and_the_publisher_does_not_count() -> None:
    town = Town(4)
    town.subscribe(0, 1, 2)
    town.run(10_000)
    town.publish(0)
    three, two = ask(town, 0, 3), ask(town, 0, 2)
    town.run(5_000)
    assert copies_of(town, answered(town, two)) == {1, 2}
    assert answered(town, three) is None  # there are two others
    town.run(7_000)
    late = answered(town, three)
    assert late is not None and late.outcome == "dropped" and len(late.contacts) == 2


def test_a_copy_counts_once_it_is_on_disk() -> None:
    town = Town(3)
    town.subscribe(0, 1)
    town.run(10_000)
    town.world.store_ms = 2_000
    town.publish(0, every_ms=2_050)  # stored at its publisher, on its way to the other disk
    taken, stored = ask(town, 0, 1, "taken"), ask(town, 0, 1)
    town.run(500)
    assert copies_of(town, answered(town, taken)) == {1}
    assert answered(town, stored) is None and not town.stored(1)
    town.run(4_000)
    assert copies_of(town, answered(town, stored)) == {1} and town.stored(1)


def questions(publishes: int) -> int:
    """Sent about one run that so many publishes wait for, all of which are confirmed."""
    town = Town(4)
    town.subscribe(0, 1, 2)
    town.run(10_000)
    town.world.publish(town.nodes[0], T, *(b"event %d" % place for place in range(20)))
    town.run(50)
    before = town.world.sent[BlocksRequest]
    tokens = [ask(town, 0, 1) for _ in range(publishes)]
    town.run(5_000)
    for token in tokens:
        assert copies_of(town, answered(town, token)) <= {1, 2}
    return town.world.sent[BlocksRequest] - before


def test_a_run_is_asked_about_once_for_all_publishes_that_wait_for_it() -> None:
    assert questions(20) == questions(1)


def test_publishes_that_wait_for_one_run_have_their_own_strength_number_and_time() -> None:
    town = Town(4)
    town.subscribe(0, 1, 2)
    town.run(10_000)
    town.publish(0)
    three, two = ask(town, 0, 3), ask(town, 0, 2)
    town.run(6_000)
    assert copies_of(town, answered(town, two)) == {1, 2} and answered(town, three) is None
    one, taken = ask(town, 0, 1), ask(town, 0, 1, "taken")
    soon = ask(town, 0, 3, within_ms=100)  # before others are asked again
    assert copies_of(town, answered(town, one)) == {1, 2}  # as they have said before
    town.run(150)
    assert copies_of(town, answered(town, taken)) <= {1, 2}
    late = answered(town, soon)
    assert late is not None and late.outcome == "dropped" and len(late.contacts) == 2
    assert answered(town, three) is None
    town.run(5_000)
    last = answered(town, three)
    assert last is not None and last.outcome == "dropped"


def test_a_publisher_from_outside_looks_for_more_peers_than_took_its_event() -> None:
    town = Town(6)
    town.subscribe(0, 1, 2)
    town.run(10_000)
    town.publish(5, every_ms=5_000)
    token = ask(town, 5, 3)
    town.run(9_000)
    assert copies_of(town, answered(town, token)) == {0, 1, 2}


def test_a_publisher_from_outside_looks_past_an_access_point_that_does_not_store() -> None:
    """It takes the event, and it never comes to its disk; the other members store it."""
    town = Town(6)
    town.subscribe(0, 1, 2)
    town.run(10_000)
    town.world.publish(town.nodes[5], T, b"event")
    town.run(1)  # on its way to the publisher's disk
    fast, town.world.store_ms = town.world.store_ms, 1_000_000
    access_point = None
    while access_point is None:
        town.run(1)
        access_point = next((n for n in (0, 1, 2) if town.nodes[n].storing), None)
    town.world.store_ms = fast
    town.run(1_000)
    assert [n for n in (0, 1, 2) if not town.stored(n)] == [access_point]
    token = ask(town, 5, 1)
    town.run(9_000)
    assert copies_of(town, answered(town, token)) <= {0, 1, 2} - {access_point}


def test_a_publisher_from_outside_looks_past_an_access_point_that_falls_silent() -> None:
    town = Town(6)
    town.subscribe(0, 1, 2)
    town.run(10_000)
    town.publish(5, every_ms=5_000)
    (publication,) = town.world.record.publications.values()
    contact = publication.answers[-1][1].contact
    (access_point,) = [n for n in (0, 1, 2) if town.nodes[n].contact == contact]
    town.world.stall(town.nodes[access_point])
    token = ask(town, 5, 1)
    town.run(9_000)
    assert copies_of(town, answered(town, token)) <= {0, 1, 2} - {access_point}


def test_members_that_all_refuse_say_why() -> None:
    town = Town(4)
    town.subscribe(0, 1, 2, 3)
    follow(town, (0,), 1, 2)
    town.run(20_000)
    change(town, 0, create=True)
    town.run(10_000)
    town.publish(3)  # which was not told the owners
    town.run(1_000)
    token = ask(town, 3, 1)
    town.run(5_000)
    answer = answered(town, token)
    assert answer is not None and answer.outcome == "refused"
    assert answer.reason == (
        "the topic's owners do not let its publisher publish there, or it does not follow them"
    )


def word(effects: list[seam.Effect]) -> list[int]:
    return [
        one.message.word
        for one in effects
        if isinstance(one, seam.Send) and isinstance(one.message, BlocksReply)
    ]


def test_a_peer_answers_publishers_about_their_own_events_only() -> None:
    town = Town(3)
    town.subscribe(0, 1, 2)
    town.run(10_000)
    town.publish(0)
    town.run(2_000)
    (event,) = town.stored(1)
    span = Span(id_of(town, 0), 1, 1, 1)
    assert word(hear(town, 1, 0, BlocksRequest(T, 7, [event.cid], span))) == [STORED]
    assert word(hear(town, 1, 0, BlocksRequest(T, 7, [], span))) == [TAKEN]
    other = Span(id_of(town, 0), 1, 2, 2)
    assert word(hear(town, 1, 0, BlocksRequest(T, 7, [], other))) == [NO_WORD]
    assert not word(hear(town, 1, 2, BlocksRequest(T, 7, [event.cid], span)))
    assert word(hear(town, 1, 0, BlocksRequest(T, 7, [event.cid], other))) == [NO_WORD]
    endless = Span(id_of(town, 0), 1, 1, 1 << 60)
    assert not word(hear(town, 1, 0, BlocksRequest(T, 7, [event.cid], endless)))


@pytest.mark.parametrize("held", [True, False])
def test_stored_is_said_of_the_run_that_was_asked_about(held: bool) -> None:
    """Also long after, when the run is not held for repair any more."""
    town = Town(3)
    town.subscribe(0, 1)
    town.run(10_000)
    town.world.publish(town.nodes[0], T, b"one", b"two")
    town.run(100)
    town.publish(2)
    town.run(1_000 if held else 300_000)
    span = Span(id_of(town, 0), 1, 1, 2)
    of_number = {number_of(event): event.cid for event in town.stored(1)}
    cids = [of_number[span.publisher, 1, number] for number in (1, 2)]
    foreign = of_number[id_of(town, 2), 1, 1]
    said = {
        "all": cids,
        "one": cids[:1],
        "one twice": [cids[0], cids[0]],
        "one of another": [cids[0], foreign],
    }
    asked = {name: BlocksRequest(T, 7, some, span) for name, some in said.items()}
    words = {name: word(hear(town, 1, 0, question))[0] for name, question in asked.items()}
    assert [name for name, one in words.items() if one == STORED] == ["all"]


def test_words_that_were_not_asked_for_count_for_nothing() -> None:
    """Not for another's question, nor as a refusal by one that was not asked; an older peer,
    that answers with blocks, is no copy."""
    town = Town(4)
    town.subscribe(0, 1)
    town.run(10_000)
    town.world.crash(town.nodes[1], silent=True)
    town.publish(0)
    token = ask(town, 0, 1)
    for request in range(200):
        hear(town, 0, 3, BlocksReply(T, request, [], word=STORED))
        hear(town, 0, 3, BlocksReply(T, request, [], word=REFUSED, reason="so there"))
        hear(town, 0, 1, BlocksReply(T, request, []))
    town.run(500)
    assert answered(town, token) is None


def test_a_peer_that_leaves_answers_what_it_was_asked() -> None:
    town = Town(3)
    town.subscribe(0, 1)
    town.run(10_000)
    town.publish(0)
    token = ask(town, 0, 2)
    town.world.leave(town.nodes[0])
    town.run(1_000)
    answer = answered(town, token)
    assert answer is not None and answer.outcome == "dropped"


def test_members_that_never_answer_do_not_keep_others_from_being_asked() -> None:
    town = Town(8)
    town.subscribe(*range(8))
    town.run(20_000)
    town.publish(0)
    town.run(2_000)
    for number in range(1, 7):
        town.world.stall(town.nodes[number])
    token = ask(town, 0, 1)
    town.run(9_000)
    assert copies_of(town, answered(town, token)) == {7}


def test_a_peer_that_says_again_and_again_that_it_refuses_is_heard_once() -> None:
    town = Town(3)
    town.subscribe(0, 1)
    town.run(10_000)
    for number in range(20):
        reason = f"because\x1b[2J {number}"
        hear(town, 0, 1, BlocksReply(T, 0, [], word=REFUSED, reason=reason))
    ((_, peer, text),) = town.world.record.warnings
    assert peer == 0 and "refused an event of this peer" in text and "\x1b" not in text
