"""Repair over a link: two members bring each other up to what either still holds.

They compare a fingerprint of all they have seen (`recent.py`). If it differs, one offers what it
holds; the other asks for what it lacks and offers what it holds itself. Whatever lost events on the
way, both end with the same. An event that came only just now may be on its way to the other as
well, so it is offered after `settle_ms` only.

The same for every routing whose members keep links; what is done with a repaired event is theirs.
"""

from __future__ import annotations

from weft.ids import Contact, Topic
from weft.protocol.context import Context
from weft.protocol.recent import Offer, Recent, Repair, Want
from weft.protocol.seam import Millis
from weft.protocol.tera.tree import IHave
from weft.protocol.wire import LIST_MAX, Event


def compare(
    ctx: Context,
    topic: Topic,
    recent: Recent,
    other: Contact,
    fingerprint: int,
    settle_ms: Millis,
) -> bool:
    """Offer what is held here to a member that has seen something else; says whether it has."""
    if fingerprint == recent.fingerprint():
        return False
    ctx.send(other, _offer(ctx, topic, recent, settle_ms, first=True))
    return True


def _offer(ctx: Context, topic: Topic, recent: Recent, settle_ms: Millis, first: bool) -> Offer:
    return Offer(topic, recent.offer(ctx.now - settle_ms), first, settle_ms)


def on_offer(ctx: Context, recent: Recent, sender: Contact, message: Offer) -> None:
    ask_for(ctx, recent, sender, message)
    if message.first:
        ctx.send(sender, _offer(ctx, message.topic, recent, message.settle_ms, first=False))


def ask_for(ctx: Context, recent: Recent, sender: Contact, message: Offer | IHave) -> None:
    """Ask for what is lacking here of what the sender holds."""
    wanted = recent.lacking(message.spans)
    if wanted:
        ctx.send(sender, Want(message.topic, wanted))


def on_want(ctx: Context, recent: Recent, sender: Contact, message: Want) -> None:
    """Send what is asked for, in bounded messages."""
    batch = ctx.config.dissemination.repair_batch
    bytes_max = ctx.config.dissemination.repair_bytes_max
    events: list[Event] = []
    size = 0
    for held in recent.fetch(message.spans, LIST_MAX):
        if events and (len(events) >= batch or size + len(held.event.payload) > bytes_max):
            ctx.send(sender, Repair(message.topic, events))
            events, size = [], 0
        events.append(held.event)
        size += len(held.event.payload)
    if events:
        ctx.send(sender, Repair(message.topic, events))
