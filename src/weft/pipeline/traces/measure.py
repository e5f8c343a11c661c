"""From a trace to its tables: read it, add it up, make the tables.

The trace is read once, by tasks that write what their parts of it add up to (`pieces`). The merged
pieces are written too: they are small, and Spark then knows how small, which is how it chooses its
joins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from weft.pipeline import tables
from weft.pipeline.schemas import REJECT
from weft.pipeline.session import for_small_tables
from weft.pipeline.traces import figures, pieces
from weft.pipeline.traces.figures import (
    EVENT,
    FIGURE,
    LATENCY,
    MESSAGES,
    PEER_LOAD,
    TOPIC_LOAD,
    overview,
)
from weft.pipeline.traces.pieces import (
    BAD_LINE,
    CHANGE,
    CONNECTION,
    COPIES,
    DELIVERY,
    PART_LINES,
    PUBLISH,
    RECEIPT_PIECE,
    TRAFFIC,
    TRAFFIC_PART,
)
from weft.pipeline.traces.source import BadTrace, Source

TABLES: Mapping[str, StructType] = {
    "summary": FIGURE,
    "events": EVENT,
    "latencies": LATENCY,
    "messages": MESSAGES,
    "peers": PEER_LOAD,
    "topics": TOPIC_LOAD,
    "rejects": REJECT,
}
PIECES: Mapping[str, StructType] = {
    "traffic": TRAFFIC,
    "changes": CHANGE,
    "connections": CONNECTION,
    "publishes": PUBLISH,
    "deliveries": DELIVERY,
    "receipts": RECEIPT_PIECE,
}
WEIGHTS = (10.0, *(1.0 for _ in range(2 + len(TABLES))))
"""The shares of the steps in the time of a long trace, about; the first step reads it."""
STEPS = len(WEIGHTS)
FRESH = "fresh"
"""Where tasks put what they add up, within the folder of the pieces."""


@dataclass(frozen=True)
class Settled:
    """What is known of a trace beside its pieces (`follower`)."""

    events: DataFrame  # EVENT
    latencies: DataFrame  # LATENCY
    exact: DataFrame  # the same one by one: `latency_ns`
    missing: int  # deliveries of events whose publishing is not there
    undecided: DataFrame  # RECEIPT_PIECE, beside those that are a piece
    connections: DataFrame  # HELD: what connections before the piece add up to


def _nothing() -> None:
    """The default of `done`."""


def measure(
    spark: SparkSession, source: Source, out: Path, done: Callable[[], None] = _nothing
) -> dict[str, float | None]:
    """Measure a trace, write its tables into a folder; returns the figures. `done` is called after
    each of the STEPS."""
    out = out.absolute()  # workers may be in another folder
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".trace-", dir=out) as aside:
        folder = Path(aside)
        try:
            found = pieces.shared_out(spark, pieces.parts_of(source))
            pieces.add_up(found, folder / FRESH)
            done()
            gather(spark, folder, done)
        except (PySparkException, Py4JJavaError, pieces.Unreadable) as error:
            raise BadTrace(_explained(error)) from error
        lines = tables.read(spark, folder / FRESH / pieces.LINES, PART_LINES)
        bad = tables.read(spark, folder / FRESH / pieces.BAD, BAD_LINE)
        found_bad = bad.transform(pieces.rejects, lines)
        numbers = write_tables(spark, folder, found_bad, out, done)
        kept = tables.read(spark, out / "rejects", REJECT).orderBy("file", "line")
        if not numbers["peers"] and (first := kept.first()):
            where = f"{first.file} line {first.line}"
            raise BadTrace(f"not a trace: none of its lines is a record; {where}: {first.reason}")
        return numbers


def _explained(error: Exception) -> str:
    """The line that names the file and what is wrong with it."""
    found = re.findall(rf"{pieces.Unreadable.__name__}: (.+)", f"{type(error).__name__}: {error}")
    return f"the trace cannot be read: {found[-1] if found else str(error).splitlines()[0]}"


def gather(spark: SparkSession, folder: Path, done: Callable[[], None] = _nothing) -> None:
    """Make the pieces of a trace from those of its parts."""
    fresh = folder / FRESH
    for name in ("changes", "connections", "publishes", "deliveries"):
        (fresh / name).rename(folder / name)
    histories = pieces.histories(tables.read(spark, folder / "changes", CHANGE))
    for name, frame in drawn(spark, fresh, histories).items():
        tables.write(frame, folder / name)
        done()


def drawn(spark: SparkSession, fresh: Path, histories: DataFrame) -> dict[str, DataFrame]:
    """The pieces that are not yet what tasks found."""
    traffic = tables.read(spark, fresh / "traffic", TRAFFIC_PART)
    copies = tables.read(spark, fresh / "copies", COPIES)
    return {
        "traffic": traffic.transform(pieces.merged_traffic),
        "receipts": copies.transform(pieces.receipts, histories),
    }


def write_tables(
    spark: SparkSession,
    folder: Path,
    rejects: DataFrame,
    out: Path,
    done: Callable[[], None] = _nothing,
    settled: Settled | None = None,
) -> dict[str, float | None]:
    """Make all tables from the pieces in a folder, and from what is settled beside them, and write
    them, the summary last; returns the figures."""
    small = for_small_tables(spark)

    def piece(name: str, session: SparkSession = small) -> DataFrame:
        return tables.read(session, folder / name, PIECES[name])

    def put(name: str, frame: DataFrame) -> DataFrame:
        tables.write(frame, out / name)
        done()
        return tables.read(small, out / name, TABLES[name])

    # Tables that grow with the number of deliveries. Pieces of a follower are merged already, and
    # merging them again changes nothing.
    publishes = piece("publishes", spark).transform(pieces.merged_publishes)
    # Parted by event they need not be parted again, neither for peers nor for topics.
    deliveries = piece("deliveries", spark).repartition("message")
    histories = pieces.histories(piece("changes", spark))
    placed = deliveries.transform(pieces.merged_deliveries)
    placed = placed.transform(figures.placed, publishes, histories).persist()
    events = placed.transform(figures.events, publishes, piece("changes", spark))
    latencies = placed.transform(figures.latencies)
    exact = placed.where("remote").select("latency_ns")
    missing = placed.where("remote is null").count()
    receipts = piece("receipts")
    if settled is not None:
        events = events.unionByName(settled.events)
        latencies = latencies.unionByName(settled.latencies).transform(figures.merged_latencies)
        exact = exact.unionByName(settled.exact)
        missing += settled.missing
        receipts = receipts.unionByName(settled.undecided)
    events, latencies = put("events", events), put("latencies", latencies)
    quantiles = figures.quantiles(latencies, exact)
    placed.unpersist()

    # Tables that do not grow with the number of deliveries.
    histories = pieces.histories(piece("changes"))
    traffic = piece("traffic")
    number = events.agg(F.sum(F.col("delivered") + F.col("others")).alias("number"))
    before = None if settled is None else settled.connections
    loads = traffic.transform(figures.peers, histories, receipts, piece("connections"), before)
    put("topics", events.transform(figures.topics, histories, receipts))
    put("rejects", rejects)
    summary = overview(
        events=events,
        latencies=latencies,
        quantiles=quantiles,
        messages=put("messages", traffic.transform(figures.messages, number)),
        peers=put("peers", loads),
        traffic=traffic,
        receipts=receipts,
        without_publish=small.range(1).select(F.lit(missing).alias("number")),
    )
    return {row.figure: row.value for row in put("summary", summary).collect()}


def unplaced(deliveries: DataFrame, publishes: DataFrame) -> DataFrame:
    """Deliveries of events whose publishing is not there."""
    return deliveries.join(publishes.select("message"), "message", "left_anti")
