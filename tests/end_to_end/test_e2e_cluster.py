"""A real cluster on loopback: the same results as without one, also when a worker is lost.

One test for all of it, because a cluster takes a while to start.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyarrow import parquet

from processes import ENVIRONMENT, command_of, run, started
from weft.lab.execute import run as run_task
from weft.lab.run import matching, plan_of
from weft.pipeline import cluster, resources
from weft.rules.draw import draw

PATIENCE_SECONDS = 600.0
"""How long to wait for what must come; Java on a busy machine takes its time."""

TASKS = 8

# An experiment, and then a job with all that can be lost: rows that workers write themselves, a
# shuffle, and a table that Spark writes. All tasks but the first of each worker wait for a file.
PROGRAM = """
import os, sys, uuid
from pathlib import Path
from weft.lab import run as lab
from weft.lab.run import matching
from weft.pipeline import tables
from weft.pipeline.schemas import WHOLE, columns
from weft.pipeline.session import SessionSettings, opened

master, out, gate, attempts = sys.argv[1], *map(Path, sys.argv[2:])
TASKS, ROWS = 8, 1000
SHAPE = columns(task=WHOLE, value=WHOLE)

def place():
    # A worker's Python processes run in a folder of the worker's.
    return next((part for part in Path.cwd().parts if part.startswith("worker-")), "here")

def work(batches):
    import pyarrow
    from weft.pipeline.resources import wait_until
    from weft.rules.draw import draw
    for batch in batches:
        for task in batch.column(0).to_pylist():
            first = not any(place() in file.name for file in attempts.iterdir())
            (attempts / f"{task}.{place()}.{uuid.uuid4().hex}").touch()
            if not first and not wait_until(gate.exists, 400):
                raise TimeoutError("nobody opened the gate")
            values = [draw(7, 1, task, 0, item) % 100 for item in range(ROWS)]
            rows = {"task": [task] * ROWS, "value": values}
            tables.write_part(out / "parts.parquet", f"task-{task}", rows, SHAPE)
            yield pyarrow.RecordBatch.from_pydict(rows)

with opened(SessionSettings(master, driver_memory="1g", small_tables=True)) as spark:
    lab.run(spark, matching(["tera-mem"]), "quick", out / "lab")
    rows = spark.range(0, TASKS, 1, TASKS).mapInArrow(work, SHAPE)
    counted = rows.groupBy("value").count().repartition(3, "value")
    tables.write(counted, out / "counted.parquet")
"""


class Job:
    """The program above, on some master."""

    def __init__(self, folder: Path, master: str, environment: dict[str, str]) -> None:
        self.out, self.gate, self.attempts = folder / "out", folder / "gate", folder / "attempts"
        self.attempts.mkdir(parents=True)
        program = folder / "program.py"
        program.write_text(PROGRAM)
        self.process = subprocess.Popen(
            [sys.executable, program, master, self.out, self.gate, self.attempts],
            env=environment,
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def tried(self) -> list[str]:
        """Where each attempt at a task was made."""
        return sorted(path.name.split(".")[1] for path in self.attempts.iterdir())

    def parts(self) -> set[str]:
        return {path.name for path in (self.out / "parts.parquet").glob("task-*")}

    def end(self) -> None:
        _, complaints = self.process.communicate(timeout=PATIENCE_SECONDS)
        assert self.process.returncode == 0, complaints

    def result(self) -> dict[str, list[tuple[int, ...]]]:
        """All that it wrote, as it is on disk."""
        names = ("lab/tera-mem/rows.parquet", "parts.parquet", "counted.parquet")
        return {name: rows_of(self.out / name) for name in names}


def expected(out: Path) -> dict[str, list[tuple[int, ...]]]:
    """The same, computed in this process without Spark."""
    (entry,) = matching(["tera-mem"])
    for task in plan_of(entry, "quick").tasks:
        run_task(task, out)
    rows = [
        (task, draw(7, 1, task, 0, item) % 100) for task in range(TASKS) for item in range(1000)
    ]
    return {
        "lab/tera-mem/rows.parquet": rows_of(out / "tera-mem" / "rows.parquet"),
        "parts.parquet": sorted(rows),
        "counted.parquet": sorted(Counter(value for _, value in rows).items()),
    }


def rows_of(folder: Path) -> list[tuple[int, ...]]:
    """All rows of a table, as they are on disk, sorted."""
    files = sorted(folder.glob("*.parquet"))
    return sorted(
        tuple(row.values())
        for file in files
        for row in parquet.ParquetFile(file).read().to_pylist()
    )


@contextmanager
def ending(job: Job) -> Iterator[Job]:
    try:
        yield job
    finally:
        job.process.kill()
        job.process.communicate()


def weft(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "weft.cli.main", *arguments],
        env=environment,
        text=True,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def daemon(running: cluster.Cluster, kind: str, name: str) -> int:
    """The number of one of the cluster's daemons."""
    (found,) = (
        pid
        for pid in running.processes()
        if f"deploy.{kind}" in command_of(pid) and name in command_of(pid)
    )
    return found


def test_a_cluster_gives_what_one_machine_gives_and_loses_nothing_with_a_worker(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "cluster"
    environment = {**ENVIRONMENT, "WEFT_CLUSTER": str(folder)}
    up = weft(environment, "cluster", "up", "--workers", "2", "--memory", "512m")
    try:
        assert up.returncode == 0, up.stderr
        running = cluster.described(folder)
        assert running is not None
        assert up.stdout.splitlines() == [f"master  {running.master}", f"page    {running.page}"]
        assert running.master.startswith("spark://127.0.0.1:")
        nobody_else_gets_in(running, folder)

        again = weft(environment, "cluster", "up")
        assert again.returncode == 1
        assert again.stderr.splitlines()[-1].startswith("weft: a cluster runs already")

        a_worker_is_lost_and_the_results_are_the_same(tmp_path, running, environment)

        status = weft(environment, "cluster", "status")
        assert status.returncode == 1
        assert status.stderr == "weft: 1 of 2 workers are lost\n"

        # A crash of the rest, so that nobody is left to end in good order.
        os.kill(daemon(running, "master", ""), signal.SIGKILL)
        assert resources.wait_until(lambda: running.state() is None, PATIENCE_SECONDS)
    finally:
        down = weft(environment, "cluster", "down")
    assert down.returncode == 0, down.stderr
    assert running.processes() == []
    assert all(path.suffix == ".log" for path in folder.iterdir())
    assert weft(environment, "cluster", "status").returncode == 1


def nobody_else_gets_in(running: cluster.Cluster, folder: Path) -> None:
    """The secret is this user's alone, on disk and among the processes."""
    secret = running.properties()["spark.authenticate.secret"]
    assert running.conf.stat().st_mode & 0o077 == 0
    assert (running.conf / "spark-defaults.conf").stat().st_mode & 0o077 == 0
    assert len(running.processes()) >= 3
    assert not any(secret in command_of(pid) for pid in running.processes())
    assert not any(secret in log.read_text() for log in folder.glob("*.log"))


def a_worker_is_lost_and_the_results_are_the_same(
    tmp_path: Path, running: cluster.Cluster, environment: dict[str, str]
) -> None:
    with ending(Job(tmp_path / "there", running.master, environment)) as there:
        # Both workers have finished a task and are in the middle of another one.
        busy = ["worker-1"] * 2 + ["worker-2"] * 2
        assert resources.wait_until(
            lambda: len(there.parts()) == 2 and there.tried() == busy, PATIENCE_SECONDS
        ), (there.tried(), there.parts())
        lost = daemon(running, "worker", "worker-1")
        os.kill(lost, signal.SIGKILL)
        # Its executor and the Python process that is in the middle of a task go with it.
        assert resources.wait_until(
            lambda: not any("worker-1" in where(pid) for pid in running.processes()),
            PATIENCE_SECONDS,
        )
        there.gate.touch()
        there.end()
    # What the lost worker had done and what it was doing was done again by the other one.
    assert len(there.tried()) > TASKS
    assert there.tried().count("worker-1") == 2
    assert there.result() == expected(tmp_path / "here")


def where(pid: int) -> str:
    """The folder that a process runs in."""
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


def test_an_interrupted_start_leaves_nothing(tmp_path: Path) -> None:
    """The master is a program that never says where it listens, so the start takes as long as the
    interruption does."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nexec sleep 10000\n")
    java.chmod(0o755)
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.1"\n')
    folder = tmp_path / "cluster"
    with_java = ("env", f"JAVA_HOME={tmp_path / 'java'}")
    with started("cluster", "up", "--dir", str(folder), by=with_java) as process:
        process.until_error("starting a master")
        assert resources.wait_until((folder / "master.log").exists, PATIENCE_SECONDS)
        begun = cluster.described(folder)
        assert begun is not None
        assert resources.wait_until(lambda: bool(begun.processes()), PATIENCE_SECONDS)
        process.send_group(signal.SIGINT)
        assert process.end() == 130
    assert begun.processes() == []
    assert [path.name for path in folder.iterdir()] == ["master.log"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["down"], "no cluster is described in"),
        (["status"], "no cluster is described in"),
        (["up", "--memory", "much"], "memory 'much': expected a number with m or g"),
        (["up", "--memory", "100m"], "memory '100m': Spark's executors need 512m or more"),
    ],
)
def test_what_cannot_be_is_one_clear_line(
    tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    done = run("cluster", *arguments, "--dir", str(tmp_path / "cluster"))
    assert done.returncode in (1, 2)
    assert done.stderr.startswith(f"weft: {complaint}")
    assert len(done.stderr.splitlines()) == 1
