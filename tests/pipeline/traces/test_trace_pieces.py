"""The pieces of a trace, each on a small frame, and that the pieces of parts merge into those of
the whole."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual
from trace_kit import S, batch, frame, record, rows

from weft.pipeline.schemas import (
    CHANGE,
    COPIES,
    DELIVERY,
    RECEIPT_PIECE,
    STEP,
    TEXT,
    TRAFFIC,
    TRAFFIC_PART,
    WHOLE,
    columns,
)
from weft.pipeline.traces import pieces
from weft.pipeline.traces.pieces import SHAPES, Sums, added_up


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


def test_steps_count_who_was_subscribed_before_the_trace(spark: SparkSession) -> None:
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
    found = copies.transform(pieces.receipts(histories))
    assertDataFrameEqual(found, expected, ignoreNullable=True)
    twice = found.union(found).transform(pieces.merged_receipts)
    doubled = expected.select(
        *("peer", "topic", "other"),
        *((2 * F.col(name)).alias(name) for name in ("copies", "parasites", "routed")),
    )
    assertDataFrameEqual(twice, doubled, ignoreNullable=True)
