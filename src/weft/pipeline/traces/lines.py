"""One line of a trace: what it says in the common shape, or why it cannot be read.

weft and go-libp2p-pubsub's JSON tracer differ little. weft writes the type of a record as its
name, ids as text and one topic; go-libp2p-pubsub writes the type as its number, ids as base64 (kept
as they are) and, in older versions, a list of topics. Its RPCs have no kind and no size: what they
hold names their kind here.

measured: decoding typed structs in a Python worker takes 40 % of the CPU time of `from_json` with
the narrowest schema and the expressions to get at its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Raw, Struct

from weft.protocol import delivery
from weft.protocol.recent import IHave
from weft.protocol.wire import Payload
from weft.trace import FIELDS, KINDS

NO_TYPE = "no known type of record"
NO_FIELDS = "no object named after the type"
NO_MESSAGE = "no messageID"
NO_TOPIC = "no topic"

# What GossipSub's RPCs hold, in this order: the first that is there names the kind. Its mesh is
# kept up by GRAFT and PRUNE whether or not there are events, so they have names apart from weft's,
# which serve events.
PAYLOAD, I_HAVE = Payload.__name__, IHave.__name__
GOSSIP_CONTROL = {
    "ihave": I_HAVE,
    "iwant": "IWant",
    "idontwant": "IDontWant",
    "graft": "MeshGraft",
    "prune": "MeshPrune",
}
SUBSCRIPTION, EMPTY = "Subscription", "Empty"

_Time = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]
_Size = Annotated[int, Meta(ge=0, le=1 << 62)]
_Hops = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
_Any = list[Raw] | None


class _Event(Struct, gc=False):
    messageID: str | None = None
    topic: str | None = None
    topics: list[str] | None = None


class _Control(Struct, gc=False):
    ihave: _Any = None
    iwant: _Any = None
    idontwant: _Any = None
    graft: _Any = None
    prune: _Any = None


class _Rpc(Struct, gc=False):
    kind: str | None = None
    topic: str | None = None
    bytes: _Size | None = None
    messages: list[_Event] | None = None
    subscription: _Any = None
    control: _Control | None = None


class _Fields(Struct, gc=False):
    """The object named after the type of a record; all types share this one."""

    messageID: str | None = None
    topic: str | None = None
    topics: list[str] | None = None
    receivedFrom: str | None = None
    sendTo: str | None = None
    peerID: str | None = None
    hops: _Hops | None = None
    reason: str | None = None
    meta: _Rpc | None = None


_Record = msgspec.defstruct(
    "_Record",
    [
        ("type", str | int),
        ("peerID", str),
        ("timestamp", _Time),
        *((name, _Fields | None, None) for name in FIELDS.values()),
    ],
    gc=False,
)
_decode: Callable[[str], Any] = msgspec.json.Decoder(_Record).decode
_KIND: dict[str | int, str] = {name: name for name in KINDS} | dict(enumerate(KINDS))
_ABOUT_EVENTS = {
    delivery.PUBLISH_MESSAGE,
    delivery.DELIVER_MESSAGE,
    delivery.DUPLICATE_MESSAGE,
    delivery.REJECT_MESSAGE,
}
_ABOUT_TOPICS = {delivery.JOIN, delivery.LEAVE}
_RPCS = {delivery.SEND_RPC, delivery.RECV_RPC, delivery.DROP_RPC}


class BadLine(Exception):
    """Why a line is no record of a trace."""


class Parsed(NamedTuple):
    """What some lines say: the columns of TRACE, of which line each row is, and the bad lines, as
    place, text and problem."""

    columns: list[list[Any]]
    places: list[int]
    bad: list[tuple[int, str, str]]


def parse(texts: Iterable[str]) -> Parsed:
    """The rows of some lines, or what is wrong with them; empty lines are nothing."""
    places: list[int] = []
    bad: list[tuple[int, str, str]] = []
    columns: list[list[Any]] = [[] for _ in range(11)]
    peers, times, kinds, messages, topics, others, rpcs, parts, sizes, all_hops, reasons = (
        column.append for column in columns
    )
    for place, text in enumerate(texts):
        try:
            peer, time, kind, other, rpc, size, hops, reason, events = _record(text)
        except (msgspec.MsgspecError, BadLine) as error:
            if text and not text.isspace():
                bad.append((place, text, str(error)))
            continue
        for part, (message, topic) in enumerate(events):
            places.append(place)
            peers(peer)
            times(time)
            kinds(kind)
            messages(message)
            topics(topic)
            others(other)
            rpcs(rpc)
            parts(part)
            sizes(None if part else size)
            all_hops(hops)
            reasons(reason)
    return Parsed(columns, places, bad)


_Row = tuple[
    str, int, str, str | None, str | None, int | None, int | None, str | None, Sequence[Any]
]


def _record(text: str) -> _Row:
    """What one line says; the last are its events, each with its topic."""
    record = _decode(text)
    kind = _KIND.get(record.type)
    if kind is None:
        raise BadLine(NO_TYPE)
    fields: _Fields | None = getattr(record, FIELDS[kind])
    if fields is None:
        raise BadLine(NO_FIELDS)
    if kind in _RPCS:
        rpc = fields.meta or _Rpc()
        other = fields.sendTo or fields.receivedFrom
        name = rpc.kind or _gossip_kind(rpc)
        events: Sequence[Any] = _events(rpc.messages) if rpc.messages else ((None, rpc.topic),)
        head = record.peerID, record.timestamp, kind
        return *head, other, name, rpc.bytes, None, fields.reason, events
    if kind in _ABOUT_EVENTS and fields.messageID is None:
        raise BadLine(NO_MESSAGE)
    if kind in _ABOUT_TOPICS and fields.topic is None:
        raise BadLine(NO_TOPIC)
    events = [(fields.messageID, topic) for topic in fields.topics or (fields.topic,)]
    other = fields.receivedFrom or fields.peerID
    head = record.peerID, record.timestamp, kind
    return *head, other, None, None, fields.hops, fields.reason, events


def _events(listed: list[_Event]) -> list[tuple[str | None, str | None]]:
    return [(each.messageID, topic) for each in listed for topic in each.topics or (each.topic,)]


def _gossip_kind(rpc: _Rpc) -> str:
    if rpc.messages:
        return PAYLOAD
    if rpc.control is not None:
        for name, kind in GOSSIP_CONTROL.items():
            if getattr(rpc.control, name):
                return kind
    return SUBSCRIPTION if rpc.subscription else EMPTY
