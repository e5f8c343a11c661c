"""Traces of pub/sub systems: weft's own, and those of go-libp2p-pubsub's JSON tracer.

The records go to the lake's `trace` as they are. Peers are users: a peer that joined a topic at any
time is a member of it, since the first time. A peer that leaves a topic that it never joined was a
member before the trace began; since when is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from weft.pipeline import tables
from weft.pipeline.ingest import records
from weft.pipeline.ingest.files import Inspected
from weft.pipeline.ingest.options import BadInput, Options
from weft.pipeline.ingest.records import COUNTED, PAIR, Place, Reading
from weft.pipeline.schemas import KEPT_TRACE, REJECT, SMALL, selected
from weft.pipeline.traces import source
from weft.protocol.delivery import JOIN, LEAVE

WEFT = "weft-trace"
GOSSIPSUB = "gossipsub-trace"
_NS_PER_US = 1_000


@dataclass(frozen=True)
class Trace(Reading):
    """Records of what peers did."""

    is_trace: ClassVar[bool] = True

    format: str

    def stage(self, place: Place) -> None:
        tables.write(source.parsed(source.text_lines(place.spark, place.links)), place.folder)

    def counts(self, place: Place) -> DataFrame:
        return _staged(place).transform(counted)

    def pairs(self, place: Place) -> DataFrame:
        return source.records(_staged(place)).transform(memberships)

    def rejects(self, place: Place) -> DataFrame:
        bad = source.rejects(_staged(place), source.text_lines(place.spark, place.links))
        known = bad.withColumn("file", _number()).join(F.broadcast(place.files), "file")
        return selected(known.withColumn("file", F.col("path")), REJECT)

    def trace(self, place: Place) -> DataFrame | None:
        return source.records(_staged(place)).transform(kept)


def _staged(place: Place) -> DataFrame:
    return tables.read(place.spark, place.folder, source.PARSED)


def _number() -> Column:
    return F.regexp_extract("file", r"(\d+)[^/]*$", 1).cast(SMALL)


def counted(parsed: DataFrame) -> DataFrame:
    """`TRACE_LINE` → `COUNTED`: records, and lines that are none."""
    bad = F.col("problem").isNotNull()
    sums = parsed.groupBy(_number().alias("file")).agg(
        F.count_if(~bad & (F.col("part") == 0)).alias("rows"), F.count_if(bad).alias("rejects")
    )
    return selected(sums.withColumn("wrong", F.col("rejects")), COUNTED)


def kept(trace: DataFrame) -> DataFrame:
    """`TRACE` → `KEPT_TRACE`, laid out as a table that stays. Times that no calendar has are
    null; the nanoseconds are there."""
    us = F.expr(f"timestamp_ns div {_NS_PER_US}")
    timed = trace.withColumn("time", F.when(us.between(*records.YEARS_US), F.timestamp_micros(us)))
    return selected(timed, KEPT_TRACE).transform(source.laid_out)


def memberships(trace: DataFrame) -> DataFrame:
    """`TRACE` → `PAIR`: the topics that peers were in, and since when."""
    moves = trace.where(F.col("kind").isin(JOIN, LEAVE) & (F.col("topic") != ""))
    joined_us = F.when(F.col("kind") == JOIN, F.expr(f"timestamp_ns div {_NS_PER_US}"))
    members = moves.groupBy(F.col("peer").alias("user"), "topic").agg(
        F.min(joined_us).alias("time_us")
    )
    return selected(members, PAIR)


def plan(format_name: str, file: Inspected, options: Options) -> Trace:
    if not next((line for line in file.lines if line.strip()), "").lstrip().startswith("{"):
        raise BadInput(f"{file.path}: not a trace in JSON lines: it begins with {file.beginning}")
    return Trace(format_name)
