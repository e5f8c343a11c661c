"""Where a trace is, and what its lines say in one shape.

A trace is files of JSON lines, files of protobuf (whose records become lines of Go's JSON first),
Parquet files in the same shape, or a lake. weft and go-libp2p-pubsub's JSON tracer differ little:
weft writes the type of a record as its name, ids as text and one topic;
go-libp2p-pubsub writes the type as its number, ids as base64 (kept as they are) and, in older
versions, a list of topics. Its RPCs have no kind and no size: what they hold names their kind here.

measured: decoding typed structs in a Python worker takes 40 % of the CPU time of `from_json` with
the narrowest schema and the expressions to get at its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec
import pyarrow
from msgspec import Meta, Raw, Struct
from pyarrow import RecordBatch
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from weft.errors import WeftError
from weft.net.errors import UsageError
from weft.pipeline.lake import Lake, is_lake
from weft.pipeline.location import Location
from weft.pipeline.schemas import REJECT, TEXT, TRACE, columns, joined, selected
from weft.pipeline.tables import SUFFIX
from weft.pipeline.traces.forms import PROTOBUF_SUFFIXES
from weft.pipeline.traces.libp2p import NEWER_NAMES, NEWER_TYPES
from weft.protocol import delivery
from weft.protocol.recent import IHave
from weft.protocol.wire import Payload
from weft.trace import FIELDS, KINDS

# A line of a trace: what it says, or why it cannot be read (`problem`) and its `text`.
TRACE_LINE = joined(TRACE, columns(file=TEXT, text=TEXT, problem=TEXT))

FOLDER = "trace"
"""The trace of a lake or of a demonstration, within its folder."""
LINE_SUFFIXES = tuple(
    f"{suffix}{packed}" for suffix in (".jsonl", ".json", ".ndjson") for packed in ("", ".gz")
)
SUFFIXES = (*LINE_SUFFIXES, *PROTOBUF_SUFFIXES)
PARSED = TRACE_LINE
TEXT_SHOWN = 200
_ROWS_BITS = 33  # Spark's row numbers: the part, and in so many bits the row
_FIRST = Window.unboundedPreceding

NO_TYPE = "no known type of record"
NO_FIELDS = "no object named after the type"
NO_MESSAGE = "no messageID"
NO_TOPIC = "no topic"

# What GossipSub's RPCs hold, in this order: the first that is there names the kind. Its mesh is
# kept up by GRAFT and PRUNE whether or not there are events, so they have names apart from weft's,
# which serve events.
PAYLOAD, I_HAVE = Payload.__name__, IHave.__name__
GOSSIP_CONTROL = {
    "ihave": I_HAVE,
    "iwant": "IWant",
    "idontwant": "IDontWant",
    "graft": "MeshGraft",
    "prune": "MeshPrune",
}
SUBSCRIPTION, EMPTY = "Subscription", "Empty"


# --- where a trace is -----------------------------------------------------------------------------


class NoTrace(UsageError):
    """There is no trace where one should be; the text says what was looked for."""


class BadTrace(WeftError):
    """A trace cannot be read; the text says what Spark said."""


@dataclass(frozen=True)
class Source:
    """Files that hold one trace, all of a kind."""

    paths: tuple[Location, ...]
    parquet: bool

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(path.size() for path in self.paths)


def find(
    given: Sequence[Path | Location], version: int | None = None, as_of: datetime | None = None
) -> Source:
    """The trace in these files, folders and lakes; of a lake what its version has, by default the
    last one."""
    files = [file for each in given for file in _found(Location.of(each), version, as_of)]
    parquet = [file for file in files if file.name.endswith(SUFFIX)]
    if parquet and len(parquet) < len(files):
        raise NoTrace(f"{parquet[0]} is Parquet and other files are not; measure one or the other")
    return Source(tuple(files), bool(parquet))


def _found(place: Location, version: int | None, as_of: datetime | None) -> list[Location]:
    if is_lake(place):
        files = Lake(place, version, as_of).files("trace")
        if not files:
            raise NoTrace(f"{place}: no trace in this lake")
        return files
    if version is not None or as_of is not None:
        raise NoTrace(f"{place}: no lake, so it has no versions")
    return [Location.of(file) for file in _files(place.local)]


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise NoTrace(f"{path}: no such file or folder")
    if path.is_file():
        if not path.name.endswith((SUFFIX, *SUFFIXES)):
            raise NoTrace(f"{path}: a trace ends in {_list((*SUFFIXES, SUFFIX))}")
        return [path]
    for folder in (path / FOLDER, path):
        found = listed(folder)
        if found:
            return found
    raise NoTrace(f"{path}: no trace here (files that end in {_list((*SUFFIXES, SUFFIX))})")


def listed(folder: Path) -> list[Path]:
    """The files of a trace in a folder: lines and protobuf, or else Parquet, also below it."""
    lines = [each for each in _visible(folder.glob("*")) if each.name.endswith(SUFFIXES)]
    return sorted(lines or _visible(folder.rglob(f"*{SUFFIX}")))


def _visible(found: Iterable[Path]) -> list[Path]:
    return [each for each in found if each.is_file() and not each.name.startswith((".", "_"))]


def _list(suffixes: Sequence[str]) -> str:
    return ", ".join(suffixes[:-1]) + " or " + suffixes[-1]


# --- what one line says ---------------------------------------------------------------------------


_Time = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]
_Size = Annotated[int, Meta(ge=0, le=1 << 62)]
_Hops = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
_Listed = list[Raw] | None


class _Event(Struct, gc=False):
    messageID: str | None = None
    topic: str | None = None
    topics: list[str] | None = None


class _Control(Struct, gc=False):
    ihave: _Listed = None
    iwant: _Listed = None
    idontwant: _Listed = None
    graft: _Listed = None
    prune: _Listed = None


class _Rpc(Struct, gc=False):
    kind: str | None = None
    topic: str | None = None
    bytes: _Size | None = None
    messages: list[_Event] | None = None
    subscription: _Listed = None
    control: _Control | None = None


class _Fields(Struct, gc=False):
    """The object named after the type of a record; all types share this one."""

    messageID: str | None = None
    topic: str | None = None
    topics: list[str] | None = None
    receivedFrom: str | None = None
    sendTo: str | None = None
    peerID: str | None = None
    hops: _Hops | None = None
    reason: str | None = None
    meta: _Rpc | None = None


_Record = msgspec.defstruct(
    "_Record",
    [
        ("type", str | int),
        ("peerID", str),
        ("timestamp", _Time),
        *((name, _Fields | None, None) for name in (*FIELDS.values(), *NEWER_NAMES.values())),
    ],
    gc=False,
)
_decode: Callable[[str], Any] = msgspec.json.Decoder(_Record).decode
_KIND: dict[str | int, str] = {
    name: NEWER_TYPES.get(name, name) for name in (*KINDS, *NEWER_TYPES)
} | dict(enumerate(KINDS))
_ABOUT_EVENTS = {
    delivery.PUBLISH_MESSAGE,
    delivery.DELIVER_MESSAGE,
    delivery.DUPLICATE_MESSAGE,
    delivery.REJECT_MESSAGE,
}
_ABOUT_TOPICS = {delivery.JOIN, delivery.LEAVE}
_RPCS = {delivery.SEND_RPC, delivery.RECV_RPC, delivery.DROP_RPC}


Cell: TypeAlias = str | int | None


class BadLine(Exception):
    """Why a line is no record of a trace."""


class Parsed(NamedTuple):
    """What some lines say: the columns of TRACE, of which line each row is, and the bad lines, as
    place, text and problem."""

    columns: list[list[Cell]]
    places: list[int]
    bad: list[tuple[int, str, str]]


def parse(texts: Iterable[str]) -> Parsed:
    """The rows of some lines, or what is wrong with them; empty lines are nothing."""
    places: list[int] = []
    bad: list[tuple[int, str, str]] = []
    columns: list[list[Cell]] = [[] for _ in range(11)]
    peers, times, kinds, messages, topics, others, rpcs, parts, sizes, all_hops, reasons = (
        column.append for column in columns
    )
    for place, text in enumerate(texts):
        try:
            peer, time, kind, other, rpc, size, hops, reason, events = _record(text)
        except (msgspec.MsgspecError, BadLine) as error:
            if text and not text.isspace():
                bad.append((place, text, str(error)))
            continue
        for part, (message, topic) in enumerate(events):
            places.append(place)
            peers(peer)
            times(time)
            kinds(kind)
            messages(message)
            topics(topic)
            others(other)
            rpcs(rpc)
            parts(part)
            sizes(None if part else size)
            all_hops(hops)
            reasons(reason)
    return Parsed(columns, places, bad)


_About = tuple[str | None, str | None]  # an event and its topic
_Row = tuple[
    str, int, str, str | None, str | None, int | None, int | None, str | None, Sequence[_About]
]


def _record(text: str) -> _Row:
    """What one line says; the last are its events, each with its topic."""
    record = _decode(text)
    kind = _KIND.get(record.type)
    if kind is None:
        raise BadLine(NO_TYPE)
    fields: _Fields | None = getattr(record, FIELDS[kind])
    if fields is None and kind in NEWER_NAMES:
        fields = getattr(record, NEWER_NAMES[kind])
    if fields is None:
        raise BadLine(NO_FIELDS)
    if kind in _RPCS:
        rpc = fields.meta or _Rpc()
        other = fields.sendTo or fields.receivedFrom
        name = rpc.kind or _gossip_kind(rpc)
        events: Sequence[_About] = _events(rpc.messages) if rpc.messages else ((None, rpc.topic),)
        head = record.peerID, record.timestamp, kind
        return *head, other, name, rpc.bytes, None, fields.reason, events
    if kind in _ABOUT_EVENTS and fields.messageID is None:
        raise BadLine(NO_MESSAGE)
    if kind in _ABOUT_TOPICS and fields.topic is None:
        raise BadLine(NO_TOPIC)
    events = [(fields.messageID, topic) for topic in fields.topics or (fields.topic,)]
    other = fields.receivedFrom or fields.peerID
    head = record.peerID, record.timestamp, kind
    return *head, other, None, None, fields.hops, fields.reason, events


def _events(listed: list[_Event]) -> list[_About]:
    return [(each.messageID, topic) for each in listed for topic in each.topics or (each.topic,)]


def _gossip_kind(rpc: _Rpc) -> str:
    if rpc.messages:
        return PAYLOAD
    if rpc.control is not None:
        for name, kind in GOSSIP_CONTROL.items():
            if getattr(rpc.control, name):
                return kind
    return SUBSCRIPTION if rpc.subscription else EMPTY


# --- lines as tables of Spark ---------------------------------------------------------------------


def text_lines(spark: SparkSession, paths: Iterable[str | Path]) -> DataFrame:
    """The lines of text files, packed or not: `file` and `text`."""
    text = spark.read.option("lineSep", "\n").text([str(path) for path in paths])
    return text.select(F.col("_metadata.file_path").alias("file"), F.col("value").alias("text"))


def parsed(text: DataFrame) -> DataFrame:
    """Lines → what they say (TRACE_LINE); empty ones are left out."""
    return text.select("file", "text").mapInArrow(_parsed, TRACE_LINE)


def _parsed(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    """Parse lines, some at a time; runs in workers."""
    shape = to_arrow_schema(TRACE_LINE)
    for batch in batches:
        said = parse(batch.column("text").to_pylist())
        nothing: list[Cell] = [None] * len(said.places)
        good = [*said.columns, nothing, nothing]
        bad: list[list[Cell]] = [[None] * len(said.bad) for _ in TRACE.fields]
        bad += [[text for _, text, _ in said.bad], [why for _, _, why in said.bad]]
        names = [*TRACE.names, "text", "problem"]
        arrays = {
            name: pyarrow.array(first + rest, shape.field(name).type)
            for name, first, rest in zip(names, good, bad, strict=True)
        }
        places = said.places + [place for place, _, _ in said.bad]
        arrays["file"] = batch.column("file").take(pyarrow.array(places, pyarrow.int64()))
        yield pyarrow.RecordBatch.from_arrays([arrays[name] for name in shape.names], schema=shape)


def records(rows: DataFrame) -> DataFrame:
    """The good rows (TRACE) of parsed lines."""
    return selected(rows.where(F.col("problem").isNull()), TRACE)


def laid_out(frame: DataFrame) -> DataFrame:
    """Records in the order in which a table that stays should have them: by kind. Most figures need
    one or two kinds, and Parquet then skips the pages of the others."""
    return frame.sortWithinPartitions("kind")


def rejects(rows: DataFrame, text: DataFrame) -> DataFrame:
    """The bad lines (REJECT) among parsed ones, with their numbers.

    Spark reads files in parts and does not count lines. So the files with bad lines are read again:
    rows keep their order within a part, and what stands before a part is counted.
    """
    bad = rows.where(F.col("problem").isNotNull()).select("file", "text", "problem").distinct()
    numbered = text.join(F.broadcast(bad.select("file").distinct()), "file", "left_semi")
    numbered = numbered.withColumn("row", F.monotonically_increasing_id())
    part = F.shiftright("row", _ROWS_BITS).alias("piece")
    parts = numbered.groupBy("file", part).agg(
        F.min("row").alias("start"), F.count(F.lit(1)).alias("rows")
    )
    before = Window.partitionBy("file").orderBy("piece").rowsBetween(_FIRST, -1)
    offsets = parts.select(
        "file", "piece", "start", F.coalesce(F.sum("rows").over(before), F.lit(0)).alias("before")
    )
    found = numbered.join(F.broadcast(bad), ["file", "text"]).withColumn("piece", part)
    placed = found.join(F.broadcast(offsets), ["file", "piece"])
    return selected(
        placed.select(
            F.regexp_replace("file", "^file:/+", "/").alias("file"),
            (F.col("before") + F.col("row") - F.col("start") + 1).alias("line"),
            F.col("problem").alias("reason"),
            F.substring("text", 1, TEXT_SHOWN).alias("text"),
        ),
        REJECT,
    )
