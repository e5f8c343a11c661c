"""`weft data` as a user meets it: help, errors before Spark starts, the summary."""

from __future__ import annotations

from argparse import ArgumentTypeError
from fractions import Fraction
from pathlib import Path

import pytest

from weft.cli import data, data_ingest, demo, lab
from weft.cli.main import main
from weft.cli.parser import parser_for
from weft.cli.problem import FAILED, USAGE
from weft.pipeline.ingest.files import Inspected
from weft.pipeline.ingest.formats import FORMATS
from weft.pipeline.ingest.job import AUTO, STEPS, Most, Quality, Read, Summary
from weft.pipeline.ingest.options import UNITS
from weft.pipeline.ingest.snap import Communities
from weft.pipeline.lake import SHAPES
from weft.pipeline.location import Location


def test_the_command_line_knows_what_the_pipeline_knows() -> None:
    assert (AUTO, *FORMATS) == data_ingest.FORMATS
    assert tuple(UNITS) == data_ingest.UNITS
    assert len(data_ingest.WEIGHTS) == len(STEPS)
    for name in FORMATS:
        assert name in data_ingest.DETAILS


@pytest.mark.parametrize("action", data.ACTIONS)
def test_every_action_explains_itself(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["data", action, "--help"])
    text = capsys.readouterr().out
    assert end.value.code == 0
    assert text.startswith(f"usage: weft data {action}")
    assert f"weft data {action}" in text.partition("examples:")[2]


def test_a_slip_is_understood(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parser_for("data", data).parse_args(["ingest", "x", "--out", "y", "--fromat", "csv"])
    assert end.value.code == USAGE
    assert "unknown option '--fromat' (did you mean '--format'?)" in capsys.readouterr().err


def test_files_are_missed_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = tmp_path / "lake"
    assert main(["data", "ingest", str(tmp_path / "no.csv"), "--out", str(lake)]) == FAILED
    assert "no.csv: no such file or folder" in capsys.readouterr().err
    assert not lake.exists()
    assert main(["data", "ingest", "x", "--separator", "ab", "--out", str(lake)]) == USAGE


def test_the_summary() -> None:
    file = Inspected("lj.cmty.txt", 1, "", "", b"", b"")
    none = dict.fromkeys(SHAPES, 0)
    after = {**none, "memberships": 1200, "users": 1000, "topics": 1, "rejects": 2, "sources": 1}
    reasons = (("not UTF-8 text", 2, "lj.cmty.txt:7"),)
    read = [Read(file, Communities(), 1500, 2)]
    quality = Quality(
        1502,
        1500,
        2,
        300,
        1200,
        reasons,
        (("utf-16-le", 1), ("utf-8", 3)),
        ("no.csv",),
        (("wer.csv", "Wer,Was"),),
    )
    lake = Location.of("/lake")
    summary = Summary(lake, read, ["old.csv"], none, after, quality)
    assert data_ingest.told(summary) == [
        "lj.cmty.txt: snap-communities",
        "  1,500 rows, 2 rejects",
        "old.csv: in the lake already",
        "no.csv: no rows in it",
        "wer.csv: the first line 'Wer,Was' was read as a row; "
        "is it a header? --header or --no-header says it",
        "rejected 2: not UTF-8 text (first at lj.cmty.txt:7)",
        "1,502 rows in: 1,500 kept, 2 rejected; 300 duplicates",
        "1 file read as utf-16-le",
        "memberships         1,200  (+1,200)",
        "users               1,000  (+1,000)",
        "topics                  1  (+1)",
        "rejects                 2  (+2)",
        "lake: /lake",
    ]
    said = data_ingest.report(summary)
    assert (said["rows_in"], said["duplicates"]) == (1502, 300)
    assert said["without_rows"] == ["no.csv"]
    assert said["doubts"] == [{"file": "wer.csv", "first": "Wer,Was"}]
    assert said["reasons"] == {"not UTF-8 text": {"rows": 2, "first": "lj.cmty.txt:7"}}
    unchanged = data_ingest.told(Summary(lake, [], ["old.csv"], after, after))
    assert unchanged[-1] == "lake: /lake, which is as it was"


def test_an_address_never_becomes_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.csv").write_text("user,topic\nann,cats\n")
    assert main(["data", "ingest", "x.csv", "--out", "s3x://bucket/lake"]) == USAGE
    assert "s3x://bucket/lake: no file system that weft knows" in capsys.readouterr().err
    for command in (
        ["data", "profile", "lake", "--out", "s3a://bucket/out"],
        ["data", "ingest", "s3a://bucket/x.csv", "--out", "lake"],
        ["trace", "measure", "lake", "--out", "s3a://bucket/out"],
    ):
        with pytest.raises(SystemExit) as end:
            main(command)
        assert end.value.code == USAGE
        assert "a folder of this machine is needed" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


def test_the_memory_of_the_driver_is_asked_for_as_spark_writes_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parser = parser_for("data", data)
    given = ["ingest", "subs.csv", "--out", "lake"]
    assert parser.parse_args(given).driver_memory is None
    assert parser.parse_args([*given, "--driver-memory", "4G"]).driver_memory == "4g"
    with pytest.raises(SystemExit):
        parser.parse_args([*given, "--driver-memory", "much"])
    assert "a size such as" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["lab", "run", "tera-mem"], ["demo"]])
def test_results_of_lab_and_demo_go_to_folders(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main([*command, "--out", "s3://bucket/out"])
    assert end.value.code == USAGE
    assert "a folder of this machine is needed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("out/lab", "out/lab"),
        ("file:///data/out%20x", "/data/out x"),
        ("FILE://data/out", "/data/out"),
    ],
)
def test_a_folder_may_be_named_by_its_address(given: str, path: str) -> None:
    for name, module, command in (("lab", lab, ["run", "tera-mem"]), ("demo", demo, [])):
        assert parser_for(name, module).parse_args([*command, "--out", given]).out == Path(path)


@pytest.mark.parametrize("given", ["file://", "file:///", "s3a://bucket/out", "://x"])
def test_another_address_is_no_folder(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser_for("demo", demo).parse_args(["--out", given])
    assert "a folder of this machine is needed" in capsys.readouterr().err


def test_nothing_is_no_folder(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser_for("demo", demo).parse_args(["--out", ""])
    assert "the path is empty; '.' is this folder" in capsys.readouterr().err


def test_how_many_rejects_are_allowed() -> None:
    assert data_ingest.most("100") == (100, None)
    assert data_ingest.most("2.5%") == (None, Fraction(1, 40))
    _, share = data_ingest.most("29%")
    assert Most(share=share).allows(29, 100) and not Most(share=share).allows(30, 100)
    for wrong in ("-1", "x", "101%", "%", "nan%", "1/0%"):
        with pytest.raises(ArgumentTypeError):
            data_ingest.most(wrong)
    assert Most(2).allows(2, 10) and not Most(2).allows(3, 1000)
    assert Most(share=0.1).allows(1, 10) and not Most(share=0.1).allows(2, 10)
