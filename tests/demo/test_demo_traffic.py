"""Traces are counted as they were written, by the writer that peers use."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from nameless import unsigned_run
from weft import trace
from weft.demo import traffic
from weft.ids import PeerId, Topic, peer_text
from weft.protocol import delivery
from weft.protocol import messages as m
from weft.protocol.liveness import Ping
from weft.protocol.publication import RouteEvent
from weft.protocol.recent import IHave
from weft.protocol.wire import Payload

A, B, C = (PeerId(bytes([number]) * 32) for number in (1, 2, 3))
TOPIC = Topic("/t")
RUN = unsigned_run(A, b"x")
MESSAGE = delivery.message_id(TOPIC, RUN.event(0))


def write(folder: Path, peer: PeerId, *rows: tuple[int, str, dict[str, object]]) -> Path:
    path = folder / f"{peer_text(peer)}.jsonl"
    with path.open("wb") as file:
        writer = trace.Writer(file)
        for timestamp, kind, fields in rows:
            writer.write(peer, timestamp, kind, fields)
    return path


def rpc(key: str, peer: PeerId, message: m.AnyMessage) -> dict[str, object]:
    return {key: peer_text(peer), "meta": {**trace.rpc_meta(message), "bytes": 100}}


def deliver(source: PeerId, hops: int) -> dict[str, object]:
    return {"messageID": MESSAGE, "topic": TOPIC, "receivedFrom": peer_text(source), "hops": hops}


def test_counts_in_the_stretch_of_time(tmp_path: Path) -> None:
    """A publishes from outside to B, which pushes to C; C gets a second copy."""
    route, push = RouteEvent(TOPIC, RUN), Payload(TOPIC, RUN, 2)
    files = [
        write(
            tmp_path,
            A,
            (5, "SEND_RPC", rpc("sendTo", B, Ping(1, 0))),  # before
            (10, "PUBLISH_MESSAGE", {"messageID": MESSAGE, "topic": TOPIC}),
            (11, "SEND_RPC", rpc("sendTo", B, route)),
            (99, "SEND_RPC", rpc("sendTo", B, route)),  # after
        ),
        write(
            tmp_path,
            B,
            (12, "RECV_RPC", rpc("receivedFrom", A, route)),
            (12, "DELIVER_MESSAGE", deliver(B, 1)),
            (13, "SEND_RPC", rpc("sendTo", C, push)),
            (13, "SEND_RPC", rpc("sendTo", C, IHave(TOPIC, []))),
        ),
        write(
            tmp_path,
            C,
            (14, "RECV_RPC", rpc("receivedFrom", B, push)),
            (14, "DELIVER_MESSAGE", deliver(B, 2)),
            (15, "RECV_RPC", rpc("receivedFrom", B, push)),
        ),
    ]
    found = traffic.read(files, 10, 50)
    assert found.by_group() == {"payload": 2, "control": 1, "maintenance": 0}
    assert found.setup == {"maintenance": 1}
    assert found.bytes_sent == 300
    assert (found.copies, found.remote_deliveries) == (3, 2)
    assert found.peers == [peer_text(peer) for peer in (A, B, C)]

    way = traffic.way_of(found)
    assert way is not None
    assert way.publisher == 0 and way.reached == {1, 2} and way.topic == "/t"
    assert way.edges == ((0, 1), (1, 2))


def test_every_message_has_its_group() -> None:
    groups = {kind.__name__: traffic.group_of(kind.__name__) for kind in get_args(m.AnyMessage)}
    assert {name for name, group in groups.items() if group == "payload"} == {
        kind.__name__ for kind in m.PAYLOAD_KINDS
    }
    assert groups["IHave"] == "control" and groups["ShuffleRequest"] == "maintenance"
    assert set(groups.values()) == set(traffic.GROUPS)


def test_nothing_traced_is_no_traffic(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    found = traffic.read([tmp_path / "empty.jsonl"], 0, 1)
    assert found.copies == 0 and traffic.way_of(found) is None
