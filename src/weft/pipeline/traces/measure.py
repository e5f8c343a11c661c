"""From a trace to its tables: read it, add it up, make the tables.

The trace is read once, by tasks that write what their parts of it add up to (`pieces`). The merged
pieces are written too: they are small, and Spark then knows how small, which is how it chooses its
joins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from weft.pipeline import tables
from weft.pipeline.schemas import REJECT, WHOLE, columns
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
"""About how the time of a long trace goes to the steps; the first is reading it."""
STEPS = len(WEIGHTS)
FRESH = "fresh"
"""Where tasks put what they add up, within the folder of the pieces."""
# Of events whose pieces are gone (`follower`): what is known for good.
COUNT = columns(number=WHOLE)
SETTLED_EVENTS, SETTLED_LATENCIES, SETTLED_MISSING = (
    "settled_events",
    "settled_latencies",
    "settled_missing",
)


def _nothing() -> None:
    """The default of `done`."""


def measure(
    spark: SparkSession, source: Source, out: Path, done: Callable[[], None] = _nothing
) -> dict[str, float | None]:
    """Measure a trace, write its tables into a folder; returns the figures. `done` is called after
    each of the STEPS."""
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
        return write_tables(spark, folder, bad.transform(pieces.rejects, lines), out, done)


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
) -> dict[str, float | None]:
    """Make all tables from the pieces in a folder and write them, the summary last; returns the
    figures."""
    small = for_small_tables(spark)

    def piece(name: str, session: SparkSession = small) -> DataFrame:
        return tables.read(session, folder / name, PIECES[name])

    def put(name: str, frame: DataFrame) -> DataFrame:
        tables.write(frame, out / name)
        done()
        return tables.read(small, out / name, TABLES[name])

    # What grows with the number of deliveries. Merging what is merged changes nothing.
    publishes = piece("publishes", spark)
    # Parted by event they need not be parted again, neither for peers nor for topics.
    deliveries = piece("deliveries", spark).repartition("message")
    histories = pieces.histories(piece("changes", spark))
    placed = deliveries.transform(pieces.merged_deliveries)
    placed = placed.transform(figures.placed, publishes, histories).persist()
    events = placed.transform(figures.events, publishes, piece("changes", spark))
    latencies = placed.transform(figures.latencies)
    if (folder / SETTLED_EVENTS).exists():
        events = events.unionByName(tables.read(spark, folder / SETTLED_EVENTS, EVENT))
        older = tables.read(spark, folder / SETTLED_LATENCIES, LATENCY)
        latencies = latencies.unionByName(older).transform(figures.merged_latencies)
    events, latencies = put("events", events), put("latencies", latencies)
    missing = placed.where("remote is null").count()
    if (folder / SETTLED_MISSING).exists():
        missing += sum(row["number"] for row in tables.read_small(folder / SETTLED_MISSING))
    placed.unpersist()

    # What does not.
    histories, receipts = pieces.histories(piece("changes")), piece("receipts")
    traffic = piece("traffic")
    number = events.agg(F.sum(F.col("delivered") + F.col("others")).alias("number"))
    loads = traffic.transform(figures.peers, histories, receipts, piece("connections"))
    put("topics", events.transform(figures.topics, histories, receipts))
    put("rejects", rejects)
    summary = overview(
        events=events,
        latencies=latencies,
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
