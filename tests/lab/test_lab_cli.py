"""`weft lab` on the command line, as far as it needs no Spark."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from weft.cli import lab, versus
from weft.cli.main import read
from weft.cli.problem import USAGE, Problem
from weft.lab import verdict
from weft.lab.verdict import Verdict


def weft_lab(*arguments: str) -> int:
    return lab.run(read("lab", lab, arguments))


def some_verdict(**changes: Any) -> Verdict:
    settings: dict[str, Any] = {
        "id": "tera-4a",
        "title": "Lookups",
        "size": "quick",
        "claim": "They succeed.",
        "passed": True,
        "measured": {"gap": {"value": 0.01, "low": None, "high": None, "seeds": 1}},
        "tolerance": {
            "gap": {
                "relation": "at most",
                "bound": 0.02,
                "passed": True,
                "why": "so",
                "basis": "asked",
                "chosen": "2026-11-15",
            }
        },
        "seeds": [1],
        "points": 1,
        "seconds": 1.0,
        "code": ["x"],
        "command": "./weft lab run tera-4a --quick --seeds 1",
    }
    return Verdict(**{**settings, **changes})


@pytest.mark.parametrize(("name", "command"), [("lab", lab), ("versus", versus)])
def test_a_lake_at_an_address_stays_an_address(name: str, command: ModuleType) -> None:
    words = ("run", "stan-7") if command is lab else ()
    given = read(name, command, (*words, "--trace", "s3a://bucket/lake"))
    assert given.trace == "s3a://bucket/lake"


def test_list_names_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert weft_lab("list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("tera-3a ") for line in lines)
    assert any(line.startswith("tera-mem ") for line in lines)


def test_report_writes_a_page_and_prints_a_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tera-4a").mkdir()
    verdict.write(some_verdict(), tmp_path / "tera-4a")
    assert weft_lab("report", str(tmp_path)) == 0
    assert "1 of 1 claims hold" in capsys.readouterr().out
    assert "Lookups" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run",), "which experiments"),
        (("run", "tera-3d"), "no experiment is called 'tera-3d' (did you mean"),
        (("report",), "report needs the folder"),
        (("list", "tera-3a"), "list takes no name"),
        (("run", "tera-3a", "--every"), "--every is for audit"),
    ],
)
def test_wrong_usage_is_explained(arguments: tuple[str, ...], says: str) -> None:
    with pytest.raises(Problem) as raised:
        weft_lab(*arguments)
    assert says in str(raised.value)
    assert raised.value.code == USAGE


def test_a_folder_without_verdicts_is_said(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="has no verdicts"):
        weft_lab("report", str(tmp_path))


def test_quick_and_full_exclude_each_other() -> None:
    with pytest.raises(SystemExit) as raised:
        weft_lab("run", "tera-3a", "--quick", "--full")
    assert raised.value.code == USAGE
