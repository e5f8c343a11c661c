"""The results folder: reused if it is a demo's, left alone otherwise; and what users see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from weft.demo.output import Output
from weft.net.errors import UsageError


def test_folder_is_made_marked_and_cleared(tmp_path: Path) -> None:
    output = Output(tmp_path / "deep" / "out")
    output.prepare()
    assert json.loads(output.summary.read_text())["complete"] is False
    old = output.trace / "peer-007.jsonl"
    old.write_text("{}\n")
    output.report.write_text("old")
    (output.folder / "notes.txt").write_text("mine")
    output.prepare()
    assert not old.exists() and not output.report.exists()
    assert (output.folder / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("text", ["{}", "[]", "not json", '{"made_by": "somebody"}'])
def test_foreign_folder_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(UsageError, match="not empty"):
        Output(tmp_path).prepare()
    assert (tmp_path / "summary.json").read_text() == text
