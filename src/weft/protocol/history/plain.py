"""What a peer without a store makes of an event from one with a store.

Where its publisher keeps history an event travels as a signed block. A peer without a store passes
the block on as it is, and hands its application the payload inside, so that peers of both kinds can
be subscribed to a topic. (The other way round there is nothing to store: an event without a block
is signed by nobody, and refused where history is kept.)
"""

from __future__ import annotations

from weft.documents.descriptor import known_event, number_of, verify_event
from weft.documents.refusal import Refused
from weft.ids import Topic, cid_of
from weft.protocol.wire import Event

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
