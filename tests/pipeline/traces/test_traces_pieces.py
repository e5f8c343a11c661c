"""Parts of a trace: where lines fall, which are bad, and that any cut has the same outcome.

The pieces of a trace, each on a small frame, and that the pieces of parts merge into those of
the whole."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual

from trace_kit import S, batch, frame, record, rows
from weft.pipeline import tables
from weft.pipeline.schemas import TEXT, WHOLE, columns
from weft.pipeline.traces import pieces
from weft.pipeline.traces.forms import Form, convert
from weft.pipeline.traces.measure import TABLES, measure
from weft.pipeline.traces.pieces import (
    BAD_LINE,
    CHANGE,
    COPIES,
    DELIVERY,
    PART_LINES,
    RECEIPT_PIECE,
    SHAPES,
    STEP,
    TRAFFIC,
    TRAFFIC_PART,
    Sums,
    added_up,
)
from weft.pipeline.traces.source import BadTrace, Source, find


def line(peer: str, at: int) -> str:
    return json.dumps({"type": "JOIN", "peerID": peer, "timestamp": at, "join": {"topic": "/t"}})


@pytest.fixture
def files(tmp_path: Path) -> Source:
    folder = tmp_path / "trace"
    folder.mkdir()
    texts = [line("a", 1), "oops", "", line("a", 2), "{}", "oops"]
    (folder / "a.jsonl").write_text("\n".join(texts))  # the last line does not end
    packed = f"{line('b', 3)}\n" * 5 + "no\n"
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(packed.encode()))
    (folder / "c.jsonl").write_text("")
    return find([folder])


GOSSIP = (
    '{"type":9,"peerID":"AEE=","timestamp":1,"join":{"topic":"a"}}',
    '{"type":4,"peerID":"AEE=","timestamp":2,"onNewOutboundStream":{"peerID":"AEI="}}',
    '{"type":6,"peerID":"AEE=","timestamp":3,"recvRPC":{"receivedFrom":"AEI=","meta":{"messages":'
    '[{"messageID":"AG0=","topic":"a"}]}}}',
)


@pytest.mark.parametrize("name", ["go.pb", "go.pb.gz"])
def test_protobuf_says_what_the_lines_say(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "BATCH_RECORDS", 2)
    lines, packed = tmp_path / "go.jsonl", tmp_path / name
    lines.write_text("\n".join(GOSSIP))
    convert(lines, packed, Form.PROTOBUF, lambda records, done: None)

    def read(path: Path) -> list[dict[str, object]]:
        [(part, _)] = pieces.parts_of(find([path]))
        found = list(pieces.blocks(part))
        assert not any(bad for _, bad, _ in found)
        return [row for batch, _, _ in found for row in batch.to_pylist()]

    assert read(packed) == read(lines) and len(read(packed)) == len(GOSSIP)


def test_damaged_protobuf_is_named_with_its_record(tmp_path: Path) -> None:
    (tmp_path / "go.pb").write_bytes(b"\x02\x08\x09")
    [(part, _)] = pieces.parts_of(find([tmp_path / "go.pb"]))
    with pytest.raises(pieces.Unreadable, match=r"go\.pb: record 1, byte 1: JOIN without join"):
        list(pieces.blocks(part))


@pytest.mark.parametrize("size", [7, 100, 1 << 20])
def test_any_cut_has_the_same_outcome(
    size: int, files: Source, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", size)
    cut = pieces.parts_of(files)
    assert (len(cut) > 2) == (size < 1000)  # the packed file is one, the empty one none
    out = tmp_path / "out"
    pieces.add_up(pieces.shared_out(spark, cut), out)
    found = tables.read(spark, out / pieces.BAD, BAD_LINE).transform(
        pieces.rejects, tables.read(spark, out / pieces.LINES, PART_LINES)
    )
    assert sorted((Path(row.file).name, row.line, row.text) for row in found.collect()) == [
        ("a.jsonl", 2, "oops"),
        ("a.jsonl", 5, "{}"),
        ("a.jsonl", 6, "oops"),
        ("b.jsonl.gz", 6, "no"),
    ]
    traffic = tables.read(spark, out / "traffic", TRAFFIC_PART).groupBy("peer").sum("messages")
    assert {row.peer: row["sum(messages)"] for row in traffic.collect()} == {"a": 2, "b": 5}


def test_a_lost_attempt_leaves_nothing_that_is_read(
    files: Source, spark: SparkSession, tmp_path: Path
) -> None:
    """Whenever it wrote: before the task was run again, or after its rows were accepted."""
    out = tmp_path / "out"
    twice = {"file": ["lost"], "start": [0], "lines": [7]}
    tables.stage_part(out / pieces.LINES, "part-00000", twice, PART_LINES)
    pieces.add_up(pieces.shared_out(spark, pieces.parts_of(files)), out)
    written = sorted(path.name for path in (out / pieces.LINES).iterdir())
    assert written and all(name.startswith("part-") for name in written)
    tables.stage_part(out / pieces.LINES, "part-00000", twice, PART_LINES)
    counted = tables.read(spark, out / pieces.LINES, PART_LINES).collect()
    assert sorted((Path(row.file).name, row.lines) for row in counted) == [
        ("a.jsonl", 6),
        ("b.jsonl.gz", 6),
    ]


def test_row_groups_are_parts_and_columns_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "some.parquet"
    known = batch(*(record("a", at, "SEND_RPC", rpc="Ping") for at in range(10)))
    table = pyarrow.Table.from_batches([known]).drop_columns(["hops", "reason"])
    table = table.set_column(0, "peer", pyarrow.array(["a"] * 10, pyarrow.large_string()))
    parquet.write_table(table, path, row_group_size=4)
    cut = [part for part, _ in pieces.parts_of(find([path]))]
    assert [(part.start, part.end) for part in cut] == [(0, 1), (1, 2), (2, 3)]
    read = [block for part in cut for block, bad, lines in pieces.blocks(part)]
    assert [len(block) for block in read] == [4, 4, 2]
    assert all(block.schema == known.schema for block in read)
    rows = [row for block in read for row in block.to_pylist()]
    assert [row["timestamp_ns"] for row in rows] == [at * S for at in range(10)]
    assert {row["hops"] for row in rows} == {None}


def test_parquet_that_is_none_is_said(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(BadTrace, match=r"cannot be read: .*bad\.parquet: "):
        measure(spark, find([tmp_path / "bad.parquet"]), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_parquet_with_other_types_is_said(spark: SparkSession, tmp_path: Path) -> None:
    table = pyarrow.table({"peer": ["a"], "timestamp_ns": ["late"], "kind": ["JOIN"]})
    parquet.write_table(table, tmp_path / "odd.parquet")
    with pytest.raises(BadTrace, match=r"odd\.parquet: .*late"):
        measure(spark, find([tmp_path / "odd.parquet"]), tmp_path / "out")


def test_an_empty_trace_has_empty_tables_in_the_folder_of_the_user(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    monkeypatch.chdir(tmp_path)  # Spark and its workers stay where they are
    found = measure(spark, find([Path("empty.jsonl")]), Path("out"))
    assert len(list(Path("out").iterdir())) == len(TABLES)
    assert found["events"] == found["peers"] == found["messages"] == 0
    assert found["delivery_ratio"] is None


def test_pieces_are_there_without_a_single_task(spark: SparkSession, tmp_path: Path) -> None:
    none = spark.createDataFrame(spark.sparkContext.emptyRDD(), pieces.PART)  # as on Spark Connect
    pieces.add_up(none, tmp_path / "fresh")
    found = {path.name for path in (tmp_path / "fresh").iterdir()}
    assert found == {*pieces.SHAPES, pieces.BAD, pieces.LINES}
    for name, shape in pieces.SHAPES.items():
        assert tables.read(spark, tmp_path / "fresh" / name, shape).count() == 0


def test_traffic_counts_messages_and_not_the_events_in_them(spark: SparkSession) -> None:
    trace = [
        record("a", 1, "SEND_RPC", rpc="Repair", message="m1", bytes=100),
        record("a", 1, "SEND_RPC", rpc="Repair", message="m2", part=1),
        record("a", 2, "SEND_RPC", rpc="Repair", message="m3", bytes=50),
        record("a", 3, "SEND_RPC", rpc="Ping", bytes=9),
        record("b", 3, "RECV_RPC", rpc="Ping"),
        record("b", 4, "DUPLICATE_MESSAGE", message="m1"),
    ]
    expected = [
        ("a", "SEND_RPC", "Repair", 2, 150, 2 * S),
        ("a", "SEND_RPC", "Ping", 1, 9, 3 * S),
        ("b", "RECV_RPC", "Ping", 1, None, 3 * S),
        ("b", "DUPLICATE_MESSAGE", None, 1, None, 4 * S),
    ]
    assert rows(added_up(batch(*trace))["traffic"]) == expected
    halves = Sums()
    halves.add(batch(*trace[:2]))
    halves.add(batch(*trace[2:]))
    assert rows(halves.tables()["traffic"]) == expected
    parts = [added_up(batch(*some))["traffic"] for some in (trace[:2], trace[2:])]
    found = frame(spark, TRAFFIC_PART, *rows(parts[0]), *rows(parts[1]))
    assertDataFrameEqual(
        found.transform(pieces.merged_traffic),
        frame(spark, TRAFFIC, *(row[:-1] for row in expected)),
        ignoreNullable=True,
    )


def test_rare_records_become_three_pieces() -> None:
    found = added_up(
        batch(
            record("a", 1, "JOIN", topic="/t"),
            record("a", 2, "ADD_PEER", other="b"),
            record("a", 3, "PUBLISH_MESSAGE", message="m1", topic="/t"),
            record("a", 4, "SEND_RPC", rpc="Ping"),
            record("a", 5, "REMOVE_PEER", other="b"),
            record("a", 6, "LEAVE", topic="/t"),
        )
    )
    assert rows(found["changes"]) == [("a", "/t", 1 * S, True), ("a", "/t", 6 * S, False)]
    assert rows(found["connections"]) == [("a", "b", 2 * S, True), ("a", "b", 5 * S, False)]
    assert rows(found["publishes"]) == [("m1", "/t", "a", 3 * S)]
    assert {name: table.column_names for name, table in found.items()} == {
        name: shape.names for name, shape in SHAPES.items()
    }


def test_several_topics_of_one_event_are_one_delivery() -> None:
    found = added_up(
        batch(
            record("b", 7, "DELIVER_MESSAGE", message="m1", hops=3),
            record("c", 6, "DELIVER_MESSAGE", message="m1", hops=1),
            record("c", 6, "DELIVER_MESSAGE", message="m1", topic="/other", part=1),
            record("c", 8, "DUPLICATE_MESSAGE", message="m1", hops=2),
        )
    )
    assert rows(found["deliveries"]) == [("m1", "b", 7 * S, 3, 1), ("m1", "c", 6 * S, 1, 1)]


def test_events_that_came_in_are_copies() -> None:
    found = added_up(
        batch(
            record("a", 3, "RECV_RPC", rpc="Payload", message="m", topic="/t", other="b"),
            record("a", 3, "RECV_RPC", rpc="Payload", message="m", topic="/t", other="c"),
            record("a", 9, "RECV_RPC", rpc="Payload", message="n", topic="/t", other="b"),
            record("a", 4, "RECV_RPC", rpc="IHave", topic="/t", other="b"),
            record("a", 5, "SEND_RPC", rpc="Payload", message="m", topic="/t", other="b"),
        )
    )
    assert rows(found["copies"]) == [
        ("a", "/t", "b", "Payload", [3 * S, 9 * S]),
        ("a", "/t", "c", "Payload", [3 * S]),
    ]


def test_a_trace_without_records_has_empty_pieces() -> None:
    assert all(len(table) == 0 for table in added_up(batch()).values())
    assert Sums().tables() == {}


def test_the_first_delivery_counts_and_the_others_are_counted(spark: SparkSession) -> None:
    found = frame(
        spark,
        DELIVERY,
        ("m1", "b", 7 * S, 3, 1),
        ("m1", "b", 5 * S, 4, 1),
        ("m1", "c", 6 * S, 1, 1),
        ("m2", "b", 5 * S, 4, 1),
        ("m2", "b", 5 * S, 2, 2),
        ("m2", "b", 5 * S, 3, 1),
    )
    expected = frame(
        spark,
        DELIVERY,
        ("m1", "b", 5 * S, 4, 2),
        ("m1", "c", 6 * S, 1, 1),
        ("m2", "b", 5 * S, 2, 4),  # of those at one time the shortest way
    )
    once = found.transform(pieces.merged_deliveries)
    assertDataFrameEqual(once, expected, ignoreNullable=True)
    assertDataFrameEqual(once.transform(pieces.merged_deliveries), expected, ignoreNullable=True)


def test_steps_count_peers_that_were_subscribed_before_the_trace(spark: SparkSession) -> None:
    changes = frame(
        spark,
        CHANGE,
        *(("a", "/t", at * S, begins) for at, begins in ((10, True), (20, False), (20, False))),
        ("b", "/t", 15 * S, False),
    )
    ever = -(1 << 63)
    expected = frame(
        spark,
        STEP,
        *(("/t", at, step) for at, step in ((10 * S, 1), (20 * S, -1), (20 * S, 0))),
        *(("/t", at, step) for at, step in ((ever, 1), (15 * S, -1))),
    )
    assertDataFrameEqual(changes.transform(pieces.steps), expected, ignoreNullable=True)


def test_who_is_subscribed_follows_joins_and_leaves(spark: SparkSession) -> None:
    changes = frame(
        spark,
        CHANGE,
        *(("a", "/t", at * S, begins) for at, begins in ((10, True), (20, False), (30, True))),
        ("b", "/t", 20 * S, False),  # the trace begins after it had subscribed
        ("c", "/t", 20 * S, True),
    )
    times = [9, 10, 19, 20, 29, 30, 99]
    asked = frame(
        spark,
        columns(peer=TEXT, at=WHOLE),
        *((peer, at * S) for peer in "abcd" for at in times),
    )
    known = asked.join(pieces.histories(changes), "peer", "left")
    found_rows = known.select("peer", "at", pieces.subscribed(F.col("at")).alias("yes")).collect()
    found = {
        peer: {row["at"] // S for row in found_rows if row.peer == peer and row.yes}
        for peer in "abcd"
    }
    assert found == {
        "a": {10, 19, 30, 99},
        "b": {9, 10, 19},
        "c": {20, 29, 30, 99},
        "d": set(),
    }


def test_receipts_tell_parasites_from_what_was_routed(spark: SparkSession) -> None:
    histories = pieces.histories(
        frame(spark, CHANGE, ("a", "/t", 10 * S, True), ("a", "/t", 20 * S, False))
    )

    copies = frame(
        spark,
        COPIES,
        ("a", "/t", "b", "Payload", [12 * S]),
        ("a", "/t", "b", "RouteEvent", [13 * S, 19 * S]),
        ("a", "/t", "b", "Payload", [21 * S, 11 * S, 9 * S, 20 * S]),
        ("a", "/t", "c", "RouteEvent", [22 * S, 25 * S]),
        ("a", "/never", "b", "Payload", [15 * S]),
        ("a", "/t", "d", None, [25 * S]),
    )
    expected = frame(
        spark,
        RECEIPT_PIECE,
        ("a", "/t", "b", 7, 3, 0),
        ("a", "/t", "c", 2, 0, 2),
        ("a", "/never", "b", 1, 1, 0),
        ("a", "/t", "d", 1, 1, 0),
    )
    found = copies.transform(pieces.receipts, histories)
    assertDataFrameEqual(found, expected, ignoreNullable=True)
    twice = found.union(found).transform(pieces.merged_receipts)
    doubled = expected.select(
        *("peer", "topic", "other"),
        *((2 * F.col(name)).alias(name) for name in ("copies", "parasites", "routed")),
    )
    assertDataFrameEqual(twice, doubled, ignoreNullable=True)
