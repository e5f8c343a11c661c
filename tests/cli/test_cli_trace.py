"""`weft trace` on bad input: one clear line, before anything heavy starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.cli.main import main
from weft.cli.problem import USAGE


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing"], "missing: no such file or folder"),
        (["notes.txt"], "notes.txt: a trace ends in .jsonl"),
        (["empty"], "empty: no trace here"),
        (["empty", "--idle", "3"], "go with --follow"),
        (["empty", "empty", "--follow"], "one folder or file"),
        (["missing", "--follow"], "missing: no such file or folder"),
    ],
)
def test_bad_input_is_said(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    assert main(["trace", "measure", *arguments]) == USAGE
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("weft: ") and said in line
    assert not (tmp_path / "out").exists()
