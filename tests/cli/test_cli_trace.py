"""`weft trace` on bad input: one clear line, before anything heavy starts; conversions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from weft.cli.main import main
from weft.cli.problem import USAGE
from weft.cli.trace_convert import FORMS
from weft.pipeline.traces.forms import Form


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


GO = (
    '{"type":9,"peerID":"AEE=","timestamp":1,"join":{"topic":"a"}}\n'
    '{"type":5,"peerID":"AEE=","timestamp":2,"onClosedOutboundStream":{"peerID":"AEI="}}\n'
)


def test_a_trace_is_converted_by_the_names_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("go.json").write_text(GO)
    assert main(["trace", "convert", "go.json", "go.pb"]) == 0
    assert main(["trace", "convert", "go.pb", "weft.jsonl.gz"]) == 0
    assert main(["trace", "convert", "weft.jsonl.gz", "back.json", "--to", "json-0.16"]) == 0
    back = Path("back.json").read_text()
    assert [*map(json.loads, back.splitlines())] == [*map(json.loads, GO.splitlines())]
    assert "2 records, " in capsys.readouterr().err


def test_every_form_can_be_asked_for() -> None:
    assert tuple(Form) == FORMS


def test_what_a_conversion_leaves_out_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = '{"type":"LEAVE","peerID":"A","timestamp":1,"leave":{"topic":"/t","reason":"crash"}}\n'
    Path("weft.jsonl").write_text(3 * line)
    assert main(["trace", "convert", "weft.jsonl", "go.pb"]) == 0
    assert "weft: left out: leave.reason (3 times)" in capsys.readouterr().err
    extra = json.dumps({f"field {number}": number for number in range(20)})
    Path("strange.json").write_text(extra.replace("{", '{"type":9,"join":{},'))
    assert main(["trace", "convert", "strange.json", "strange.pb"]) == 0
    assert "weft: left out: 4 more fields" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["missing.pb", "out"], USAGE, "missing.pb: no such file"),
        (["folder", "out"], USAGE, "folder is not a file"),
        (["go.json", "go.json"], USAGE, "go.json exists already"),
        (["go.json", "no/out.pb"], USAGE, "no: no such folder"),
        (["go.json", "out.pb", "--to", "weft"], USAGE, "does not end in .pb"),
        (["go.json", "out.json", "--to", "pb"], USAGE, "ends in .pb"),
        (["bad.json", "out.pb"], 1, "bad.json: line 3, byte 146: no JSON"),
    ],
)
def test_bad_input_of_a_conversion_is_said(
    arguments: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("go.json").write_text(GO)
    Path("bad.json").write_text(GO + "{")
    assert main(["trace", "convert", *arguments]) == code
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("weft: ") and said in line
    assert not list(tmp_path.glob("out*"))
