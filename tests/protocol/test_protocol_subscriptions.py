"""What all routings share of a subscription: callers waiting, answers, what is remembered."""

from __future__ import annotations

import pytest

from protocol_kit import T, answers, contact, proven_run
from weft.ids import Topic
from weft.protocol.config import Config
from weft.protocol.context import Context
from weft.protocol.recent import Recent
from weft.protocol.seam import Effect, Scheme
from weft.protocol.subscriptions import Subscriptions, TopicPart

OTHER = Topic("/other")


def fresh() -> tuple[Context, Subscriptions[TopicPart]]:
    ctx = Context(contact(1), 7, Config())
    return ctx, Subscriptions(ctx, lambda topic, recent, _: TopicPart(topic, recent))


def said(ctx: Context) -> list[tuple[int, str]]:
    effects: list[Effect] = ctx.out
    ctx.out = []
    return answers(effects)


def test_further_subscriptions_wait_for_the_same_answer() -> None:
    ctx, topics = fresh()
    part = topics.subscribe(1, T)
    assert part is not None and topics.is_subscribed(T)
    assert topics.subscribe(2, T) is None and said(ctx) == []
    topics.answer(part, "joined", contact(2))
    assert said(ctx) == [(1, "joined"), (2, "joined")]
    assert topics.subscribe(3, T) is None
    assert said(ctx) == [(3, "already")]


def test_a_routing_may_let_further_subscriptions_wait_without_one_before_them() -> None:
    class Seeking(Subscriptions[TopicPart]):
        def is_entering(self, part: TopicPart) -> bool:
            return True

    ctx = Context(contact(1), 7, Config())
    chosen: list[Scheme | None] = []

    def make(topic: Topic, recent: Recent, scheme: Scheme | None) -> TopicPart:
        chosen.append(scheme)
        return TopicPart(topic, recent)

    topics = Seeking(ctx, make)
    part = topics.subscribe(1, T, "gossip")
    assert part is not None and chosen == ["gossip"]
    topics.answer(part, "joined")
    assert topics.subscribe(2, T) is None
    topics.answer(part, "instantiated")
    assert said(ctx) == [(1, "joined"), (2, "instantiated")]


def test_leaving_a_topic_answers_what_waits() -> None:
    ctx, topics = fresh()
    assert topics.unsubscribe(1, T) is None
    part = topics.subscribe(2, T)
    assert topics.unsubscribe(3, T) is part
    assert said(ctx) == [(1, "already"), (2, "left"), (3, "left")]
    assert topics.get(T) is part and topics.subscribed == []  # until the routing gives it up
    topics.subscribe(4, T)
    topics.close()
    assert said(ctx) == [(4, "left")]


def test_a_part_may_come_before_its_subscription() -> None:
    _, topics = fresh()
    served = topics.open(T)
    topics.subscribe(1, OTHER)
    assert topics.subscribed == [OTHER]
    assert topics.subscribe(2, T) is served
    assert topics.subscribed == [T, OTHER]  # in the order in which the parts were taken up


def test_postponed_parts_come_back_once_and_only_if_they_are_wanted() -> None:
    _, topics = fresh()
    for token, topic in enumerate((T, OTHER)):
        part = topics.subscribe(token, topic)
        assert part is not None
        topics.postpone(part)
    assert topics.is_postponed(T)
    topics.unsubscribe(9, OTHER)
    assert [part.topic for part in topics.resume()] == [T]
    assert topics.resume() == [] and not topics.is_postponed(T)


@pytest.mark.parametrize("wanted", [True, False])
def test_what_a_subscriber_saw_is_remembered_and_what_a_server_saw_is_not(wanted: bool) -> None:
    """A server that comes back gets the events once more, to pass them on."""
    _, topics = fresh()
    proven = proven_run(2, 1)
    seen = proven.run
    part = topics.subscribe(1, T) if wanted else topics.open(T)
    assert part is not None
    part.recent.admit(proven, 1, 0, 0)
    topics.unsubscribe(2, T)
    topics.give_up(part)
    assert topics.get(T) is None
    again = topics.open(T)
    assert again is not part and again.recent.has_seen(seen) is wanted
    topics.forget(again)
    assert not topics.open(T).recent.has_seen(seen)
