"""Frames: how messages lie on the wire (docs/wire.md has the whole of it).

A frame is a four-byte big-endian length and a msgpack body. The first frame of each side is its
`Hello`; after both, every frame is one of the protocol's messages, or a `Goodbye` that says why
the sender ends. msgspec checks types and bounds while it decodes, in C. A body that does not fit
raises `FrameFault`, one that is too long raises `OversizedFault` before it is read, and nothing
else is ever raised for bytes from outside.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, TypeAlias, Union

import msgspec
from msgspec import Meta, Struct

from weft.ids import WireAddress
from weft.net.errors import FrameFault, OversizedFault
from weft.protocol.wire import Message

if TYPE_CHECKING:
    from weft.protocol.messages import AnyMessage

WIRE_VERSION = 3
"""Version 1 had events without signatures, at peers without a store; version 2 had runs of at most
64 events, hashed one by one. A peer of another version is refused; its greeting is read all the
same, so `Hello` begins alike in every version."""
HEADER_BYTES = 4
HELLO_BYTES_MAX = 1_024  # guess: a greeting has about 80 bytes


class Hello(Struct, frozen=True, array_like=True, tag=0, gc=False):
    """First frame on a connection. The sender's identity is known from TLS, never from here."""

    version: Annotated[int, Meta(ge=0, lt=1 << 32)]
    network: Annotated[str, Meta(max_length=64)]
    address: WireAddress  # where the sender listens
    agent: Annotated[str, Meta(max_length=64)]


class Goodbye(Struct, frozen=True, array_like=True, tag=127, gc=False):
    """Last frame on a connection: why the sender ends it."""

    reason: Annotated[str, Meta(max_length=256)]


WireMessage: TypeAlias = "AnyMessage | Goodbye"

_encode = msgspec.msgpack.Encoder().encode
HOMES: dict[int, str] = {
    tag: module
    for module, tags in {
        "weft.protocol.flood": (75,),
        "weft.protocol.history.blocks": (61, 62),
        "weft.protocol.history.ownership": (65,),
        "weft.protocol.history.reader": (63, 64),
        "weft.protocol.history.stream": (60,),
        "weft.protocol.history.wishes": (66, 67),
        "weft.protocol.kademlia.rpc": range(40, 47),
        "weft.protocol.liveness": (19, 20, 21),
        "weft.protocol.membership": range(1, 8),
        "weft.protocol.multi_topic": (34,),
        "weft.protocol.publication": (14, 15, 47, 48),
        "weft.protocol.pulsar.attachment": (70, 71),
        "weft.protocol.pulsar.branch": (72, 73, 74),
        "weft.protocol.recent": (23, 26, 27, 28),
        "weft.protocol.tera.access_points": (10, 11, 12, 13, 29, 38, 39),
        "weft.protocol.tera.announcements": (49,),
        "weft.protocol.tera.links": (16, 17, 18, 33),
        "weft.protocol.tera.questions": (36, 37),
        "weft.protocol.tera.size": (8, 9),
        "weft.protocol.tera.stan": (30, 31, 32, 35),
        "weft.protocol.tera.tree": (24, 25, 58, 59),
        "weft.protocol.topic_dht.events": range(91, 95),
        "weft.protocol.topic_dht.roles": range(80, 88),
        "weft.protocol.topic_dht.upkeep": (88, 89, 90),
        "weft.protocol.wire": (22,),
    }.items()
    for tag in tags
}
"""The module of each kind of message, by its tag. A room of the protocol that this peer is without
is loaded when the first of its messages comes (`protocol/rooms.py`)."""
_GOODBYE = Goodbye.__struct_config__.tag
_ANY = -1
_decoders: dict[int, Callable[[bytes], WireMessage]] = {}
"""Decoders by tag, each made when it is first needed. measured: one decoder for all 80 kinds takes
7 ms to make, which every program would pay at its start; most need a dozen kinds."""
_decode_greeting = msgspec.msgpack.Decoder(Union[Hello, Goodbye]).decode
# Deeply nested garbage ends in RecursionError, absurd announced lengths in MemoryError.
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, MemoryError)


def encode(message: Message | Goodbye | Hello) -> bytes:
    """The frame of a message."""
    body = _encode(message)
    return len(body).to_bytes(HEADER_BYTES, "big") + body


class Encoder:
    """Encodes messages; a message that goes to several peers in a row is encoded once."""

    __slots__ = ("_frame", "_message")

    def __init__(self) -> None:
        self._message: Message | None = None
        self._frame = b""

    def frame(self, message: Message) -> bytes:
        if message is not self._message:
            body = _encode(message)
            self._frame = len(body).to_bytes(HEADER_BYTES, "big") + body
            self._message = message
        return self._frame

    def on_sent(self) -> None:
        """The last message has gone to all its receivers: let go of it, for it may be large."""
        self._message, self._frame = None, b""


def decode(body: bytes) -> WireMessage:
    """The message in a frame's body."""
    tag = _tag(body)
    try:
        return (_decoders.get(tag) or _make_decoder(tag))(body)
    except _UNREADABLE as error:
        raise FrameFault(f"not a message: {error}") from error


def _tag(body: bytes) -> int:
    """The tag of a body's kind of message; `_ANY` if the body does not begin as weft writes it: an
    array of at most 15 elements, of which the first is the tag."""
    if len(body) > 1 and body[0] & 0xF0 == 0x90 and (body[1] in HOMES or body[1] == _GOODBYE):
        return body[1]
    return _ANY


def _make_decoder(tag: int) -> Callable[[bytes], WireMessage]:
    """Make the decoder of one kind of message, or of any kind."""
    if tag == _ANY:
        from weft.protocol.messages import AnyMessage  # noqa: PLC0415  (loads all rooms)

        made = msgspec.msgpack.Decoder(Union[AnyMessage, Goodbye]).decode
    else:
        made = msgspec.msgpack.Decoder(Goodbye if tag == _GOODBYE else _kind(tag)).decode
    _decoders[tag] = made
    return made


def _kind(tag: int) -> type[Message]:
    """The kind of message that has a tag."""
    found: type[Message] = next(
        one
        for one in vars(import_module(HOMES[tag])).values()
        if isinstance(one, type) and issubclass(one, Message) and one.__struct_config__.tag == tag
    )
    return found


def decode_greeting(body: bytes) -> Hello | Goodbye:
    """The greeting in a connection's first frame."""
    try:
        greeting: Hello | Goodbye = _decode_greeting(body)
    except _UNREADABLE as error:
        raise FrameFault(f"not a greeting: {error}") from error
    return greeting


class FrameReader:
    """Cuts a byte stream into frame bodies. Holds at most one unfinished frame."""

    __slots__ = ("_at", "_data", "_need", "_part")

    def __init__(self) -> None:
        self._data = b""  # whole chunk, of which [_at:] is still to be cut
        self._at = 0
        self._part = bytearray()  # an unfinished frame
        self._need = 0  # its size, or the header's while that is unfinished

    def feed(self, data: bytes) -> None:
        """Take in more bytes; only after `next` has returned None."""
        if self._part:
            self._part += data
            if len(self._part) < self._need:
                return
            data = bytes(self._part)
            self._part = bytearray()
        self._data = data
        self._at = 0

    def next(self, limit: int) -> bytes | None:
        """The next frame's body, which may have `limit` bytes, or None until more is fed."""
        data, at = self._data, self._at
        start = at + HEADER_BYTES
        if start > len(data):
            if data:
                self._keep(HEADER_BYTES)
            return None
        length = int.from_bytes(data[at:start], "big")
        if length > limit:
            raise OversizedFault(f"a frame of {length} bytes, over the limit of {limit}")
        end = start + length
        if end > len(data):
            self._keep(HEADER_BYTES + length)
            return None
        if end == len(data):  # nearly always: one frame in a record
            self._data, self._at = b"", 0
        else:
            self._at = end
        return data[start:end]

    def _keep(self, need: int) -> None:
        if self._at < len(self._data):
            self._part = bytearray(self._data[self._at :])
            self._need = need
        self._data = b""
        self._at = 0

    @property
    def unfinished(self) -> int:
        """How many bytes of an unfinished frame are held."""
        return len(self._part)
