"""From pieces to tables: events, latencies, messages, peers, topics.

A *notification* is an event delivered to a peer, however often. Only deliveries of events whose
publishing is in the trace can be judged; the others are counted (`without_publish`).
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from weft.pipeline.schemas import (
    EVENT,
    LATENCY,
    MESSAGES,
    PEER_LOAD,
    TOPIC_LOAD,
    selected,
)
from weft.pipeline.traces.pieces import steps, subscribed
from weft.protocol import delivery
from weft.trace import CONTROL, CONTROL_KINDS, MAINTENANCE, PAYLOAD, PAYLOAD_KINDS

_BIN_BITS = 7  # bins of latency are 1/128 of their value wide


# --- events ---------------------------------------------------------------------------------------


def placed(publishes: DataFrame, histories: DataFrame) -> Callable[[DataFrame], DataFrame]:
    """Deliveries with what is known of their event, whether they were `wanted` (the peer was
    subscribed when the event was published), and whether they were `remote`: to another peer than
    the publisher; null if the publishing is not there."""

    def transform(deliveries: DataFrame) -> DataFrame:
        known = deliveries.join(publishes, "message", "left")
        known = known.join(histories, ["peer", "topic"], "left")
        late = F.greatest(F.lit(0), F.col("delivered_ns") - F.col("published_ns"))
        return known.select(
            *("message", "topic", "hops", "times"),
            (F.col("peer") != F.col("publisher")).alias("remote"),
            subscribed(F.col("published_ns")).alias("wanted"),
            late.alias("latency_ns"),
        )

    return transform


def events(publishes: DataFrame, changes: DataFrame) -> Callable[[DataFrame], DataFrame]:
    """Placed deliveries → one row per event (EVENT)."""

    def transform(deliveries: DataFrame) -> DataFrame:
        remote = F.col("remote")
        got = deliveries.groupBy("message", "topic").agg(
            F.count_if("wanted").alias("delivered"),
            F.count_if(~F.col("wanted")).alias("others"),
            F.sum(F.col("times") - 1).alias("twice"),
            F.max(F.when(remote, F.col("latency_ns"))).alias("latency_ns_max"),
            F.max(F.when(remote, F.col("hops"))).alias("hops_max"),
        )
        expected = publishes.transform(with_subscribers(changes))
        both = expected.join(got, ["message", "topic"], "left")
        return selected(both.fillna(0, ["delivered", "others", "twice"]), EVENT)

    return transform


def with_subscribers(changes: DataFrame) -> Callable[[DataFrame], DataFrame]:
    """Publishes with how many were `subscribers` then: changes and publishes of a topic in the
    order of time, and a sum that runs along. Nobody is looked at twice, however many events."""
    times = changes.transform(steps).select(
        *("topic", "timestamp_ns", "step"), F.lit(False).alias("published")
    )
    running = Window.partitionBy("topic").orderBy("timestamp_ns", "published")

    def transform(publishes: DataFrame) -> DataFrame:
        asked = publishes.select(
            "*",
            F.col("published_ns").alias("timestamp_ns"),
            F.lit(0).alias("step"),
            F.lit(True).alias("published"),
        )
        both = asked.unionByName(times, allowMissingColumns=True)
        counted = both.withColumn("subscribers", F.sum("step").over(running))
        return counted.where("published").select(*publishes.columns, "subscribers")

    return transform


def latencies(deliveries: DataFrame) -> DataFrame:
    """Placed deliveries to others than the publisher, counted by hops and time (LATENCY)."""
    remote = deliveries.where("remote")
    binned = remote.withColumn("latency_ns", upper_end(F.col("latency_ns")))
    return merged_latencies(binned.withColumn("deliveries", F.lit(1)))


def merged_latencies(frame: DataFrame) -> DataFrame:
    """Add up."""
    counted = frame.groupBy("hops", "latency_ns").agg(F.sum("deliveries").alias("deliveries"))
    return selected(counted, LATENCY)


def upper_end(value: Column) -> Column:
    """The largest value in the same bin: all but the first bits are set."""
    bits = F.floor(F.log2(F.greatest(value, F.lit(1)))).cast("int")
    dropped = F.greatest(F.lit(0), bits - _BIN_BITS)
    mask = F.expr("1L") * F.pow(F.lit(2.0), dropped).cast("long") - 1
    return value.bitwiseOR(mask)


# --- messages -------------------------------------------------------------------------------------


def messages(notifications: DataFrame) -> Callable[[DataFrame], DataFrame]:
    """Traffic → messages by kind (MESSAGES); `notifications` holds their number."""

    def transform(traffic: DataFrame) -> DataFrame:
        sent = F.col("kind") == delivery.SEND_RPC
        counted = traffic.where(F.col("rpc").isNotNull()).groupBy("rpc")
        by_kind = counted.agg(
            F.coalesce(F.sum(F.when(sent, F.col("messages"))), F.lit(0)).alias("sent"),
            F.sum(F.when(sent, F.col("bytes"))).alias("bytes_sent"),
            _of(delivery.RECV_RPC, "received"),
            _of(delivery.DROP_RPC, "dropped"),
        )
        of_all = by_kind.crossJoin(F.broadcast(notifications.toDF("notifications")))
        number = F.nullif(F.col("notifications"), F.lit(0))
        return selected(
            of_all.select(
                group_of_kind("rpc").alias("group"),
                *("rpc", "sent", "bytes_sent", "received", "dropped"),
                (F.col("sent") / number).alias("per_notification"),
                (F.col("bytes_sent") / number).alias("bytes_per_notification"),
            ),
            MESSAGES,
        )

    return transform


# --- peers and topics -----------------------------------------------------------------------------


def peers(
    histories: DataFrame, receipts: DataFrame, connections: DataFrame
) -> Callable[[DataFrame], DataFrame]:
    """Traffic → what each peer did (PEER_LOAD). Every peer that wrote a record has a row."""

    def transform(traffic: DataFrame) -> DataFrame:
        sent = F.col("kind") == delivery.SEND_RPC
        payload = sent & (group_of_kind("rpc") == PAYLOAD)
        load = traffic.groupBy("peer").agg(
            _of(delivery.SEND_RPC, "sent"),
            _of(delivery.RECV_RPC, "received"),
            F.coalesce(F.sum(F.when(payload, F.col("messages"))), F.lit(0)).alias("payload_sent"),
            F.sum(F.when(sent, F.col("bytes"))).alias("bytes_sent"),
            _of(delivery.PUBLISH_MESSAGE, "published"),
            _of(delivery.DELIVER_MESSAGE, "deliveries"),
            _of(delivery.DUPLICATE_MESSAGE, "duplicates"),
        )
        linked = receipts.groupBy("peer").agg(
            F.sum("parasites").alias("parasites"),
            F.sum("routed").alias("routed"),
            F.count_distinct("other").alias("links"),
            F.count(F.lit(1)).alias("topic_links"),
        )
        held = histories.where(F.element_at("changes", -1)["begins"])
        topics = held.groupBy("peer").agg(F.count(F.lit(1)).alias("topics"))
        every = load.join(topics, "peer", "left").join(linked, "peer", "left")
        every = every.join(connections.transform(connected), "peer", "left")
        counts = ["topics", "parasites", "routed", "links", "topic_links"]
        return selected(every.fillna(0, counts), PEER_LOAD)

    return transform


def connected(connections: DataFrame) -> DataFrame:
    """Connections that begin and end → how many each peer had: the mean over time, from the first
    to the last change, and the most."""
    ordered = Window.partitionBy("peer").orderBy("timestamp_ns", "begins")
    step = F.when(F.col("begins"), 1).otherwise(-1)
    running = connections.select(
        "peer",
        F.sum(step).over(ordered).alias("open"),
        (F.lead("timestamp_ns").over(ordered) - F.col("timestamp_ns")).alias("lasts"),
    )
    over_time = F.sum(F.col("open") * F.col("lasts")) / F.nullif(F.sum("lasts"), F.lit(0))
    return running.groupBy("peer").agg(
        F.coalesce(over_time, F.max("open")).alias("connections"),
        F.max("open").alias("connections_max"),
    )


def topics(histories: DataFrame, receipts: DataFrame) -> Callable[[DataFrame], DataFrame]:
    """Events → topics (TOPIC_LOAD)."""

    def transform(frame: DataFrame) -> DataFrame:
        published = frame.groupBy("topic").agg(
            F.count(F.lit(1)).alias("events"),
            F.sum("subscribers").alias("expected"),
            F.sum("delivered").alias("delivered"),
        )
        held = histories.where(F.element_at("changes", -1)["begins"])
        members = held.groupBy("topic").agg(F.count(F.lit(1)).alias("subscribers"))
        sums = [F.sum(name).alias(name) for name in ("copies", "parasites", "routed")]
        every = published.join(members, "topic", "full")
        every = every.join(receipts.groupBy("topic").agg(*sums), "topic", "full")
        expected = F.nullif(F.col("expected"), F.lit(0))
        rated = every.withColumn("ratio", F.col("delivered") / expected)
        counts = [each.name for each in TOPIC_LOAD.fields if each.name not in ("topic", "ratio")]
        return selected(rated.fillna(0, counts), TOPIC_LOAD)

    return transform


def group_of_kind(rpc: str) -> Column:
    """What a kind of message is for."""
    return (
        F.when(F.col(rpc).isin(*PAYLOAD_KINDS), PAYLOAD)
        .when(F.col(rpc).isin(*CONTROL_KINDS), CONTROL)
        .otherwise(MAINTENANCE)
    )


def _of(kind: str, name: str) -> Column:
    """How many records of a kind, as a column with a name."""
    mine = F.when(F.col("kind") == kind, F.col("messages"))
    return F.coalesce(F.sum(mine), F.lit(0)).alias(name)
