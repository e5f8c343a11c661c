"""The pieces that all figures are made of: what a part of a trace adds up to.

Every figure can be had from six small tables, and those of two parts of a trace merge into those of
the whole. A trace that is at rest is one part; one that grows is a part at a time (`follow`).

Who is subscribed when is known from JOIN and LEAVE. A peer's own records are in order, so whether
it was subscribed when a message came is known at once; whether others were when it published is
known when their records are there too.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from weft.pipeline.schemas import (
    CHANGE,
    CONNECTION,
    DELIVERY,
    PUBLISH,
    RECEIPT_PIECE,
    TRACE,
    TRAFFIC,
    selected,
)
from weft.protocol import messages as m
from weft.protocol import records as r

ROUTING = m.RouteEvent.__name__
"""TERA's step from a publisher outside the topic to an access point."""


def traffic(records: DataFrame) -> DataFrame:
    """Messages and bytes by peer, record and kind of message (TRAFFIC)."""
    first = F.col("part") == 0
    counted = records.groupBy("peer", "kind", "rpc").agg(
        F.count_if(first).alias("messages"), F.sum("bytes").alias("bytes")
    )
    return selected(counted, TRAFFIC)


def rare(records: DataFrame) -> DataFrame:
    """The few records (TRACE) that the next three pieces come from: so the trace is read once."""
    kinds = (r.JOIN, r.LEAVE, r.ADD_PEER, r.REMOVE_PEER, r.PUBLISH_MESSAGE)
    return selected(records.where(F.col("kind").isin(*kinds)), TRACE)


def changes(records: DataFrame) -> DataFrame:
    """Subscriptions that begin and end (CHANGE)."""
    found = records.where(F.col("kind").isin(r.JOIN, r.LEAVE))
    return selected(found.withColumn("begins", F.col("kind") == r.JOIN), CHANGE)


def connections(records: DataFrame) -> DataFrame:
    """Connections that begin and end (CONNECTION)."""
    found = records.where(F.col("kind").isin(r.ADD_PEER, r.REMOVE_PEER))
    return selected(found.withColumn("begins", F.col("kind") == r.ADD_PEER), CONNECTION)


def publishes(records: DataFrame) -> DataFrame:
    """Events as they were published (PUBLISH)."""
    found = records.where(F.col("kind") == r.PUBLISH_MESSAGE)
    named = found.withColumnsRenamed({"peer": "publisher", "timestamp_ns": "published_ns"})
    return selected(named, PUBLISH)


def deliveries(records: DataFrame) -> DataFrame:
    """Each event at each peer (DELIVERY). Several topics of one event are one delivery."""
    found = records.where((F.col("kind") == r.DELIVER_MESSAGE) & (F.col("part") == 0))
    named = found.withColumn("times", F.lit(1)).withColumnRenamed("timestamp_ns", "delivered_ns")
    return merged_deliveries(named)


def receipts(histories: DataFrame) -> Callable[[DataFrame], DataFrame]:
    """Copies of events by receiver, topic and sender (RECEIPT_PIECE), given who was subscribed."""

    def transform(records: DataFrame) -> DataFrame:
        found = records.where((F.col("kind") == r.RECV_RPC) & F.col("message").isNotNull())
        known = found.join(histories, ["peer", "topic"], "left")
        stray = ~subscribed("timestamp_ns")
        routing = F.col("rpc") == ROUTING
        counted = known.groupBy("peer", "topic", "other").agg(
            F.count(F.lit(1)).alias("copies"),
            F.count_if(stray & ~routing).alias("parasites"),
            F.count_if(stray & routing).alias("routed"),
        )
        return selected(counted, RECEIPT_PIECE)

    return transform


# --- who is subscribed ----------------------------------------------------------------------------


def histories(frame: DataFrame) -> DataFrame:
    """Changes of subscriptions (CHANGE) → one row per peer and topic, in the order of time."""
    one = F.struct("timestamp_ns", "begins")
    return frame.groupBy("peer", "topic").agg(F.sort_array(F.collect_list(one)).alias("changes"))


def subscribed(when: str) -> Column:
    """Whether a peer was subscribed at a time, by its `changes` (null: it never was).

    The latest change up to then decides; before the first one, its contrary holds.
    """
    at, all_changes = F.col(when), F.col("changes")
    first = all_changes[0]
    before = F.size(F.filter(all_changes, lambda change: change["timestamp_ns"] <= at))
    latest = F.get(all_changes, before - 1)["begins"]
    decided = (
        F.when(at < first["timestamp_ns"], ~first["begins"])
        .when(F.size(all_changes) == 1, first["begins"])
        .otherwise(latest)
    )
    return F.coalesce(decided, F.lit(False))


# --- merging --------------------------------------------------------------------------------------


def merged_traffic(frame: DataFrame) -> DataFrame:
    """Add up."""
    counted = frame.groupBy("peer", "kind", "rpc").agg(*_sums("messages", "bytes"))
    return selected(counted, TRAFFIC)


def merged_deliveries(frame: DataFrame) -> DataFrame:
    """The first delivery counts, the others are counted."""
    counted = frame.groupBy("message", "peer").agg(
        F.min(F.struct("delivered_ns", "hops")).alias("first"), *_sums("times")
    )
    return selected(counted.select("message", "peer", "first.*", "times"), DELIVERY)


def merged_receipts(frame: DataFrame) -> DataFrame:
    """Add up."""
    counted = frame.groupBy("peer", "topic", "other").agg(*_sums("copies", "parasites", "routed"))
    return selected(counted, RECEIPT_PIECE)


def _sums(*names: str) -> list[Column]:
    return [F.sum(name).alias(name) for name in names]
