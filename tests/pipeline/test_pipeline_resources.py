"""Folders of sessions are removed, also those of killed owners; marked processes are found
and ended with all their children, and no others."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from weft.pipeline import cluster, resources

SOURCE = Path(__file__).resolve().parents[2] / "src"
HOLD = """
import sys
from weft.pipeline.resources import scratch
with scratch() as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(resources, "YOUNG_SECONDS", 0.0)
    return tmp_path


def holder() -> tuple[subprocess.Popen[str], Path]:
    """Another process with a folder of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_the_folder_is_gone_afterwards_also_after_an_error(base: Path) -> None:
    def fail() -> None:
        with resources.scratch() as folder:
            (folder / "local").mkdir()
            (folder / "local" / "block").write_bytes(b"x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(base.iterdir()) == []


def test_the_folder_is_gone_although_somebody_still_wrote(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempts find the folder in use."""
    attempts = []
    real = shutil.rmtree

    def busy(folder: Path, ignore_errors: bool) -> None:
        attempts.append(folder)
        if len(attempts) > 2:
            real(folder, ignore_errors)

    monkeypatch.setattr("weft.pipeline.resources.shutil.rmtree", busy)
    with resources.scratch() as folder:
        pass
    assert attempts == [folder] * 3
    assert list(base.iterdir()) == []


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_killed_owner_left_is_removed_by_the_next(base: Path, how: signal.Signals) -> None:
    process, folder = holder()
    with process:
        try:
            assert folder.parent == base
            assert resources.sweep(base) == []  # it is in use
        finally:
            process.send_signal(how)
    assert folder.is_dir()
    with resources.scratch() as own:
        assert list(base.iterdir()) == [own]


def test_folders_of_others_are_left_alone(base: Path) -> None:
    unknown = base / f"{resources.PREFIX}old"
    unknown.mkdir()
    other = base / "something"
    other.mkdir()
    assert resources.sweep(base) == []
    assert sorted(base.iterdir()) == [other, unknown]


PATIENCE_SECONDS = 300.0

IDLE = "import signal; print('there', flush=True); signal.pause()"
# Ignores politeness, and has a child of another session that outlives it.
STUBBORN = f"""
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", {IDLE!r}], start_new_session=True)
signal.pause()
"""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(stack: ExitStack, program: str, mark: str) -> subprocess.Popen[str]:
    process = stack.enter_context(
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, resources.MARK_VARIABLE: mark},
            text=True,
            stdout=subprocess.PIPE,
        )
    )
    stack.callback(process.kill)
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    return process


def test_all_that_carry_the_mark_are_ended_and_no_others(stack: ExitStack) -> None:
    ours = start(stack, STUBBORN, "ours-1")
    other = start(stack, IDLE, "ours-12")
    found = resources.carriers("ours-1")
    assert ours.pid in found and len(found) == 2
    assert resources.end_carriers("ours-1", polite_seconds=0.5) == 2
    assert resources.wait_until(lambda: ours.poll() is not None, PATIENCE_SECONDS)
    assert resources.carriers("ours-1") == []
    assert other.poll() is None
    assert resources.carriers("ours-12") == [other.pid]


def test_there_is_nothing_to_end_where_nothing_runs() -> None:
    assert resources.end_carriers("nobody", polite_seconds=0.0) == 0


@pytest.mark.parametrize("memory", ["", "1", "1t", "0g", "g", "-1g", "511m", "1.5g"])
def test_memory_that_spark_would_not_take_is_refused(memory: str) -> None:
    with pytest.raises(cluster.ClusterError, match="memory"):
        cluster.Size(memory=memory)


def test_a_folder_that_is_replaced_is_never_absent(tmp_path: Path) -> None:
    place = tmp_path / "table"

    def made(number: int) -> Path:
        folder = tmp_path / f".new-{number}"
        folder.mkdir()
        (folder / "rows").write_text(str(number))
        return folder

    resources.replace_folder(made(0), place)
    missed = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            missed.extend([] if place.is_dir() else [place])

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(1, 500):
        resources.replace_folder(made(number), place)
    over.set()
    reader.join()
    assert not missed
    assert (place / "rows").read_text() == "499"
    assert [path.name for path in tmp_path.iterdir()] == ["table"]
