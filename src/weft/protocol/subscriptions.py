"""Subscriptions of one peer, alike for every routing: its topics, and the answers users wait for.

A routing holds a *part* in each of its topics: a branch of a tree, a place in an overlay. A part
may outlive the subscription, or exist without one, where the peer serves others in the topic. Which
events were seen is kept with the part, and for a while after a subscriber's is given up, so that a
peer that subscribes again is not handed the same events again.

Each `Subscribe` and `Unsubscribe` is answered once. A subscription is answered when the routing
says what came of it; further ones to the same topic wait for that answer, too (`is_entering`), and
later ones hear "already". A subscription made while the peer is still entering the network is
postponed until it is in, or gives up hope.

Invariants: a postponed part is subscribed; tokens wait only in subscribed parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from weft.ids import Contact, Topic
from weft.protocol.context import Context
from weft.protocol.delivery import JOIN, LEAVE
from weft.protocol.recent import Past, Recent
from weft.protocol.seam import Answer, Outcome, Scheme
from weft.rules.multicast import tree_key


class TopicPart:
    """One peer's part in one topic; routings add what they need."""

    __slots__ = ("recent", "subscribed", "tokens", "topic", "was_subscribed")

    def __init__(self, topic: Topic, recent: Recent) -> None:
        self.topic = topic
        self.recent = recent
        self.subscribed = False
        self.was_subscribed = False  # ever
        self.tokens: list[int] = []  # subscriptions to be answered

    def enter(self) -> None:
        """This peer subscribes."""
        self.subscribed = self.was_subscribed = True


P = TypeVar("P", bound=TopicPart)


class Subscriptions(Generic[P]):
    """The topics in which this peer has a part, in the order in which it took them up."""

    def __init__(self, ctx: Context, make: Callable[[Topic, Recent, Scheme | None], P]) -> None:
        """`make` makes the routing's part in a topic, with the scheme that was asked for."""
        self._ctx = ctx
        self._make = make
        self._past = Past(ctx.config.dissemination)
        self._postponed: dict[Topic, None] = {}  # until this peer is in the network
        self.by_topic: dict[Topic, P] = {}
        self._by_key: dict[bytes, P] = {}

    # --- parts ------------------------------------------------------------------------------------

    def get(self, topic: Topic) -> P | None:
        return self.by_topic.get(topic)

    def open(self, topic: Topic, scheme: Scheme | None = None) -> P:
        """This peer's part in a topic, made if there is none."""
        part = self.by_topic.get(topic)
        if part is None:
            part = self.by_topic[topic] = self._make(topic, self._past.recall(topic), scheme)
            self._by_key[tree_key(topic)] = part
        return part

    def with_key(self, key: bytes) -> P | None:
        """The part in the topic whose members a lookup asks for by this key."""
        return self._by_key.get(key)

    def give_up(self, part: P) -> None:
        """The routing has left the topic: remember for a while what was handed out in it. A part
        that served others alone leaves nothing behind. If it comes back, it gets the events from
        its neighbours, to pass them on; as one that has seen them and holds none it would only say
        that it lacks nothing."""
        self.forget(part)
        if part.was_subscribed:
            self._past.remember(part.topic, part.recent, self._ctx.now)

    def forget(self, part: P) -> None:
        """There is no part in the topic any more, and nothing is remembered of it."""
        self._postponed.pop(part.topic, None)
        del self.by_topic[part.topic]
        del self._by_key[tree_key(part.topic)]

    # --- commands ---------------------------------------------------------------------------------

    @property
    def subscribed(self) -> list[Topic]:
        return [topic for topic, part in self.by_topic.items() if part.subscribed]

    def is_subscribed(self, topic: Topic) -> bool:
        part = self.by_topic.get(topic)
        return part is not None and part.subscribed

    def subscribe(self, token: int, topic: Topic, scheme: Scheme | None = None) -> P | None:
        """The part that the routing now has to bring into the topic, and then to `answer`; None if
        this peer is subscribed already."""
        part = self.open(topic, scheme)
        if not part.subscribed:
            part.enter()
            part.tokens.append(token)
            self._ctx.trace(JOIN, {"topic": topic})
            return part
        if self.is_entering(part):
            part.tokens.append(token)
        else:
            self._ctx.answer(Answer(token, "already"))
        return None

    def is_entering(self, part: P) -> bool:
        """Whether the first subscription is not answered yet; further ones wait with it."""
        return bool(part.tokens)

    def unsubscribe(self, token: int, topic: Topic) -> P | None:
        """The part that the routing may leave; None if this peer is not subscribed."""
        part = self.by_topic.get(topic)
        if part is None or not part.subscribed:
            self._ctx.answer(Answer(token, "already"))
            return None
        self.end(part)
        part.subscribed = False
        self._postponed.pop(topic, None)
        self._ctx.answer(Answer(token, "left"))
        return part

    def answer(self, part: P, outcome: Outcome, contact: Contact | None = None) -> None:
        """Tell the users that wait what came of their subscriptions."""
        for token in part.tokens:
            self._ctx.answer(Answer(token, outcome, contact))
        part.tokens.clear()

    def end(self, part: P) -> None:
        """A part's subscription ends: answer the subscriptions that still wait."""
        self.answer(part, "left")
        if part.subscribed:
            self._ctx.trace(LEAVE, {"topic": part.topic})

    def close(self) -> None:
        """This peer leaves the network."""
        for part in self.by_topic.values():
            self.end(part)

    # --- entering the network ---------------------------------------------------------------------

    def postpone(self, part: P) -> None:
        """Bring the part into its topic once this peer is in the network."""
        self._postponed[part.topic] = None

    def is_postponed(self, topic: Topic) -> bool:
        return topic in self._postponed

    def resume(self) -> list[P]:
        """The parts that were postponed: this peer is in the network, or stays outside for now."""
        postponed, self._postponed = self._postponed, {}
        return [self.by_topic[topic] for topic in postponed]
