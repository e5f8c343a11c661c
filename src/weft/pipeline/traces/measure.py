"""From a trace to its tables: read it, add it up, make the tables.

JSON lines are parsed once, into Parquet that is thrown away in the end. The pieces are written too:
they are small, and Spark then knows how small, which is how it chooses its joins.
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
from weft.pipeline.schemas import (
    CHANGE,
    CONNECTION,
    DELIVERY,
    EVENT,
    FIGURE,
    LATENCY,
    MESSAGES,
    PEER_LOAD,
    PUBLISH,
    RECEIPT_PIECE,
    REJECT,
    TOPIC_LOAD,
    TRACE,
    TRACE_LINE,
    TRAFFIC,
    WHOLE,
    columns,
)
from weft.pipeline.session import for_small_tables
from weft.pipeline.traces import figures, pieces, read
from weft.pipeline.traces.overview import overview
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
STEPS = 1 + len(PIECES) + len(TABLES)
# Of events whose pieces are gone (`follow`): what is known for good.
COUNT = columns(number=WHOLE)
SETTLED_EVENTS, SETTLED_LATENCIES, SETTLED_MISSING = (
    "settled_events",
    "settled_latencies",
    "settled_missing",
)


def _nothing() -> None:
    """Nobody wants to know."""


def measure(
    spark: SparkSession, source: Source, out: Path, done: Callable[[], None] = _nothing
) -> dict[str, float | None]:
    """Measure a trace, write its tables into a folder; returns the figures. `done` is called after
    each of the STEPS."""
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".trace-", dir=out) as aside:
        folder = Path(aside)
        try:
            records, rejects = _read(spark, source, folder)
            done()
            gather(spark, records, folder, done)
        except (PySparkException, Py4JJavaError) as error:
            raise BadTrace(_explained(error)) from error
        return write_tables(spark, folder, rejects, out, done)


def _explained(error: Exception) -> str:
    """The lines of Spark's complaint that name the file and what is wrong with it."""
    text = str(error)
    causes = re.findall(r"(?:Caused by: \S+: |Exception: )(.+)", text)
    named = re.search(r"reading file (\S+?)\.?(?:\s|$)", text)
    where = f"{named[1]}: " if named else ""
    return f"the trace cannot be read: {where}{causes[-1] if causes else text.splitlines()[0]}"


def _read(spark: SparkSession, source: Source, folder: Path) -> tuple[DataFrame, DataFrame]:
    if source.parquet:
        paths = [str(path) for path in source.paths]
        return spark.read.schema(TRACE).parquet(*paths), spark.createDataFrame([], REJECT)
    text = read.lines(spark, source.paths)
    tables.write(text.transform(read.parsed), folder / "lines")
    rows = tables.read(spark, folder / "lines", TRACE_LINE)
    return read.records(rows), read.rejects(rows, text)


def gather(
    spark: SparkSession, records: DataFrame, folder: Path, done: Callable[[], None] = _nothing
) -> None:
    """Write the pieces of a trace into a folder."""
    small = for_small_tables(spark)
    tables.write(records.transform(pieces.rare), folder / "rare")
    rare = tables.read(small, folder / "rare", TRACE)
    tables.write(rare.transform(pieces.changes), folder / "changes")
    histories = pieces.histories(tables.read(spark, folder / "changes", CHANGE))
    done()
    for name, frame in drawn(records, rare, histories).items():
        tables.write(frame, folder / name)
        done()


def drawn(records: DataFrame, rare: DataFrame, histories: DataFrame) -> dict[str, DataFrame]:
    """All pieces but the changes of subscriptions, of which the histories are."""
    return {
        "connections": rare.transform(pieces.connections),
        "publishes": rare.transform(pieces.publishes),
        "traffic": records.transform(pieces.traffic),
        "deliveries": records.transform(pieces.deliveries),
        "receipts": records.transform(pieces.receipts(histories)),
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

    # What grows with the number of deliveries.
    publishes, deliveries = piece("publishes", spark), piece("deliveries", spark)
    histories = pieces.histories(piece("changes", spark))
    placed = deliveries.transform(figures.placed(publishes, histories)).persist()
    events = placed.transform(figures.events(publishes, histories))
    latencies = placed.transform(figures.latencies)
    missing = unplaced(deliveries, publishes).agg(F.count(F.lit(1)).alias("number"))
    if (folder / SETTLED_EVENTS).exists():
        events = events.unionByName(tables.read(spark, folder / SETTLED_EVENTS, EVENT))
        older = tables.read(spark, folder / SETTLED_LATENCIES, LATENCY)
        latencies = latencies.unionByName(older).transform(figures.merged_latencies)
        missing = missing.unionByName(tables.read(spark, folder / SETTLED_MISSING, COUNT))
    events, latencies = put("events", events), put("latencies", latencies)
    tables.write(missing.agg(F.sum("number").alias("number")), folder / "missing")
    placed.unpersist()

    # What does not.
    histories, receipts = pieces.histories(piece("changes")), piece("receipts")
    traffic = piece("traffic")
    number = events.agg(F.sum(F.col("delivered") + F.col("others")).alias("number"))
    loads = traffic.transform(figures.peers(histories, receipts, piece("connections")))
    put("topics", events.transform(figures.topics(histories, receipts)))
    put("rejects", rejects)
    summary = overview(
        events=events,
        latencies=latencies,
        messages=put("messages", traffic.transform(figures.messages(number))),
        peers=put("peers", loads),
        traffic=traffic,
        receipts=receipts,
        without_publish=tables.read(small, folder / "missing", COUNT),
    )
    return {row.figure: row.value for row in put("summary", summary).collect()}


def unplaced(deliveries: DataFrame, publishes: DataFrame) -> DataFrame:
    """Deliveries of events whose publishing is not there."""
    return deliveries.join(publishes.select("message"), "message", "left_anti")
