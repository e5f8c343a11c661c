"""Where a trace is looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.pipeline.traces.source import NoTrace, find


def made(folder: Path, *names: str) -> list[Path]:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    return [folder / name for name in names]


def test_a_folder_its_trace_folder_or_files(tmp_path: Path) -> None:
    wanted = made(tmp_path / "demo" / "trace", "a.jsonl", "b.jsonl.gz")
    made(tmp_path / "demo", "summary.json", "tables/peers/part-0.parquet", "trace/.hidden.jsonl")
    assert find([tmp_path / "demo"]).paths == tuple(wanted)
    assert find([tmp_path / "demo" / "trace"]).paths == tuple(wanted)
    assert find(wanted[:1]).paths == tuple(wanted[:1])
    assert not find(wanted).parquet


def test_a_lake(tmp_path: Path) -> None:
    wanted = made(tmp_path / "trace", "part-1.parquet", "more/part-2.parquet")
    made(tmp_path, "memberships/part-0.parquet")
    found = find([tmp_path])
    assert found.parquet and set(found.paths) == set(wanted)
    assert found.size == 2


@pytest.mark.parametrize("name", ["missing", "notes.txt", "empty"])
def test_what_is_no_trace_is_said(name: str, tmp_path: Path) -> None:
    made(tmp_path, "notes.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoTrace, match=name):
        find([tmp_path / name])


def test_two_forms_at_once_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NoTrace, match="one or the other"):
        find(made(tmp_path, "a.jsonl", "b.parquet"))
