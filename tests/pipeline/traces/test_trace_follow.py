"""Following a trace that grows, with real processes: a follower is killed, another goes on, and the
tables end equal to those of the trace at rest."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from weft.pipeline import resources, tables
from weft.pipeline.traces.follower import FOLDER
from weft.pipeline.traces.measure import TABLES, measure
from weft.pipeline.traces.source import find
from weft.sim.scenario import run
from weft.sim.settings import Settings
from weft.trace import Writer

PATIENCE_S = 400.0
DELAY_S = 100.0  # of a run's virtual time: events are settled while it is followed


def waited(holds: Callable[[], bool], follower: subprocess.Popen[bytes]) -> None:
    done = resources.wait_until(lambda: holds() or follower.poll() is not None, PATIENCE_S)
    assert done, "waited in vain"
    assert follower.poll() is None, "the follower ended"


def follower(trace: Path, out: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "weft.cli.main", "trace", "measure", str(trace), "--follow"]
    command += ["--out", str(out), "--every", "0.2", "--delay", str(DELAY_S), "--json", *more]
    source = Path(__file__).resolve().parents[3] / "src"
    environment = {**os.environ, "PYTHONPATH": str(source)}
    with (out.parent / "follower.log").open("ab") as log:
        return subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, start_new_session=True
        )


def sorted_rows(folder: Path) -> dict[str, list[str]]:
    return {
        name: sorted(json.dumps(row, sort_keys=True) for row in tables.read_small(folder / name))
        for name in TABLES
    }


def test_a_killed_follower_is_taken_over_exactly_once(spark: SparkSession, tmp_path: Path) -> None:
    whole = tmp_path / "whole.jsonl"
    with whole.open("wb") as file:
        run(Settings(seed=3, peers=12, topics=4, events=60), Writer(file))
    lines = whole.read_bytes().splitlines(keepends=True)
    lines.insert(len(lines) // 3, b'{"type": "JOIN"\n')
    whole_bytes = b"".join(lines)
    growing = tmp_path / "trace"
    growing.mkdir()
    out = tmp_path / "out"
    states = out / FOLDER / "state"

    def grow(first: float, last: float) -> None:
        """Add some of the trace, wherever in a line that ends."""
        part = whole_bytes[int(first * len(whole_bytes)) : int(last * len(whole_bytes))]
        with (growing / "all.jsonl").open("ab") as file:
            file.write(part)

    grow(0, 0.4)
    first = follower(growing, out)
    try:
        waited((states / "0").exists, first)
        grow(0.4, 0.7)
        waited(lambda: any(states.glob(".1")) or (states / "1").exists(), first)
    finally:  # in the middle of the second batch
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    grow(0.7, 1)
    second = follower(growing, out, "--idle", "3")
    try:
        assert second.wait(PATIENCE_S) == 0, (tmp_path / "follower.log").read_text()
    finally:
        if second.poll() is None:
            os.killpg(second.pid, signal.SIGKILL)
            second.wait()

    measure(spark, find([growing / "all.jsonl"]), tmp_path / "batch")
    followed, at_rest = sorted_rows(out), sorted_rows(tmp_path / "batch")
    assert followed == at_rest
    assert len(at_rest["rejects"]) == 1 and len(at_rest["events"]) > 20
    [kept] = [folder for folder in states.iterdir() if not folder.name.startswith(".")]
    settled = tables.read_small(kept / "settled_events")
    opened = tables.read_small(kept / "publishes")
    assert settled and len(settled) + len(opened) == len(at_rest["events"])
