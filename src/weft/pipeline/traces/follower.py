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

*The state* is the pieces of all that was read, which do not grow with the trace, except for events
and their deliveries. Those of an event are kept until the *watermark* has passed its publishing:
the time up to which all peers that still write have been read, less a delay. Then the event is
settled: its row and its latencies are final, and its deliveries are forgotten. A delivery that
comes later still counts among those `without_publish`, and is seen there.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from weft.pipeline import tables
from weft.pipeline.schemas import REJECT, TEXT, WHOLE, columns, selected
from weft.pipeline.session import parallelism
from weft.pipeline.traces import figures, pieces
from weft.pipeline.traces.figures import EVENT, LATENCY
from weft.pipeline.traces.measure import (
    COUNT,
    FRESH,
    PIECES,
    SETTLED_EVENTS,
    SETTLED_LATENCIES,
    SETTLED_MISSING,
    drawn,
    unplaced,
    write_tables,
)
from weft.pipeline.traces.pieces import BAD_LINE, CHANGE, PART_LINES, TRAFFIC_PART
from weft.pipeline.traces.source import SUFFIXES, NoTrace

NAME = "weft-growing-files"
BATCH_BYTES_MAX = 256 << 20  # guess: about a million records
_TAIL_BYTES = 1 << 16
Offset = dict[str, int]

FOLDER = ".follow"
FOLLOWED = tuple(each for each in SUFFIXES if not each.endswith(".gz"))
DELAY_S = 120.0  # guess: a peer's trace reaches the disk within seconds, an event its last peer too
_AS_FOUND = ("connections", "publishes", "deliveries")
_LINES = columns(file=TEXT, lines=WHOLE)
_BEFORE_ALL = -1
_NOTE = columns(watermark_ns=WHOLE)
_NEVER_NS = -(1 << 62)
_STATE: Mapping[str, StructType] = {
    **PIECES,
    "rejects": REJECT,
    "lines": _LINES,
    SETTLED_EVENTS: EVENT,
    SETTLED_LATENCIES: LATENCY,
    SETTLED_MISSING: COUNT,
    "watermark": _NOTE,
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
        self._out = out
        self._own = out / FOLDER
        self._delay_ns = int(delay_s * 1e9)
        self._tell = tell
        self._latest = time.monotonic()

    def run(self, every_s: float, idle_s: float | None = None) -> None:
        """Follow until interrupted, or until nothing new has come for a while."""
        self._claim()
        self._spark.dataSource.register(GrowingFiles)
        source = self._spark.readStream.format(NAME)
        source = source.option("suffixes", ",".join(FOLLOWED))
        query = (
            source.load(str(self._trace))
            .writeStream.foreachBatch(self._on_batch)
            .option("checkpointLocation", str(self._own / "checkpoint"))
            .trigger(processingTime=f"{int(every_s * 1000)} milliseconds")
            .start()
        )
        self._latest = time.monotonic()
        try:
            while not query.awaitTermination(1):
                quiet_s = time.monotonic() - self._latest
                if idle_s is not None and quiet_s > idle_s and self._caught_up(query):
                    return
        finally:
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
        asked = {"trace": str(self._trace)}
        if note.exists():
            found = json.loads(note.read_text())
            if found != asked:
                raise NoTrace(f"{self._out} follows {found['trace']}; name another folder")
            return
        self._own.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps(asked) + "\n")

    # --- one batch ------------------------------------------------------------------------------

    def _on_batch(self, spans: DataFrame, number: int) -> None:
        self._latest = time.monotonic()
        states = self._own / "state"
        done = states / str(number)
        if not done.exists():
            before = self._read(states / str(number - 1)) if number else None
            aside = states / f".{number}"
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir(parents=True)
            self._advance(spans, before, aside)
            aside.rename(done)
        for older in states.iterdir():
            if older.name != done.name:
                shutil.rmtree(older)
        self._tell(self._write(done))
        self._latest = time.monotonic()

    def _read(self, folder: Path) -> State:
        return {
            name: tables.read(self._spark, folder / name, shape) for name, shape in _STATE.items()
        }

    def _advance(self, spans: DataFrame, before: State | None, folder: Path) -> None:
        """Write the state after these parts of the trace."""
        fresh = folder / FRESH
        # A span is a task unless told otherwise, and there is one for each peer.
        pieces.add_up(spans.coalesce(pieces.TASKS_PER_CORE * parallelism(self._spark)), fresh)

        def found(name: str, shape: StructType) -> DataFrame:
            return tables.read(self._spark, fresh / name, shape)

        changes = _merged("changes", found("changes", CHANGE), before)
        changes = self._kept(changes, folder / "changes", CHANGE)
        histories = pieces.histories(changes)
        new = {name: found(name, PIECES[name]) for name in _AS_FOUND}
        new |= drawn(self._spark, fresh, histories)
        new["watermark"] = found("traffic", TRAFFIC_PART).transform(_watermark, self._delay_ns)
        lines = found(pieces.LINES, PART_LINES)
        new["rejects"] = found(pieces.BAD, BAD_LINE).transform(
            pieces.rejects, _before(lines, before)
        )
        new["lines"] = lines.groupBy("file").agg(F.sum("lines").alias("lines"))
        merged = {name: _merged(name, new[name], before) for name in new}
        [row] = self._kept(merged.pop("watermark"), folder / "watermark", _NOTE).collect()
        merged |= _settle(merged, changes, row.watermark_ns, before)
        for name, frame in merged.items():
            tables.write(frame, folder / name)
        shutil.rmtree(fresh)

    def _kept(self, frame: DataFrame, folder: Path, shape: StructType) -> DataFrame:
        """A table written and read back."""
        tables.write(frame, folder)
        return tables.read(self._spark, folder, shape)

    def _write(self, folder: Path) -> Figures:
        rejects = tables.read(self._spark, folder / "rejects", REJECT)
        return write_tables(self._spark, folder, rejects, self._out)


def _watermark(traffic: DataFrame, delay_ns: int) -> DataFrame:
    """How far all peers have been read that wrote in these parts, less a delay."""
    latest = traffic.groupBy("peer").agg(F.max("latest_ns").alias("latest_ns"))
    return latest.agg((F.min("latest_ns") - delay_ns).alias("watermark_ns"))


def _before(lines: DataFrame, before: State | None) -> DataFrame:
    """Lines of parts, and of each file what was read before, as one part more."""
    if before is None:
        return lines
    older = before["lines"].withColumn("start", F.lit(_BEFORE_ALL))
    return lines.unionByName(selected(older, PART_LINES))


def _total(lines: DataFrame) -> DataFrame:
    return selected(lines.groupBy("file").agg(F.sum("lines").alias("lines")), _LINES)


def _latest(watermarks: DataFrame) -> DataFrame:
    latest = F.coalesce(F.max("watermark_ns"), F.lit(_NEVER_NS))
    return selected(watermarks.agg(latest.alias("watermark_ns")), _NOTE)


_MERGE: Mapping[str, Callable[[DataFrame], DataFrame]] = {
    "traffic": pieces.merged_traffic,
    "deliveries": pieces.merged_deliveries,
    "receipts": pieces.merged_receipts,
    "lines": _total,
    "watermark": _latest,
}


def _merged(name: str, new: DataFrame, before: State | None) -> DataFrame:
    frame = new if before is None else before[name].unionByName(new)
    return frame.transform(_MERGE[name]) if name in _MERGE else frame


def _settle(merged: State, changes: DataFrame, watermark_ns: int, before: State | None) -> State:
    """Part events at the watermark: settled ones become final, the others stay open."""
    publishes, deliveries = merged["publishes"], merged["deliveries"]
    old = publishes.where(F.col("published_ns") < watermark_ns)
    placed = deliveries.transform(figures.placed, old, pieces.histories(changes))
    strays = unplaced(deliveries, publishes)
    lost = F.col("delivered_ns") < watermark_ns
    settled = {
        SETTLED_EVENTS: placed.transform(figures.events, old, changes),
        SETTLED_LATENCIES: placed.transform(figures.latencies),
        SETTLED_MISSING: strays.where(lost).agg(F.count(F.lit(1)).alias("number")),
    }
    if before is not None:
        settled = {name: before[name].unionByName(frame) for name, frame in settled.items()}
        latencies = settled[SETTLED_LATENCIES].transform(figures.merged_latencies)
        number = settled[SETTLED_MISSING].agg(F.sum("number").alias("number"))
        settled |= {SETTLED_LATENCIES: latencies, SETTLED_MISSING: number}
    young = publishes.where(F.col("published_ns") >= watermark_ns)
    waiting = deliveries.join(young.select("message").distinct(), "message", "left_semi")
    return {
        **settled,
        "publishes": young,
        "deliveries": waiting.unionByName(strays.where(~lost)),
    }
