"""Experiments that are Spark jobs over sources of data."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import census
from weft.cli import lab as command
from weft.cli.parser import parser_for
from weft.cli.problem import Problem
from weft.lab import run as lab
from weft.lab.execute import TaskFailed
from weft.lab.run import plan_of
from weft.lab.sources import GRID, TRACES, Source, Sources, find
from weft.lab.task import shape_of, table_of
from weft.lab.verdict import table
from weft.pipeline import tables
from weft.pipeline.lake import NotALake, Version

PAIRS = [("ann", "a"), ("bob", "a"), ("bob", "b"), ("cid", "b"), ("cid", "c"), ("dan", "c")]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of data with one of the known traces."""
    file = tmp_path / "data" / TRACES["youtube_groups"]
    file.parent.mkdir(parents=True)
    lines = ["user,topic", *(f"{user},{topic}" for user, topic in PAIRS)]
    file.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))
    return tmp_path / "data"


def test_traces_are_found_or_named_as_skipped(data: Path, tmp_path: Path) -> None:
    found = find(tmp_path / "out", data=data)
    assert [each.name for each in found.found] == [GRID, "youtube_groups"]
    assert sorted(found.skipped) == ["gowalla", "wikipedia_edits"]


def test_the_folder_of_data_can_be_set_from_outside(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_DATA", str(data))
    assert [each.name for each in find(tmp_path).found] == [GRID, "youtube_groups"]
    monkeypatch.setenv("WEFT_DATA", str(tmp_path / "nothing"))
    assert [each.name for each in find(tmp_path).found] == [GRID]


def test_a_trace_that_is_no_lake_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotALake, match="no lake here"):
        find(tmp_path, trace=tmp_path / "nothing")
    with pytest.raises(Problem, match="these experiments use no data: tera-4a"):
        arguments = ["run", "tera-4a", "--trace", str(_lake(tmp_path))]
        command.run(parser_for("lab", command).parse_args(arguments))


def _lake(folder: Path) -> Path:
    lake = folder / "empty"
    lake.mkdir()
    Version(1, content="a").write(lake)
    return lake


def test_a_job_runs_on_every_source_and_leaves_one_verdict(
    spark: SparkSession, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = tmp_path / "calls"
    entry = census.entry(calls)
    sources = find(tmp_path, data=data)
    [verdict] = lab.run(spark, [entry], "quick", tmp_path, sources=sources)
    assert sorted(calls.read_text().splitlines()) == ["grid 1", "grid 2", "youtube_groups 1"]
    assert verdict.passed
    assert verdict.sources == [GRID, "youtube_groups"]
    assert sorted(verdict.skipped) == ["gowalla", "wikipedia_edits"]
    assert verdict.measured["youtube_groups: memberships"]["value"] == len(PAIRS)
    asked = verdict.tolerance["grid: memberships"]
    assert (asked["bound"], asked["why"], asked["passed"]) == (5, "So we say.", True)
    assert "skipped gowalla: its file is not here" in table([verdict])
    written = json.loads((tmp_path / "census" / "verdict.json").read_text())
    assert written["command"] == "./weft lab run census --quick --seeds 2"
    extra = spark.read.parquet(str(tmp_path / "census" / "most.parquet"))
    assert extra.columns == ["topic", "most"]
    assert extra.count() == 4  # topics of the grid; the trace has three

    # A second run finds everything there, in the lake as well as in the rows.
    [again] = lab.run(spark, [entry], "quick", tmp_path, sources=find(tmp_path, data=data))
    assert again.measured == verdict.measured
    said = capsys.readouterr().err
    assert "3 of 3 tasks are finished already" in said
    assert "with other code" not in said
    assert max(Counter(calls.read_text().splitlines()).values()) == 1

    # The lake of the first run is one like any other.
    lake = tmp_path / ".lakes" / "youtube_groups"
    [alone] = lab.run(spark, [entry], "quick", tmp_path / "alone", sources=find(tmp_path, lake))
    assert alone.sources == ["youtube_groups"]
    assert alone.skipped == {}
    assert alone.command.endswith(f"--trace {lake}")
    plan = plan_of(entry, "quick", sources=find(tmp_path, lake))
    keys = [task.key for task in plan.tasks]
    rows = tables.read_parts(
        spark, table_of(tmp_path / "alone", "census"), keys, shape_of(entry.columns)
    )
    assert (
        sorted((row.source, row.seed, row.subscribers) for row in rows.collect())
        == [("youtube_groups", 1, 2)] * 3
    )


def test_a_job_that_fails_is_named_and_what_was_done_is_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    bad = census.entry(calls, points=lambda size, source: [{"calls": str(calls), "fails": 2}])
    with pytest.raises(TaskFailed, match=r"(?s)lost count.*in census with seed 2 at"):
        lab.run(spark, [bad], "quick", tmp_path)
    assert len(tables.finished(table_of(tmp_path, "census"))) == 1
    assert not (tmp_path / "census" / "verdict.json").exists()


def test_a_job_without_points_on_the_sources_gets_no_verdict(
    spark: SparkSession, tmp_path: Path
) -> None:
    entry = census.entry(tmp_path / "calls", points=lambda size, source: [])
    assert lab.run(spark, [entry], "quick", tmp_path) == []


def test_points_on_another_lake_are_other_points(tmp_path: Path) -> None:
    entry = census.entry(tmp_path / "calls")
    lake = _lake(tmp_path)
    sources = Sources([Source("trace", lake)])
    before = plan_of(entry, "quick", sources=sources).tasks
    Version(2, content="b").write(lake)
    after = plan_of(entry, "quick", sources=sources).tasks
    assert {task.key for task in before}.isdisjoint(task.key for task in after)
