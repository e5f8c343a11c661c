"""Rows of a run: what its trace adds up to, as the pipeline adds it up, and back.

A task plays a run and writes its trace aside; the pipeline's own reader adds it up to pieces
(`pipeline/traces/pieces.py`), which stand in one table, told apart by `piece`. On the driver the
pieces of all runs become the pipeline's pieces again: every name of a peer, a topic or an event is
prefixed with its run, so that runs stay apart in all tables that the pipeline makes.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FunctionType, ModuleType
from typing import Any

import pyarrow
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, StructType

from weft.lab.experiment import Columns, Params
from weft.lab.overlaid import Overlaid
from weft.lab.versus.crowd import Publications, draw_universe
from weft.lab.versus.network import WINDOW_MS, Fault, VersusRun
from weft.lab.versus.systems import SYSTEMS
from weft.pipeline.schemas import NUMBER, SMALL, TEXT, TRUTH, WHOLE, columns, joined, selected
from weft.pipeline.traces import pieces
from weft.protocol.seam import Machine

# What every row says of its run; `driven_by` is what its publications came from (`crowd.TRACE` or
# RATE), `state_bytes` the mean memory of a peer's machine at the end, the one figure that no trace
# has.
RUN = columns(
    source=TEXT,
    system=TEXT,
    fault=TEXT,
    level=SMALL,
    peers=SMALL,
    topics=SMALL,
    driven_by=TEXT,
    from_ns=WHOLE,
    state_bytes=NUMBER,
)
_PIECE = columns(
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
ROWS = joined(RUN, _PIECE)
NAMES = ("peer", "topic", "other", "message", "publisher")
"""The columns that name something of one run."""
SEPARATOR = "|"


# --- in a task ------------------------------------------------------------------------------------


def played(params: Params, seed: int, over: Overlaid) -> Columns:
    """Play the run of a point and add its trace up."""
    topics, users = over.memberships()
    universe = draw_universe(topics, users, params["most"], seed)
    events = Publications(universe, seed, params["events"], WINDOW_MS, over.happened())
    fault = Fault(params["fault"], params["level"])
    with TemporaryDirectory(prefix="weft-versus-") as folder:
        path = Path(folder) / "trace.jsonl"
        with path.open("wb") as file:
            run = VersusRun(seed, SYSTEMS[params["system"]], universe, events, fault, file)
            run.play()
        found = added_up(path)
    live = [node.machine for node in run.net.nodes if node.machine is not None]
    return {
        **found,
        "peers": universe.peers,
        "topics": len(universe.by_topic),
        "driven_by": events.driven_by,
        "from_ns": run.from_ms * 1_000_000,
        "state_bytes": state_bytes(live),
    }


def added_up(path: Path) -> dict[str, pyarrow.Array]:
    """The pieces of a trace in a file, as columns of one table."""
    sums = pieces.Sums()
    for part in pieces.spans(str(path), 0, path.stat().st_size):
        for table, wrong, _ in pieces.blocks(part):
            if wrong:
                raise ValueError(f"the simulator wrote a bad line: {wrong[0]}")
            sums.add(table)
    rows: dict[str, list[Any]] = {name: [] for name in _PIECE.names}
    for piece, found in sums.tables().items():
        listed = _plain(found)
        listed["piece"] = [piece] * found.num_rows
        for name in rows:
            rows[name] += listed.get(name, [None] * found.num_rows)
    types = to_arrow_schema(_PIECE)
    return {name: pyarrow.array(column, types.field(name).type) for name, column in rows.items()}


def _plain(table: pyarrow.Table) -> dict[str, list[Any]]:
    return {name: table.column(name).to_pylist() for name in table.column_names}


def state_bytes(machines: Iterable[Machine]) -> float:
    """The mean memory of some machines: all objects that they reach, each counted once, so that an
    object that several reach is divided among them."""
    held = list(machines)
    seen: set[int] = set()
    total = 0
    ahead: list[object] = list(held)
    skipped = (type, ModuleType, FunctionType, StructType)
    while ahead:
        one = ahead.pop()
        if id(one) in seen or isinstance(one, skipped):
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        ahead += gc.get_referents(one)
    return total / max(1, len(held))


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


def runs_of(rows: DataFrame) -> DataFrame:
    """What is known of each run: `run`, the task and `RUN`."""
    kept = [F.first(each).alias(each) for each in RUN.names]
    return rows.groupBy(run_name().alias("run"), "point", "seed").agg(*kept)
