"""From pieces to tables: events, latencies, messages, peers, topics; and one number for each.

A *notification* is an event delivered to a peer, however often. Only deliveries of events whose
publishing is in the trace can be judged; the others are counted (`without_publish`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from weft.pipeline.schemas import NUMBER, SMALL, TEXT, WHOLE, columns, joined, selected
from weft.pipeline.traces.pieces import steps, subscribed
from weft.protocol import delivery
from weft.rules.fairness import jain
from weft.trace import CONTROL, CONTROL_KINDS, GROUPS, MAINTENANCE, PAYLOAD, PAYLOAD_KINDS

# The figures.
#
# Events: how many were `subscribers` when it was published, how many of those it was `delivered`
# to, to how many `others` (later subscribers), how many deliveries were one too many (`twice`).
EVENT = columns(
    message=TEXT,
    topic=TEXT,
    publisher=TEXT,
    published_ns=WHOLE,
    subscribers=WHOLE,
    delivered=WHOLE,
    others=WHOLE,
    twice=WHOLE,
    latency_ns_max=WHOLE,
    hops_max=SMALL,
)
# Deliveries to others than the publisher, counted by hops and by time in bins of 1/128 of their
# value; `latency_ns` is the upper end of the bin.
LATENCY = columns(hops=SMALL, latency_ns=WHOLE, deliveries=WHOLE)
# Messages by kind, `group` payload, control or maintenance.
MESSAGES = columns(
    group=TEXT,
    rpc=TEXT,
    sent=WHOLE,
    bytes_sent=WHOLE,
    received=WHOLE,
    dropped=WHOLE,
    per_notification=NUMBER,
    bytes_per_notification=NUMBER,
)
# Peers: what each did, and how many links it had (`connections`: the mean over time).
PEER_LOAD = columns(
    peer=TEXT,
    topics=WHOLE,
    sent=WHOLE,
    received=WHOLE,
    payload_sent=WHOLE,
    bytes_sent=WHOLE,
    published=WHOLE,
    deliveries=WHOLE,
    duplicates=WHOLE,
    parasites=WHOLE,
    routed=WHOLE,
    connections=NUMBER,
    connections_max=WHOLE,
    links=WHOLE,
    topic_links=WHOLE,
)
TOPIC_LOAD = columns(
    topic=TEXT,
    subscribers=WHOLE,
    events=WHOLE,
    expected=WHOLE,
    delivered=WHOLE,
    ratio=NUMBER,
    copies=WHOLE,
    parasites=WHOLE,
    routed=WHOLE,
)
# All of it in one number each.
FIGURE = columns(figure=TEXT, value=NUMBER)
# The connections of a peer, added up from the first change to the latest one: how many are `open`
# after it, the most there were, and `area`, the sum of all their durations in nanoseconds.
HELD = columns(peer=TEXT, first_ns=WHOLE, latest_ns=WHOLE, open=WHOLE, area=WHOLE, most=WHOLE)
_SO_FAR = ("first_ns", "area", "most")
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
_BIN_BITS = 7  # bins of latency are 1/128 of their value wide


# --- events ---------------------------------------------------------------------------------------


def placed(deliveries: DataFrame, publishes: DataFrame, histories: DataFrame) -> DataFrame:
    """Deliveries with what is known of their event, whether they were `wanted` (the peer was
    subscribed when the event was published), and whether they were `remote`: to another peer than
    the publisher; null if the publishing is not there."""
    known = deliveries.join(publishes, "message", "left")
    known = known.join(histories, ["peer", "topic"], "left")
    late = F.greatest(F.lit(0), F.col("delivered_ns") - F.col("published_ns"))
    return known.select(
        *("message", "topic", "peer", "delivered_ns", "hops", "times"),
        (F.col("peer") != F.col("publisher")).alias("remote"),
        subscribed(F.col("published_ns")).alias("wanted"),
        late.alias("latency_ns"),
    )


def events(deliveries: DataFrame, publishes: DataFrame, changes: DataFrame) -> DataFrame:
    """Placed deliveries → one row per event (EVENT)."""
    remote = F.col("remote")
    got = deliveries.groupBy("message", "topic").agg(
        F.count_if("wanted").alias("delivered"),
        F.count_if(~F.col("wanted")).alias("others"),
        F.sum(F.col("times") - 1).alias("twice"),
        F.max(F.when(remote, F.col("latency_ns"))).alias("latency_ns_max"),
        F.max(F.when(remote, F.col("hops"))).alias("hops_max"),
    )
    expected = publishes.transform(with_subscribers, changes)
    both = expected.join(got, ["message", "topic"], "left")
    return selected(both.fillna(0, ["delivered", "others", "twice"]), EVENT)


def with_subscribers(publishes: DataFrame, changes: DataFrame) -> DataFrame:
    """Publishes with how many were `subscribers` then: changes and publishes of a topic in the
    order of time, and a sum that runs along. No peer is looked at twice, however many events."""
    times = changes.transform(steps).select(
        *("topic", "timestamp_ns", "step"), F.lit(False).alias("published")
    )
    running = Window.partitionBy("topic").orderBy("timestamp_ns", "published")
    asked = publishes.select(
        "*",
        F.col("published_ns").alias("timestamp_ns"),
        F.lit(0).alias("step"),
        F.lit(True).alias("published"),
    )
    both = asked.unionByName(times, allowMissingColumns=True)
    counted = both.withColumn("subscribers", F.sum("step").over(running))
    return counted.where("published").select(*publishes.columns, "subscribers")


def latencies(deliveries: DataFrame) -> DataFrame:
    """Placed deliveries to others than the publisher, counted by hops and time (LATENCY)."""
    remote = deliveries.where("remote")
    binned = remote.withColumn("latency_ns", upper_end(F.col("latency_ns")))
    return merged_latencies(binned.withColumn("deliveries", F.lit(1)))


def merged_latencies(frame: DataFrame) -> DataFrame:
    counted = frame.groupBy("hops", "latency_ns").agg(F.sum("deliveries").alias("deliveries"))
    return selected(counted, LATENCY)


def quantiles(bins: DataFrame, exact: DataFrame) -> dict[str, int]:
    """The quantiles of latency to the nanosecond: each is the smallest value that its share of all
    does not exceed. `bins` (LATENCY) says in which bin each is and at which place in it, so that of
    `exact`, the deliveries to others one by one (`latency_ns`), four bins alone are put in order.
    None without deliveries."""
    counted = bins.groupBy("latency_ns").agg(F.sum("deliveries").alias("deliveries"))
    below, places = 0, []
    ordered = [(row.latency_ns, row.deliveries) for row in counted.orderBy("latency_ns").collect()]
    total = sum(number for _, number in ordered)
    for end, number in ordered:
        ranks = {name: math.ceil(total * share) - below for name, share in QUANTILES.items()}
        places += [(name, end, rank) for name, rank in ranks.items() if 0 < rank <= number]
        below += number
    if not places:
        return {}
    asked = bins.sparkSession.createDataFrame(places, columns(name=TEXT, end=WHOLE, rank=WHOLE))
    ends = [end for _, end, _ in places]
    # The range comes first: files in the order of latency need not be read beyond it.
    near = exact.where(F.col("latency_ns").between(lower_end(min(ends)), max(ends)))
    inside = near.withColumn("end", upper_end(F.col("latency_ns"))).where(F.col("end").isin(ends))
    values = inside.groupBy("end", "latency_ns").agg(F.count(F.lit(1)).alias("number"))
    up_to = F.sum("number").over(Window.partitionBy("end").orderBy("latency_ns"))
    found = values.withColumn("up_to", up_to).join(F.broadcast(asked), "end")
    least = found.where("up_to >= rank").groupBy("name").agg(F.min("latency_ns").alias("value"))
    return {row.name: row.value for row in least.collect()}


def lower_end(end: int) -> int:
    """The smallest value in a bin, by its upper end."""
    dropped = max(0, end.bit_length() - 1 - _BIN_BITS)
    return end >> dropped << dropped


def upper_end(value: Column) -> Column:
    """The largest value in the same bin: all but the first bits are set."""
    bits = F.floor(F.log2(F.greatest(value, F.lit(1)))).cast("int")
    dropped = F.greatest(F.lit(0), bits - _BIN_BITS)
    mask = F.expr("1L") * F.pow(F.lit(2.0), dropped).cast("long") - 1
    return value.bitwiseOR(mask)


# --- messages -------------------------------------------------------------------------------------


def messages(traffic: DataFrame, notifications: DataFrame, by: Sequence[str] = ()) -> DataFrame:
    """Traffic → messages by kind (MESSAGES); the last column of `notifications` is their number.

    `by` names columns that tell several runs apart, and parts of them: they stand in front. Those
    that `notifications` has, too, say which number is for which."""
    sent = F.col("kind") == delivery.SEND_RPC
    counted = traffic.where(F.col("rpc").isNotNull()).groupBy(*by, "rpc")
    by_kind = counted.agg(
        F.coalesce(F.sum(F.when(sent, F.col("messages"))), F.lit(0)).alias("sent"),
        F.sum(F.when(sent, F.col("bytes"))).alias("bytes_sent"),
        _of(delivery.RECV_RPC, "received"),
        _of(delivery.DROP_RPC, "dropped"),
    )
    *shared, _ = notifications.columns
    given = F.broadcast(notifications.toDF(*shared, "notifications"))
    of_all = by_kind.join(given, shared) if shared else by_kind.crossJoin(given)
    number = F.nullif(F.col("notifications"), F.lit(0))
    found = of_all.withColumns(
        {
            "group": group_of_kind("rpc"),
            "per_notification": F.col("sent") / number,
            "bytes_per_notification": F.col("bytes_sent") / number,
        }
    )
    return selected(found, joined(StructType([traffic.schema[name] for name in by]), MESSAGES))


# --- peers and topics -----------------------------------------------------------------------------


def peers(
    traffic: DataFrame,
    histories: DataFrame,
    receipts: DataFrame,
    connections: DataFrame,
    before: DataFrame | None = None,
) -> DataFrame:
    """Traffic → what each peer did (PEER_LOAD). Every peer that wrote a record has a row."""
    load = traffic.transform(loads, "peer")
    linked = receipts.groupBy("peer").agg(
        F.sum("parasites").alias("parasites"),
        F.sum("routed").alias("routed"),
        F.count_distinct("other").alias("links"),
        F.count(F.lit(1)).alias("topic_links"),
    )
    held = histories.where(F.element_at("changes", -1)["begins"])
    topics = held.groupBy("peer").agg(F.count(F.lit(1)).alias("topics"))
    every = load.join(topics, "peer", "left").join(linked, "peer", "left")
    every = every.join(connections.transform(connected, before), "peer", "left")
    counts = ["topics", "parasites", "routed", "links", "topic_links"]
    return selected(every.fillna(0, counts), PEER_LOAD)


def loads(traffic: DataFrame, *by: str) -> DataFrame:
    """Traffic → what was sent, received, published and delivered, by peer or by other columns."""
    sent = F.col("kind") == delivery.SEND_RPC
    payload = sent & (group_of_kind("rpc") == PAYLOAD)
    return traffic.groupBy(*by).agg(
        _of(delivery.SEND_RPC, "sent"),
        _of(delivery.RECV_RPC, "received"),
        F.coalesce(F.sum(F.when(payload, F.col("messages"))), F.lit(0)).alias("payload_sent"),
        F.sum(F.when(sent, F.col("bytes"))).alias("bytes_sent"),
        _of(delivery.PUBLISH_MESSAGE, "published"),
        _of(delivery.DELIVER_MESSAGE, "deliveries"),
        _of(delivery.DUPLICATE_MESSAGE, "duplicates"),
    )


def copied(receipts: DataFrame, latencies: DataFrame, *by: str) -> DataFrame:
    """Copies of events that came to peers (`copies`, `parasites` of RECEIPT_PIECE), deliveries to
    others than the publisher (`deliveries` of LATENCY), and the one over the other: the one count
    of copies per delivery that there is. `by` tells several runs apart."""
    came = receipts.groupBy(*by).agg(
        _total("copies"), _total("parasites"), _total("routed").alias("parasites_routed")
    )
    given = latencies.groupBy(*by).agg(_total("deliveries").alias("remote_deliveries"))
    both = given.join(came, list(by), "left") if by else given.crossJoin(F.broadcast(came))
    counts = ["copies", "parasites", "parasites_routed"]
    each = F.col("copies") / F.nullif(F.col("remote_deliveries"), F.lit(0))
    return both.fillna(0, counts).withColumn("copies_per_delivery", each)


def connected(connections: DataFrame, before: DataFrame | None = None) -> DataFrame:
    """Connections that begin and end → how many each peer had: the mean over time, from the first
    to the last change, and the most. `before` (HELD) is what is known of earlier changes."""
    known = connections.transform(held_connections, before)
    span = F.nullif(F.col("latest_ns") - F.col("first_ns"), F.lit(0))
    return known.select(
        "peer",
        F.coalesce(F.col("area") / span, F.col("most")).alias("connections"),
        F.col("most").alias("connections_max"),
    )


def held_connections(connections: DataFrame, before: DataFrame | None = None) -> DataFrame:
    """Connections that begin and end (CONNECTION), added up (HELD) with what earlier changes of the
    same peers add up to (`before`)."""
    rows = connections.withColumn("step", F.when(F.col("begins"), 1).otherwise(-1))
    if before is not None:
        # The connections that were open before are one change, ahead of the new ones.
        opened = before.withColumnsRenamed({"latest_ns": "timestamp_ns", "open": "step"})
        rows = opened.unionByName(rows, allowMissingColumns=True)
    else:
        rows = rows.withColumns({name: F.lit(None).cast(WHOLE) for name in _SO_FAR})
    ordered = Window.partitionBy("peer").orderBy("timestamp_ns", F.asc_nulls_first("begins"))
    running = rows.withColumns(
        {
            "open": F.sum("step").over(ordered),
            "lasts": F.lead("timestamp_ns").over(ordered) - F.col("timestamp_ns"),
        }
    )
    area = F.sum(F.coalesce("area", F.lit(0))) + F.sum(
        F.coalesce(F.col("open") * F.col("lasts"), F.lit(0))
    )
    added = running.groupBy("peer").agg(
        F.least(F.min("first_ns"), F.min("timestamp_ns")).alias("first_ns"),
        F.max("timestamp_ns").alias("latest_ns"),
        F.sum("step").alias("open"),
        area.alias("area"),
        F.greatest(F.max("most"), F.max("open")).alias("most"),
    )
    return selected(added, HELD)


def topics(frame: DataFrame, histories: DataFrame, receipts: DataFrame) -> DataFrame:
    """Events → topics (TOPIC_LOAD)."""
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


# --- all of it in one number each -----------------------------------------------------------------


def overview(
    *,
    events: DataFrame,
    latencies: DataFrame,
    quantiles: Mapping[str, int],
    messages: DataFrame,
    peers: DataFrame,
    traffic: DataFrame,
    receipts: DataFrame,
    without_publish: DataFrame,
) -> DataFrame:
    """Every figure (FIGURE); null where the trace does not hold what it needs. `quantiles` are
    those of latency, by name."""
    parts = [
        _of_events(events),
        copied(receipts, latencies),
        _of_hops(latencies.where("hops is not null")),
        _of_messages(messages),
        _of_traffic(traffic),
        _of_peers(peers),
        peers.transform(shared, "sent", "received"),
        without_publish.toDF("without_publish"),
    ]
    wide = parts[0]
    for part in parts[1:]:
        wide = wide.crossJoin(F.broadcast(part))
    given = F.col("notifications")
    wide = wide.withColumns(
        {
            "delivery_ratio": _per("delivered", F.col("expected")),
            "duplicates_per_delivery": _per("duplicates", given),
            "parasites_per_delivery": _per("parasites", given),
        }
        | {f"{name}_per_notification": _per(name, given) for name in _PER_NOTIFICATION}
        | {f"latency_ms_{name}": _milliseconds(quantiles.get(name)) for name in QUANTILES}
    )
    numbers = [F.col(name).cast("double").alias(name) for name in ORDER]
    return selected(wide.select(*numbers).unpivot([], list(ORDER), "figure", "value"), FIGURE)


_SENT = ("messages", *(f"messages_{group}" for group in GROUPS))
_BYTES = ("bytes", *(f"bytes_{group}" for group in GROUPS))
_PER_NOTIFICATION = (*_SENT, *_BYTES)
_NAMES: Sequence[Sequence[str]] = (
    ("peers", "events", "expected", "delivered", "delivery_ratio", "notifications", "others"),
    ("twice", "without_publish", "remote_deliveries"),
    ("messages", "bytes", "dropped", "duplicates", "copies"),
    [f"{name}_per_notification" for name in _PER_NOTIFICATION],
    ("duplicates_per_delivery", "copies_per_delivery"),
    ("parasites", "parasites_per_delivery", "parasites_routed"),
    [f"latency_ms_{name}" for name in QUANTILES],
    [f"hops_{name}" for name in QUANTILES],
    ("load_mean", "load_max", "load_jain", "load_gini"),
    ("connections_mean", "connections_max", "links_mean", "links_max", "topic_links_mean"),
)
ORDER = tuple(name for names in _NAMES for name in names)
"""The figures, in the order in which they are listed."""


def _of_events(events: DataFrame) -> DataFrame:
    return events.select(
        F.count(F.lit(1)).alias("events"),
        _total("subscribers").alias("expected"),
        _total("delivered"),
        _total("others"),
        _total("twice"),
        (_total("delivered") + _total("others")).alias("notifications"),
    )


def _milliseconds(value_ns: int | None) -> Column:
    return F.lit(None if value_ns is None else value_ns / 1e6).cast("double")


def _of_hops(latencies: DataFrame) -> DataFrame:
    """Quantiles of hops: the smallest value that a share of all does not exceed."""
    counted = latencies.groupBy("hops").agg(F.sum("deliveries").alias("deliveries"))
    below = F.sum("deliveries").over(Window.orderBy("hops"))
    total = F.sum("deliveries").over(Window.partitionBy())
    ranked = counted.select("hops", below.alias("below"), total.alias("total"))

    def quantile(share: float) -> Column:
        enough = F.col("below") >= F.ceil(F.col("total") * share)
        return F.min(F.when(enough, F.col("hops")))

    return ranked.select(
        *(quantile(share).alias(f"hops_{name}") for name, share in QUANTILES.items())
    )


def _of_messages(messages: DataFrame) -> DataFrame:
    def of(group: str, name: str) -> Column:
        return F.sum(F.when(F.col("group") == group, F.col(name)))

    return messages.select(
        _total("sent").alias("messages"),
        F.sum("bytes_sent").alias("bytes"),
        _total("dropped"),
        *(F.coalesce(of(group, "sent"), F.lit(0)).alias(f"messages_{group}") for group in GROUPS),
        *(of(group, "bytes_sent").alias(f"bytes_{group}") for group in GROUPS),
    )


def _of_traffic(traffic: DataFrame) -> DataFrame:
    duplicate = F.col("kind") == delivery.DUPLICATE_MESSAGE
    number = F.coalesce(F.sum(F.when(duplicate, F.col("messages"))), F.lit(0))
    return traffic.select(number.alias("duplicates"))


def _of_peers(peers: DataFrame) -> DataFrame:
    return peers.select(
        F.count(F.lit(1)).alias("peers"),
        F.avg("connections").alias("connections_mean"),
        F.max("connections_max").alias("connections_max"),
        F.avg("links").alias("links_mean"),
        F.max("links").alias("links_max"),
        F.avg("topic_links").alias("topic_links_mean"),
    )


def shared(frame: DataFrame, *names: str, by: Sequence[str] = ()) -> DataFrame:
    """How evenly the sum of some columns is spread over rows: Jain's index and Gini's. `by` tells
    several runs apart."""
    total = sum((F.col(name) for name in names), F.lit(0)).cast("double")
    ordered = frame.select(*by, total.alias("x")).withColumn(
        "place", F.row_number().over(Window.partitionBy(*by).orderBy("x"))
    )
    number, whole = F.count(F.lit(1)), F.nullif(F.sum("x"), F.lit(0.0))
    gini = 2 * F.sum(F.col("place") * F.col("x")) / (number * whole) - (number + 1) / number
    return ordered.groupBy(*by).agg(
        F.avg("x").alias("load_mean"),
        F.max("x").alias("load_max"),
        jain(whole, F.sum(F.col("x") * F.col("x")), number).alias("load_jain"),
        gini.alias("load_gini"),
    )


def _total(name: str) -> Column:
    return F.coalesce(F.sum(name), F.lit(0)).alias(name)


def _per(name: str, whole: Column) -> Column:
    return F.col(name) / F.nullif(whole, F.lit(0))


# --- in words -------------------------------------------------------------------------------------


def said(figures: Mapping[str, float | None]) -> list[str]:
    """The figures in a few lines."""

    def number(name: str, unit: str = "") -> str:
        value = figures[name]
        if value is None:
            return "unknown"
        return (f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.4g}") + unit

    def by_group(name: str) -> str:
        parts = [f"{group} {number(f'{name}_{group}_per_notification')}" for group in GROUPS]
        return f"{number(f'{name}_per_notification')} ({', '.join(parts)})"

    def quantiles(name: str, unit: str) -> str:
        return ", ".join(f"{label} {number(f'{name}_{label}', unit)}" for label in QUANTILES)

    ratio = figures["delivery_ratio"]
    lines = [
        ("peers, events", f"{number('peers')}, {number('events')}"),
        (
            "delivery ratio",
            f"{'unknown' if ratio is None else f'{ratio:.6g}'} "
            f"({number('delivered')} of {number('expected')} expected, {number('twice')} twice, "
            f"{number('others')} to later subscribers)",
        ),
        ("messages per notification", by_group("messages")),
        ("bytes per notification", by_group("bytes")),
        (
            "per delivery",
            f"{number('duplicates_per_delivery')} duplicates, "
            f"{number('copies_per_delivery')} copies",
        ),
        (
            "parasite messages",
            f"{number('parasites')} (and {number('parasites_routed')} routed to peers that are no "
            "access points any more)",
        ),
        ("latency", quantiles("latency_ms", " ms")),
        ("hops", quantiles("hops", "")),
        (
            "load per peer",
            f"{number('load_mean')} messages, at most {number('load_max')}; "
            f"Jain {number('load_jain')}, Gini {number('load_gini')}",
        ),
        (
            "links per peer",
            f"{number('links_mean')} that brought events (by topic {number('topic_links_mean')}), "
            f"{number('connections_mean')} connections, at most {number('connections_max')}",
        ),
    ]
    if figures["without_publish"]:
        known = "deliveries of events whose publishing is not in the trace"
        lines.append(("not judged", f"{number('without_publish')} {known}"))
    width = max(len(name) for name, _ in lines)
    return [f"{name:<{width}}  {text}" for name, text in lines]
