"""Ingest, profile and trace on Spark, against DuckDB: the same answers from the same files.

*Ingest*: a CSV of users, topics and times, with one bad row in a hundred and one in ten stated
before, becomes dictionaries, memberships with the earliest time, events and rejects, written as
Parquet. *Profile*: the distributions of both degrees, and the correlation of every two of the
thousand most popular topics, summed up. *Trace*: all figures of a simulated trace in JSON lines.

Spark's session and DuckDB's connection are warm, with two threads each; figures are CPU time of all
processes that take part, and since other work on the machine can only add to it, the least of three
turns counts on both sides. Answers are compared.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from benchmarks.peer import machine
from benchmarks.peer.worker import Worker
from benchmarks.pipeline.memberships import drawn, memberships
from benchmarks.pipeline.processes import timed
from benchmarks.pipeline.traces import copied, simulated

from weft.pipeline import profile, tables
from weft.pipeline.ingest.job import ingest
from weft.pipeline.schemas import MEMBERSHIP
from weft.pipeline.session import SessionSettings, opened
from weft.pipeline.traces.measure import measure as measure_trace
from weft.pipeline.traces.source import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 10_000_000
RECORDS_OF_A_COPY = 400_000
TURNS = 3
TABLES = ("memberships", "users", "topics", "events", "rejects")
DIGITS = 9  # of figures that are compared


def measure(quick: bool) -> dict[str, Any]:
    rows = ROWS // 10 if quick else ROWS
    with tempfile.TemporaryDirectory(prefix="weft-bench-", dir=machine.cache_folder()) as aside:
        folder = Path(aside)
        csv = written(folder / "rows.csv", rows)
        table = memberships(rows)
        lines = copied(
            simulated(folder / "one.jsonl"), folder / "lines", max(1, rows // RECORDS_OF_A_COPY)
        )
        # Started before Spark, so that its time is not among that of Spark's processes.
        with (
            Worker("benchmarks.pipeline.ratios_duckdb", [str(folder)]) as duckdb,
            opened(SessionSettings("local[2]", "weft bench", driver_memory="3g")) as spark,
        ):
            duckdb.hear()
            found: dict[str, Any] = {"ratio_rows": rows}
            for name, work, request in (
                ("ingest", lambda: ingested(spark, csv, folder), {"csv": str(csv)}),
                ("profile", lambda: profiled(spark, table), {"table": str(table)}),
                ("trace", lambda: traced(spark, lines, folder), {"lines": str(folder / "lines")}),
            ):
                found |= in_turns(name, work, duckdb, request)
            return found


def in_turns(
    name: str, work: Callable[[], dict[str, float]], duckdb: Worker, request: dict[str, str]
) -> dict[str, Any]:
    ours, theirs = [], []
    for turn in range(1 + TURNS):  # the first one warms up
        found, cost = timed(work, without=duckdb.pid)
        ours.append(cost["cpu_seconds"])
        other = duckdb.ask({"what": name, **request})
        theirs.append(other["cpu_s"])
        machine.say(f"{name}, turn {turn}: Spark {ours[-1]:.2f} s, DuckDB {theirs[-1]:.2f} s")
        differ = {
            key: (value, other["answer"].get(key))
            for key, value in found.items()
            if not close(value, other["answer"].get(key))
        }
        if differ:
            raise RuntimeError(f"{name}: Spark and DuckDB differ: {differ}")
    return {
        f"{name}_duckdb_ratio": round(min(ours[1:]) / min(theirs[1:]), 2),
        f"{name}_cpu_s_turns": [round(value, 2) for value in ours],
        f"duckdb_{name}_cpu_s_turns": [round(value, 2) for value in theirs],
    }


def close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= 10.0**-DIGITS * max(1.0, abs(one))


def written(path: Path, rows: int) -> Path:
    """A CSV of that many rows."""
    machine.say(f"ratios: a CSV of {rows:,} rows")
    random = np.random.default_rng(1)
    users, topics = drawn(rows, random)
    again = rows // 10
    users[-again:], topics[-again:] = users[:again], topics[:again]
    times = random.integers(1_000_000_000, 1_700_000_000, rows)
    with path.open("w") as file:
        file.write("user,topic,time\n")
        for place, (user, topic, time) in enumerate(
            zip(users.tolist(), topics.tolist(), times.tolist(), strict=True)
        ):
            bad = place % 100 == 0
            file.write(f"user{user},topic{topic},{'never' if bad else time}\n")
    return path


def ingested(spark: SparkSession, csv: Path, folder: Path) -> dict[str, float]:
    shutil.rmtree(folder / "lake", ignore_errors=True)
    after = ingest(spark, [csv], folder / "lake").after
    return {name: float(after[name]) for name in TABLES}


def profiled(spark: SparkSession, folder: Path) -> dict[str, float]:
    held = tables.read_parts(spark, folder, tables.finished(folder), MEMBERSHIP)
    counted = [row.asDict() for row in held.transform(profile.distribution).collect()]
    found = {f"{row['kind']} {row['size']}": float(row["count"]) for row in counted}
    pairs = profile.correlations(spark, held, (), nodes=profile.nodes_in(counted))
    [row] = pairs.transform(profile.correlation_summary).collect()
    names = ("topics", "mean", "median", "percentile_99", "largest")
    return found | {name: float(row[name]) for name in names}


def traced(spark: SparkSession, lines: Source, folder: Path) -> dict[str, float]:
    figures = measure_trace(spark, lines, folder / "out")
    return {name: value for name, value in figures.items() if value is not None}
