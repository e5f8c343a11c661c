"""Where a trace is looked for.

Lines of weft's traces and of go-libp2p-pubsub's, good and bad, in the common shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from weft.pipeline.location import Location
from weft.pipeline.schemas import TRACE
from weft.pipeline.traces import source
from weft.pipeline.traces.source import NoTrace, find


def made(folder: Path, *names: str) -> list[Path]:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    return [folder / name for name in names]


def test_a_folder_its_trace_folder_or_files(tmp_path: Path) -> None:
    wanted = made(tmp_path / "demo" / "trace", "a.jsonl", "b.jsonl.gz")
    made(tmp_path / "demo", "summary.json", "tables/peers/part-0.parquet", "trace/.hidden.jsonl")
    assert find([tmp_path / "demo"]).paths == tuple(map(Location.of, wanted))
    assert find([tmp_path / "demo" / "trace"]).paths == tuple(map(Location.of, wanted))
    assert find(wanted[:1]).paths == tuple(map(Location.of, wanted[:1]))
    assert not find(wanted).parquet


def test_a_lake(tmp_path: Path) -> None:
    wanted = made(tmp_path / "trace", "part-1.parquet", "more/part-2.parquet")
    made(tmp_path, "memberships/part-0.parquet")
    found = find([tmp_path])
    assert found.parquet and set(found.paths) == set(map(Location.of, wanted))
    assert found.size == 2


@pytest.mark.parametrize("name", ["missing", "notes.txt", "empty"])
def test_what_is_no_trace_is_said(name: str, tmp_path: Path) -> None:
    made(tmp_path, "notes.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoTrace, match=name):
        find([tmp_path / name])


def test_two_forms_at_once_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NoTrace, match="one or the other"):
        find(made(tmp_path, "a.jsonl", "b.parquet"))


def rows(*texts: str) -> list[dict[str, Any]]:
    """What lines say, without what they do not say."""
    return [
        {name: value for name, value in zip(TRACE.names, row, strict=True) if value is not None}
        for row in zip(*source.parse(texts).columns, strict=True)
    ]


def weft(kind: str, name: str, **fields: Any) -> str:
    return json.dumps({"type": kind, "peerID": "A", "timestamp": 5, name: fields})


def gossip(kind: int, name: str, **fields: Any) -> str:
    return json.dumps({"type": kind, "peerID": "QQ==", "timestamp": 5, name: fields})


def test_records_of_weft() -> None:
    event = {"messageID": "A-1-1@/t", "topic": "/t"}
    deliver = {**event, "receivedFrom": "B", "hops": 2}
    meta = {"kind": "Payload", "topic": "/t", "messages": [event], "bytes": 271}
    found = rows(
        weft("PUBLISH_MESSAGE", "publishMessage", **event),
        weft("DELIVER_MESSAGE", "deliverMessage", **deliver),
        weft("SEND_RPC", "sendRPC", sendTo="B", meta=meta),
        weft("DROP_RPC", "dropRPC", sendTo="B", meta={"kind": "Ping"}, reason="peer lost"),
        weft("GRAFT", "graft", peerID="B", topic="/t"),
        weft("JOIN", "join", topic="/t"),
    )
    base = {"peer": "A", "timestamp_ns": 5, "part": 0}
    event_row = {"message": "A-1-1@/t", "topic": "/t"}
    assert found == [
        {**base, "kind": "PUBLISH_MESSAGE", **event_row},
        {**base, "kind": "DELIVER_MESSAGE", **event_row, "other": "B", "hops": 2},
        {**base, "kind": "SEND_RPC", **event_row, "other": "B", "rpc": "Payload", "bytes": 271},
        {**base, "kind": "DROP_RPC", "other": "B", "rpc": "Ping", "reason": "peer lost"},
        {**base, "kind": "GRAFT", "other": "B", "topic": "/t"},
        {**base, "kind": "JOIN", "topic": "/t"},
    ]


def test_a_message_with_several_events_has_a_row_for_each_and_one_size() -> None:
    events = [{"messageID": f"m{n}", "topic": "/t"} for n in range(3)]
    meta = {"kind": "Repair", "topic": "/t", "messages": events, "bytes": 900}
    found = rows(weft("RECV_RPC", "recvRPC", receivedFrom="B", meta=meta))
    assert [(row["message"], row["part"], row.get("bytes")) for row in found] == [
        ("m0", 0, 900),
        ("m1", 1, None),
        ("m2", 2, None),
    ]


def test_records_of_gossipsub_have_numbers_for_types_and_maybe_several_topics() -> None:
    found = rows(
        gossip(0, "publishMessage", messageID="bQ==", topic="a"),
        gossip(3, "deliverMessage", messageID="bQ==", topics=["a", "b"]),
        gossip(5, "removePeer", peerID="Qg=="),
    )
    assert [(row["kind"], row.get("message"), row.get("topic"), row["part"]) for row in found] == [
        ("PUBLISH_MESSAGE", "bQ==", "a", 0),
        ("DELIVER_MESSAGE", "bQ==", "a", 0),
        ("DELIVER_MESSAGE", "bQ==", "b", 1),
        ("REMOVE_PEER", None, None, 0),
    ]


def test_what_a_newer_gossipsub_calls_connections_means_the_same() -> None:
    """As of 0.16; the types are numbers there, and names where other tools wrote them."""
    older = rows(gossip(4, "addPeer", peerID="Qg=="), gossip(5, "removePeer", peerID="Qg=="))
    up, down = "onNewOutboundStream", "onClosedOutboundStream"
    assert older == rows(gossip(4, up, peerID="Qg=="), gossip(5, down, peerID="Qg=="))
    named = gossip(4, up, peerID="Qg==").replace("4", '"ON_NEW_OUTBOUND_STREAM"', 1)
    assert rows(named) == older[:1]


AGES = {
    # What three generations of go-libp2p-pubsub write of the same: Go's JSON of the structs that
    # are generated from pb/trace.proto, so what is not set is left out.
    "first": (
        '{"type":0,"peerID":"AEE=","timestamp":1,"publishMessage":{"messageID":"AG0=","topics":["a"]}}',
        '{"type":3,"peerID":"AEI=","timestamp":2,"deliverMessage":{"messageID":"AG0="}}',
        '{"type":2,"peerID":"AEI=","timestamp":3,"duplicateMessage":{"messageID":"AG0=",'
        '"receivedFrom":"AEM="}}',
        '{"type":6,"peerID":"AEI=","timestamp":2,"recvRPC":{"receivedFrom":"AEE=","meta":{'
        '"messages":[{"messageID":"AG0=","topics":["a"]}]}}}',
        '{"type":7,"peerID":"AEE=","timestamp":1,"sendRPC":{"meta":{"control":{"graft":[{"topic":'
        '"a"}]}}}}',
    ),
    "topics": (
        '{"type":0,"peerID":"AEE=","timestamp":1,"publishMessage":{"messageID":"AG0=","topics":["a"]}}',
        '{"type":3,"peerID":"AEI=","timestamp":2,"deliverMessage":{"messageID":"AG0=","topics":["a"],'
        '"receivedFrom":"AEE="}}',
        '{"type":2,"peerID":"AEI=","timestamp":3,"duplicateMessage":{"messageID":"AG0=",'
        '"receivedFrom":"AEM=","topics":["a"]}}',
        '{"type":6,"peerID":"AEI=","timestamp":2,"recvRPC":{"receivedFrom":"AEE=","meta":{'
        '"messages":[{"messageID":"AG0=","topics":["a"]}]}}}',
        '{"type":7,"peerID":"AEE=","timestamp":1,"sendRPC":{"sendTo":"AEI=","meta":{"control":{'
        '"graft":[{"topic":"a"}]}}}}',
    ),
    "topic": (
        '{"type":0,"peerID":"AEE=","timestamp":1,"publishMessage":{"messageID":"AG0=","topic":"a"}}',
        '{"type":3,"peerID":"AEI=","timestamp":2,"deliverMessage":{"messageID":"AG0=","topic":"a",'
        '"receivedFrom":"AEE="}}',
        '{"type":2,"peerID":"AEI=","timestamp":3,"duplicateMessage":{"messageID":"AG0=",'
        '"receivedFrom":"AEM=","topic":"a"}}',
        '{"type":6,"peerID":"AEI=","timestamp":2,"recvRPC":{"receivedFrom":"AEE=","meta":{'
        '"messages":[{"messageID":"AG0=","topic":"a"}]}}}',
        '{"type":7,"peerID":"AEE=","timestamp":1,"sendRPC":{"sendTo":"AEI=","meta":{"control":{'
        '"graft":[{"topic":"a"}]}}}}',
    ),
}


@pytest.mark.parametrize("age", AGES)
def test_all_generations_of_gossipsub_say_the_same(age: str) -> None:
    publish, deliver, duplicate, receive, send = rows(*AGES[age])
    event = {"message": "AG0=", "part": 0}
    assert publish == {
        **event,
        "peer": "AEE=",
        "timestamp_ns": 1,
        "kind": "PUBLISH_MESSAGE",
        "topic": "a",
    }
    assert receive == {
        **event,
        "peer": "AEI=",
        "timestamp_ns": 2,
        "kind": "RECV_RPC",
        "topic": "a",
        "other": "AEE=",
        "rpc": "Payload",
    }
    assert (duplicate["message"], duplicate["other"]) == ("AG0=", "AEM=")
    assert (send["kind"], send["rpc"]) == ("SEND_RPC", "MeshGraft")
    assert (deliver["peer"], deliver["kind"], deliver["message"]) == (
        "AEI=",
        "DELIVER_MESSAGE",
        "AG0=",
    )
    # The first said neither the topic of a delivery (the publishing has it) nor an RPC's receiver.
    assert ("topic" in deliver) == ("other" in send) == (age != "first")


@pytest.mark.parametrize(
    ("meta", "kind"),
    [
        ({"messages": [{"messageID": "bQ==", "topic": "a"}], "control": {}}, "Payload"),
        ({"control": {"ihave": [{"topic": "a", "messageIDs": ["bQ=="]}], "graft": [{}]}}, "IHave"),
        ({"control": {"iwant": [{"messageIDs": ["bQ=="]}]}}, "IWant"),
        ({"control": {"idontwant": [{"messageIDs": ["bQ=="]}]}}, "IDontWant"),
        ({"control": {"graft": [{"topic": "a"}]}}, "MeshGraft"),
        ({"control": {"prune": [{"topic": "a", "peers": ["Qg=="]}]}}, "MeshPrune"),
        ({"subscription": [{"subscribe": True, "topic": "a"}]}, "Subscription"),
        ({}, "Empty"),
    ],
)
def test_what_an_rpc_of_gossipsub_holds_names_its_kind(meta: dict[str, Any], kind: str) -> None:
    [row] = rows(gossip(7, "sendRPC", sendTo="Qg==", meta=meta))
    assert row["rpc"] == kind and "bytes" not in row


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"type": "JOIN", "peerID": "A", "timest', "Input data was truncated"),
        ("[1, 2]", "Expected `object`, got `array`"),
        ('{"peerID": "A", "timestamp": 1}', "Object missing required field `type`"),
        ('{"type": 99, "peerID": "A", "timestamp": 1}', source.NO_TYPE),
        ('{"type": "JOIN", "timestamp": 1}', "Object missing required field `peerID`"),
        ('{"type": "JOIN", "peerID": "A"}', "Object missing required field `timestamp`"),
        ('{"type": "JOIN", "peerID": "A", "timestamp": 1}', source.NO_FIELDS),
        ('{"type": "JOIN", "peerID": "A", "timestamp": 1, "join": {}}', source.NO_TOPIC),
        (weft("DELIVER_MESSAGE", "deliverMessage", topic="/t"), source.NO_MESSAGE),
        (weft("DELIVER_MESSAGE", "deliverMessage", messageID="m", hops=1 << 40), "Expected `int`"),
    ],
)
def test_bad_lines_say_what_is_wrong(text: str, problem: str) -> None:
    parsed = source.parse([text])
    [(place, said, why)] = parsed.bad
    assert (place, said) == (0, text)
    assert why.startswith(problem)
    assert rows(text) == [] and parsed.places == []


def test_empty_lines_are_no_lines_and_places_are_kept() -> None:
    good = weft("JOIN", "join", topic="/t")
    parsed = source.parse(["", good, "  ", "bad", good])
    assert parsed.places == [1, 4]
    assert [(place, text) for place, text, _ in parsed.bad] == [(3, "bad")]
