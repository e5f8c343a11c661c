"""`weft data synth`, `universe` and `profile` on the command line, as far as they need no Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.cli import data
from weft.cli.parser import parser_for
from weft.cli.problem import Problem
from weft.errors import WeftError
from weft.pipeline.lake import Version


def weft_data(*arguments: str) -> int:
    return data.run(parser_for("data", data).parse_args(arguments))


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    folder.mkdir()
    Version(1, {"topics": 0}, {"topics": 7}).write(folder)
    return folder


def test_mistakes_are_told_before_spark_is_started(lake: Path, tmp_path: Path) -> None:
    for arguments, says in (
        (["universe", str(tmp_path), "--seeds", "5"], "no lake here"),
        (["universe", str(lake), "--seeds", "8"], "8 seeds, but .* has 7 topics"),
        (["universe", str(lake), "--seeds", "5", "6", "--name", "x"], "for one universe"),
        (["universe", str(lake), "--seeds", "5", "--name", "../x"], "universe's name is"),
        (["profile", str(lake)], "no memberships"),
        (["synth", "--out", str(lake)], "a lake already"),
    ):
        with pytest.raises((Problem, WeftError), match=says):
            weft_data(*arguments)
