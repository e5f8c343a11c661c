"""Taking an event in, alike for every routing: once, not forged, opened where there is history."""

from __future__ import annotations

from weft.documents.descriptor import known_event, verify_event
from weft.documents.refusal import Refused
from weft.ids import Contact, PeerId, Topic, cid_of, peer_text
from weft.protocol.context import Arrived, Context
from weft.protocol.history.seen import number_of
from weft.protocol.recent import Recent
from weft.protocol.seam import Deliver
from weft.protocol.wire import Event, Part


def is_forged(ctx: Context, topic: Topic, event: Event) -> bool:
    """Nobody else can have an event that this peer has not published yet, and an event of several
    topics comes in no other, nor under another number."""
    if event.parts and Part(topic, event.number) not in event.parts:
        ctx.counters["forged"] += 1
        return True
    if event.publisher != ctx.me.peer or event.incarnation < ctx.incarnation:
        return False
    last = ctx.published.get(topic, 0)
    if event.incarnation == ctx.incarnation and event.number <= last:
        return False
    ctx.counters["forged"] += 1
    return True


def deliver(ctx: Context, topic: Topic, event: Event, hops: int, source: PeerId | None) -> None:
    """Hand an event to the application."""
    ctx.out.append(Deliver(topic, plain(topic, event), hops, None, ctx.origin(topic, event)))
    trace_event(ctx, DELIVER_MESSAGE, topic, event, source, hops)


def take_in(
    ctx: Context,
    topic: Topic,
    recent: Recent,
    event: Event,
    hops: int,
    source: Contact,
    subscribed: bool,
    ask: Contact | None,
) -> bool:
    """Note an event that came from `source`, and deliver it to a subscriber; says whether it is
    to be passed on. With history, `ask` has what came before it, if anybody is known to."""
    if recent.has_seen(event) or is_forged(ctx, topic, event):
        return False
    if ctx.open_event is None:
        recent.admit(event, hops, source.peer, ctx.now)
        if subscribed:
            deliver(ctx, topic, event, hops, source.peer)
    else:
        opened = ctx.open_event(topic, event, source.peer)
        if opened is None:
            return False
        recent.admit(event, hops, source.peer, ctx.now)
        if subscribed:
            ctx.tell(Arrived(opened, ask, hops))
    if not subscribed:
        note_parasite(ctx, topic, event, source.peer)
    return True


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


# --- records -----------------------------------------------------------------------------------
#
# The names of trace records, and how events are named in them.
#
# The vocabulary is that of libp2p's pubsub tracer; `weft.trace` writes the records.


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


def message_id(topic: str, event: Event) -> str:
    """The id of an event in the trace: publisher, incarnation, topic and number."""
    return f"{peer_text(event.publisher)}-{event.incarnation}-{event.number}@{topic}"


# --- plain -------------------------------------------------------------------------------------
#
# What a peer without a store makes of an event from one with a store.
#
# Where its publisher keeps history an event travels as a signed block. A peer without a store
# passes the block on as it is, and hands its application the payload inside, so that peers of
# both kinds can be subscribed to a topic. (The other way round there is nothing to store: an
# event without a block is signed by nobody, and refused where history is kept.)


_BLOCK = b"\xa7"
"""An event's document is a map of seven fields (docs/descriptors.md)."""


def plain(topic: Topic, event: Event) -> Event:
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
