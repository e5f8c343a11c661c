"""How fast the figures of a trace are had: all tables, from JSON lines and from Parquet.

The trace is one that weft's simulator wrote, copied under other names of peers and topics, so that
there are as many networks as copies, each with its own events. Spark's session is warm; figures are
by the clock, and since other work on the machine can only slow it down, the fastest turn counts.
CPU time is told beside it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.peer import machine
from benchmarks.pipeline.processes import timed

from weft.pipeline import tables
from weft.pipeline.schemas import TRACE
from weft.pipeline.session import SessionSettings, opened
from weft.pipeline.traces import source as read
from weft.pipeline.traces.measure import measure as measure_trace
from weft.pipeline.traces.source import Source, find
from weft.sim.scenario import ScenarioSettings, run
from weft.trace import Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COPIES = {"json": 8, "parquet": 32}  # of some 400,000 records
WARM_UP_TURNS = 1
TURNS = 3


def measure(quick: bool) -> dict[str, Any]:
    share = 8 if quick else 1
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as aside:
        folder = Path(aside)
        one = simulated(folder / "one.jsonl")
        lines = copied(one, folder / "lines", max(1, COPIES["json"] // share))
        with opened(SessionSettings("local[2]", "weft bench", driver_memory="3g")) as spark:
            lake = ingested(spark, one, folder, max(1, COPIES["parquet"] // share))
            found: dict[str, Any] = {}
            for name, source in (("json", lines), ("parquet", lake)):
                found |= in_turns(spark, name, source, folder / "out")
            return found


def simulated(path: Path) -> Path:
    machine.say("traces: a simulated run of 60 peers")
    with path.open("wb") as file:
        result = run(ScenarioSettings(seed=3, peers=60, topics=15, events=1500), Writer(file))
    if result.violations:
        raise RuntimeError(f"the simulated run failed: {result.violations[0]}")
    return path


def renamed(data: bytes, copy: int) -> bytes:
    """The same trace of other peers in other topics."""
    mark = b"%02d" % copy
    data = data.replace(b'"12D3KooW', b'"12D3Koo' + mark)
    return data.replace(b'":"/', b'":"/' + mark + b"/").replace(b"@/", b"@/" + mark + b"/")


def copied(one: Path, folder: Path, copies: int) -> Source:
    folder.mkdir()
    data = one.read_bytes()
    for copy in range(copies):
        (folder / f"{copy:02}.jsonl").write_bytes(renamed(data, copy))
    return find([folder])


def ingested(spark: SparkSession, one: Path, folder: Path, copies: int) -> Source:
    """The trace in the shape of the lake, one part of the table at a time."""
    machine.say(f"traces: {copies} copies as Parquet")
    data = one.read_bytes()
    for copy in range(copies):
        path = folder / "copy.jsonl"
        path.write_bytes(renamed(data, copy))
        rows = read.records(read.parsed(read.text_lines(spark, [path])))
        tables.write(rows.transform(read.laid_out), folder / "lake" / "trace" / f"part-{copy:02}")
    return find([folder / "lake"])


def in_turns(spark: SparkSession, name: str, source: Source, out: Path) -> dict[str, Any]:
    paths = [str(path) for path in source.paths]
    frame = spark.read.schema(TRACE).parquet(*paths) if source.parquet else spark.read.text(paths)
    records = frame.count()
    seconds, cpu = [], []
    for turn in range(WARM_UP_TURNS + TURNS):
        figures, cost = timed(lambda: measure_trace(spark, source, out))
        seconds.append(cost["seconds"])
        cpu.append(cost["cpu_seconds"])
        machine.say(f"traces, {name}, turn {turn + 1}: {seconds[-1]:.1f} s, {cpu[-1]:.1f} s of CPU")
    if not figures["delivered"]:
        raise RuntimeError("nothing was measured")
    return {
        f"trace_{name}_records_per_s": round(records / min(seconds[WARM_UP_TURNS:])),
        f"trace_{name}_records_per_cpu_s": round(records / min(cpu[WARM_UP_TURNS:])),
        f"trace_{name}_records": records,
        f"trace_{name}_s_turns": [round(value, 2) for value in seconds],
        f"trace_{name}_cpu_s_turns": [round(value, 2) for value in cpu],
    }
