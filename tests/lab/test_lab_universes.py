"""Memberships that points run on: made once by Spark, and computed alike in one task or spread."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from spark_fixture import SharedSpark
from weft.engine.data.grid import Grid
from weft.lab import run as lab
from weft.lab import stan, universes
from weft.lab.execute import fits_a_task
from weft.lab.experiments import stan_7, stan_9, stan_lean, stan_loss, stan_omni
from weft.lab.overlaid import InTask, Spread
from weft.lab.run import plan_of
from weft.lab.sources import GRID, Source, Sources
from weft.lab.task import shape_of, table_of, tasks_of
from weft.pipeline import memberships, tables
from weft.pipeline.memberships import LEAST_SUBSCRIBERS
from weft.pipeline.schemas import MEMBERSHIP
from weft.pipeline.universe import Universes

PARAMS = {
    "nodes": 80,
    "variant": stan.PLAIN,
    "rounds": 6,
    "loss": 0.1,
    "churn": 0.1,
    "overheard": True,
}


@pytest.fixture(scope="module")
def lake(shared_spark: SharedSpark, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of two hundred users and twelve topics, some of them small."""
    folder = tmp_path_factory.mktemp("data") / "lake"
    memberships.make_grid(shared_spark.session(), Grid(nodes=200, topics=12), 4, folder)
    return folder


@pytest.mark.parametrize(
    "simulation",
    [
        stan_7.run,
        stan_9.run,
        stan_lean.run,
        stan_loss.run,
        stan_omni.run,
    ],
)
def test_a_point_comes_out_alike_in_one_task_and_spread(
    spark: SparkSession, tmp_path: Path, simulation: Callable[..., dict[str, Any]]
) -> None:
    params = {**PARAMS, "variant": "lean"} if simulation is stan_lean.run else PARAMS
    alone = simulation(params, 3, InTask(universes.arrays_of(params, 3, tmp_path)))
    frame = universes.frame_of(spark, params, 3, Source(GRID), tmp_path)
    spread = simulation(params, 3, Spread(frame))
    assert sorted(alone) == sorted(spread)
    for name, values in alone.items():
        assert np.asarray(spread[name]) == pytest.approx(np.asarray(values)), name


def test_universes_are_made_once_and_are_the_median_draws(
    spark: SparkSession, lake: Path, tmp_path: Path
) -> None:
    entry = stan_7.ENTRY
    source = Source("lake", lake)
    given = {"nodes": 0, "source": "lake", "lake": source.fingerprint()}
    points = [
        {"universe": universe, "seeds": seeds, **given}
        for universe, seeds in (("whole", 0), ("closed", 2), ("open", 2), ("open", 500))
    ]
    tasks = tasks_of(entry, points, 2, source, over=True)
    told: list[tuple[int, str]] = []
    universes.make(spark, tasks, tmp_path, lambda done, what: told.append((done, what)))
    assert told[0] == (0, "drawing universes of lake")
    assert [done for done, _ in told[1:]] == [0, 1, 2, 3]
    assert universes.missing(tasks, tmp_path) == []

    found = [_pairs(*universes.arrays_of(params, 1, tmp_path)) for params in points]
    drawn = Universes(spark, source.opened().memberships(spark))
    for params, reading in ((1, "closed"), (2, "open")):
        median = drawn.median(2, reading).collect()  # type: ignore[arg-type]
        assert found[params] == sorted((row.topic, row.user) for row in median)
    assert found[3] == found[0]  # grown from all topics
    sizes = np.bincount([topic for topic, _ in found[0]])
    assert sizes[sizes > 0].min() >= LEAST_SUBSCRIBERS
    assert universes.rows_of(points[0], tmp_path) == len(found[0])


def _pairs(topics: np.ndarray, users: np.ndarray) -> list[tuple[int, int]]:
    return sorted(zip(topics.tolist(), users.tolist(), strict=True))


@pytest.mark.parametrize(
    ("rows", "fits"),
    [
        pytest.param(18_257, True, id="wikipedia_edits"),
        pytest.param(518_650, False, id="gowalla in topics of at least 30"),
    ],
)
def test_the_large_one_of_the_real_traces_is_spread(
    rows: int, fits: bool, lake: Path, tmp_path: Path
) -> None:
    tasks = plan_of(stan_7.ENTRY, "quick", 1, Sources([Source("lake", lake)])).tasks
    [task] = [each for each in tasks if each.params["universe"] == universes.WHOLE_TRACE][:1]
    numbers = np.arange(rows)
    columns = {"user": numbers, "topic": numbers, "time": [None] * rows}
    tables.write_part(universes.folder_of(task.params, tmp_path), "all", columns, MEMBERSHIP)
    assert fits_a_task(task, tmp_path) is fits


def test_what_does_not_fit_a_task_is_spread_with_the_same_rows(
    spark: SparkSession, lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = stan_7.ENTRY
    sources = Sources([Source("lake", lake)])
    found = []
    for name, most in (("one", universes.TASK_ROWS), ("all", 0)):
        monkeypatch.setattr(universes, "TASK_ROWS", most)
        out = tmp_path / name
        [verdict] = lab.run(spark, [entry], "quick", out, seeds=1, sources=sources)
        assert verdict.sources == ["lake"]
        keys = [task.key for task in plan_of(entry, "quick", 1, sources).tasks]
        table = table_of(out, entry.id)
        rows = tables.read_parts(spark, table, keys, shape_of(entry.columns)).collect()
        found.append(sorted(rows))
    assert found[0] == found[1]
    assert len(found[0]) > 100
