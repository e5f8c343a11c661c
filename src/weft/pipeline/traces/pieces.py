"""The pieces that all figures are made of: what the parts of a trace add up to.

Every figure can be had from six small tables, and those of two parts of a trace merge into those of
the whole. A trace that grows is added up some parts at a time (`follower`).

A *part* is a span of bytes of a file of JSON lines, a whole file that is packed or protobuf, or
some row groups of a Parquet file. A task takes several, about as much as the others, stages what
they add up to as one file for each piece, and answers with the names of these files; nothing else
of the trace leaves the worker. The driver accepts the files that were named, so that of a task that
is run twice one attempt counts, whenever the other ends. Workers read the files themselves: text
need not go through Java, and Parquet keeps its dictionaries. Names are codes into dictionaries, as
Parquet keeps them and as they are made of lines here, so adding up compares numbers and not names.
measured: 12.2 million records from Parquet take 1.3 s of CPU time, where Spark's own aggregations
took 14 s. Lines are counted part by part, so that a bad one can be told with its number without
reading anything again.

Which peers are subscribed when is known from JOIN and LEAVE. A peer's own records are in order, so
whether it was subscribed when a message came is known at once; whether others were when it
published is known when their records are there too.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow
from pyarrow import RecordBatch, Table, compute
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, StructType

from weft.pipeline import tables
from weft.pipeline.location import Location, environment
from weft.pipeline.schemas import (
    REJECT,
    SMALL,
    TEXT,
    TRACE,
    TRUTH,
    WHOLE,
    columns,
    joined,
    selected,
)
from weft.pipeline.session import packed, parallelism
from weft.pipeline.traces.forms import Form, Reading, is_protobuf, line_of
from weft.pipeline.traces.libp2p import BadRecord
from weft.pipeline.traces.source import Parsed, Source, parse
from weft.protocol import delivery
from weft.protocol.publication import RouteEvent

# A part of a trace that one task reads: bytes of a file, or row groups of a Parquet file. How many
# lines begin in it; and which of them cannot be read, counted from the beginning of the part.
PART = columns(file=TEXT, start=WHOLE, end=WHOLE)
PART_LINES = columns(file=TEXT, start=WHOLE, lines=WHOLE)
BAD_LINE = columns(file=TEXT, start=WHOLE, line=WHOLE, reason=TEXT, text=TEXT)
# The pieces that all figures are made of. They add up: those of two parts of a trace, merged, are
# those of the whole.
#
# Messages by the peer that wrote the record, its kind and the message's kind.
TRAFFIC = columns(peer=TEXT, kind=TEXT, rpc=TEXT, messages=WHOLE, bytes=WHOLE)
# Subscriptions that begin (`begins`) and end.
CHANGE = columns(peer=TEXT, topic=TEXT, timestamp_ns=WHOLE, begins=TRUTH)
# By how much the number of a topic's subscribers changes, and when.
STEP = columns(topic=TEXT, timestamp_ns=WHOLE, step=SMALL)
# Connections that begin and end.
CONNECTION = columns(peer=TEXT, other=TEXT, timestamp_ns=WHOLE, begins=TRUTH)
# Events as they were published.
PUBLISH = columns(message=TEXT, topic=TEXT, publisher=TEXT, published_ns=WHOLE)
# An event at a peer: when it was first delivered there, over how many hops, and how often.
DELIVERY = columns(message=TEXT, peer=TEXT, delivered_ns=WHOLE, hops=SMALL, times=WHOLE)
# Copies of events that a peer got from another: `parasites` of topics it was not subscribed to at
# the time, `routed` the same on the way to an access point.
RECEIPT_PIECE = columns(
    peer=TEXT, topic=TEXT, other=TEXT, copies=WHOLE, parasites=WHOLE, routed=WHOLE
)
# What a task finds of traffic and receipts: copies of events that came from one peer, with their
# times. Whether they were wanted is known when all changes of subscriptions are.
TRAFFIC_PART = joined(TRAFFIC, columns(latest_ns=WHOLE))
COPIES = columns(peer=TEXT, topic=TEXT, other=TEXT, rpc=TEXT, times_ns=ArrayType(WHOLE))

PIECE_BYTES = 16 << 20  # guess: of lines, so that tasks can be made equal
BLOCK_BYTES = 4 << 20  # measured: of lines at once; more is not faster
BATCH_RECORDS = 1 << 14  # guess: of protobuf at once, some 4 MB
BATCH_ROWS = 1 << 18  # measured: of Parquet at once, some 20 MB
TASKS_PER_CORE = 4  # guess: the last ones end together, and a bar moves
TASK_BYTES_MAX = 512 << 20  # guess: what a task adds up is some tenths of that
TEXT_SHOWN = 200
BAD, LINES = "bad", "lines"
_PACKED = ".gz"
_TO_THE_END = 1 << 62
_NAMES = [each.name for each in TRACE.fields if each.dataType == TEXT]
SHAPES: Mapping[str, StructType] = {
    "traffic": TRAFFIC_PART,
    "changes": CHANGE,
    "connections": CONNECTION,
    "publishes": PUBLISH,
    "deliveries": DELIVERY,
    "copies": COPIES,
}
# Every table that tasks write.
_WRITTEN: Mapping[str, StructType] = {**SHAPES, BAD: BAD_LINE, LINES: PART_LINES}
# What a task answers with: of each piece, the file that it staged.
_STAGED = columns(piece=TEXT, task=TEXT, aside=TEXT)
ROUTING = RouteEvent.__name__
"""TERA's step from a publisher outside the topic to an access point."""
_EVER_NS = -(1 << 63)


class Part(NamedTuple):
    """Some of a file: bytes, or row groups of Parquet."""

    file: str
    start: int
    end: int


class Unreadable(Exception):
    """A file is not what it should be; the text names it."""


# --- which parts ----------------------------------------------------------------------------------


def parts_of(source: Source) -> list[tuple[Part, float]]:
    """The parts of a trace, each with its share of the bytes."""
    cut = _row_groups if source.parquet else _spans
    return [part for place in source.paths for part in cut(place)]


def _row_groups(place: Location) -> list[tuple[Part, float]]:
    try:
        sizes = tables.group_bytes(place)
    except (OSError, pyarrow.ArrowException) as error:
        raise Unreadable(f"{place}: {error}") from error
    return [(Part(str(place), n, n + 1), float(size)) for n, size in enumerate(sizes)]


def _spans(place: Location) -> list[tuple[Part, float]]:
    size = place.size()
    if place.name.endswith(_PACKED) or is_protobuf(place.name):
        return [(Part(str(place), 0, _TO_THE_END), float(size))]
    return [(part, float(part.end - part.start)) for part in spans(str(place), 0, size)]


def spans(file: str, start: int, end: int) -> list[Part]:
    """Some bytes of a file in parts; all lines that begin in a part are its own."""
    return [Part(file, at, min(end, at + PIECE_BYTES)) for at in range(start, end, PIECE_BYTES)]


def shared_out(spark: SparkSession, parts: list[tuple[Part, float]]) -> DataFrame:
    """The parts (PART), those of one task together."""
    sizes = np.array([size for _, size in parts], float)
    wanted = max(TASKS_PER_CORE * parallelism(spark), math.ceil(sizes.sum() / TASK_BYTES_MAX))
    count = max(1, min(len(parts), wanted))
    tasks = packed(sizes, count)
    rows = [(*part, int(task)) for (part, _), task in zip(parts, tasks, strict=True)]
    frame = spark.createDataFrame(rows, joined(PART, columns(task=SMALL)))
    return frame.repartitionById(count, F.col("task")).select(*PART.names)


# --- what a task reads ----------------------------------------------------------------------------


def add_up(parts: DataFrame, folder: Path) -> None:
    """Write the pieces of these parts (PART) below a folder, as tables with a file per task; and
    those of reading: `bad` lines, and how many `lines` each part has."""
    staged = parts.mapInArrow(_adding_up(folder), _STAGED).collect()
    for row in staged:
        tables.accept_part(folder / row.piece, row.task, row.aside)
    for name, shape in _WRITTEN.items():
        tables.tidy(folder / name)  # of attempts that were lost
        if not staged:  # without parts, a Spark Connect server runs no task
            tables.write_part(folder / name, "none", {each: [] for each in shape.names}, shape)


def _adding_up(folder: Path) -> Callable[[Iterable[RecordBatch]], Iterator[RecordBatch]]:
    """What a task does: parts (PART) → the files that hold what they add up to (_STAGED)."""
    access = environment()

    def work(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        sums, bad, counts = Sums(), [], []
        for batch in batches:
            for row in batch.to_pylist():
                part = Part(**row)
                number = 0
                for table, wrong, read in blocks(part, access):
                    sums.add(table)
                    bad += [(*part[:2], number + place + 1, *why) for place, *why in wrong]
                    number += read
                counts.append((*part[:2], number))
        context = TaskContext.get()
        task = f"part-{context.partitionId():05}" if context else "part"
        found: dict[str, Mapping[str, object]] = {}
        for name, table in sums.tables().items():
            found[name] = {each: table.column(each) for each in SHAPES[name].names}
        for name, rows in ((BAD, bad), (LINES, counts)):
            if rows:
                listed = map(list, zip(*rows, strict=True))
                found[name] = dict(zip(_WRITTEN[name].names, listed, strict=True))
        staged = []
        for name, shape in _WRITTEN.items():
            some = found.get(name, {each: [] for each in shape.names})
            aside, _ = tables.stage_part(folder / name, task, some, shape)
            staged.append({"piece": name, "task": task, "aside": aside})
        yield RecordBatch.from_pylist(staged, schema=to_arrow_schema(_STAGED))

    return work


def blocks(
    part: Part, access: Mapping[str, str] | None = None
) -> Iterator[tuple[RecordBatch, list[tuple[int, str, str]], int]]:
    """The records of a part, some at a time (TRACE, names as codes); with the bad lines among
    them, as place, reason and text, and how many lines were read."""
    try:
        if part.file.endswith(tables.SUFFIX):
            place, groups = Location.of(part.file, access), range(part.start, part.end)
            for batch in tables.read_batches(place, groups, TRACE, _NAMES, BATCH_ROWS):
                yield batch, [], 0
            return
        for texts in texts_of(part):
            parsed = parse(texts)
            bad = [(place, why, text[:TEXT_SHOWN]) for place, text, why in parsed.bad]
            yield coded(parsed), bad, len(texts)
    except BadRecord as error:  # which names the file
        raise Unreadable(str(error)) from error
    except (OSError, EOFError, zlib.error, pyarrow.ArrowException) as error:
        raise Unreadable(f"{part.file}: {error}") from error


def texts_of(part: Part) -> Iterator[list[str]]:
    """The lines that begin in a part, some at a time. A last line needs no end. The records of
    protobuf become lines as Go's JSON has them, so that ids are the same."""
    if is_protobuf(part.file):
        records = Reading(Path(part.file), Counter()).records()
        while some := list(islice(records, BATCH_RECORDS)):
            yield [line_of(record, Form.JSON_15).decode() for record in some]
        return
    with _opened(part.file) as file:
        if part.start:
            file.seek(part.start - 1)
            file.readline()  # the rest of a line that began before, or only its end
        at = file.tell()
        while at < part.end:
            data = file.read(min(BLOCK_BYTES, part.end - at))
            if not data:
                return
            if not data.endswith(b"\n"):
                data += file.readline()
            at += len(data)
            yield data.removesuffix(b"\n").decode(errors="replace").split("\n")


def _opened(file: str) -> IO[bytes]:
    return gzip.open(file, "rb") if file.endswith(_PACKED) else open(file, "rb")  # type: ignore[return-value]


def coded(parsed: Parsed) -> RecordBatch:
    """What lines say, as columns of Arrow with codes for names."""
    arrays = [
        pyarrow.array(values, each.type)
        for values, each in zip(parsed.columns, to_arrow_schema(TRACE), strict=True)
    ]
    arrays = [
        array.dictionary_encode() if each.dataType == TEXT else array
        for array, each in zip(arrays, TRACE.fields, strict=True)
    ]
    return pyarrow.RecordBatch.from_arrays(arrays, names=TRACE.names)


# --- bad lines ------------------------------------------------------------------------------------


def rejects(bad: DataFrame, counted: DataFrame) -> DataFrame:
    """Bad lines (BAD_LINE) → the same with their number in the file (REJECT), given how many lines
    each part has (PART_LINES)."""
    before = Window.partitionBy("file").orderBy("start").rowsBetween(Window.unboundedPreceding, -1)
    offsets = counted.select(
        "file", "start", F.coalesce(F.sum("lines").over(before), F.lit(0)).alias("before")
    )
    placed = bad.join(offsets, ["file", "start"])
    return selected(placed.withColumn("line", F.col("before") + F.col("line")), REJECT)


# --- what records add up to, in workers -----------------------------------------------------------


def added_up(records: RecordBatch) -> dict[str, Table]:
    """A batch of records (TRACE, names as codes) → its pieces, by name."""
    message = compute.is_valid(records.column("message")).to_numpy(zero_copy_only=False)
    first = records.column("part").fill_null(0).to_numpy(zero_copy_only=False) == 0
    delivered = _of(records, delivery.DELIVER_MESSAGE) & first
    return {
        "traffic": summed_traffic(_counted(records, first)),
        "changes": _begun_and_ended(records, "topic", delivery.JOIN, delivery.LEAVE),
        "connections": _begun_and_ended(records, "other", delivery.ADD_PEER, delivery.REMOVE_PEER),
        "publishes": _chosen(
            records,
            _of(records, delivery.PUBLISH_MESSAGE),
            message="message",
            topic="topic",
            publisher="peer",
            published_ns="timestamp_ns",
        ),
        # Several topics of one event are one delivery.
        "deliveries": _chosen(
            records,
            delivered,
            message="message",
            peer="peer",
            delivered_ns="timestamp_ns",
            hops="hops",
        ).append_column("times", pyarrow.array(np.ones(int(delivered.sum()), np.int64))),
        "copies": _listed(records, _of(records, delivery.RECV_RPC) & message),
    }


def summed_traffic(frame: Table) -> Table:
    """Traffic added up by peer and kind; its time is the latest one."""
    grouped = frame.group_by(["peer", "kind", "rpc"], use_threads=False)
    sums = grouped.aggregate([("messages", "sum"), ("bytes", "sum"), ("latest_ns", "max")])
    named = {"messages": "messages_sum", "bytes": "bytes_sum", "latest_ns": "latest_ns_max"}
    names = TRAFFIC_PART.names
    summed = sums.select([named.get(name, name) for name in names]).rename_columns(names)
    return summed.cast(to_arrow_schema(TRAFFIC_PART))  # few rows, from here on with names


def _counted(records: RecordBatch, first: npt.NDArray[np.bool_]) -> Table:
    """Every record as one message, or none if it is a further event of one."""
    named = {"latest_ns": "timestamp_ns"}
    columns = {
        name: records.column(named.get(name, name))
        for name in TRAFFIC_PART.names
        if name != "messages"
    }
    return pyarrow.table({**columns, "messages": first.astype(np.int64)})


def _begun_and_ended(records: RecordBatch, what: str, begin: str, end: str) -> Table:
    rows = _of(records, begin, end)
    begins = pyarrow.array(_of(records, begin)[rows])
    chosen = _chosen(records, rows, **{name: name for name in ("peer", what, "timestamp_ns")})
    return chosen.append_column("begins", begins)


def _listed(records: RecordBatch, rows: npt.NDArray[np.bool_]) -> Table:
    """Copies from one peer to another in one topic, as one row."""
    keys = ["peer", "topic", "other", "rpc"]
    some = _chosen(records, rows, **{name: name for name in (*keys, "timestamp_ns")})
    lists = some.group_by(keys, use_threads=False).aggregate([("timestamp_ns", "list")])
    named = lists.select([*keys, "timestamp_ns_list"]).rename_columns(COPIES.names)
    return named.cast(to_arrow_schema(COPIES))


def _chosen(records: RecordBatch, rows: npt.NDArray[np.bool_], **named: str) -> Table:
    """Some rows, and of them these columns, under new names."""
    some = records.select(list(named.values())).filter(pyarrow.array(rows))
    return pyarrow.Table.from_batches([some]).rename_columns(list(named))


def _of(records: RecordBatch, *kinds: str) -> npt.NDArray[np.bool_]:
    """Which records are of some kinds."""
    column = records.column("kind")
    names = column.dictionary.to_pylist()
    known = np.array([name in kinds for name in names] + [False])
    codes = column.indices.fill_null(len(names)).to_numpy(zero_copy_only=False)
    found: npt.NDArray[np.bool_] = known[codes]
    return found


class Sums:
    """The pieces of batch after batch."""

    def __init__(self) -> None:
        self._parts: dict[str, list[Table]] = {name: [] for name in SHAPES}

    def add(self, records: RecordBatch) -> None:
        for name, table in added_up(records).items():
            self._parts[name].append(table)

    def tables(self) -> dict[str, Table]:
        """The pieces of all batches by name; none if no batch was added."""
        found = {
            name: pyarrow.concat_tables(tables) for name, tables in self._parts.items() if tables
        }
        if "traffic" in found:
            found["traffic"] = summed_traffic(found["traffic"])
        return found


# --- copies that were wanted, and others ----------------------------------------------------------


def receipts(copies: DataFrame, histories: DataFrame) -> DataFrame:
    """Copies of events (COPIES) → how many, by receiver, topic and sender (RECEIPT_PIECE), given
    the subscriptions."""
    known = copies.join(histories, ["peer", "topic"], "left")
    routing = F.coalesce(F.col("rpc") == ROUTING, F.lit(False))
    counted = known.select(
        *("peer", "topic", "other"),
        F.size("times_ns").alias("copies"),
        F.when(~routing, strays("times_ns")).otherwise(0).alias("parasites"),
        F.when(routing, strays("times_ns")).otherwise(0).alias("routed"),
    )
    return counted.transform(merged_receipts)


# --- subscriptions over time ----------------------------------------------------------------------


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
    # Mostly no subscription changes meanwhile, and one answer holds for all times.
    steady = F.coalesce(F.size(between), F.lit(0)) == 0
    single = F.when(subscribed(last), 0).otherwise(F.size(times))
    return F.when(steady, single).otherwise(F.size(F.filter(times, lambda at: ~subscribed(at))))


# --- merging --------------------------------------------------------------------------------------


def merged_traffic(frame: DataFrame) -> DataFrame:
    counted = frame.groupBy("peer", "kind", "rpc").agg(*_sums("messages", "bytes"))
    return selected(counted, TRAFFIC)


def merged_publishes(frame: DataFrame) -> DataFrame:
    """An event is published once in each of its topics: the first of equal records counts."""
    named = frame.groupBy("message", "topic")
    first = named.agg(F.min(F.struct("published_ns", "publisher")).alias("first"))
    return selected(first.select("message", "topic", "first.*"), PUBLISH)


def merged_deliveries(frame: DataFrame) -> DataFrame:
    """The first delivery counts, the others are counted."""
    # Spark sorts here, and names of events begin alike: a number before them decides most
    # comparisons. measured: a third of the CPU time.
    counted = frame.groupBy(F.xxhash64("message", "peer"), "message", "peer").agg(
        F.min(F.struct("delivered_ns", "hops")).alias("first"), *_sums("times")
    )
    return selected(counted.select("message", "peer", "first.*", "times"), DELIVERY)


def merged_receipts(frame: DataFrame) -> DataFrame:
    counted = frame.groupBy("peer", "topic", "other").agg(*_sums("copies", "parasites", "routed"))
    return selected(counted, RECEIPT_PIECE)


def _sums(*names: str) -> list[Column]:
    return [F.sum(name).alias(name) for name in names]
