"""The pieces that all figures are made of: what a part of a trace adds up to.

Every figure can be had from six small tables, and those of two parts of a trace merge into those of
the whole. Tasks add up parts (`parts`); here they are merged. A trace that grows is added up some
parts at a time (`follow`).

Who is subscribed when is known from JOIN and LEAVE. A peer's own records are in order, so whether
it was subscribed when a message came is known at once; whether others were when it published is
known when their records are there too.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from weft.pipeline.schemas import DELIVERY, RECEIPT_PIECE, STEP, TRAFFIC, selected
from weft.protocol.publishing import RouteEvent

ROUTING = RouteEvent.__name__
"""TERA's step from a publisher outside the topic to an access point."""
_EVER_NS = -(1 << 63)


def receipts(histories: DataFrame) -> Callable[[DataFrame], DataFrame]:
    """Copies of events (COPIES) → how many, by receiver, topic and sender (RECEIPT_PIECE), given
    who was subscribed."""

    def transform(copies: DataFrame) -> DataFrame:
        known = copies.join(histories, ["peer", "topic"], "left")
        routing = F.coalesce(F.col("rpc") == ROUTING, F.lit(False))
        counted = known.select(
            *("peer", "topic", "other"),
            F.size("times_ns").alias("copies"),
            F.when(~routing, strays("times_ns")).otherwise(0).alias("parasites"),
            F.when(routing, strays("times_ns")).otherwise(0).alias("routed"),
        )
        return counted.transform(merged_receipts)

    return transform


# --- who is subscribed ----------------------------------------------------------------------------


def histories(frame: DataFrame) -> DataFrame:
    """Changes of subscriptions (CHANGE) → one row per peer and topic, in the order of time."""
    one = F.struct("timestamp_ns", "begins")
    return frame.groupBy("peer", "topic").agg(F.sort_array(F.collect_list(one)).alias("changes"))


def steps(frame: DataFrame) -> DataFrame:
    """Changes of subscriptions (CHANGE) → by how much the number of a topic's subscribers changes
    (STEP). What holds before a peer's first change (see `subscribed`) holds since ever."""
    begins = F.col("begins").cast("int")
    ordered = Window.partitionBy("peer", "topic").orderBy("timestamp_ns", "begins")
    known = frame.withColumn("before", F.lag(begins).over(ordered))
    later = known.withColumn("step", begins - F.coalesce("before", 1 - begins))
    first = known.where("before is null and not begins").withColumns(
        {"timestamp_ns": F.lit(_EVER_NS), "step": F.lit(1)}
    )
    return selected(later.unionByName(first), STEP)


def subscribed(at: Column) -> Column:
    """Whether a peer was subscribed at a time, by its `changes` (null: it never was).

    The latest change up to then decides; before the first one, its contrary holds.
    """
    all_changes = F.col("changes")
    first = all_changes[0]
    before = F.size(F.filter(all_changes, lambda change: change["timestamp_ns"] <= at))
    latest = F.get(all_changes, before - 1)["begins"]
    decided = (
        F.when(at < first["timestamp_ns"], ~first["begins"])
        .when(F.size(all_changes) == 1, first["begins"])
        .otherwise(latest)
    )
    return F.coalesce(decided, F.lit(False))


def strays(times: str) -> Column:
    """At how many of some times a peer was not subscribed, by its `changes`."""
    first, last = F.array_min(times), F.array_max(times)
    between = F.filter(
        F.col("changes"),
        lambda change: (change["timestamp_ns"] > first) & (change["timestamp_ns"] <= last),
    )
    # Mostly nothing changes meanwhile, and one answer is that for all.
    steady = F.coalesce(F.size(between), F.lit(0)) == 0
    single = F.when(subscribed(last), 0).otherwise(F.size(times))
    return F.when(steady, single).otherwise(F.size(F.filter(times, lambda at: ~subscribed(at))))


# --- merging --------------------------------------------------------------------------------------


def merged_traffic(frame: DataFrame) -> DataFrame:
    """Add up."""
    counted = frame.groupBy("peer", "kind", "rpc").agg(*_sums("messages", "bytes"))
    return selected(counted, TRAFFIC)


def merged_deliveries(frame: DataFrame) -> DataFrame:
    """The first delivery counts, the others are counted."""
    # Spark sorts here, and names of events begin alike: a number before them decides most
    # comparisons. measured: a third of the CPU time.
    counted = frame.groupBy(F.xxhash64("message", "peer"), "message", "peer").agg(
        F.min(F.struct("delivered_ns", "hops")).alias("first"), *_sums("times")
    )
    return selected(counted.select("message", "peer", "first.*", "times"), DELIVERY)


def merged_receipts(frame: DataFrame) -> DataFrame:
    """Add up."""
    counted = frame.groupBy("peer", "topic", "other").agg(*_sums("copies", "parasites", "routed"))
    return selected(counted, RECEIPT_PIECE)


def _sums(*names: str) -> list[Column]:
    return [F.sum(name).alias(name) for name in names]
