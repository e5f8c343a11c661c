"""All tables of a trace in one number each, and how those are said."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from weft.pipeline.schemas import FIGURE, selected
from weft.protocol import delivery
from weft.rules.fairness import jain
from weft.trace import GROUPS

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def overview(
    *,
    events: DataFrame,
    latencies: DataFrame,
    messages: DataFrame,
    peers: DataFrame,
    traffic: DataFrame,
    receipts: DataFrame,
    without_publish: DataFrame,
) -> DataFrame:
    """Every figure (FIGURE); null where the trace does not hold what it needs."""
    parts = [
        _of_events(events),
        _of_latencies(latencies, "latency_ns", "latency_ms", 1e-6),
        _of_latencies(latencies.where("hops is not null"), "hops", "hops", 1.0),
        _of_messages(messages),
        _of_traffic(traffic),
        receipts.select(
            _total("copies"), _total("parasites"), _total("routed").alias("parasites_routed")
        ),
        _of_peers(peers),
        peers.transform(_shared("sent", "received")),
        without_publish.toDF("without_publish"),
    ]
    wide = parts[0]
    for part in parts[1:]:
        wide = wide.crossJoin(F.broadcast(part))
    remote, given = F.col("remote_deliveries"), F.col("notifications")
    wide = wide.withColumns(
        {
            "delivery_ratio": _per("delivered", F.col("expected")),
            "duplicates_per_delivery": _per("duplicates", given),
            "copies_per_delivery": _per("copies", remote),
            "parasites_per_delivery": _per("parasites", given),
        }
        | {f"{name}_per_notification": _per(name, given) for name in _PER_NOTIFICATION}
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


def _of_latencies(latencies: DataFrame, value: str, name: str, unit: float) -> DataFrame:
    """Quantiles: the smallest value that a share of all does not exceed."""
    counted = latencies.groupBy(value).agg(F.sum("deliveries").alias("deliveries"))
    below = F.sum("deliveries").over(Window.orderBy(value))
    total = F.sum("deliveries").over(Window.partitionBy())
    ranked = counted.select(value, "deliveries", below.alias("below"), total.alias("total"))

    def quantile(share: float) -> Column:
        enough = F.col("below") >= F.ceil(F.col("total") * share)
        return F.min(F.when(enough, F.col(value))) * unit

    found = [quantile(share).alias(f"{name}_{label}") for label, share in QUANTILES.items()]
    remote = [_total("deliveries").alias("remote_deliveries")] if name != "hops" else []
    return ranked.select(*found, *remote)


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


def _shared(*names: str) -> Callable[[DataFrame], DataFrame]:
    """How evenly the sum of some columns is spread over rows: Jain's index and Gini's."""

    def transform(frame: DataFrame) -> DataFrame:
        total = sum((F.col(name) for name in names), F.lit(0)).cast("double")
        ordered = frame.select(total.alias("x")).withColumn(
            "place", F.row_number().over(Window.orderBy("x"))
        )
        number, whole = F.count(F.lit(1)), F.nullif(F.sum("x"), F.lit(0.0))
        gini = 2 * F.sum(F.col("place") * F.col("x")) / (number * whole) - (number + 1) / number
        return ordered.select(
            F.avg("x").alias("load_mean"),
            F.max("x").alias("load_max"),
            jain(whole, F.sum(F.col("x") * F.col("x")), number).alias("load_jain"),
            gini.alias("load_gini"),
        )

    return transform


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
            f"{number('parasites')} (and {number('parasites_routed')} routed to an access point "
            "that was none any more)",
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
        lines.append(("of unknown events", f"{number('without_publish')} deliveries"))
    width = max(len(name) for name, _ in lines)
    return [f"{name:<{width}}  {text}" for name, text in lines]
