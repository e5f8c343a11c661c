"""The pieces of a trace, each on a small frame, and that the pieces of parts merge into those of
the whole."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual
from trace_kit import S, frame, record, records

from weft.pipeline.schemas import (
    CHANGE,
    CONNECTION,
    DELIVERY,
    PUBLISH,
    RECEIPT_PIECE,
    TEXT,
    TRAFFIC,
    WHOLE,
    columns,
)
from weft.pipeline.traces import pieces


def test_traffic_counts_messages_and_not_the_events_in_them(spark: SparkSession) -> None:
    trace = records(
        spark,
        record("a", 1, "SEND_RPC", rpc="Repair", message="m1", bytes=100),
        record("a", 1, "SEND_RPC", rpc="Repair", message="m2", part=1),
        record("a", 2, "SEND_RPC", rpc="Repair", message="m3", bytes=50),
        record("a", 3, "SEND_RPC", rpc="Ping", bytes=9),
        record("b", 3, "RECV_RPC", rpc="Ping"),
        record("b", 4, "DUPLICATE_MESSAGE", message="m1"),
    )
    expected = frame(
        spark,
        TRAFFIC,
        ("a", "SEND_RPC", "Repair", 2, 150),
        ("a", "SEND_RPC", "Ping", 1, 9),
        ("b", "RECV_RPC", "Ping", 1, None),
        ("b", "DUPLICATE_MESSAGE", None, 1, None),
    )
    assertDataFrameEqual(trace.transform(pieces.traffic), expected, ignoreNullable=True)
    halves = trace.where("timestamp_ns < 2e9").transform(pieces.traffic)
    halves = halves.union(trace.where("timestamp_ns >= 2e9").transform(pieces.traffic))
    merged = halves.transform(pieces.merged_traffic)
    assertDataFrameEqual(merged, expected, ignoreNullable=True)


def test_rare_records_become_three_pieces(spark: SparkSession) -> None:
    trace = records(
        spark,
        record("a", 1, "JOIN", topic="/t"),
        record("a", 2, "ADD_PEER", other="b"),
        record("a", 3, "PUBLISH_MESSAGE", message="m1", topic="/t"),
        record("a", 4, "SEND_RPC", rpc="Ping"),
        record("a", 5, "REMOVE_PEER", other="b"),
        record("a", 6, "LEAVE", topic="/t"),
    )
    rare = trace.transform(pieces.rare)
    assert rare.count() == 5
    found = rare.transform(pieces.changes)
    expected = frame(spark, CHANGE, ("a", "/t", 1 * S, True), ("a", "/t", 6 * S, False))
    assertDataFrameEqual(found, expected, ignoreNullable=True)
    found = rare.transform(pieces.connections)
    expected = frame(spark, CONNECTION, ("a", "b", 2 * S, True), ("a", "b", 5 * S, False))
    assertDataFrameEqual(found, expected, ignoreNullable=True)
    found = rare.transform(pieces.publishes)
    expected = frame(spark, PUBLISH, ("m1", "/t", "a", 3 * S))
    assertDataFrameEqual(found, expected, ignoreNullable=True)


def test_the_first_delivery_counts_and_the_others_are_counted(spark: SparkSession) -> None:
    trace = records(
        spark,
        record("b", 7, "DELIVER_MESSAGE", message="m1", hops=3),
        record("b", 5, "DELIVER_MESSAGE", message="m1", hops=4),
        record("c", 6, "DELIVER_MESSAGE", message="m1", hops=1),
        record("c", 6, "DELIVER_MESSAGE", message="m1", topic="/other", part=1),
        record("c", 8, "DUPLICATE_MESSAGE", message="m1", hops=2),
    )
    expected = frame(spark, DELIVERY, ("m1", "b", 5 * S, 4, 2), ("m1", "c", 6 * S, 1, 1))
    assertDataFrameEqual(trace.transform(pieces.deliveries), expected, ignoreNullable=True)


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
    rows = known.select("peer", "at", pieces.subscribed("at").alias("yes")).collect()
    found = {
        peer: {row["at"] // S for row in rows if row.peer == peer and row.yes} for peer in "abcd"
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

    def got(at: int, rpc: str, other: str, topic: str = "/t") -> dict[str, object]:
        return record("a", at, "RECV_RPC", rpc=rpc, message="m", topic=topic, other=other)

    trace = records(
        spark,
        got(12, "Payload", "b"),
        got(13, "RouteEvent", "b"),
        got(21, "Payload", "b"),
        got(22, "RouteEvent", "c"),
        got(15, "Payload", "b", "/never"),
        record("a", 25, "RECV_RPC", rpc="IHave", topic="/t", other="b"),
        record("a", 25, "SEND_RPC", rpc="Payload", message="m", topic="/t", other="b"),
    )
    expected = frame(
        spark,
        RECEIPT_PIECE,
        ("a", "/t", "b", 3, 1, 0),
        ("a", "/t", "c", 1, 0, 1),
        ("a", "/never", "b", 1, 1, 0),
    )
    found = trace.transform(pieces.receipts(histories))
    assertDataFrameEqual(found, expected, ignoreNullable=True)
    twice = found.union(found).transform(pieces.merged_receipts)
    doubled = expected.select(
        *("peer", "topic", "other"),
        *((2 * F.col(name)).alias(name) for name in ("copies", "parasites", "routed")),
    )
    assertDataFrameEqual(twice, doubled, ignoreNullable=True)
