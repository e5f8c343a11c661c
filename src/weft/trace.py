"""One trace format for the network, the simulator and the engine: JSON lines in the vocabulary
of libp2p's pubsub tracer, so that GossipSub's traces and ours feed the same pipeline.

Each line is one record: `type` (libp2p's name), `peerID` (who recorded it), `timestamp`
(nanoseconds) and one object named after the type with its fields. `docs/trace.md` lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO

import msgspec

from weft.ids import PeerId, peer_text
from weft.protocol import messages as m
from weft.protocol.records import (
    ADD_PEER,
    DELIVER_MESSAGE,
    DROP_RPC,
    DUPLICATE_MESSAGE,
    GRAFT,
    JOIN,
    LEAVE,
    PRUNE,
    PUBLISH_MESSAGE,
    RECV_RPC,
    REJECT_MESSAGE,
    REMOVE_PEER,
    SEND_RPC,
    message_id,
)

_FIELD = {
    PUBLISH_MESSAGE: "publishMessage",
    REJECT_MESSAGE: "rejectMessage",
    DUPLICATE_MESSAGE: "duplicateMessage",
    DELIVER_MESSAGE: "deliverMessage",
    ADD_PEER: "addPeer",
    REMOVE_PEER: "removePeer",
    RECV_RPC: "recvRPC",
    SEND_RPC: "sendRPC",
    DROP_RPC: "dropRPC",
    JOIN: "join",
    LEAVE: "leave",
    GRAFT: "graft",
    PRUNE: "prune",
}
KINDS = tuple(_FIELD)


def rpc_meta(message: m.AnyMessage) -> dict[str, object]:
    """What a SendRPC, RecvRPC or DropRPC record says of the message it is about."""
    meta: dict[str, object] = {"kind": type(message).__name__}
    topic = getattr(message, "topic", None)
    if topic is not None:
        meta["topic"] = topic
    if isinstance(message, m.Payload | m.RouteEvent):
        meta["messages"] = [
            {"messageID": message_id(message.topic, message.event), "topic": message.topic}
        ]
    elif isinstance(message, m.Repair):
        meta["messages"] = [
            {"messageID": message_id(message.topic, event), "topic": message.topic}
            for event in message.events
        ]
    return meta


class Writer:
    """Appends trace records to a binary file; the caller owns and closes the file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._encoder = msgspec.json.Encoder()
        self._texts: dict[PeerId, str] = {}

    def write(
        self, peer: PeerId, timestamp_ns: int, kind: str, fields: Mapping[str, object]
    ) -> None:
        text = self._texts.get(peer)
        if text is None:
            text = self._texts[peer] = peer_text(peer)
        record = {
            "type": kind,
            "peerID": text,
            "timestamp": timestamp_ns,
            _FIELD[kind]: fields,
        }
        self._file.write(self._encoder.encode(record) + b"\n")


__all__ = ["KINDS", "Writer", "message_id", "rpc_meta"]
