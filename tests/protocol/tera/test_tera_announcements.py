"""Announcements of different topics to one neighbour share a message."""

from __future__ import annotations

from protocol_kit import Rig, T, event, everything_sent, sent, span, timers, told
from weft.documents.run import Run
from weft.ids import Topic
from weft.protocol import seam
from weft.protocol.membership import LeaveNotice
from weft.protocol.recent import IHave
from weft.protocol.tera.announcements import Announced, IHaveOfTopics
from weft.protocol.tera.links import LinkRequest
from weft.protocol.tera.tree import Graft, Prune
from weft.protocol.wire import LIST_MAX, Payload

U = Topic("/u")
LAZY_MS = 50


def member_of_two() -> Rig:
    """Subscribed to T and U, with lazy links to 2 and 3 in both, and an eager one to 4."""
    rig = Rig(1)
    for topic in (T, U):
        rig.subscribe(topic)
        for number in (2, 3, 4):
            rig.hear(number, LinkRequest(topic, False))
        for number in (2, 3):
            rig.hear(number, Prune(topic))
    rig.wait(LAZY_MS)
    return rig


def published(topic: Topic, number: int = 1) -> Run:
    return event(9, number, topic=topic)


def test_two_topics_are_announced_to_a_neighbour_at_once() -> None:
    rig = member_of_two()
    effects = rig.hear(4, Payload(T, published(T), 1))
    effects += rig.hear(4, Payload(U, published(U), 1))
    assert len(timers(effects, "tree.lazy")) == 1
    both = IHaveOfTopics([Announced(T, [span(9, 1, 1)]), Announced(U, [span(9, 1, 1)])])
    effects = rig.wait(LAZY_MS)
    assert everything_sent(effects) == [(2, both), (3, both)]
    messages = [message for _, message in sent(effects, IHaveOfTopics)]
    assert messages[0] is messages[1]  # encoded once


def test_one_topic_is_announced_as_ever() -> None:
    rig = member_of_two()
    rig.hear(4, Payload(T, published(T), 1))
    assert everything_sent(rig.wait(LAZY_MS)) == [(n, IHave(T, [span(9, 1, 1)])) for n in (2, 3)]


def test_a_topic_that_was_left_meanwhile_is_not_announced() -> None:
    rig = member_of_two()
    rig.hear(4, Payload(T, published(T), 1))
    rig.hear(4, Payload(U, published(U), 1))
    rig.do(seam.Unsubscribe(3, U))
    assert told(rig.wait(LAZY_MS), IHave) == [2, 3]


def test_what_is_announced_in_each_topic_is_waited_for_there() -> None:
    rig = member_of_two()
    announced = [Announced(topic, [span(9, 1, 1)]) for topic in (T, U)]
    rig.hear(2, IHaveOfTopics(announced))
    grafts = sent(rig.wait(LAZY_MS), Graft)
    assert [(to, message.topic) for to, message in grafts] == [(2, T), (2, U)]


def test_of_topics_that_it_is_not_in_the_sender_is_told() -> None:
    rig = member_of_two()
    nowhere = Topic("/nowhere")
    effects = rig.hear(2, IHaveOfTopics([Announced(nowhere, [span(9, 1, 1)])]))
    assert sent(effects, LeaveNotice) == [(2, LeaveNotice(nowhere))]


def test_a_message_has_room_for_so_many_spans() -> None:
    rig = member_of_two()
    gaps = LIST_MAX // 2 + 1
    for topic in (T, U):
        for number in range(1, gaps + 1):
            rig.hear(4, Payload(topic, event(9, 2 * number, topic=topic), 1))
    pages = [message for to, message in sent(rig.wait(LAZY_MS), IHave) if to == 2]
    assert [(page.topic, len(page.spans)) for page in pages] == [(T, gaps), (U, gaps)]


def test_while_events_flow_they_are_announced_more_rarely() -> None:
    rig = member_of_two()
    rig.hear(4, Payload(T, published(T), 1))
    assert told(rig.wait(LAZY_MS), IHave) == [2, 3]
    rig.hear(4, Payload(T, published(T, 2), 1))
    rig.hear(4, Payload(U, published(U, 2), 1))
    assert everything_sent(rig.wait(3 * LAZY_MS)) == []
    rig.hear(4, Payload(T, published(T, 3), 1))
    both = IHaveOfTopics([Announced(T, [span(9, 2, 3)]), Announced(U, [span(9, 2, 2)])])
    assert everything_sent(rig.wait(LAZY_MS)) == [(2, both), (3, both)]


def test_the_first_event_of_a_publisher_is_announced_as_soon_as_ever() -> None:
    """A member that no link brings it may lack it."""
    rig = member_of_two()
    rig.hear(4, Payload(T, published(T), 1))
    rig.wait(LAZY_MS)
    rig.hear(4, Payload(T, published(T, 2), 1))
    rig.hear(4, Payload(U, published(U), 1))
    both = IHaveOfTopics([Announced(T, [span(9, 2, 2)]), Announced(U, [span(9, 1, 1)])])
    assert everything_sent(rig.wait(LAZY_MS)) == [(2, both), (3, both)]
