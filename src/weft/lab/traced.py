"""Rows of a run: what its trace adds up to, as the pipeline adds it up, and back.

A task plays a run and writes its trace aside; the pipeline's own reader adds it up to pieces
(`pipeline/traces/pieces.py`), which stand in one table, told apart by `piece`. On the driver the
pieces of all runs become the pipeline's pieces again: every name of a peer, a topic or an event is
prefixed with its run, so that runs stay apart in all tables that the pipeline makes. So a message,
a copy, a delivery and a latency mean in an experiment what they mean in `weft trace`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, NamedTuple, TypeVar

import pyarrow
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType

from weft import trace
from weft.ids import PeerId
from weft.pipeline.schemas import SMALL, TEXT, TRUTH, WHOLE, columns, selected
from weft.pipeline.traces import figures, pieces
from weft.protocol.delivery import JOIN, LEAVE

T = TypeVar("T")
PIECES = columns(
    piece=TEXT,
    peer=TEXT,
    topic=TEXT,
    other=TEXT,
    kind=TEXT,
    rpc=TEXT,
    message=TEXT,
    publisher=TEXT,
    begins=TRUTH,
    messages=WHOLE,
    bytes=WHOLE,
    latest_ns=WHOLE,
    timestamp_ns=WHOLE,
    published_ns=WHOLE,
    delivered_ns=WHOLE,
    hops=SMALL,
    times=WHOLE,
    times_ns=ArrayType(WHOLE),
)
"""Of a run's rows, those that its trace fills."""
NAMES = ("peer", "topic", "other", "message", "publisher")
"""The columns that name something of one run."""
SEPARATOR = "|"


# --- in a task ------------------------------------------------------------------------------------


class WindowWriter(trace.Writer):
    """A trace of a window: before it begins, only subscriptions are written."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self._begun = False

    def begin(self) -> None:
        self._begun = True

    def write(
        self, peer: PeerId, timestamp_ns: int, kind: str, fields: Mapping[str, object]
    ) -> None:
        if self._begun or kind in (JOIN, LEAVE):
            super().write(peer, timestamp_ns, kind, fields)


def recorded(play: Callable[[WindowWriter], T]) -> tuple[T, dict[str, pyarrow.Array]]:
    """Play a run that writes a trace; returns what playing returned, and what the trace adds up to
    (PIECES). The world tells what is sent, peers what they do, if their settings have `trace`."""
    with TemporaryDirectory(prefix="weft-lab-") as folder:
        path = Path(folder) / "trace.jsonl"
        with path.open("wb") as file:
            played = play(WindowWriter(file))
        return played, added_up(path)


def added_up(path: Path) -> dict[str, pyarrow.Array]:
    """The pieces of a trace in a file, as columns of one table."""
    sums = pieces.Sums()
    for part in pieces.spans(str(path), 0, path.stat().st_size):
        for table, wrong, _ in pieces.blocks(part):
            if wrong:
                raise ValueError(f"the simulator wrote a bad line: {wrong[0]}")
            sums.add(table)
    rows: dict[str, list[Any]] = {name: [] for name in PIECES.names}
    for piece, found in sums.tables().items():
        listed = _plain(found)
        listed["piece"] = [piece] * found.num_rows
        for name in rows:
            rows[name] += listed.get(name, [None] * found.num_rows)
    types = to_arrow_schema(PIECES)
    return {name: pyarrow.array(column, types.field(name).type) for name, column in rows.items()}


def _plain(table: pyarrow.Table) -> dict[str, list[Any]]:
    return {name: table.column(name).to_pylist() for name in table.column_names}


# --- on the driver --------------------------------------------------------------------------------


def run_name() -> Column:
    """The name of a row's run."""
    return F.concat_ws("-", "point", "seed")


def run_in(name: str) -> Column:
    """The run that a prefixed name is from."""
    return F.substring_index(F.col(name), SEPARATOR, 1)


def piece_of(rows: DataFrame, name: str) -> DataFrame:
    """One of the pipeline's pieces, over all runs."""
    shape = pieces.SHAPES[name]
    prefixed = {
        each: F.concat_ws(SEPARATOR, run_name(), F.col(each))
        for each in NAMES
        if each in shape.names
    }
    some = rows.where(F.col("piece") == name).withColumns(prefixed)
    return selected(some, shape)


def runs_of(rows: DataFrame, *about: str) -> DataFrame:
    """What is known of each run: `run`, its task, and what `about` names."""
    kept = [F.first(each, ignorenulls=True).alias(each) for each in about]
    return rows.groupBy(run_name().alias("run"), "point", "seed").agg(*kept)


class Tables(NamedTuple):
    """The pipeline's tables of some runs, `run` among their columns: deliveries with what is known
    of their events, events, copies that came to peers, messages by peer and kind."""

    placed: DataFrame
    events: DataFrame
    receipts: DataFrame
    traffic: DataFrame


def tables_of(rows: DataFrame) -> Tables:
    """Rows of runs (PIECES) → the tables that the pipeline makes of their traces."""
    changes, publishes = piece_of(rows, "changes"), piece_of(rows, "publishes")
    histories = pieces.histories(changes)
    given = piece_of(rows, "deliveries").transform(pieces.merged_deliveries)
    placed = given.transform(figures.placed, publishes, histories)
    return Tables(
        placed.withColumn("run", run_in("message")),
        placed.transform(figures.events, publishes, changes).withColumn("run", run_in("message")),
        piece_of(rows, "copies")
        .transform(pieces.receipts, histories)
        .withColumn("run", run_in("peer")),
        piece_of(rows, "traffic")
        .transform(pieces.merged_traffic)
        .withColumn("run", run_in("peer")),
    )


def copies(tables: Tables) -> DataFrame:
    """Per run: copies of events that came to peers, deliveries to others than the publisher, and
    the one over the other."""
    remote = tables.placed.where("remote").select("run", F.lit(1).alias("deliveries"))
    return figures.copied(tables.receipts, remote, "run")


def overview(rows: DataFrame, *about: str) -> DataFrame:
    """Rows of runs → one row for each: its task, what `about` names, how many deliveries were
    expected, happened, and went to `others` beside, and what `copies` tells."""
    tables = tables_of(rows)
    given = tables.events.groupBy("run").agg(
        F.sum("subscribers").alias("expected"),
        *(F.sum(each).alias(each) for each in ("delivered", "others", "twice")),
    )
    runs = runs_of(rows, *about)
    return reduce(lambda one, other: one.join(other, "run", "left"), (given, copies(tables)), runs)
