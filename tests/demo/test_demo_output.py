"""The results folder: reused if it is a demo's, left alone otherwise; and what users see."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from weft.demo.output import Output
from weft.demo.progress import Progress
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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_in_lines_and_as_a_bar() -> None:
    for stream in (io.StringIO(), Terminal()):
        progress = Progress(stream)
        progress.begin("publishing", 8)
        for done in range(9):
            progress.update(done, "events")
        progress.end("8 events")
        text = stream.getvalue()
        assert "publishing   8 events" in text
        assert ("█" in text) == stream.isatty()
        if not stream.isatty():
            assert text.splitlines()[:3] == [f"  publishing   {n}/8 events" for n in (2, 4, 6)]
