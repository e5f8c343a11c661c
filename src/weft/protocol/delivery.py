"""The events of one peer: numbered on their way out, taken in once, handed to the application.

Every routing brings events here and no routing delivers by itself. An event is taken in once per
topic, and not at all if it is forged: this peer has not published it yet, or it claims a topic that
it was not published in.

There are two kinds of delivery. This module has the plain one, of a peer without a store: what
comes is handed out at once and kept by nobody. `history/` has the other one, `History`, which
stores an event before it is routed, opens the signed block that routing brings, and hands events
out in the order of their stream. Both kinds have the same methods, so no layer asks whether there
is a store.

Where its publisher keeps history, an event travels as a signed block. A peer without a store passes
the block on as it is and hands its application the payload inside (`as_published`), so that peers
of both kinds can be subscribed to a topic. (The other way round there is nothing to store: an event
without a block is signed by nobody, and refused where history is kept.)

Invariants: a peer numbers its events in a topic 1, 2, 3, … without a gap; no event is handed out
twice in a life of this peer, as far as `recent.py` remembers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from weft.documents.descriptor import known_event, number_of, verify_event
from weft.documents.refusal import Refused
from weft.ids import Contact, PeerId, Topic, cid_of, owner_in, peer_text
from weft.protocol.context import Arrived, Context
from weft.protocol.recent import Recent
from weft.protocol.seam import Answer, Deliver, Publish, PublishTogether
from weft.protocol.wire import Event, Part
from weft.rules import hierarchy
from weft.store.reader import Since

PUBLISH_MESSAGE = "PUBLISH_MESSAGE"
REJECT_MESSAGE = "REJECT_MESSAGE"
DUPLICATE_MESSAGE = "DUPLICATE_MESSAGE"
DELIVER_MESSAGE = "DELIVER_MESSAGE"
ADD_PEER = "ADD_PEER"
REMOVE_PEER = "REMOVE_PEER"
RECV_RPC = "RECV_RPC"
SEND_RPC = "SEND_RPC"
DROP_RPC = "DROP_RPC"
JOIN = "JOIN"
LEAVE = "LEAVE"
GRAFT = "GRAFT"
PRUNE = "PRUNE"
"""The kinds of trace records, in the vocabulary of libp2p's pubsub tracer; `weft.trace` writes
them."""

_BLOCK = b"\xa7"
"""An event's document is a map of seven fields (docs/descriptors.md)."""

Route: TypeAlias = Callable[[int, Topic, Event, bool], None]
"""Spread an own event and answer the command with this token; whether the event climbs."""


class Delivery:
    """Delivery without a store. `History` overrides what differs with one."""

    stored = False
    """Whether an own event is stored, and delivered here, before it is routed."""

    def __init__(self, ctx: Context, route: Route) -> None:
        self._ctx = ctx
        self._route = route
        self._published: dict[Topic, int] = {}  # number of the last own event, per topic

    def levels(self, topic: Topic) -> list[Topic]:
        """The topics that an event of `topic` counts in: itself, then those above it in its
        hierarchy."""
        return hierarchy.above(topic, self._ctx.config.hierarchies)

    # --- own events -------------------------------------------------------------------------------

    def publish(
        self, fact: Publish, parts: tuple[Part, ...] = (), origin: Topic | None = None
    ) -> None:
        """Number an event and have it spread. `parts`: all its topics, where it names them;
        `origin`: the sub-topic that it climbs from."""
        ctx, topic = self._ctx, fact.topic
        if self.refuses(fact, origin):
            return
        number = self._next_number(topic)
        self._published[topic] = number
        me, when = ctx.me.peer, fact.published_ms
        event = Event(me, ctx.incarnation, number, when, fact.payload, parts)
        if ctx.tracing:
            ctx.trace(PUBLISH_MESSAGE, {"messageID": message_id(topic, event), "topic": topic})
        ctx.counters["published"] += 1
        self._spread(fact, event, origin)

    def publish_together(self, fact: PublishTogether, by_reference: bool) -> None:
        """One event in several topics. It names them where the routing sends references to it, or
        where it climbs."""
        topics = fact.topics
        origins = [hierarchy.origin(topic, topics, self.levels) for topic in topics]
        climbed = [o if o != topic else None for o, topic in zip(origins, topics, strict=True)]
        parts = self._parts(topics) if by_reference or any(climbed) else ()
        for token, topic, origin in zip(fact.tokens, topics, climbed, strict=True):
            self.publish(Publish(token, topic, fact.payload, fact.published_ms), parts, origin)

    def _parts(self, topics: tuple[Topic, ...]) -> tuple[Part, ...]:
        if len(topics) < 2:
            return ()
        return tuple(Part(topic, self._next_number(topic)) for topic in topics)

    def _next_number(self, topic: Topic) -> int:
        return self._published.get(topic, 0) + 1

    def refuses(self, fact: Publish, origin: Topic | None) -> bool:
        """Whether this peer may not publish there; then the command is answered. Without a store,
        only what the topic's name says is known."""
        owner = owner_in(fact.topic)
        if owner is None or owner == self._ctx.me.peer:
            return False
        reason = f"by its name {fact.topic} is {peer_text(owner)}'s; a peer that it lets publish"
        self._ctx.out.append(Answer(fact.token, "refused", reason=f"{reason} needs a store"))
        return True

    def _spread(self, fact: Publish, event: Event, origin: Topic | None) -> None:
        self._route(fact.token, fact.topic, event, origin is not None)

    # --- events that routing brings ---------------------------------------------------------------

    def take_in(
        self,
        topic: Topic,
        recent: Recent,
        event: Event,
        hops: int,
        source: PeerId | None,
        ask: Contact | None,
        subscribed: bool = True,
    ) -> bool:
        """Note an event that came from `source`, and deliver it to a subscriber; says whether it
        is to be passed on. With a store, `ask` is the member to ask for what came before it."""
        if recent.has_seen(event) or self._is_forged(topic, event):
            return False
        if not self._admit(topic, recent, event, hops, source, ask, subscribed):
            return False
        if not subscribed and source is not None:
            note_parasite(self._ctx, topic, event, source)
        return True

    def _admit(
        self,
        topic: Topic,
        recent: Recent,
        event: Event,
        hops: int,
        source: PeerId | None,
        ask: Contact | None,
        subscribed: bool,
    ) -> bool:
        if not _may_be_named(topic, event):
            self._ctx.counters["refused_by_name"] += 1
            return False
        recent.admit(event, hops, self._ctx.now)
        if subscribed:
            self.deliver(topic, event, hops, source)
        return True

    def source(self, sender: Contact) -> Contact | None:
        """The source to note for an event that `sender` handed over outside of the push: none,
        since without a store nobody is asked for what came before it."""
        return None

    def deliver(self, topic: Topic, event: Event, hops: int, source: PeerId | None) -> None:
        """Hand an event to the application."""
        ctx = self._ctx
        origin = self._origin(topic, event.parts) if event.parts else None
        ctx.out.append(Deliver(topic, as_published(topic, event), hops, None, origin))
        if ctx.tracing:
            trace_event(ctx, DELIVER_MESSAGE, topic, event, source, hops)

    def _origin(self, topic: Topic, parts: tuple[Part, ...]) -> Topic | None:
        """Where an event that counts in several topics was published, if not in this one."""
        found = hierarchy.origin(topic, (part.topic for part in parts), self.levels)
        return None if found == topic else found

    def _is_forged(self, topic: Topic, event: Event) -> bool:
        """Nobody else can have an event that this peer has not published yet, and an event of
        several topics comes in no other, nor under another number."""
        ctx = self._ctx
        if event.parts and Part(topic, event.number) not in event.parts:
            ctx.counters["forged"] += 1
            return True
        if event.publisher != ctx.me.peer or event.incarnation < ctx.incarnation:
            return False
        last = self._published.get(topic, 0)
        if event.incarnation == ctx.incarnation and event.number <= last:
            return False
        ctx.counters["forged"] += 1
        return True

    # --- what the peer tells; without a store nothing follows from it -----------------------------

    def start(self) -> None:
        """The peer is up."""

    def entering(self, token: int, topic: Topic) -> int:
        """A user subscribes; returns the token by which the routing says what came of it. Without a
        store that is the answer."""
        return token

    def subscribe(self, topic: Topic, since: Since | None) -> None:
        """The application subscribed, and wants the past from there on, too."""

    def unsubscribe(self, topic: Topic) -> None:
        """The application has no use for the topic any more."""

    def link_up(self, topic: Topic, contact: Contact) -> None:
        """Another subscriber became known, which may know the topic's stream."""

    def run_topic(self, topic: Topic, alone: bool) -> None:
        """The topic's turn in a cycle has come; `alone`: no other subscriber is known."""

    def on_arrived(self, signal: Arrived) -> None:
        """An event was opened and found whole; only a store's delivery opens events."""

    def on_peer_lost(self, peer: PeerId) -> None:
        """The peer cannot be reached."""

    def close(self) -> None:
        """This peer leaves the network."""

    def flush(self) -> None:
        """All that followed from one fact is done."""


def _may_be_named(topic: Topic, event: Event) -> bool:
    """Whether an event can be in a topic whose name carries its owner's key: by that key, or under
    a version, which only a peer with a store can judge."""
    owner = owner_in(topic)
    if owner is None or event.publisher == owner:
        return True
    if not event.payload.startswith(_BLOCK):
        return False
    try:
        return known_event(event.payload, cid_of(event.payload)).link is not None
    except Refused:
        return False


def as_published(topic: Topic, event: Event) -> Event:
    """The event as an application knows it. Only what its publisher signed for this topic under
    this number is taken for a block."""
    if not event.payload.startswith(_BLOCK):
        return event
    try:
        opened = verify_event(known_event(event.payload, cid_of(event.payload)))
    except Refused:
        return event
    name = event.publisher, event.incarnation, event.number
    if opened.topic != topic or number_of(opened) != name:
        return event
    return Event(*name, event.published_ms, opened.payload, event.parts)


# --- the trace ------------------------------------------------------------------------------------


def message_id(topic: str, event: Event) -> str:
    """The id of an event in the trace: publisher, incarnation, topic and number."""
    return f"{peer_text(event.publisher)}-{event.incarnation}-{event.number}@{topic}"


def note_parasite(ctx: Context, topic: Topic, event: Event, source: PeerId) -> None:
    """An event came to a peer that has no use for it."""
    ctx.counters["parasites"] += 1
    if ctx.tracing:
        fields = {
            "messageID": message_id(topic, event),
            "receivedFrom": ctx.name(source),
            "reason": "not subscribed",
            "topic": topic,
        }
        ctx.trace(REJECT_MESSAGE, fields)


def trace_event(
    ctx: Context, kind: str, topic: Topic, event: Event, source: PeerId | None, hops: int
) -> None:
    if ctx.tracing:
        fields = {
            "messageID": message_id(topic, event),
            "topic": topic,
            "receivedFrom": ctx.name(source if source else ctx.me.peer),
            "hops": hops,
        }
        ctx.trace(kind, fields)
