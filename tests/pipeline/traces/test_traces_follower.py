"""Files that grow: spans of whole lines, each line in one of them, whatever the cuts.

Following a trace that grows: a follower in a process of its own is killed, those before and after
it end by Ctrl-C, and the tables end equal to those of the trace at rest."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from weft.cli import trace_measure
from weft.cli.main import main
from weft.cli.problem import INTERRUPTED
from weft.pipeline import resources, tables
from weft.pipeline.traces import follower
from weft.pipeline.traces.follower import FOLDER, Follower, Reader, Shrunk, last_line_end
from weft.pipeline.traces.measure import TABLES, measure
from weft.pipeline.traces.pieces import Part, texts_of
from weft.pipeline.traces.source import find
from weft.sim.scenario import ScenarioSettings, run
from weft.trace import Writer


def lines_of(part: Part) -> list[str]:
    return [line for some in texts_of(part) for line in some]


def test_only_whole_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("one\ntwo\nthr")
    reader = Reader(tmp_path, (".jsonl",))
    first = reader.latestOffset({}, None)
    assert first == {str(path): 8}
    assert reader.latestOffset(first, None) == first
    path.write_text("one\ntwo\nthree\n")
    other = tmp_path / "b.jsonl"
    other.write_text("four\n")
    second = reader.latestOffset(first, None)
    assert second == {str(path): 14, str(other): 5}
    spans = reader.partitions(first, second)
    assert [line for span in spans for line in lines_of(span.part)] == ["three", "four"]


def test_much_is_read_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "BATCH_BYTES_MAX", 10)
    (tmp_path / "a.jsonl").write_text("x" * 30 + "\n" + "short\n" * 3)
    (tmp_path / "b.jsonl").write_text("late\n")
    reader = Reader(tmp_path, (".jsonl",))
    offset: dict[str, int] = {}
    steps = []
    while (further := reader.latestOffset(offset, None)) != offset:
        spans = reader.partitions(offset, further)
        steps.append([line for span in spans for line in lines_of(span.part)])
        offset = further
    # A line longer than a step is read nevertheless, and no file waits for another.
    assert steps[0] == ["x" * 30, "late"]
    assert sorted(line for step in steps for line in step) == ["late", *["short"] * 3, "x" * 30]
    assert len(steps) > 1


def test_a_file_that_shrinks_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("one\n")
    with pytest.raises(Shrunk, match="only grow"):
        last_line_end(path, 8, 100)


@given(st.lists(st.text("ab é\r", max_size=5), min_size=1, max_size=12), st.data())
def test_every_line_is_in_exactly_one_span(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("span") / "a.jsonl"
    content = "".join(f"{text}\n" for text in texts).encode()
    path.write_bytes(content)
    cuts = data.draw(st.sets(st.integers(1, max(1, len(content) - 1)), max_size=4))
    edges = [0, *sorted(cut for cut in cuts if cut < len(content)), len(content)]
    found = [
        line for start, end in pairwise(edges) for line in lines_of(Part(str(path), start, end))
    ]
    assert found == texts


def queries(follower: Follower, *errors: str) -> Iterator[SimpleNamespace]:
    """Queries that end with these errors, and one that works until it is ended."""
    for error in errors:
        failed = partial(Exception, error)
        yield SimpleNamespace(isActive=False, stop=lambda: None, exception=failed)
    follower.end()
    yield SimpleNamespace(isActive=True, stop=lambda: None, exception=lambda: None)


def test_a_worker_that_starts_too_slowly_is_started_again(tmp_path: Path) -> None:
    spark = MagicMock()
    follower = Follower(spark, tmp_path, tmp_path / "out")
    writer = spark.readStream.format().option().load().writeStream.foreachBatch()
    start = writer.option().trigger().start
    start.side_effect = queries(follower, *["Python worker failed to connect back.\n"] * 2)
    follower.run(every_s=0.2)
    assert start.call_count == 3
    start.side_effect = queries(follower, "no space left")
    with pytest.raises(Exception, match="no space left"):
        follower.run(every_s=0.2)


PATIENCE_S = 900.0
DELAY_S = 1.0  # of virtual time: many events are delivered after they were settled
OLD = "12D3KooWold"  # a peer that had subscribed before the trace began


def follow(trace: Path, out: Path) -> list[str]:
    """The command."""
    command = ["trace", "measure", str(trace), "--follow", "--out", str(out), "--json"]
    return [*command, "--every", "0.2", "--delay", str(DELAY_S)]


def killed_when(holds: Callable[[], bool], command: list[str]) -> None:
    """The command in a process of its own, which is killed with its Java once something holds.
    Spark's workers end when they notice; one that is still there would write beside the next."""
    source = Path(__file__).resolve().parents[3] / "src"
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [sys.executable, "-m", "weft.cli.main", *command],
        env={**os.environ, "PYTHONPATH": str(source), resources.MARK_VARIABLE: mark},
        start_new_session=True,
    )
    try:
        done = resources.wait_until(lambda: holds() or process.poll() is not None, PATIENCE_S)
        assert done, "waited in vain"
        assert process.poll() is None, "the follower ended"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert resources.wait_until(lambda: not resources.carriers(mark), PATIENCE_S)


def interrupted_when(holds: Callable[[], bool], command: list[str], spark: SparkSession) -> int:
    """The command in this process, on the tests' Spark, with Ctrl-C once something holds; returns
    its exit code."""

    @contextmanager
    def session(*_: object, **__: object) -> Iterator[SparkSession]:
        yield spark

    over = threading.Event()

    def interrupt() -> None:
        resources.wait_until(lambda: holds() or over.is_set(), PATIENCE_S)
        if not over.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    watcher = threading.Thread(target=interrupt)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_measure, "session", session)
        watcher.start()
        try:
            return main(command)
        finally:
            over.set()
            watcher.join()


def sorted_rows(folder: Path) -> dict[str, list[str]]:
    return {
        name: sorted(json.dumps(row, sort_keys=True) for row in tables.read_small(folder / name))
        for name in TABLES
    }


def old_peer(lines: list[bytes]) -> tuple[bytes, bytes]:
    """What a peer writes that got an event, and left much later; JOIN it never wrote."""
    sent = next(line for line in lines if b"PUBLISH_MESSAGE" in line)
    record = json.loads(sent)
    topic = record["publishMessage"]["topic"]
    common = {"peerID": OLD, "timestamp": record["timestamp"] + 1}
    meta = {"kind": "Payload", "topic": topic, "messages": [record["publishMessage"]]}
    got = {**common, "type": "RECV_RPC", "recvRPC": {"receivedFrom": "x", "meta": meta}}
    leave = {**common, "type": "LEAVE", "leave": {"topic": topic}}
    leave["timestamp"] = json.loads(lines[-1])["timestamp"]
    return (json.dumps(got) + "\n").encode(), (json.dumps(leave) + "\n").encode()


def test_a_follower_killed_and_one_interrupted_end_with_the_tables_of_the_trace_at_rest(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = tmp_path / "whole.jsonl"
    with whole.open("wb") as file:
        run(ScenarioSettings(seed=3, peers=10, topics=4, events=40), Writer(file))
    lines = whole.read_bytes().splitlines(keepends=True)
    got, left = old_peer(lines)
    lines.insert(len(lines) // 3, b'{"type": "JOIN"\n')
    lines.insert(len(lines) // 3, got)
    published = [line for line in lines if b"PUBLISH_MESSAGE" in line]
    lines.insert(lines.index(published[-1]), published[-1])  # a line twice, while its event is open
    lines.append(published[0])  # … and one whose event is settled
    whole_bytes = b"".join([*lines, left])
    growing = tmp_path / "trace"
    growing.mkdir()
    out = tmp_path / "out"
    states = out / FOLDER / "state"
    command = follow(growing, out)

    def grow(first: float, last: float) -> None:
        """Add some of the trace, wherever in a line that ends."""
        part = whole_bytes[int(first * len(whole_bytes)) : int(last * len(whole_bytes))]
        with (growing / "all.jsonl").open("ab") as file:
            file.write(part)

    grow(0, 0.4)
    assert interrupted_when((states / "0").exists, command, spark) == INTERRUPTED
    grow(0.4, 0.7)
    killed_when(lambda: (states / ".1").exists() or (states / "1").exists(), command)
    grow(0.7, 1)
    capsys.readouterr()
    # Batch 1 once more, and the rest; Ctrl-C comes before the tables of the last batch are written.
    assert interrupted_when((states / "2").exists, command, spark) == INTERRUPTED
    said = capsys.readouterr()
    assert [json.loads(line)["events"] for line in said.out.splitlines()][-1] > 20
    told = said.err.splitlines()
    assert len(told) == 2 and all(line.startswith("weft: ") for line in told), told

    measure(spark, find([growing / "all.jsonl"]), tmp_path / "batch")
    followed, at_rest = sorted_rows(out), sorted_rows(tmp_path / "batch")
    assert followed == at_rest
    assert len(at_rest["rejects"]) == 1 and len(at_rest["events"]) > 20
    [kept] = [folder for folder in states.iterdir() if not folder.name.startswith(".")]
    settled = [
        row
        for each in (out / FOLDER / "archive").glob("*/events")
        for row in tables.read_small(each)
    ]
    opened = tables.read_small(kept / "publishes")
    assert settled and len(settled) + len(opened) == len(at_rest["events"])
