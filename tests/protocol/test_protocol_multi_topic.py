"""One event in several topics: its payload crosses a connection once, and all are told once."""

from __future__ import annotations

import protocol_kit
from protocol_kit import Group, Rig, T, answers, contact, delivered, run, sent, told
from weft.documents.run import Part, Run
from weft.ids import Topic
from weft.protocol import seam
from weft.protocol.membership import Advert, LeaveNotice
from weft.protocol.multi_topic import Again, without_payload
from weft.protocol.publication import RouteEvent, RouteResult
from weft.protocol.recent import Repair
from weft.protocol.tera.access_points import Advertisement
from weft.protocol.tera.tree import Graft
from weft.protocol.wire import Payload, Span

U = Topic("/u")
V = Topic("/v")
PARTS = (Part(T, 1), Part(U, 1))


def member(*topics: Topic) -> Rig:
    """Subscribed to these topics, with 2 and 3 linked in each."""
    return protocol_kit.member(2, 3, topics=topics)


def event(number: int = 1, payload: bytes = b"both", topic: Topic = T) -> Run:
    return run(9, number, payload, topic=topic, parts=PARTS)


def again(topic: Topic, number: int = 1, parts: tuple[Part, ...] = PARTS, size: int = 0) -> Again:
    one = run(9, number, bytes(size) or b"both", topic=topic, parts=parts)
    return Again(topic, one.publisher, 1, number, 1, parts[0], one.prev, one.signature)


def together(*topics: Topic, payload: bytes = b"both") -> seam.PublishTogether:
    return seam.PublishTogether(tuple(range(1, 1 + len(topics))), topics, payload, 0)


# --- publishing ---------------------------------------------------------------------------------


def test_each_neighbour_gets_the_payload_once_and_a_reference_for_the_rest() -> None:
    rig = member(T, U, V)
    effects = rig.do(together(T, U, V))
    assert told(effects, Payload) == [2, 3]
    assert told(effects, Again) == [2, 2, 3, 3]
    assert answers(effects) == [(1, "delivered"), (2, "delivered"), (3, "delivered")]
    topics = [effect.topic for effect in effects if isinstance(effect, seam.Deliver)]
    assert topics == [T, U, V]


def test_a_single_topic_is_published_as_ever() -> None:
    rig = member(T)
    [(_, first), _] = sent(rig.do(together(T)), Payload)
    assert first.run.parts == ()


def test_each_topic_numbers_the_event_by_itself() -> None:
    rig = member(T, U)
    rig.publish(topic=T)
    [(_, message), _] = sent(rig.do(together(T, U)), Payload)
    assert message.run.parts == (Part(T, 2), Part(U, 1))


def test_an_access_point_of_two_topics_gets_the_payload_once() -> None:
    rig = Rig(1)
    rig.meet(4)
    rig.hear(5, Advertisement([Advert(T, 1, 1), Advert(U, 2, 1)]))
    effects = rig.do(together(T, U))
    [(_, whole), (_, reference)] = sent(effects, RouteEvent)
    assert (whole.run.payloads, whole.again) == ((b"both",), False)
    assert (reference.run.payloads, reference.again, reference.topic) == ((b"",), True, U)


# --- receiving ----------------------------------------------------------------------------------


def test_a_reference_delivers_in_its_topic_and_is_passed_on_as_one() -> None:
    rig = member(T, U)
    effects = rig.hear(2, Payload(T, event(), 1))
    assert told(effects, Payload) == [3]
    effects = rig.hear(2, again(U))
    assert delivered(effects) == [(9, 1)]
    assert told(effects, Payload) == []
    assert told(effects, Again) == [3]


def test_what_came_from_a_peer_goes_back_to_it_as_a_reference_only() -> None:
    rig = member(T, U)
    rig.hear(2, Payload(T, event(), 1))
    effects = rig.hear(3, Payload(U, event(topic=U), 1))
    assert told(effects, Payload) == []
    assert told(effects, Again) == [2]


def test_a_reference_that_comes_first_waits_for_the_payload() -> None:
    rig = member(T, U)
    assert delivered(rig.hear(2, again(U))) == []
    effects = rig.hear(3, Payload(T, event(), 1))
    assert [e.topic for e in effects if isinstance(e, seam.Deliver)] == [T, U]


def test_a_reference_to_nothing_is_asked_for() -> None:
    rig = member(T, U)
    rig.hear(2, again(U))
    asked = [message for _, message in sent(rig.wait(2_000), Graft)]
    assert Graft(U, [Span(contact(9).peer, 1, 1, 1)]) in asked


def test_a_routed_reference_is_completed_or_refused() -> None:
    rig = member(T, U)
    bare = RouteEvent(U, without_payload(event(topic=U)), True)
    [(_, refused)] = sent(rig.hear(9, bare), RouteResult)
    assert not refused.accepted
    rig.hear(9, RouteEvent(T, event()))
    effects = rig.hear(9, bare)
    [(_, taken)] = sent(effects, RouteResult)
    assert taken.accepted
    [note] = [effect for effect in effects if isinstance(effect, seam.Deliver)]
    assert (note.topic, note.run.payloads) == (U, (b"both",))


# --- hostile ------------------------------------------------------------------------------------


def test_a_reference_to_a_topic_that_the_event_is_not_in_delivers_nothing() -> None:
    rig = member(T, U, V)
    rig.hear(2, Payload(T, event(), 1))
    assert delivered(rig.hear(2, again(V))) == []
    assert delivered(rig.hear(2, again(U, number=7))) == []


def test_a_reference_in_a_topic_not_subscribed_to_is_refused() -> None:
    rig = member(T)
    rig.hear(2, Payload(T, event(), 1))
    effects = rig.hear(2, again(U))
    assert delivered(effects) == []
    assert sent(effects, LeaveNotice) == [(2, LeaveNotice(U))]


def test_the_same_reference_again_is_a_duplicate() -> None:
    rig = member(T, U)
    rig.hear(2, Payload(T, event(), 1))
    assert delivered(rig.hear(2, again(U))) == [(9, 1)]
    assert delivered(rig.hear(2, again(U))) == []
    assert delivered(rig.hear(3, again(U))) == []


def test_what_is_remembered_of_events_is_bounded_in_bytes() -> None:
    rig = member(T, U)
    payload = bytes(1 << 20)
    for number in range(1, 12):
        parts = (Part(T, number), Part(U, number))
        rig.hear(2, Payload(T, run(9, number, payload, parts=parts), 1))
    references = [
        again(U, number, (Part(T, number), Part(U, number)), len(payload))
        for number in range(1, 12)
    ]
    kept = [one for one in reversed(references) if delivered(rig.hear(3, one))]
    bound = rig.peer.config.dissemination.recent_bytes_max + len(payload)
    assert 0 < len(kept) * len(payload) <= bound


# --- several peers ------------------------------------------------------------------------------


def test_every_subscription_gets_it_once_and_every_connection_carries_it_once() -> None:
    group = Group(12)
    group.run(2_000)
    for topic in (T, U, V):
        group.subscribe_all(topic)
    group.run(120_000)
    for number in (1, 5, 1, 7):
        group.do(number, together(T, U, V))
        group.run(2_000)
    start = group.now
    group.do(3, together(T, U, V, payload=b"counted"))
    group.run(10_000)
    for number in group.peers:
        notes = [
            effect.topic
            for effect in group.effects[number]
            if isinstance(effect, seam.Deliver) and effect.run.payloads == (b"counted",)
        ]
        assert sorted(notes) == [T, U, V]
    crossed = [(sender, to) for sender, to, _ in group.since(start, Payload)]
    assert len(crossed) == len(set(crossed))
    assert len(crossed) >= 11
    assert list(group.since(start, Repair)) == []
