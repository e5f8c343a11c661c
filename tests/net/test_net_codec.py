"""Frames: everything that may be said survives the wire, everything else is one typed fault."""

from __future__ import annotations

import contextlib
import itertools
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nameless import unsigned_run
from weft.documents.run import PAYLOAD_BYTES_MAX, RUN_MAX
from weft.ids import PeerId, Topic
from weft.net import codec
from weft.net.codec import Encoder, FrameReader
from weft.net.errors import FrameFault, OversizedFault
from weft.protocol import messages as m
from weft.protocol.liveness import LinkList, Ping
from weft.protocol.publication import RouteEvent
from weft.protocol.tera.links import Unlink
from weft.protocol.wire import LIST_MAX, Payload
from wire_values import MESSAGES, any_goodbye, any_hello, any_message

LIMIT = 1 << 20


def body_of(frame: bytes) -> bytes:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame[4:]


def read_all(chunks: list[bytes], limit: int = LIMIT) -> list[bytes]:
    reader, bodies = FrameReader(), []
    for chunk in chunks:
        reader.feed(chunk)
        while (body := reader.next(limit)) is not None:
            bodies.append(body)
    return bodies


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
@settings(max_examples=40)
@given(data=st.data())
def test_every_message_survives_the_wire(kind: type, data: st.DataObject) -> None:
    message = data.draw(MESSAGES[kind])
    assert codec.decode(body_of(codec.encode(message))) == message


def test_every_kind_is_found_where_it_is_made() -> None:
    homes = {kind.__struct_config__.tag: kind.__module__ for kind in get_args(m.AnyMessage)}
    assert homes == codec.HOMES


def test_what_carries_events_says_so() -> None:
    carrying = {kind for kind in get_args(m.AnyMessage) if kind.carries}
    assert carrying == set(m.PAYLOAD_KINDS)


@given(any_hello, any_goodbye)
def test_greetings_survive_the_wire(hello: codec.Hello, goodbye: codec.Goodbye) -> None:
    assert codec.decode_greeting(body_of(codec.encode(hello))) == hello
    assert codec.decode_greeting(body_of(codec.encode(goodbye))) == goodbye
    assert codec.decode(body_of(codec.encode(goodbye))) == goodbye


@settings(max_examples=2_000)
@given(st.binary(max_size=300))
def test_arbitrary_bytes_raise_nothing_but_a_frame_fault(data: bytes) -> None:
    for read in (codec.decode, codec.decode_greeting):
        with contextlib.suppress(FrameFault):
            read(data)


@settings(max_examples=1_000)
@given(any_message, st.data())
def test_damaged_messages_raise_nothing_but_a_frame_fault(
    message: m.AnyMessage, data: st.DataObject
) -> None:
    body = bytearray(body_of(codec.encode(message)))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    for damaged in (bytes(body), bytes(body[:cut])):
        with contextlib.suppress(FrameFault):
            codec.decode(damaged)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc0",  # nil
        b"\x90",  # an empty array: no tag
        b"\x91\xcc\xff",  # an unknown tag
        b"\x93\x13\x01",  # a Ping cut short
        b"\x93\x13\xff\x00",  # a negative nonce
        b"\x91" * 100_000 + b"\x00",  # nested without end
        b"\xdd\xff\xff\xff\xff",  # an array of four billion
        b"\xdb\xff\xff\xff\xff",  # text of four billion bytes
        b"\x92\x12\xa2\xff\xfe",  # not UTF-8
        b"\x93\x0a\xdd\xff\xff\xff\xff\x00",  # an advertisement of four billion topics
    ],
)
def test_known_nasty_bodies(body: bytes) -> None:
    with pytest.raises(FrameFault):
        codec.decode(body)


def test_bounds_of_the_messages_are_enforced() -> None:
    peer = PeerId(b"p" * 32)
    over = [
        Payload(Topic("/t"), unsigned_run(peer, bytes(PAYLOAD_BYTES_MAX + 1)), 1),
        Payload(Topic("/t"), unsigned_run(peer), 1),
        Payload(Topic("/t"), unsigned_run(peer, *[b""] * (RUN_MAX + 1)), 1),
        Payload(Topic("/t"), replace(unsigned_run(peer, b""), prev=bytes(31)), 1),
        Payload(Topic("/t"), replace(unsigned_run(peer, b""), signature=bytes(65)), 1),
        Ping(-1, 0),
        Ping(1 << 63, 0),
        Unlink(Topic("/" + "x" * 256)),
        LinkList([Topic("/t")] * (LIST_MAX + 1), True),
        RouteEvent(Topic("/t"), unsigned_run(PeerId(b"short"), b"")),
    ]
    for message in over:
        with pytest.raises(FrameFault):
            codec.decode(body_of(codec.encode(message)))


@given(any_message)
def test_a_message_may_be_written_longer_than_need_be(message: m.AnyMessage) -> None:
    """The array's length in two bytes, its tag in a byte of its own."""
    body = body_of(codec.encode(message))
    assert body[0] & 0xF0 == 0x90 and body[1] < 0x80
    length, tag = bytes((0, body[0] & 0x0F)), body[1:2]
    assert codec.decode(b"\xdc" + length + tag + body[2:]) == message
    assert codec.decode(body[:1] + b"\xcc" + tag + body[2:]) == message
    assert codec.decode(b"\xdc" + length + b"\xcc" + tag + body[2:]) == message


def test_a_greeting_is_no_message_and_a_message_is_no_greeting() -> None:
    with pytest.raises(FrameFault):
        codec.decode(body_of(codec.encode(codec.Hello(1, "weft", "", "x"))))
    with pytest.raises(FrameFault):
        codec.decode_greeting(body_of(codec.encode(Ping(1, 2))))


def test_a_later_version_may_say_more_in_its_greeting() -> None:
    body = msgspec.msgpack.encode([0, 2, "weft", "/ip4/1.2.3.4/tcp/5", "agent", {"new": 1}])
    assert codec.decode_greeting(body) == codec.Hello(2, "weft", "/ip4/1.2.3.4/tcp/5", "agent")


@given(st.lists(st.binary(max_size=50), max_size=10), st.data())
def test_frames_are_cut_the_same_wherever_the_stream_is_cut(
    bodies: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    edges = [0, *cuts, len(stream)]
    chunks = [stream[a:b] for a, b in itertools.pairwise(edges)]
    assert read_all(chunks) == bodies
    assert read_all([stream[at : at + 1] for at in range(len(stream))]) == bodies


def test_an_oversized_frame_is_refused_by_its_header_alone() -> None:
    reader = FrameReader()
    reader.feed((100).to_bytes(4, "big") + bytes(100))
    assert reader.next(100) == bytes(100)
    reader.feed((101).to_bytes(4, "big"))
    with pytest.raises(OversizedFault, match="101 bytes"):
        reader.next(100)
    assert reader.unfinished <= 4


def test_an_unfinished_frame_is_seen_and_bounded() -> None:
    reader = FrameReader()
    reader.feed((1_000).to_bytes(4, "big") + bytes(10))
    assert reader.next(1_000) is None
    assert reader.unfinished == 14
    for _ in range(99):
        reader.feed(bytes(10))
        assert reader.next(1_000) in (None, bytes(1_000))
    assert reader.unfinished == 0


def test_a_message_to_several_peers_is_encoded_once() -> None:
    encoder = Encoder()
    message = Ping(1, 2)
    assert encoder.frame(message) is encoder.frame(message)
    assert encoder.frame(Ping(1, 3)) == codec.encode(Ping(1, 3))
    assert encoder.frame(message) == codec.encode(message)
    frame = encoder.frame(message)
    encoder.on_sent()
    assert encoder.frame(message) == frame
