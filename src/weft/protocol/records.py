"""The names of trace records, and how events are named in them.

The vocabulary is that of libp2p's pubsub tracer; `weft.trace` writes the records.
"""

from __future__ import annotations

from weft.ids import peer_text
from weft.protocol.wire import Event

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
