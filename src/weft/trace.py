"""One trace format for the network, the simulator and the engine: JSON lines in the vocabulary
of libp2p's pubsub tracer, so that GossipSub's traces and ours feed the same pipeline.

Each line is one record: `type` (libp2p's name), `peerID` (the peer that recorded it), `timestamp`
(nanoseconds) and one object named after the type with its fields. `docs/trace.md` lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO

import msgspec

from weft.ids import PeerId, Topic, peer_text
from weft.protocol import messages as m
from weft.protocol.delivery import (
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
from weft.protocol.publication import RouteCheck, RouteKnown, RouteResult
from weft.protocol.recent import IHave, Offer, Repair, Want
from weft.protocol.tera.access_points import LookupHit, LookupMiss, LookupWalk, Stale
from weft.protocol.tera.announcements import IHaveOfTopics
from weft.protocol.tera.tree import Graft, Prune
from weft.protocol.wire import Message

FIELDS = {
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
"""Types of records in the order of their numbers in libp2p's `trace.proto`, and the object with the
fields of each."""
KINDS = tuple(FIELDS)


PAYLOAD, CONTROL, MAINTENANCE = GROUPS = ("payload", "control", "maintenance")
"""Groups of messages: those that carry events, those that are sent because of an event or a
subscription, and those that keep the overlays alive."""
PAYLOAD_KINDS = tuple(kind.__name__ for kind in m.PAYLOAD_KINDS)
CONTROL_KINDS = (
    *(
        kind.__name__
        for kind in (
            IHave,
            IHaveOfTopics,
            Graft,
            Prune,
            Offer,
            Want,
            RouteResult,
            RouteCheck,
            RouteKnown,
            LookupWalk,
            LookupHit,
            LookupMiss,
            Stale,
        )
    ),
    *("IWant", "IDontWant"),  # GossipSub's
)
_GROUP = dict.fromkeys(PAYLOAD_KINDS, PAYLOAD) | dict.fromkeys(CONTROL_KINDS, CONTROL)


def group_of(kind: str) -> str:
    """The group of a kind of message, by its name in the trace."""
    return _GROUP.get(kind, MAINTENANCE)


def rpc_meta(message: Message) -> dict[str, object]:
    """The `meta` of a SendRPC, RecvRPC or DropRPC record, which describes its message."""
    meta: dict[str, object] = {"kind": type(message).__name__}
    topic = getattr(message, "topic", None)
    if topic is not None:
        meta["topic"] = topic
    runs = m.runs_in(message)
    if runs or isinstance(message, Repair):
        meta["messages"] = [
            {"messageID": message_id(Topic(str(topic)), event), "topic": topic}
            for run in runs
            for event in run.events()
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
            FIELDS[kind]: fields,
        }
        self._file.write(self._encoder.encode(record) + b"\n")


__all__ = [
    "CONTROL",
    "CONTROL_KINDS",
    "FIELDS",
    "GROUPS",
    "KINDS",
    "MAINTENANCE",
    "PAYLOAD",
    "PAYLOAD_KINDS",
    "Writer",
    "group_of",
    "message_id",
    "rpc_meta",
]
