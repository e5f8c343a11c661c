"""From pieces to figures, on frames small enough to count by hand."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual

from trace_kit import S, frame
from weft.pipeline.schemas import WHOLE, columns
from weft.pipeline.traces import figures, pieces
from weft.pipeline.traces.figures import (
    EVENT,
    HELD,
    LATENCY,
    MESSAGES,
    ORDER,
    PEER_LOAD,
    TOPIC_LOAD,
    overview,
    said,
)
from weft.pipeline.traces.pieces import (
    CHANGE,
    CONNECTION,
    DELIVERY,
    PUBLISH,
    RECEIPT_PIECE,
    TRAFFIC,
)

Tables = dict[str, DataFrame]


def bin_end(value: int) -> int:
    """The largest value with the same first eight bits."""
    dropped = max(0, value.bit_length() - 8)
    return value | ((1 << dropped) - 1)


def test_bins_of_latency_hold_eight_bits(spark: SparkSession) -> None:
    values = [0, 1, 127, 255, 256, 257, 511, 512, 1000, 123_456_789, (1 << 40) - 1, 1 << 40]
    asked = frame(spark, columns(value=WHOLE), *((value,) for value in values))
    found = asked.select("value", figures.upper_end(F.col("value")).alias("end")).collect()
    assert {row.value: row.end for row in found} == {value: bin_end(value) for value in values}


@pytest.fixture
def tables(spark: SparkSession) -> Tables:
    """Peers a, b, c, d; m1 by a, subscribed; m2 by d, from outside; m3 to nobody."""
    changes = frame(
        spark,
        CHANGE,
        ("a", "/t", 1 * S, True),
        ("b", "/t", 2 * S, True),
        ("c", "/t", 15 * S, True),
        ("b", "/u", 1 * S, True),
        ("b", "/u", 9 * S, False),
    )
    publishes = frame(
        spark,
        PUBLISH,
        ("m1", "/t", "a", 10 * S),
        ("m2", "/t", "d", 20 * S),
        ("m3", "/u", "d", 30 * S),
    )
    deliveries = frame(
        spark,
        DELIVERY,
        ("m1", "a", 10 * S, 0, 1),
        ("m1", "b", 11 * S, 1, 2),
        ("m1", "c", 16 * S, 2, 1),  # subscribed later
        ("m2", "b", 22 * S, 1, 1),
        ("m2", "c", 24 * S, 2, 1),  # a missed it
        ("m9", "c", 25 * S, 2, 1),  # its publisher is not known
    )
    receipts = frame(
        spark,
        RECEIPT_PIECE,
        ("b", "/t", "a", 2, 0, 0),
        ("c", "/t", "a", 1, 0, 0),
        ("c", "/t", "b", 3, 1, 0),
        ("d", "/u", "b", 1, 1, 2),
    )
    connections = frame(
        spark,
        CONNECTION,
        ("a", "b", 1 * S, True),
        ("a", "c", 2 * S, True),
        ("a", "b", 3 * S, False),
        ("b", "a", 1 * S, True),
    )
    traffic = frame(
        spark,
        TRAFFIC,
        ("a", "SEND_RPC", "Payload", 6, 600),
        ("a", "SEND_RPC", "Ping", 2, 20),
        ("b", "RECV_RPC", "Payload", 4, 400),
        ("b", "DROP_RPC", "IHave", 1, None),
        ("c", "SEND_RPC", "IHave", 4, 40),
        ("c", "DUPLICATE_MESSAGE", None, 1, None),
        ("c", "DELIVER_MESSAGE", None, 3, None),
        ("d", "PUBLISH_MESSAGE", None, 2, None),
    )
    histories = pieces.histories(changes)
    placed = deliveries.transform(figures.placed, publishes, histories)
    events = placed.transform(figures.events, publishes, changes)
    exact = placed.where("remote").select("latency_ns")
    number = events.agg(F.sum(F.col("delivered") + F.col("others")))
    return {
        "events": events,
        "latencies": placed.transform(figures.latencies),
        "exact": exact,
        "messages": traffic.transform(figures.messages, number),
        "peers": traffic.transform(figures.peers, histories, receipts, connections),
        "topics": events.transform(figures.topics, histories, receipts),
        "traffic": traffic,
        "receipts": receipts,
    }


def test_events_are_expected_by_peers_that_were_subscribed(
    spark: SparkSession, tables: Tables
) -> None:
    expected = frame(
        spark,
        EVENT,
        ("m1", "/t", "a", 10 * S, 2, 2, 1, 1, 6 * S, 2),
        ("m2", "/t", "d", 20 * S, 3, 2, 0, 0, 4 * S, 2),
        ("m3", "/u", "d", 30 * S, 0, 0, 0, 0, None, None),
    )
    assertDataFrameEqual(tables["events"], expected, ignoreNullable=True)


def test_latencies_are_those_of_others(spark: SparkSession, tables: Tables) -> None:
    expected = frame(
        spark,
        LATENCY,
        (1, bin_end(1 * S), 1),
        (2, bin_end(6 * S), 1),
        (1, bin_end(2 * S), 1),
        (2, bin_end(4 * S), 1),
    )
    assertDataFrameEqual(tables["latencies"], expected, ignoreNullable=True)


def test_quantiles_are_exact_within_their_bins(spark: SparkSession) -> None:
    values = [1_000_000 + 7919 * number % 1_000 for number in range(1_000)]
    exact = frame(spark, columns(latency_ns=WHOLE), *((value,) for value in values))
    bins = exact.withColumns({"hops": F.lit(1), "remote": F.lit(True)})
    found = figures.quantiles(bins.transform(figures.latencies), exact)
    ordered = sorted(values)
    assert found == {
        "p50": ordered[499],
        "p90": ordered[899],
        "p99": ordered[989],
        "max": ordered[-1],
    }


def test_connections_add_up_whatever_the_cut(spark: SparkSession) -> None:
    rows = [
        *(("a", "b", 1 * S, True), ("a", "c", 2 * S, True), ("a", "b", 4 * S, False)),
        *(("a", "d", 5 * S, True), ("a", "c", 9 * S, False), ("b", "a", 3 * S, True)),
    ]
    whole = frame(spark, CONNECTION, *rows).transform(figures.held_connections)
    first = frame(spark, CONNECTION, *rows[:3]).transform(figures.held_connections)
    both = frame(spark, CONNECTION, *rows[3:]).transform(figures.held_connections, first)
    expected = [("a", 1 * S, 9 * S, 1, 14 * S, 2), ("b", 3 * S, 3 * S, 1, 0, 1)]
    assertDataFrameEqual(whole, frame(spark, HELD, *expected), ignoreNullable=True)
    assertDataFrameEqual(both, frame(spark, HELD, *expected), ignoreNullable=True)


def test_messages_by_kind(spark: SparkSession, tables: Tables) -> None:
    expected = frame(
        spark,
        MESSAGES,
        ("payload", "Payload", 6, 600, 4, 0, 6 / 5, 120.0),
        ("maintenance", "Ping", 2, 20, 0, 0, 2 / 5, 4.0),
        ("control", "IHave", 4, 40, 0, 1, 4 / 5, 8.0),
    )
    assertDataFrameEqual(tables["messages"], expected, ignoreNullable=True)


def test_peers_with_load_and_links(spark: SparkSession, tables: Tables) -> None:
    expected = frame(
        spark,
        PEER_LOAD,
        ("a", 1, 8, 0, 6, 620, 0, 0, 0, 0, 0, 1.5, 2, 0, 0),
        ("b", 1, 0, 4, 0, None, 0, 0, 0, 0, 0, 1.0, 1, 1, 1),
        ("c", 1, 4, 0, 0, 40, 0, 3, 1, 1, 0, None, None, 2, 2),
        ("d", 0, 0, 0, 0, None, 2, 0, 0, 1, 2, None, None, 1, 1),
    )
    assertDataFrameEqual(tables["peers"], expected, ignoreNullable=True)


def test_topics(spark: SparkSession, tables: Tables) -> None:
    expected = frame(
        spark,
        TOPIC_LOAD,
        ("/t", 3, 2, 5, 4, 0.8, 6, 1, 0),
        ("/u", 0, 1, 0, 0, None, 1, 1, 2),
    )
    assertDataFrameEqual(tables["topics"], expected, ignoreNullable=True)


def test_overview(spark: SparkSession, tables: Tables) -> None:
    named = {name: table for name, table in tables.items() if name not in ("topics", "exact")}
    rows = overview(
        **named,
        quantiles=figures.quantiles(tables["latencies"], tables["exact"]),
        without_publish=frame(spark, columns(number=WHOLE), (1,)),
    ).collect()
    assert tuple(row.figure for row in rows) == ORDER
    found = {row.figure: row.value for row in rows}
    loads = [8, 4, 4, 0]
    gini = sum(abs(x - y) for x in loads for y in loads) / (2 * 4 * sum(loads))
    assert found == pytest.approx(
        {
            "peers": 4,
            "events": 3,
            "expected": 5,
            "delivered": 4,
            "delivery_ratio": 0.8,
            "notifications": 5,
            "others": 1,
            "twice": 1,
            "without_publish": 1,
            "remote_deliveries": 4,
            "messages": 12,
            "bytes": 660,
            "dropped": 1,
            "duplicates": 1,
            "copies": 7,
            "messages_per_notification": 12 / 5,
            "messages_payload_per_notification": 6 / 5,
            "messages_control_per_notification": 4 / 5,
            "messages_maintenance_per_notification": 2 / 5,
            "bytes_per_notification": 132,
            "bytes_payload_per_notification": 120,
            "bytes_control_per_notification": 8,
            "bytes_maintenance_per_notification": 4,
            "duplicates_per_delivery": 1 / 5,
            "copies_per_delivery": 7 / 4,
            "parasites": 2,
            "parasites_per_delivery": 2 / 5,
            "parasites_routed": 2,
            "latency_ms_p50": 2 * 1e3,
            "latency_ms_p90": 6 * 1e3,
            "latency_ms_p99": 6 * 1e3,
            "latency_ms_max": 6 * 1e3,
            "hops_p50": 1,
            "hops_p90": 2,
            "hops_p99": 2,
            "hops_max": 2,
            "load_mean": 4,
            "load_max": 8,
            "load_jain": 16**2 / (4 * (64 + 16 + 16)),
            "load_gini": gini,
            "connections_mean": 1.25,
            "connections_max": 2,
            "links_mean": 1,
            "links_max": 2,
            "topic_links_mean": 1,
        }
    )
    text = "\n".join(said(found))
    assert "0.8 (4 of 5 expected" in text and "Jain 0.6667" in text


def test_unknown_figures_are_said_to_be_unknown() -> None:
    text = "\n".join(said(dict.fromkeys(ORDER)))
    assert "delivery ratio" in text and "unknown" in text
