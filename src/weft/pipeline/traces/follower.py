"""The tables of a trace kept up to date while it grows, on Structured Streaming.

Spark hands over spans of new lines in numbered batches. The state after batch n is a function of
the state after batch n−1 and of the lines of batch n, which are always the same. It is written
aside and renamed, and Spark takes a batch as done only then. So if the follower is killed at any
moment, the next one finds a whole state, repeats at most one batch, and ends with the same tables:
every record counts exactly once.

*Files that grow.* Spark's own file source takes a file as finished when it sees it. A trace is
written to while it is followed, so here an offset is how far into each file one has read, always at
the end of a line, and a batch is a span of bytes of each file. Offsets go into Spark's checkpoint;
what lies before one never changes, so a batch that is run again reads the same lines. New files in
a folder are found. Spark gets the spans alone (PART); the tasks that add up read them (`pieces`).
What is read at once is limited, so that a long trace is caught up with in steps: of every file the
same share of what is left, so that peers which wrote at the same time are read about together.

*The state* is the pieces of all that was read, keyed by peer, link and event, and it does not grow
with the trace. Traffic and receipts are sums. Events and their deliveries are kept until the
*watermark* has passed their publishing: the time up to which all peers that still write have been
read, less a delay. Then they are settled: they move to the archive. Of subscriptions that change,
those before the watermark move there too, but for the last of each; connections are added up.

*The archive* is files that are only added to, and read for the tables alone. If something turns up
that belongs to a settled event (a delivery after the delay, a subscription of a peer whose file was
found late, a LEAVE that is a peer's first record of a topic), the event is taken back out and
settled again with it. So lateness costs time and changes no figure. The records of one peer must be
read in the order of time.

*Copies before the first change.* A peer whose first record of a topic is LEAVE was subscribed
before; one whose first is JOIN was not. Until either is read, copies of the topic's events are
counted apart.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, TypeAlias

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from weft.pipeline import tables
from weft.pipeline.schemas import REJECT, TEXT, TRUTH, WHOLE, columns, joined, selected
from weft.pipeline.session import parallelism
from weft.pipeline.traces import figures, pieces
from weft.pipeline.traces.figures import EVENT, HELD, LATENCY
from weft.pipeline.traces.measure import FRESH, PIECES, Settled, unplaced, write_tables
from weft.pipeline.traces.pieces import (
    BAD_LINE,
    CHANGE,
    CONNECTION,
    COPIES,
    DELIVERY,
    PART_LINES,
    PUBLISH,
    RECEIPT_PIECE,
    TRAFFIC_PART,
)
from weft.pipeline.traces.source import LINE_SUFFIXES, NoTrace

NAME = "weft-growing-files"
LAYOUT = 2
"""Of what is kept below FOLDER."""
BATCH_BYTES_MAX = 256 << 20  # guess: about a million records
_TAIL_BYTES = 1 << 16
_LOOK_S = 0.2  # guess: how often to look whether to end
_ENDED = "ended on request"
_LATE_WORKER = "Python worker failed to connect back"
"""What Spark says if the Python process that reads offsets needs more than 10 s to start, a limit
that no setting changes. On a busy machine that happens, and a new query may start in time."""
_STARTS_MAX = 20  # guess: times that a query is started; a new one goes on from the last batch
_SUBSCRIPTION = ["peer", "topic"]
_STRAYS = ("parasites", "routed")
_OF_EVENTS = ("events", "deliveries")
Offset = dict[str, int]

FOLDER = ".follow"
FOLLOWED = tuple(each for each in LINE_SUFFIXES if not each.endswith(".gz"))
DELAY_S = 120.0  # guess: a peer's trace reaches the disk within seconds, an event its last peer too
_LINES = columns(file=TEXT, lines=WHOLE)
_BEFORE_ALL = -1
# How far events are settled, how many deliveries in the archive are of unknown events, and by which
# batch the archive begins.
_NOTE = columns(watermark_ns=WHOLE, missing=WHOLE, since=WHOLE)
_MESSAGE = columns(message=TEXT)
_TOPIC = columns(topic=TEXT)
_NEVER_NS = -(1 << 62)
_STATE: Mapping[str, StructType] = {
    **PIECES,
    "undecided": RECEIPT_PIECE,
    "held": HELD,
    "rejects": REJECT,
    "lines": _LINES,
    "latencies": LATENCY,
    "note": _NOTE,
}
# The latency is that of deliveries to others; `known` if the event's publishing is.
_SETTLED_DELIVERY = joined(DELIVERY, columns(latency_ns=WHOLE, known=TRUTH))
_ARCHIVE: Mapping[str, StructType] = {
    "events": EVENT,
    "deliveries": _SETTLED_DELIVERY,
    "changes": CHANGE,
}
State: TypeAlias = dict[str, DataFrame]
Figures: TypeAlias = dict[str, float | None]


# --- files that grow ------------------------------------------------------------------------------


class Shrunk(Exception):
    """A file is shorter than what was read of it."""


class GrowingFiles(DataSource):
    """Spans of the files in a folder (option `path`) that end in `suffixes`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "file string, start long, end long"

    def streamReader(self, schema: StructType) -> Reader:
        return Reader(Path(self.options["path"]), tuple(self.options["suffixes"].split(",")))


@dataclass(frozen=True)
class Span(InputPartition):
    """A part of a file."""

    part: pieces.Part


class Reader(DataSourceStreamReader):
    """Offsets: a file's path → bytes read."""

    def __init__(self, path: Path, suffixes: tuple[str, ...]) -> None:
        self._path = path
        self._suffixes = suffixes

    def initialOffset(self) -> Offset:
        return {}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        paths = files(self._path, self._suffixes)
        unread = {path: path.stat().st_size - start.get(str(path), 0) for path in paths}
        share = min(1.0, BATCH_BYTES_MAX / max(1, sum(unread.values())))
        found = dict(start)
        for path, size in unread.items():
            known = start.get(str(path), 0)
            end = last_line_end(path, known, known + int(size * share))
            if end > known:
                found[str(path)] = end
        return found

    def partitions(self, start: Offset, end: Offset) -> list[Span]:
        return [
            Span(part)
            for path, stop in sorted(end.items())
            for part in pieces.spans(path, start.get(path, 0), stop)
        ]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, int, int]]:
        assert isinstance(partition, Span)
        yield partition.part


def files(path: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """The files of a folder, or the one that is named."""
    if path.is_file():
        return [path]
    found = path.iterdir() if path.is_dir() else iter(())
    return sorted(each for each in found if each.name.endswith(suffixes) and each.is_file())


def last_line_end(path: Path, known: int, most: int) -> int:
    """Where the last whole line ends, after `known` and not after `most`; if none does, where the
    next line ends, or `known`."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size < known:
            raise Shrunk(f"{path} is shorter than before; a trace that is followed may only grow")
        end = _newline_before(file, known, min(size, most))
        if end > known:
            return end
        file.seek(known)
        while block := file.readline(_TAIL_BYTES):
            if block.endswith(b"\n"):
                return file.tell()
        return known


def _newline_before(file: BinaryIO, low: int, high: int) -> int:
    """The end of the last line within these bytes; `low` if none ends there."""
    while high > low:
        at = max(low, high - _TAIL_BYTES)
        file.seek(at)
        found = file.read(high - at).rfind(b"\n")
        if found >= 0:
            return at + found + 1
        high = at
    return low


# --- tables kept up to date -----------------------------------------------------------------------


class Follower:
    """Follows the trace in a folder (or one file) and keeps tables of it in another."""

    def __init__(
        self,
        spark: SparkSession,
        trace: Path,
        out: Path,
        delay_s: float = DELAY_S,
        tell: Callable[[Figures], None] = lambda _: None,
    ) -> None:
        self._spark = spark
        self._trace = trace.resolve()
        self._out = out.absolute()  # workers may be in another folder
        self._own = self._out / FOLDER
        self._delay_ns = int(delay_s * 1e9)
        self._tell = tell
        self._latest = time.monotonic()
        self._batch = threading.Lock()
        self._ending = threading.Event()

    def end(self) -> None:
        """Have `run` return after the batch that is being added up, if there is one."""
        self._ending.set()

    def run(self, every_s: float, idle_s: float | None = None) -> None:
        """Follow until `end`, or until nothing new has come for a while."""
        self._claim()
        self._spark.dataSource.register(GrowingFiles)
        for left in reversed(range(_STARTS_MAX)):
            query = self._started(every_s)
            self._watch(query, idle_s)
            error = query.exception()
            if error is None or _ENDED in str(error):
                return
            if _LATE_WORKER not in str(error) or not left:
                raise error

    def _started(self, every_s: float) -> StreamingQuery:
        source = self._spark.readStream.format(NAME)
        source = source.option("suffixes", ",".join(FOLLOWED))
        return (
            source.load(str(self._trace))
            .writeStream.foreachBatch(self._on_batch)
            .option("checkpointLocation", str(self._own / "checkpoint"))
            .trigger(processingTime=f"{int(every_s * 1000)} milliseconds")
            .start()
        )

    def _watch(self, query: StreamingQuery, idle_s: float | None) -> None:
        """Wait until there is nothing more to do, or the query has ended by itself."""
        self._latest = time.monotonic()
        while not self._ending.wait(_LOOK_S) and query.isActive:
            quiet_s = time.monotonic() - self._latest
            if idle_s is not None and quiet_s > idle_s and self._caught_up(query):
                self._ending.set()
        with self._batch:
            pass  # a batch that has begun comes to its end, with whole tables
        query.stop()

    def _caught_up(self, query: StreamingQuery) -> bool:
        """Whether all whole lines there are have been read."""
        progress = query.lastProgress
        ends = [source.endOffset for source in progress.sources] if progress else []
        known: Offset = (json.loads(ends[0] or "null") if ends else None) or {}
        return all(
            last_line_end(path, known.get(str(path), 0), path.stat().st_size)
            == known.get(str(path), 0)
            for path in files(self._trace, FOLLOWED)
        )

    def _claim(self) -> None:
        """One folder of tables follows one trace."""
        note = self._own / "source.json"
        asked = {"trace": str(self._trace), "layout": LAYOUT}
        if note.exists():
            found = json.loads(note.read_text())
            if found.get("trace") != asked["trace"]:
                raise NoTrace(f"{self._out} has tables of {found['trace']}; name another folder")
            if found != asked:
                raise NoTrace(
                    f"{self._out} has tables of another version of weft; name another folder"
                )
            return
        self._own.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps(asked) + "\n")

    # --- one batch ------------------------------------------------------------------------------

    def _on_batch(self, spans: DataFrame, number: int) -> None:
        with self._batch:
            if self._ending.is_set():
                raise InterruptedError(_ENDED)  # Spark must not take the batch as done
            self._latest = time.monotonic()
            states = self._own / "state"
            done = states / str(number)
            if not done.exists():
                before = self._read(states / str(number - 1)) if number else None
                aside = states / f".{number}"
                shutil.rmtree(aside, ignore_errors=True)
                aside.mkdir(parents=True)
                _Batch(self._spark, self._own / "archive", aside, number, before).add(
                    spans, self._delay_ns
                )
                aside.rename(done)
            self._tell(self._write(done, number))
            self._forget(states, number)
            self._latest = time.monotonic()

    def _read(self, folder: Path) -> State:
        return {
            name: tables.read(self._spark, folder / name, shape) for name, shape in _STATE.items()
        }

    def _forget(self, states: Path, number: int) -> None:
        """Remove what the state no longer needs."""
        for older in states.iterdir():
            if older.name != str(number):
                shutil.rmtree(older)
        [note] = tables.read_small(states / str(number) / "note")
        for older in (self._own / "archive").iterdir():
            if int(older.name) < note["since"]:
                shutil.rmtree(older)

    def _write(self, folder: Path, number: int) -> Figures:
        state = self._read(folder)
        [note] = state["note"].collect()
        archive = _archived(self._spark, self._own / "archive", note.since, number)
        known = archive["deliveries"].where("latency_ns is not null")
        settled = Settled(
            archive["events"],
            state["latencies"],
            known.select("latency_ns"),
            note.missing,
            state["undecided"],
            state["held"],
        )
        rejects = state["rejects"]
        return write_tables(self._spark, folder, rejects, self._out, settled=settled)


def _archived(spark: SparkSession, folder: Path, since: int, last: int) -> State:
    """What the batches with these numbers have settled."""
    return {
        name: tables.read_folders(
            spark, [folder / str(number) / name for number in range(since, last + 1)], shape
        )
        for name, shape in _ARCHIVE.items()
    }


@dataclass(frozen=True)
class _Reopened:
    """What is to be settled, or stays open."""

    publishes: DataFrame
    deliveries: DataFrame
    changes: DataFrame  # all that they need
    latencies: DataFrame  # of what stays settled
    missing: int  # of what stays settled
    since: int  # by which batch the archive begins
    rest: State | None = None  # what is left of the archive, if that is to be written anew


class _Batch:
    """What one batch adds to the state before it."""

    def __init__(
        self, spark: SparkSession, archive: Path, folder: Path, number: int, before: State | None
    ) -> None:
        self._spark = spark
        self._archive = archive
        self._folder = folder
        self._fresh = folder / FRESH
        self._number = number
        self._before = before

    def add(self, spans: DataFrame, delay_ns: int) -> None:
        """Write the state after these parts of the trace, and what is settled with it."""
        # Without this every span would be a task, and there is a span for each peer.
        at_once = pieces.TASKS_PER_CORE * parallelism(self._spark)
        pieces.add_up(spans.coalesce(at_once), self._fresh)
        new = {
            name: self._found(name, PIECES[name])
            for name in ("changes", "connections", "publishes", "deliveries")
        }
        changes = self._kept(self._with("changes", new["changes"]), "known", CHANGE)
        traffic = self._found("traffic", TRAFFIC_PART)
        watermark_ns = self._watermark_ns(traffic, delay_ns)
        sums = self._with("traffic", pieces.merged_traffic(traffic))
        self._put("traffic", sums.transform(pieces.merged_traffic))
        self._add_receipts(pieces.histories(changes))
        self._add_connections(new["connections"])
        self._add_rejects()
        self._settle(new, changes, watermark_ns)
        shutil.rmtree(self._fresh)

    def _found(self, name: str, shape: StructType) -> DataFrame:
        """What the tasks of this batch found."""
        return tables.read(self._spark, self._fresh / name, shape)

    def _with(self, name: str, new: DataFrame) -> DataFrame:
        return new if self._before is None else self._before[name].unionByName(new)

    def _kept(self, frame: DataFrame, name: str, shape: StructType) -> DataFrame:
        """A table for this batch alone, written and read back."""
        tables.write(frame, self._fresh / name)
        return tables.read(self._spark, self._fresh / name, shape)

    def _put(self, name: str, frame: DataFrame) -> None:
        """Write a table of the state."""
        tables.write(selected(frame, _STATE[name]), self._folder / name)

    def _watermark_ns(self, traffic: DataFrame, delay_ns: int) -> int:
        """How far all peers have been read that wrote in these parts, less a delay."""
        latest = traffic.groupBy("peer").agg(F.max("latest_ns").alias("latest_ns"))
        [row] = latest.agg((F.min("latest_ns") - delay_ns).alias("watermark_ns")).collect()
        before = [] if self._before is None else self._before["note"].collect()
        known = before[0].watermark_ns if before else _NEVER_NS
        return int(known if row.watermark_ns is None else max(known, row.watermark_ns))

    # --- sums -----------------------------------------------------------------------------------

    def _add_receipts(self, histories: DataFrame) -> None:
        """Copies of events by whether they were wanted, once that is known."""
        copies = self._found("copies", COPIES)
        counted = pieces.receipts(copies, histories)
        first = histories.select("peer", "topic", F.col("changes")[0]["begins"].alias("joined"))
        open_now = self._with("undecided", counted.join(first, _SUBSCRIPTION, "left_anti"))
        decided = counted.join(first, _SUBSCRIPTION, "left_semi")
        if self._before is not None:
            asked = self._before["undecided"].join(first, _SUBSCRIPTION)
            stray = {name: F.when(F.col("joined"), F.col(name)).otherwise(0) for name in _STRAYS}
            told = selected(asked.withColumns(stray), RECEIPT_PIECE)
            decided = self._before["receipts"].unionByName(decided).unionByName(told)
        still = open_now.join(first, _SUBSCRIPTION, "left_anti")
        self._put("receipts", decided.transform(pieces.merged_receipts))
        self._put("undecided", still.transform(pieces.merged_receipts))

    def _add_connections(self, new: DataFrame) -> None:
        """Connections are added up but for the latest changes of each peer: more may have come at
        the same time, and of those the ends come first."""
        latest = F.max("timestamp_ns").over(Window.partitionBy("peer"))
        rows = self._with("connections", new).withColumn("latest", latest)
        rows = self._kept(rows, "connected", joined(CONNECTION, columns(latest=WHOLE)))
        before = None if self._before is None else self._before["held"]
        older = rows.where("timestamp_ns < latest").select(*CONNECTION.names)
        self._put("held", older.transform(figures.held_connections, before))
        self._put("connections", rows.where("timestamp_ns = latest"))

    def _add_rejects(self) -> None:
        lines = self._found(pieces.LINES, PART_LINES)
        counted = lines
        if self._before is not None:  # of each file what was read before, as one part more
            older = self._before["lines"].withColumn("start", F.lit(_BEFORE_ALL))
            counted = lines.unionByName(selected(older, PART_LINES))
        bad = self._found(pieces.BAD, BAD_LINE).transform(pieces.rejects, counted)
        self._put("rejects", self._with("rejects", bad))
        new = lines.groupBy("file").agg(F.sum("lines").alias("lines"))
        total = self._with("lines", new).groupBy("file").agg(F.sum("lines").alias("lines"))
        self._put("lines", total)

    # --- events ---------------------------------------------------------------------------------

    def _settle(self, new: State, changes: DataFrame, watermark_ns: int) -> None:
        """Part events at the watermark: settled ones go to the archive, the others stay open."""
        found = self._reopened(new, changes)
        deliveries = found.deliveries.transform(pieces.merged_deliveries)
        publishes = found.publishes.transform(pieces.merged_publishes)
        old = publishes.where(F.col("published_ns") < watermark_ns)
        young = publishes.where(F.col("published_ns") >= watermark_ns)
        histories = pieces.histories(found.changes)
        placed = deliveries.transform(figures.placed, old, histories).persist()
        strays = unplaced(deliveries, publishes)
        lost = F.col("delivered_ns") < watermark_ns

        outdated = changes.transform(_outdated, watermark_ns)
        remote = F.when(F.col("remote"), F.col("latency_ns"))
        known = placed.where("remote is not null").withColumns(
            {"latency_ns": remote, "known": F.lit(True)}
        )
        unknown = strays.where(lost).withColumns(
            {"latency_ns": F.lit(None).cast(WHOLE), "known": F.lit(False)}
        )
        self._archive_rows("events", placed.transform(figures.events, old, found.changes), found)
        # In the order of latency, so that few files and pages hold any one of them.
        gone = known.select(*unknown.columns).unionByName(unknown)
        self._archive_rows("deliveries", gone, found, by="latency_ns")
        self._archive_rows("changes", outdated, found)
        bins = found.latencies.unionByName(placed.transform(figures.latencies))
        self._put("latencies", bins.transform(figures.merged_latencies))
        self._put("changes", changes.exceptAll(outdated))
        self._put("publishes", young)
        waiting = deliveries.join(young.select("message").distinct(), "message", "left_semi")
        self._put("deliveries", waiting.unionByName(strays.where(~lost)))
        note = [(watermark_ns, found.missing + unknown.count(), found.since)]
        self._put("note", self._spark.createDataFrame(note, _NOTE))
        placed.unpersist()

    def _archive_rows(
        self, name: str, frame: DataFrame, found: _Reopened, by: str | None = None
    ) -> None:
        """Add to the archive, or write it anew with what is left of it."""
        rows = frame if found.rest is None else frame.unionByName(found.rest[name])
        ordered = rows if by is None else rows.sortWithinPartitions(by)
        tables.write(selected(ordered, _ARCHIVE[name]), self._archive / str(self._number) / name)

    def _reopened(self, new: State, changes: DataFrame) -> _Reopened:
        """The events that are open, and those that were settled and are to be settled again."""
        publishes = self._with("publishes", new["publishes"])
        deliveries = self._with("deliveries", new["deliveries"])
        if self._before is None:
            nothing = self._spark.createDataFrame([], LATENCY)
            return _Reopened(publishes, deliveries, changes, nothing, 0, 0)
        [note] = self._before["note"].collect()
        kept = _Reopened(
            publishes, deliveries, changes, self._before["latencies"], note.missing, note.since
        )
        if not self._is_late(new, note.watermark_ns):
            return kept
        archive = _archived(self._spark, self._archive, note.since, self._number - 1)
        every = archive["changes"].unionByName(changes)
        late = self._late(archive)
        if late is None:
            return replace(kept, changes=every)
        back = {name: archive[name].join(late, "message", "left_semi") for name in _OF_EVENTS}
        rest = {name: archive[name].join(late, "message", "left_anti") for name in _OF_EVENTS}
        once = back["deliveries"].dropDuplicates(["message", "peer"])  # it was one for each topic
        remote = rest["deliveries"].withColumn("remote", F.col("latency_ns").isNotNull())
        return _Reopened(
            publishes.unionByName(selected(back["events"], PUBLISH)),
            deliveries.unionByName(selected(once, DELIVERY)),
            every,
            remote.transform(figures.latencies),
            rest["deliveries"].where("not known").count(),
            self._number,
            {**rest, "changes": archive["changes"]},
        )

    def _is_late(self, new: State, settled_ns: int) -> bool:
        """Whether anything of this batch may belong to settled events; if so, the tables `late`
        and `late-topics` say to which messages and to the events of which topics. Mostly nothing
        does, and then the archive is not read."""
        open_events = self._with("publishes", new["publishes"])
        said = unplaced(new["deliveries"], open_events).select("message")
        published = new["publishes"].where(F.col("published_ns") < settled_ns).select("message")
        earlier = new["changes"].where(F.col("timestamp_ns") < settled_ns).select("topic")
        # A peer whose first word is LEAVE was subscribed at all times before.
        left = new["changes"].where("not begins")
        if self._before is not None:
            left = left.join(self._before["changes"], _SUBSCRIPTION, "left_anti")
        changed = earlier.union(left.select("topic"))
        self._kept(said.unionByName(published).distinct(), "late", _MESSAGE)
        self._kept(changed.distinct(), "late-topics", _TOPIC)
        return any(tables.count(self._fresh / name) for name in ("late", "late-topics"))

    def _late(self, archive: State) -> DataFrame | None:
        """The settled events that something of this batch belongs to; None if there are none."""
        messages = self._found("late", _MESSAGE)
        topics = self._found("late-topics", _TOPIC)
        named = archive["deliveries"].select("message").union(archive["events"].select("message"))
        by_name = named.join(messages, "message", "left_semi")
        by_topic = archive["events"].join(topics, "topic", "left_semi").select("message")
        late = self._kept(by_name.unionByName(by_topic).distinct(), "back", _MESSAGE)
        return late if tables.count(self._fresh / "back") else None


def _outdated(changes: DataFrame, watermark_ns: int) -> DataFrame:
    """Changes of subscriptions (CHANGE) that another one follows before the watermark."""
    ordered = Window.partitionBy("peer", "topic").orderBy("timestamp_ns", "begins")
    later = changes.withColumn("next", F.lead("timestamp_ns").over(ordered))
    return later.where(F.col("next") < watermark_ns).select(*CHANGE.names)
