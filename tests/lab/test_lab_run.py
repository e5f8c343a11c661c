"""A run from plan to verdict, and that finished points stay finished."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import dice
import weft
from weft.lab import run as lab
from weft.lab.execute import TaskFailed, pending
from weft.lab.experiment import Size
from weft.lab.run import plan_of
from weft.lab.task import shape_of, table_of
from weft.pipeline import resources, tables
from weft.pipeline.resources import Busy, claimed
from weft.pipeline.schemas import JUDGED

KIT = Path(__file__).parents[1] / "kit"
SOURCE = Path(weft.__file__).resolve().parents[1]


def test_a_run_leaves_rows_a_verdict_and_pictures(spark: SparkSession, tmp_path: Path) -> None:
    [verdict] = lab.run(spark, [dice.entry()], "quick", tmp_path)
    assert verdict.passed
    written = json.loads((tmp_path / "dice" / "verdict.json").read_text())
    assert written["id"] == "dice"
    assert written["size"] == "quick"
    assert written["passed"] is True
    assert written["seeds"] == [1, 2]
    assert written["points"] == 3
    assert written["command"] == "./weft lab run dice --quick --seeds 2"
    gap = written["measured"]["gap"]
    assert gap["low"] <= gap["value"] <= gap["high"]
    assert written["tolerance"]["gap"]["bound"] == 0.1
    [measure] = tables.read(spark, tmp_path / "dice" / "measures.parquet", JUDGED).collect()
    assert (measure.measure, measure.value, measure.passed) == ("gap", gap["value"], True)
    assert (tmp_path / "dice" / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "dice" / "figure.svg").read_text()
    plan = plan_of(dice.entry(), "quick")
    rows = tables.read_parts(
        spark,
        table_of(tmp_path, "dice"),
        [task.key for task in plan.tasks],
        shape_of(dice.entry().columns),
    )
    assert rows.count() == 3 * 2 * 10
    assert {(row.faces, row.seed) for row in rows.select("faces", "seed").distinct().collect()} == {
        (faces, seed) for faces in (2, 6, 20) for seed in (1, 2)
    }


def test_the_same_seed_gives_the_same_rows_and_picture(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("one", "two"):
        lab.run(spark, [dice.entry()], "quick", tmp_path / name)

    def rows(name: str) -> list[Any]:
        frame = spark.read.parquet(str(tmp_path / name / "dice" / "rows.parquet"))
        return sorted(tuple(row) for row in frame.collect())

    assert rows("one") == rows("two")
    for kind in ("png", "svg"):
        one, two = ((tmp_path / name / "dice" / f"figure.{kind}") for name in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


def test_a_finished_point_is_not_run_again(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    entry = dice.entry(points=dice.counted(log))
    lab.run(spark, [entry], "quick", tmp_path)
    lab.run(spark, [entry], "quick", tmp_path)
    assert set(Counter(log.read_text().splitlines()).values()) == {1}
    lab.run(spark, [entry], "quick", tmp_path, seeds=3)  # one more seed: only that one is run
    assert Counter(log.read_text().splitlines()) == Counter(
        f"{faces} {seed}" for faces in (2, 6, 20) for seed in (1, 2, 3)
    )
    lab.run(spark, [entry], "quick", tmp_path, fresh=True)
    assert Counter(log.read_text().splitlines())["2 1"] == 2


def test_rows_of_code_that_has_changed_are_run_again_when_asked(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "calls"
    entry = dice.entry(points=dice.counted(log))
    lab.run(spark, [entry], "quick", tmp_path, changed=True)
    lab.run(spark, [entry], "quick", tmp_path, changed=True)
    assert set(Counter(log.read_text().splitlines()).values()) == {1}
    monkeypatch.setattr("weft.lab.task.code_of", lambda *_: "other")
    monkeypatch.setattr("weft.lab.task.revision", lambda: "later")
    [kept] = lab.run(spark, [entry], "quick", tmp_path)
    assert set(Counter(log.read_text().splitlines()).values()) == {1}
    assert "later" not in kept.revisions
    [anew] = lab.run(spark, [entry], "quick", tmp_path, changed=True)
    assert set(Counter(log.read_text().splitlines()).values()) == {2}
    assert (anew.code, anew.revisions) == (["other"], {"later": 6})


def test_results_go_on_in_another_folder_once_they_are_copied_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = tmp_path / "calls"
    entry = dice.entry(points=dice.counted(log))
    one, other = tmp_path / "one", tmp_path / "other"
    lab.run(spark, [entry], "quick", one, seeds=1)
    [there] = lab.run(spark, [entry], "quick", other, seeds=2)
    copied = tmp_path / "copied"
    shutil.copytree(one, copied)
    shutil.copytree(other, copied, dirs_exist_ok=True)
    log.unlink()
    [again] = lab.run(spark, [entry], "quick", copied, seeds=2)
    assert not log.exists()
    assert (again.measured, again.revisions) == (there.measured, there.revisions)


def test_a_verdict_counts_only_its_own_points(spark: SparkSession, tmp_path: Path) -> None:
    [quick] = lab.run(spark, [dice.entry()], "quick", tmp_path)
    lab.run(spark, [dice.entry()], "full", tmp_path)
    [again] = lab.run(spark, [dice.entry()], "quick", tmp_path)
    assert again.measured == quick.measured


def test_a_new_version_of_an_entry_runs_its_points_again(tmp_path: Path) -> None:
    old, new = (plan_of(dice.entry(version=version), "quick").tasks for version in (1, 2))
    assert not {task.point for task in old} & {task.point for task in new}


def test_a_claim_that_does_not_hold_falls_short(spark: SparkSession, tmp_path: Path) -> None:
    def points(size: Size) -> list[dict[str, Any]]:
        return [{"faces": 6, "throws": 10}]  # too few throws for the bound

    entry = dice.entry(points=points)
    [verdict] = lab.run(spark, [entry], "quick", tmp_path, seeds=1)
    gap = verdict.measured["gap"]["value"]
    assert gap == pytest.approx(0.2) and not verdict.passed
    assert verdict.measured["gap"]["low"] is None


def test_a_simulation_that_fails_is_named_and_the_rest_is_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    good, bad = dice.entry(), dice.entry(id="loaded", simulation="dice:fail")
    with pytest.raises(TaskFailed, match=r"no die has \d+ faces\n.*in loaded with seed \d at"):
        lab.run(spark, [bad], "quick", tmp_path)
    assert not (tmp_path / "loaded" / "verdict.json").exists()
    [verdict] = lab.run(spark, [good], "quick", tmp_path)
    assert verdict.passed


def test_verdicts_are_made_beside_what_watches_the_tasks(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A query of a verdict waits for a core that a simulation has; what is said goes on."""
    judging = []

    def measure(rows: DataFrame, size: Size) -> DataFrame:
        judging.append(threading.current_thread())
        return dice.measure(rows, size)

    [verdict] = lab.run(spark, [dice.entry(measure=measure)], "quick", tmp_path)
    assert verdict.passed
    assert judging and threading.current_thread() not in judging


def test_a_bound_without_its_reason_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="gap"):
        lab.run(spark, [dice.entry(tolerances={})], "quick", tmp_path)


def test_two_runs_do_not_write_to_one_folder(tmp_path: Path) -> None:
    with claimed(tmp_path), pytest.raises(Busy), claimed(tmp_path):
        pass


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_goes_on_where_it_stopped(
    spark: SparkSession, tmp_path: Path, how: signal.Signals
) -> None:
    paths = os.pathsep.join([str(SOURCE), str(KIT)])
    mark = str(tmp_path)
    process = subprocess.Popen(
        [sys.executable, str(KIT / "dice_run.py"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": paths, resources.MARK_VARIABLE: mark},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    table = table_of(tmp_path, "dice")
    log = tmp_path / "calls"

    def stuck() -> bool:
        """The tasks of the first point have finished; two others are under way, at the gate."""
        return len(tables.finished(table)) >= 2 and len(log.read_text().splitlines()) >= 4

    assert resources.wait_until(lambda: stuck() or process.poll() is not None, 900)
    assert process.poll() is None, process.stderr and process.stderr.read()
    os.killpg(process.pid, how)
    _, said = process.communicate(timeout=600)
    assert process.returncode != 0
    # Spark's workers are in a group of their own and end when they notice; one that is still there
    # when the gate opens would write beside the next run.
    assert resources.wait_until(lambda: not resources.carriers(mark), 600)
    if how == signal.SIGINT:
        assert "4 tasks are left" in said
    finished = tables.finished(table)
    assert len(finished) == 2

    (tmp_path / "gate").touch()
    entry = dice.entry(points=dice.gated(tmp_path))
    assert len(pending(plan_of(entry, "quick").tasks, tmp_path)) == 4
    [verdict] = lab.run(spark, [entry], "quick", tmp_path)
    assert verdict.passed
    calls = Counter(log.read_text().splitlines())
    assert calls["2 1"] == calls["2 2"] == 1  # finished before: not run again
    assert len(calls) == 6
    assert not list(table.glob(".*"))
