"""What go-libp2p-pubsub 0.15 and 0.16 write into a trace, and its protobuf form.

The shapes are those of its `pb/trace.proto`: all fields are optional, and what is not set is left
out. Version 0.16 renamed addPeer to onNewOutboundStream and removePeer to onClosedOutboundStream
under the same numbers, so the two versions differ in JSON and not in protobuf. Its `PBTracer`
writes each record after its length, as a varint.

A record is a dictionary here, by the names of version 0.15, which are weft's: ids are bytes, the
type is its number. Readers and writers of every form go through its fields by its shape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from weft.errors import WeftError
from weft.ids import varint
from weft.protocol.delivery import ADD_PEER, REMOVE_PEER
from weft.trace import FIELDS, KINDS

NEWER_TYPES = {"ON_NEW_OUTBOUND_STREAM": ADD_PEER, "ON_CLOSED_OUTBOUND_STREAM": REMOVE_PEER}
NEWER_NAMES = {ADD_PEER: "onNewOutboundStream", REMOVE_PEER: "onClosedOutboundStream"}
"""What version 0.16 calls two types of records, and the objects with their fields."""
RECORD_BYTES_MAX = 16 << 20
"""guess: no tracer's record has a hundredth of that; a file that says so is no trace."""
PEER_BYTES_MAX = 128
"""guess: libp2p's peer ids are hashes, or keys of up to 42 bytes."""

Record: TypeAlias = dict[str, Any]
LeftOut: TypeAlias = Counter[str]
"""Fields that a form has no place for, by their names, and how often they were there."""


class BadRecord(WeftError):
    """Why something is no record of a trace, and at which of its bytes that shows."""

    def __init__(self, text: str, at: int = 0) -> None:
        super().__init__(text)
        self.at = at


class Kind(Enum):
    """What a field holds; the value says so in words."""

    PEER = "a peer id"
    EVENT = "a message id"
    TEXT = "a text"
    FLAG = "true or false"
    NUMBER = "a whole number of 64 bits"


@dataclass(frozen=True)
class Field:
    """A field: its number in protobuf, and what it holds, once or any number of times."""

    number: int
    holds: Kind | Shape
    many: bool = False


@dataclass(frozen=True)
class Shape:
    """The fields of a message by their names, in the order of their numbers."""

    fields: Mapping[str, Field]
    names: dict[int, str] = field(init=False)

    def __post_init__(self) -> None:
        names = {each.number: name for name, each in self.fields.items()}
        object.__setattr__(self, "names", names)


def _shape(**fields: Field) -> Shape:
    return Shape(fields)


def _id(number: int) -> Field:
    return Field(number, Kind.EVENT)


def _ids(number: int) -> Field:
    return Field(number, Kind.EVENT, many=True)


def _peer(number: int) -> Field:
    return Field(number, Kind.PEER)


def _text(number: int) -> Field:
    return Field(number, Kind.TEXT)


_CONTROL = _shape(
    ihave=Field(1, _shape(topic=_text(1), messageIDs=_ids(2)), many=True),
    iwant=Field(2, _shape(messageIDs=_ids(1)), many=True),
    graft=Field(3, _shape(topic=_text(1)), many=True),
    prune=Field(4, _shape(topic=_text(1), peers=Field(2, Kind.PEER, many=True)), many=True),
    idontwant=Field(5, _shape(messageIDs=_ids(1)), many=True),
)
_META = _shape(
    messages=Field(1, _shape(messageID=_id(1), topic=_text(2)), many=True),
    subscription=Field(2, _shape(subscribe=Field(1, Kind.FLAG), topic=_text(2)), many=True),
    control=Field(3, _CONTROL),
)
_ABOUT = (  # in the order of `KINDS`
    _shape(messageID=_id(1), topic=_text(2)),
    _shape(messageID=_id(1), receivedFrom=_peer(2), reason=_text(3), topic=_text(4)),
    _shape(messageID=_id(1), receivedFrom=_peer(2), topic=_text(3)),
    _shape(messageID=_id(1), topic=_text(2), receivedFrom=_peer(3)),
    _shape(peerID=_peer(1), proto=_text(2)),
    _shape(peerID=_peer(1)),
    _shape(receivedFrom=_peer(1), meta=Field(2, _META)),
    _shape(sendTo=_peer(1), meta=Field(2, _META)),
    _shape(sendTo=_peer(1), meta=Field(2, _META)),
    _shape(topic=_text(1)),
    _shape(topic=_text(2)),
    _shape(peerID=_peer(1), topic=_text(2)),
    _shape(peerID=_peer(1), topic=_text(2)),
)
_FIRST_ABOUT = 4  # the number of publishMessage; the others follow in the order of `KINDS`
RECORD = _shape(
    type=Field(1, Kind.NUMBER),
    peerID=_peer(2),
    timestamp=Field(3, Kind.NUMBER),
    **{
        name: Field(_FIRST_ABOUT + place, shape)
        for place, (name, shape) in enumerate(zip(FIELDS.values(), _ABOUT, strict=True))
    },
)


def checked(record: Record) -> Record:
    """A record, if it has a known type and the object with its fields."""
    number = record.get("type")
    if number is None:
        raise BadRecord("no type of record")
    if not 0 <= number < len(KINDS):
        raise BadRecord(f"no type of record has the number {number}")
    name = FIELDS[KINDS[number]]
    if name not in record:
        raise BadRecord(f"{KINDS[number]} without {name}")
    return record


def checked_peer(peer: bytes, name: str, at: int = 0) -> bytes:
    """A peer id, if it is not too long for one."""
    if len(peer) > PEER_BYTES_MAX:
        raise BadRecord(f"{name} of {len(peer)} bytes is no peer id", at)
    return peer


# --- protobuf -------------------------------------------------------------------------------------

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_FIXED = {_FIXED_64: 8, _FIXED_32: 4}
_WORD = 1 << 64


def encoded(record: Record) -> bytes:
    """A record in protobuf, without its length."""
    return _message(RECORD, record)


def _message(shape: Shape, value: Mapping[str, Any]) -> bytes:
    out = bytearray()
    for name, each in shape.fields.items():
        found = value.get(name)
        if found is not None:
            for one in found if each.many else (found,):
                out += _field(each, one)
    return bytes(out)


def _field(each: Field, value: Any) -> bytes:
    if each.holds in (Kind.FLAG, Kind.NUMBER):
        return varint(each.number << 3 | _VARINT) + varint(int(value) % _WORD)
    if isinstance(each.holds, Shape):
        data = _message(each.holds, value)
    else:
        data = value.encode() if each.holds is Kind.TEXT else value
    return varint(each.number << 3 | _BYTES) + varint(len(data)) + data


def decoded(data: bytes, left_out: LeftOut) -> Record:
    """The record in some bytes; the place of `BadRecord` counts from their beginning."""
    return checked(_read_message(RECORD, data, 0, len(data), left_out, ""))


def _read_message(
    shape: Shape, data: bytes, at: int, end: int, left_out: LeftOut, path: str
) -> Record:
    found: Record = {}
    while at < end:
        begin = at
        key, at = read_varint(data, at, end)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = read_varint(data, at, end)
            start = at
        elif wire in _FIXED:
            start, at = at, at + _FIXED[wire]
        elif wire == _BYTES:
            size, start = read_varint(data, at, end)
            at = start + size
        else:
            raise BadRecord(f"no field begins so (wire type {wire})", begin)
        if at > end:
            raise BadRecord(f"a field goes {at - end} bytes beyond its end", begin)
        name = shape.names.get(number)
        if name is None:
            left_out[f"{path}field {number}"] += 1
            continue
        each = shape.fields[name]
        if wire != (_VARINT if each.holds in (Kind.FLAG, Kind.NUMBER) else _BYTES):
            raise BadRecord(f"{path}{name} has wire type {wire}", begin)
        if isinstance(each.holds, Shape):
            one: Any = _read_message(each.holds, data, start, at, left_out, f"{path}{name}.")
        elif wire == _VARINT:
            one = bool(value) if each.holds is Kind.FLAG else _signed(value)
        else:
            one = data[start:at]
            if each.holds is Kind.TEXT:
                one = _utf8(one, f"{path}{name}", start)
            elif each.holds is Kind.PEER:
                checked_peer(one, path + name, start)
        if each.many:
            found.setdefault(name, []).append(one)
        elif name in found:
            raise BadRecord(f"{path}{name} stands there twice{_OLD * (name == 'topic')}", begin)
        else:
            found[name] = one
    return found


_OLD = " (events of several topics are of go-libp2p-pubsub before 0.4)"


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number at a place, and the place after it."""
    number = shift = 0
    for place in range(at, min(end, at + 10)):
        byte = data[place]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number % _WORD, place + 1
        shift += 7
    raise BadRecord("a number that does not end", at)


def _signed(number: int) -> int:
    return number - _WORD if number >= _WORD >> 1 else number


def _utf8(data: bytes, name: str, at: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadRecord(f"{name} is no UTF-8 text", at + error.start) from error
