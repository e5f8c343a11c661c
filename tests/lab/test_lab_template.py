"""`weft lab new`: what it writes runs at once."""

from __future__ import annotations

import importlib.util
import sys
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from frames import stored
from weft.lab import verdict
from weft.lab.defect import planted
from weft.lab.task import tasks_of
from weft.lab.template import CannotMake, make

DAY = date(2026, 11, 16)


def test_the_template_is_an_experiment_that_runs_and_holds(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = make("my-question", DAY, tmp_path)
    spec = importlib.util.spec_from_file_location("my_question", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["my_question"] = module
    try:
        spec.loader.exec_module(module)
        entry = module.ENTRY
        tasks = tasks_of(entry, entry.points("quick"), 1)
        rows = stored(spark, *((task, module.run(task.params, task.seed)) for task in tasks))
        measures = verdict.measures_of(entry, rows, "quick")
        with planted(entry.defects[0]):
            broken = stored(spark, *((task, module.run(task.params, 1)) for task in tasks))
        wrong = verdict.measures_of(entry, broken, "quick")
    finally:
        del sys.modules["my_question"]
    assert entry.id == "my-question"
    assert {one.chosen for one in entry.tolerances.values()} == {DAY}
    assert [row.passed for row in measures if row.bound is not None] == [True, True, True]
    assert entry.defects == module.DEFECTS
    copies = [row.value for row in measures if row.measure.endswith("copies per delivery")]
    assert len(copies) == 3 and all(0.9 < value < 2 for value in copies)
    assert False in [row.passed for row in wrong]


@pytest.mark.parametrize("name", ["", "My", "a b", "../x", "a_b", "x-"])
def test_a_name_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(CannotMake, match="a name has small letters"):
        make(name, DAY, tmp_path)


@pytest.mark.parametrize("name", ["tera-3a", "tera-4a"])
def test_a_name_that_an_experiment_has_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(CannotMake, match=f"an experiment '{name}' already"):
        make(name, DAY, tmp_path)
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    make("one", DAY, tmp_path)
    with pytest.raises(CannotMake, match="there already"):
        make("one", DAY, tmp_path)
