"""The results folder: reused if it is a demo's, left alone otherwise; and what users see."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest

from weft.demo.output import Output
from weft.demo.report import KINDS
from weft.net.errors import UsageError
from weft.protocol import messages


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


def test_every_kind_of_message_in_the_report_is_explained() -> None:
    """Those of the ways that the demonstration goes: TERA, and the page's peer has a store."""
    rooms = (
        "tera",
        "history",
        "delivery",
        "liveness",
        "membership",
        "multi_topic",
        "publication",
        "recent",
    )
    sent = {
        kind.__name__
        for kind in get_args(messages.AnyMessage)
        if kind.__module__.split(".")[2] in rooms
    }
    assert len(sent) > 40 and not sent - set(KINDS)
