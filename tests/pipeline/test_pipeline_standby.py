"""A Spark that stays: its users, what its sessions can do, and that nothing of it is left."""

from __future__ import annotations

import json
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import weft as weft_package
from processes import ENVIRONMENT, command_of, run
from weft.pipeline import standby
from weft.pipeline.session import SessionError, SessionSettings, opened

# A process of its own: one that has used Spark Connect uses no other Spark. It says what a session
# can do, and which Python processes are left that worked for it.
PROGRAM = """
import os
from weft.pipeline.session import (
    SessionError, SessionSettings, cancel, for_small_tables, is_remote, opened, parallelism, shared
)
from weft.pipeline.standby import found

known = found()
try:
    with opened(SessionSettings(f"{known.address}/;token=guessed")) as spark:
        print(spark.range(1).count())
except SessionError as error:
    print("guessed", "asks for another token" in str(error), "guessed" in str(error))
with opened(SessionSettings(known.address, token=known.token)) as spark:
    sent = shared(spark, {"seven": 7})

    def work(batches):
        import pyarrow
        for batch in batches:
            row = {"value": [sent.value["seven"]], "process": [os.getpid()]}
            yield pyarrow.RecordBatch.from_pydict(row)

    found = spark.range(0, 4, 1, 2).mapInArrow(work, "value long, process long").collect()
    print("values", sorted(row.value for row in found))
    print("remote", is_remote(spark), for_small_tables(spark) is spark)
    print("tasks", parallelism(spark), parallelism(spark))
    print("zone", spark.conf.get("spark.sql.session.timeZone"))
    cancel(spark)
with opened(SessionSettings(f"{known.address}/;token={known.token}")) as spark:
    print("as another's", spark.range(3).count())
print("mode", os.environ.get("SPARK_CONNECT_MODE_ENABLED"))
print("left", [row.process for row in found if os.path.exists(f"/proc/{row.process}")])
"""
# Of a server that this package did not start, only what it says of itself is known.
ELSEWHERE = """
import sys
from weft.pipeline.session import SessionError, SessionSettings, opened

try:
    with opened(SessionSettings(sys.argv[1])):
        print("taken")
except SessionError as error:
    print(error)
"""


def test_a_spark_that_stays_serves_its_user_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_HOME", str(tmp_path))
    folder = standby.default_folder()
    assert folder == tmp_path / "spark"
    environment = {**ENVIRONMENT, "WEFT_HOME": str(tmp_path)}

    def python(*arguments: str, package: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            env={**environment, **({"PYTHONPATH": str(package)} if package else {})},
            capture_output=True,
            text=True,
            check=False,
        )

    weft = ("-m", "weft.cli.main", "spark")
    try:
        said = python(*weft, "up", "--memory", "512m", "--cores", "2")
        made = standby.found()
        assert made is not None, said.stderr
        assert said.stdout == f"{made.address}\n"
        for path in (folder, folder / "spark.json", folder / "conf" / "spark-defaults.conf"):
            assert not stat.S_IMODE(path.stat().st_mode) & 0o077
        [java] = made.processes()
        assert made.token not in command_of(java)
        with pytest.raises(standby.StandbyError, match="runs already"):
            standby.up(folder)
        done = python("-c", PROGRAM)
        assert done.stdout.splitlines() == [
            "guessed True False",
            "values [7, 7]",
            "remote True True",
            "tasks 2 2",
            "zone UTC",
            "as another's 3",
            "mode None",
            "left []",
        ], done.stderr
        other = tmp_path / "other"
        shutil.copytree(Path(weft_package.__file__).parent, other / "weft")
        (other / "weft" / "changed.py").write_text("")
        done = python("-c", ELSEWHERE, f"{made.address}/;token={made.token}", package=other)
        said_of_it = f"{made.address}: its Python has another version of weft\n"
        assert done.stdout == said_of_it, done.stderr
        running = len(made.processes())  # what worked for others stays with the server
    finally:
        ended = python(*weft, "down")
    assert ended.stderr == f"weft: ended {running} processes\n"
    assert not made.processes()
    assert {path.name for path in folder.iterdir()} == {"spark.log"}
    assert standby.found() is None


def test_what_is_not_there_is_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_HOME", str(tmp_path))
    assert standby.found() is None
    with pytest.raises(standby.StandbyError, match="no Spark is described"):
        standby.down(tmp_path / "spark")
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "spark.json").write_text('{"mark": 1}')
    with pytest.raises(standby.StandbyError, match="is no description"):
        standby.found()
    with (
        pytest.raises(SessionError, match=r"^sc://localhost:1: no Spark Connect server answers"),
        opened(SessionSettings("sc://localhost:1/;token=secret")),
    ):
        pass


def test_following_a_trace_needs_a_spark_of_its_own(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.touch()
    done = run("trace", "measure", str(trace), "--follow", "--master", "sc://localhost:1")
    assert done.returncode == 2
    assert "cannot use a Spark Connect server" in done.stderr.splitlines()[-1]


@contextmanager
def standby_of(source: str, folder: Path) -> Iterator[standby.Standby]:
    """One that listens, and is described as running the code of some place."""
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        written = {"mark": "m", "token": "t", "memory": "1g", "source": source, "port": port}
        (folder / "spark.json").write_text(json.dumps(written))
        known = standby.described(folder)
        assert known is not None
        yield known


def test_another_checkouts_spark_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_HOME", str(tmp_path))
    with standby_of("/another/checkout/src", tmp_path / "spark") as known:
        assert known.answers()
        assert standby.found() is None
        assert standby.found(known.address) == known  # unless it is asked for
