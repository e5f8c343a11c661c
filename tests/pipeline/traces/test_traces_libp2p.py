"""Records of go-libp2p-pubsub in protobuf: bytes as its PBTracer writes them, and damaged ones."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from weft.pipeline.traces.libp2p import (
    PEER_BYTES_MAX,
    RECORD,
    BadRecord,
    Kind,
    Record,
    Shape,
    decoded,
    encoded,
    varint,
)

# One record each, by hand from pb/trace.proto: key (number and wire type), length, value.
BY_HAND: list[tuple[str, Record]] = [
    (
        "08 00  12 02 0041  18 01  22 07 0a 02 006d 12 01 61",
        {
            "type": 0,
            "peerID": b"\0A",
            "timestamp": 1,
            "publishMessage": {"messageID": b"\0m", "topic": "a"},
        },
    ),
    (
        "08 01  2a 0e 0a 01 6d 12 01 42 1a 03 62 61 64 22 01 61",
        {
            "type": 1,
            "rejectMessage": {
                "messageID": b"m",
                "receivedFrom": b"B",
                "reason": "bad",
                "topic": "a",
            },
        },
    ),
    (
        "08 03  18 ffffffffffffffffff01  3a 09 0a 01 6d 12 01 61 1a 01 42",
        {
            "type": 3,
            "timestamp": -1,
            "deliverMessage": {"messageID": b"m", "topic": "a", "receivedFrom": b"B"},
        },
    ),
    ("08 04  42 06 0a 01 42 12 01 2f", {"type": 4, "addPeer": {"peerID": b"B", "proto": "/"}}),
    ("08 05  4a 03 0a 01 42", {"type": 5, "removePeer": {"peerID": b"B"}}),
    ("08 0a  72 03 12 01 61", {"type": 10, "leave": {"topic": "a"}}),
    (
        "08 06  52 23  0a 01 42  12 1e"
        "  0a 06 0a 01 6d 12 01 61"
        "  12 05 08 01 12 01 61"
        "  1a 0d  0a 06 0a 01 61 12 01 6d  2a 03 0a 01 6d",
        {
            "type": 6,
            "recvRPC": {
                "receivedFrom": b"B",
                "meta": {
                    "messages": [{"messageID": b"m", "topic": "a"}],
                    "subscription": [{"subscribe": True, "topic": "a"}],
                    "control": {
                        "ihave": [{"topic": "a", "messageIDs": [b"m"]}],
                        "idontwant": [{"messageIDs": [b"m"]}],
                    },
                },
            },
        },
    ),
    (
        "08 08  62 0f  0a 01 42  12 0a  1a 08  22 06 0a 01 61 12 01 43",
        {
            "type": 8,
            "dropRPC": {
                "sendTo": b"B",
                "meta": {"control": {"prune": [{"topic": "a", "peers": [b"C"]}]}},
            },
        },
    ),
]


@pytest.mark.parametrize(("text", "record"), BY_HAND)
def test_bytes_by_hand(text: str, record: Record) -> None:
    data, left_out = bytes.fromhex(text), Counter[str]()
    assert decoded(data, left_out) == record
    assert encoded(record) == data
    assert not left_out


def test_what_a_newer_version_adds_is_left_out_and_counted() -> None:
    """Of every wire type, in the record and inside of it."""
    added = bytes.fromhex(
        "08 09  6a 06 0a 01 61 9a 06 00  a0 06 05  a5 06 01020304  a1 06 0102030405060708"
    )
    left_out = Counter[str]()
    assert decoded(added, left_out) == {"type": 9, "join": {"topic": "a"}}
    assert left_out == {"field 100": 3, "join.field 99": 1}


@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        ("", 0, "no type of record"),
        ("08 0d", 0, "the number 13"),
        ("08 ffffffffffffffffff01", 0, "the number -1"),
        ("08 09", 0, "JOIN without join"),
        ("08 09 6a 05 0a 01 61", 2, "2 bytes beyond its end"),
        ("08 09 6a 03 0a 02 61", 4, "1 bytes beyond its end"),
        ("08 09 6a 03 0a 01 ff", 6, "join.topic is no UTF-8"),
        ("08 09 6a 02 08 01", 4, "join.topic has wire type 0"),
        ("08 09 6b", 2, "wire type 3"),
        ("08 09 18 ffffffffffffffffffff01", 3, "does not end"),
        ("08 09 18 ff", 3, "does not end"),
        ("08 09 08 09", 2, "type stands there twice"),
        ("08 00 22 06 12 01 61 12 01 62", 7, "several topics"),
        (f"08 09 12 8101 {'41' * (PEER_BYTES_MAX + 1)}", 5, "is no peer id"),
    ],
)
def test_damage_is_named_with_its_byte(text: str, at: int, said: str) -> None:
    with pytest.raises(BadRecord, match=said) as caught:
        decoded(bytes.fromhex(text), Counter())
    assert caught.value.at == at


def test_no_cut_and_no_changed_byte_is_more_than_a_bad_record() -> None:
    """Whatever a damaged disk makes of a record, it is read or refused."""
    refused = 0
    for text, _ in BY_HAND:
        data = bytes.fromhex(text)
        cuts = [data[:place] for place in range(len(data))]
        changed = [
            data[:place] + bytes((data[place] ^ bit,)) + data[place + 1 :]
            for place in range(len(data))
            for bit in (0x01, 0x04, 0x80)
        ]
        for damaged in cuts + changed:
            try:
                decoded(damaged, Counter())
            except BadRecord:
                refused += 1
    assert refused > 100


def test_numbers_of_any_length() -> None:
    assert [varint(number).hex() for number in (0, 127, 128, 300)] == ["00", "7f", "8001", "ac02"]


def test_every_field_has_a_number_of_its_own() -> None:
    def check(shape: Shape) -> int:
        assert list(shape.names) == sorted(shape.names) and len(shape.names) == len(shape.fields)
        inner: list[Any] = [each.holds for each in shape.fields.values()]
        assert not any(holds is Kind.NUMBER for holds in inner) or shape is RECORD
        return 1 + sum(check(each) for each in inner if isinstance(each, Shape))

    assert check(RECORD) > 14
