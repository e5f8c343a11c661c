"""Folders of sessions: removed in the end, also those of owners that were killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from weft.pipeline import resources

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


def test_it_is_gone_although_somebody_still_wrote(
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
