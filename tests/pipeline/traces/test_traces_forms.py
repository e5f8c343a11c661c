"""One trace in all forms: by hand, there and back, and what is said of a bad file."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.ids import PeerId, base58_encode, peer_text, varint
from weft.pipeline.traces.forms import Converted, Form, Reading, convert, line_of, record_in
from weft.pipeline.traces.libp2p import (
    RECORD,
    BadRecord,
    Field,
    Kind,
    Record,
    Shape,
    decoded,
    encoded,
)
from weft.trace import FIELDS, KINDS

# The same two records in all forms that JSON has.
GO_15 = (
    '{"type":4,"peerID":"AEE=","timestamp":1,"addPeer":{"peerID":"AEI=","proto":"/meshsub/1.2.0"}}',
    '{"type":7,"peerID":"AEE=","timestamp":2,"sendRPC":{"sendTo":"AEI=","meta":{"messages":'
    '[{"messageID":"AG0=","topic":"a"}]}}}',
)
GO_16 = (
    '{"type":4,"peerID":"AEE=","timestamp":1,"onNewOutboundStream":{"peerID":"AEI=",'
    '"proto":"/meshsub/1.2.0"}}',
    GO_15[1],
)
WEFT = (
    '{"type":"ADD_PEER","peerID":"128","timestamp":1,"addPeer":{"peerID":"129",'
    '"proto":"/meshsub/1.2.0"}}',
    '{"type":"SEND_RPC","peerID":"128","timestamp":2,"sendRPC":{"sendTo":"129","meta":{"messages":'
    '[{"messageID":"base64:AG0=","topic":"a"}]}}}',
)
JSON = {Form.JSON_15: GO_15, Form.JSON_16: GO_16, Form.WEFT: WEFT}


def read(text: str) -> Record:
    left_out = Counter[str]()
    record = record_in(text.encode(), left_out)
    assert not left_out
    return record


@pytest.mark.parametrize("source", JSON)
@pytest.mark.parametrize("target", JSON)
def test_every_form_of_json_becomes_every_other(source: Form, target: Form) -> None:
    for text, wanted in zip(JSON[source], JSON[target], strict=True):
        assert json.loads(line_of(read(text), target)) == json.loads(wanted)


def test_names_of_types_are_read_as_go_reads_them() -> None:
    named = GO_16[0].replace('"type":4', '"type":"ON_NEW_OUTBOUND_STREAM"')
    assert read(named) == read(GO_15[0])


def test_a_peer_of_weft_has_the_bytes_that_libp2p_gives_it() -> None:
    peer = PeerId(bytes(range(32)))
    line = {"type": "JOIN", "peerID": peer_text(peer), "timestamp": 5, "join": {"topic": "/t"}}
    record = read(json.dumps(line))
    assert record["peerID"] == bytes.fromhex("002408011220") + peer
    assert json.loads(line_of(record, Form.WEFT)) == line


def test_what_go_has_no_place_for_is_left_out_and_counted() -> None:
    event = {"messageID": "12D3-1-1@/t", "topic": "/t"}
    meta = {"kind": "Payload", "topic": "/t", "bytes": 271, "messages": [event]}
    line = {"type": "SEND_RPC", "peerID": "A", "timestamp": 5, "sendRPC": {"meta": meta}}
    left_out = Counter[str]()
    record = record_in(json.dumps(line).encode(), left_out)
    assert left_out == {"sendRPC.meta.kind": 1, "sendRPC.meta.topic": 1, "sendRPC.meta.bytes": 1}
    assert record["sendRPC"] == {
        "meta": {"messages": [{"messageID": b"12D3-1-1@/t", "topic": "/t"}]}
    }


def test_one_topic_of_an_old_list_is_the_topic_and_several_are_refused() -> None:
    old = '{"type":0,"publishMessage":{"messageID":"AG0=","topics":["a"]}}'
    assert read(old)["publishMessage"]["topic"] == "a"
    with pytest.raises(BadRecord, match=r"before 0\.4"):
        read(old.replace('["a"]', '["a","b"]'))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("5", "no JSON object"),
        ("{}", "no type"),
        ('{"type":13}', "number 13"),
        ('{"type":"HELLO"}', "name 'HELLO'"),
        ('{"type":[]}', "type is"),
        ('{"type":true}', "type is True"),
        ('{"type":9}', "JOIN without join"),
        ('{"type":9,"join":5}', "join is no JSON object"),
        ('{"type":9,"join":{"topic":5}}', "join.topic is 5, not a text"),
        ('{"type":9,"join":{},"timestamp":9223372036854775808}', "64 bits"),
        ('{"type":9,"join":{},"peerID":"A"}', "peerID: 'A' is no base64"),
        ('{"type":9,"join":{},"peerID":"QR=="}', "usually written"),
        ('{"type":"JOIN","join":{},"peerID":"0"}', "not a base58 letter"),
        ('{"type":"JOIN","join":{},"peerID":"' + "2" * 9_999 + '"}', "too long"),
        ('{"type":7,"sendRPC":{"meta":{"messages":{}}}}', "sendRPC.meta.messages is no list"),
    ],
)
def test_bad_lines_are_named(text: str, said: str) -> None:
    with pytest.raises(BadRecord, match=said):
        record_in(text.encode(), Counter())


# --- there and back -------------------------------------------------------------------------------

VALUES: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.PEER: st.binary(max_size=40),
    Kind.EVENT: st.binary(max_size=20) | st.text(max_size=20).map(str.encode) | st.just(b"base64:"),
    Kind.TEXT: st.text(max_size=10),
    Kind.FLAG: st.booleans(),
    Kind.NUMBER: st.integers(-(1 << 63), (1 << 63) - 1),
}


def of_field(each: Field) -> st.SearchStrategy[Any]:
    holds = each.holds
    one = of_shape(holds) if isinstance(holds, Shape) else VALUES[holds]
    return st.lists(one, min_size=1, max_size=3) if each.many else one


def of_shape(shape: Shape) -> st.SearchStrategy[Record]:
    """What a shape can hold, in the order of its fields, with any of them left out."""
    optional = {name: of_field(each) for name, each in shape.fields.items()}
    return st.fixed_dictionaries({}, optional=optional)


def of_kind(number: int) -> st.SearchStrategy[Record]:
    name = FIELDS[KINDS[number]]
    return st.fixed_dictionaries(
        {"type": st.just(number), name: of_field(RECORD.fields[name])},
        optional={each: of_field(RECORD.fields[each]) for each in ("peerID", "timestamp")},
    )


records = st.integers(0, len(KINDS) - 1).flatmap(of_kind)


@given(records)
def test_every_record_comes_back_from_every_form(record: Record) -> None:
    left_out = Counter[str]()
    assert decoded(encoded(record), left_out) == record
    for form in JSON:
        line = line_of(record, form)
        assert record_in(line, left_out) == record
        assert line_of(record_in(line, left_out), form) == line
    assert not left_out


# --- files ----------------------------------------------------------------------------------------


def converted(source: Path, target: Path, form: Form) -> Converted:
    return convert(source, target, form, lambda records, done: None)


@pytest.mark.parametrize("packed", ["", ".gz"])
def test_a_file_goes_through_all_forms_and_comes_back(packed: str, tmp_path: Path) -> None:
    first = tmp_path / "go.jsonl"
    text = "".join(f"{line}\n" for line in GO_15)
    first.write_text(text + "\n")  # an empty line is nothing
    at = first
    forms = (Form.PROTOBUF, Form.WEFT, Form.JSON_16, Form.PROTOBUF, Form.JSON_15)
    for place, form in enumerate(forms):
        suffix = "pb" if form is Form.PROTOBUF else "jsonl"
        target = tmp_path / f"{place}.{suffix}{packed}"
        done = converted(at, target, form)
        assert (done.records, done.bytes, done.left_out) == (2, target.stat().st_size, {})
        at = target
    last = gzip.decompress(at.read_bytes()) if packed else at.read_bytes()
    assert list(map(json.loads, last.splitlines())) == list(map(json.loads, GO_15))
    assert not list(tmp_path.glob("*.part"))


def test_progress_is_told_in_bytes_of_the_source(tmp_path: Path) -> None:
    source, told = tmp_path / "go.pb", list[tuple[int, int]]()
    data = b"".join(varint(len(encoded(r))) + encoded(r) for r in map(read, GO_15))
    source.write_bytes(data)
    convert(source, tmp_path / "x", Form.WEFT, lambda records, done: told.append((records, done)))
    assert [records for records, _ in told] == [1, 2]
    assert 0 <= told[0][1] <= told[1][1] <= len(data)


JOIN = encoded({"type": 9, "join": {"topic": "a"}})
FRAMED = varint(len(JOIN)) + JOIN


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("x.jsonl", b'{"type":9,"join":{}}\n\n{"type":9}\n', "line 3, byte 22: JOIN without join"),
        ("x.jsonl", b"\xff\xfe\n", "line 1, byte 0: no JSON"),
        (
            "x.pb",
            FRAMED + FRAMED[:-1],
            "record 2, byte 8: the file ends within a record: 6 of its 7",
        ),
        ("x.pb", FRAMED + b"\x80", "record 2, byte 8: the file ends within the length"),
        (
            "x.pb",
            FRAMED + b"\xff\xff\xff\xff\x7f",
            "record 2, byte 8: a record of 34359738367 bytes",
        ),
        ("x.pb", FRAMED + b"\x04\x08\x09\x08\x09", "record 2, byte 11: type stands there twice"),
        ("x.pb", FRAMED + b"\x00", "record 2, byte 9: no type"),
        ("x.pb", b"{}", "record 1, byte 0: the file ends within a record"),
        ("x.pb.gz", gzip.compress(FRAMED, mtime=0)[:-4], "x.pb.gz: "),
        ("x.jsonl.gz", b"not packed", "x.jsonl.gz: "),
    ],
)
def test_a_bad_file_is_named_with_record_and_byte_and_leaves_nothing(
    name: str, data: bytes, said: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BadRecord) as caught:
        converted(tmp_path / name, tmp_path / "out.jsonl", Form.WEFT)
    assert str(tmp_path / name) in str(caught.value) and said in str(caught.value)
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_a_line_without_end_is_not_read_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.pipeline.traces.forms.RECORD_BYTES_MAX", 64)
    (tmp_path / "x.jsonl").write_bytes(b"a" * 65)
    with pytest.raises(BadRecord, match="line 1, byte 0: a line of more than 64"):
        list(Reading(tmp_path / "x.jsonl", Counter()).records())


def test_ids_in_weft_are_texts_that_a_terminal_shows() -> None:
    event = {"messageID": b"\x1b[2J", "topic": "/t"}
    record: Record = {"type": 0, "peerID": b"\0A", "publishMessage": event}
    said = json.loads(line_of(record, Form.WEFT))
    assert said["peerID"] == base58_encode(b"\0A")
    assert said["publishMessage"]["messageID"] == "base64:G1sySg=="
