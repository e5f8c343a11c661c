"""From the pieces of many runs to one row of figures for each: the pipeline's transforms, by run.

The tables of events, peers, receipts and traffic are the pipeline's own (`pipeline/traces`), made
of all runs at once. Only the last step, from such a table to one number for each run, stands here;
it follows `figures.overview`, and a test holds every figure against that of the run measured alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from weft.lab.traced import copies, piece_of, run_in, runs_of, tables_of
from weft.lab.versus.pieces import RUN
from weft.pipeline.schemas import NUMBER, SMALL, TEXT, WHOLE, columns, joined, selected
from weft.pipeline.traces import figures, pieces
from weft.pipeline.transforms import count, over_seeds
from weft.protocol import delivery
from weft.trace import CONTROL, GROUPS, MAINTENANCE, PAYLOAD

MEASURES: Mapping[str, str] = {
    "delivery": "share of the wanted deliveries that happened",
    "in_time": "share of the events that reached every subscriber within 10 s",
    "latency_p50_ms": "latency, median, ms",
    "latency_p99_ms": "latency, 99th percentile, ms",
    "hops_p50": "hops, median",
    "hops_p99": "hops, 99th percentile",
    "copies": "copies of an event per delivery to another peer",
    "control": "control messages per delivery",
    "upkeep": "maintenance messages per delivery",
    "bytes": "bytes sent per delivery",
    "bytes_payload": "bytes of messages with events per delivery",
    "bytes_control": "bytes of control messages per delivery",
    "bytes_upkeep": "bytes of maintenance messages per delivery",
    "load_jain": "Jain's index of messages sent and received per peer",
    "load_gini": "Gini's index of the same",
    "load_peak": "largest over mean load",
    "links": "peers that brought a peer copies of events, in the window",
    "state_kb": "memory of a peer's machine, kB",
    "parasites": "copies at peers that are not subscribed, per delivery",
    "repair_s": "last event after the fault that missed a subscriber, s",
}
"""Every measure by its name, in the order of the table."""
HIGHER_IS_BETTER = ("delivery", "in_time", "load_jain")
IN_TIME_NS = 10_000_000_000
GAP = 0.01
"""An event counts as missed if a larger share of its subscribers did not get it."""
QUANTILES = {"p50": 0.5, "p99": 0.99}
SCORES = joined(
    columns(run=TEXT, seed=WHOLE),
    RUN,
    columns(events=WHOLE, **dict.fromkeys(MEASURES, NUMBER)),
)
BY = ("source", "system", "fault", "level")
TABLE = columns(
    source=TEXT,
    system=TEXT,
    fault=TEXT,
    level=SMALL,
    measure=TEXT,
    value=NUMBER,
    low=NUMBER,
    high=NUMBER,
    seeds=WHOLE,
)


@lru_cache(maxsize=1)
def figures_of(rows: DataFrame) -> DataFrame:
    """Rows of runs (`pieces.ROWS`) → one row of measures for each run. Verdict, tables and picture
    all ask for it, so the few rows of the last answer are kept."""
    found = selected(_figures(rows), SCORES)
    return rows.sparkSession.createDataFrame(found.collect(), SCORES)


def _figures(rows: DataFrame) -> DataFrame:
    runs = runs_of(rows, *RUN.names)
    found = tables_of(rows)
    tables = found._replace(
        placed=found.placed.cache(), receipts=found.receipts.cache(), traffic=found.traffic.cache()
    )
    histories = pieces.histories(piece_of(rows, "changes"))
    connections = piece_of(rows, "connections")
    peers = tables.traffic.transform(figures.peers, histories, tables.receipts, connections)
    parts = [
        tables.events.transform(_of_events, runs),
        _quantiles(tables.placed, "latency_ns", "latency", 1e-6, "_ms"),
        _quantiles(tables.placed, "hops", "hops", 1.0, ""),
        copies(tables),
        _of_traffic(tables.traffic),
        _of_peers(peers),
    ]
    wide = reduce(lambda one, other: one.join(other, "run", "left"), parts, runs)
    notified = F.col("notified")
    shown = {
        "copies": F.col("copies_per_delivery"),
        "control": _per(f"sent_{CONTROL}", notified),
        "upkeep": _per(f"sent_{MAINTENANCE}", notified),
        "bytes": _per("all_bytes", notified),
        "bytes_payload": _per(f"bytes_{PAYLOAD}", notified),
        "bytes_control": _per(f"bytes_{CONTROL}", notified),
        "bytes_upkeep": _per(f"bytes_{MAINTENANCE}", notified),
        "parasites": _per("parasites", notified),
        "state_kb": F.col("state_bytes") / 1e3,
    }
    return wide.withColumns(shown)


def _of_events(events: DataFrame, runs: DataFrame) -> DataFrame:
    known = events.join(runs.select("run", "from_ns"), "run")
    wanted, given = F.col("subscribers"), F.col("delivered")
    late = F.coalesce(F.col("latency_ns_max"), F.lit(0)) > IN_TIME_NS
    whole = (given >= wanted) & ~late
    missed = given < (1 - GAP) * wanted
    since = (F.col("published_ns") - F.col("from_ns")) / 1e9
    return known.groupBy("run").agg(
        (F.sum("delivered") / F.nullif(F.sum("subscribers"), F.lit(0))).alias("delivery"),
        F.avg(whole.cast("double")).alias("in_time"),
        F.sum(given + F.col("others")).alias("notified"),
        count("events"),
        F.coalesce(F.max(F.when(missed, since)), F.lit(0.0)).alias("repair_s"),
    )


def _quantiles(placed: DataFrame, value: str, name: str, unit: float, suffix: str) -> DataFrame:
    """Quantiles as the pipeline defines them: the smallest value that a share of all values does
    not exceed."""
    remote = placed.where("remote").where(F.col(value).isNotNull())
    counted = remote.groupBy("run", value).agg(count("number"))
    of_run = Window.partitionBy("run")
    ranked = counted.select(
        *("run", value),
        F.sum("number").over(of_run.orderBy(value)).alias("below"),
        F.sum("number").over(of_run).alias("total"),
    )

    def quantile(share: float) -> Column:
        enough = F.col("below") >= F.ceil(F.col("total") * share)
        return F.min(F.when(enough, F.col(value))) * unit

    found = [quantile(share).alias(f"{name}_{at}{suffix}") for at, share in QUANTILES.items()]
    return ranked.groupBy("run").agg(*found)


def _of_traffic(traffic: DataFrame) -> DataFrame:
    sent = traffic.where(F.col("kind") == delivery.SEND_RPC)
    group = figures.group_of_kind("rpc")

    def of_group(each: str, name: str) -> Column:
        return F.coalesce(F.sum(F.when(group == each, F.col(name))), F.lit(0))

    return sent.groupBy("run").agg(
        *(of_group(each, "messages").alias(f"sent_{each}") for each in GROUPS),
        *(of_group(each, "bytes").alias(f"bytes_{each}") for each in GROUPS),
        F.sum("bytes").alias("all_bytes"),
    )


def _of_peers(peers: DataFrame) -> DataFrame:
    of_run = peers.withColumn("run", run_in("peer"))
    shares = of_run.transform(figures.shared, "sent", "received", by=("run",))
    peak = F.col("load_max") / F.nullif(F.col("load_mean"), F.lit(0.0))
    links = of_run.groupBy("run").agg(F.avg("links").alias("links"))
    return shares.withColumn("load_peak", peak).join(links, "run")


def _per(name: str, whole: Column) -> Column:
    return F.coalesce(F.col(name), F.lit(0)) / F.nullif(whole, F.lit(0))


def table_of(rows: DataFrame) -> DataFrame:
    """Rows of runs → every measure with its 95 % interval over seeds (TABLE)."""
    tall = figures_of(rows).unpivot([*BY, "seed"], list(MEASURES), "measure", "value")
    known = tall.where(F.col("value").isNotNull()).transform(over_seeds(*BY, "measure"))
    return selected(known.orderBy(*BY, "measure"), TABLE)
