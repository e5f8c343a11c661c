"""stan-6 and stan-multi: their transforms on small frames, the machines against the engine's
kernel."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import SparkSession

from frames import stored
from weft.engine.data.grid import Grid, draw_grid
from weft.lab.experiments import stan_6, stan_multi
from weft.lab.task import tasks_of


def means(rows: dict[str, np.ndarray], round_: int) -> tuple[float, float]:
    some = rows["round"] == round_
    return float(rows["lvs"][some].mean()), float(rows["pvs"][some].mean())


def test_machines_behave_as_the_kernel_does() -> None:
    grid = draw_grid(Grid(nodes=60, topics=8), 3)
    engine = stan_6.in_engine(grid, 6, 3, 3)
    machines = stan_6.in_machines(grid, 6, 3, 3)
    for round_ in range(4):
        logical, physical = means(engine, round_)
        assert means(machines, round_)[0] == pytest.approx(logical, rel=0.05)
        assert means(machines, round_)[1] == pytest.approx(physical, rel=0.075)
    assert means(machines, 3)[0] == means(machines, 0)[0]
    assert means(machines, 3)[1] < 0.95 * means(machines, 0)[1]


def test_sharing_an_event_saves_copies_and_loses_nothing(spark: SparkSession) -> None:
    params = {"nodes": 16, "topics": 4, "stan": True, "parts": 2, "events": 20}
    points = [{**params, "together": together} for together in (True, False)]
    tasks = tasks_of(stan_multi.ENTRY, points, 1)
    rows = stored(spark, *((task, stan_multi.run(task.params, 1)) for task in tasks))
    found = {row.together: row for row in rows.transform(stan_multi.costs).collect()}
    for one in found.values():
        assert one.deliveries == one.owed > 0
        assert one.delivered_twice == 0
        assert one.copies == one.crossings  # the pipeline's count, and the observer's
    assert found[True].crossings_most == 1
    assert found[True].copies < found[False].copies


# --- transforms -----------------------------------------------------------------------------------


def test_the_fall_is_compared_with_that_of_the_ideal(spark: SparkSession) -> None:
    shape = "how string, nodes int, seed long, round int, lvs double, pvs double"
    found = spark.createDataFrame(
        [
            ("engine", 100, 1, 0, 40.0, 24.0),
            ("engine", 100, 1, 8, 40.0, 16.5),
            ("engine", 100, 1, -1, 40.0, 16.0),
            ("machines", 100, 1, 0, 40.0, 25.0),
            ("machines", 100, 1, 8, 38.0, 17.5),
        ],
        shape,
    )
    [row] = found.transform(stan_6.falls).transform(stan_6.whole).collect()
    assert row.constant == pytest.approx(0.05)
    assert row.start == 24.0
    assert row.end == 17.5
    assert row.fall == pytest.approx(0.3 / (1 / 3))


def test_real_peers_are_compared_round_by_round(spark: SparkSession) -> None:
    shape = "how string, nodes int, seed long, round int, lvs double, pvs double"
    found = spark.createDataFrame(
        [
            ("machines", 40, 1, 1, 40.0, 20.0),
            ("machines", 40, 1, 2, 40.0, 16.0),
            ("network", 40, 1, 1, 20.0, 11.0),
            ("network", 40, 1, 2, 20.0, 8.0),
        ],
        shape,
    )
    [row] = found.transform(stan_6.apart).collect()
    assert row.apart == pytest.approx(0.05)


def test_what_sharing_saves(spark: SparkSession) -> None:
    shape = (
        "seed long, stan boolean, together boolean, copies long, crossings long, connections long, "
        "owed long, deliveries long, delivered_twice long"
    )
    found = spark.createDataFrame(
        [
            (1, True, True, 80, 80, 80, 100, 100, 0),
            (1, True, False, 100, 100, 90, 100, 99, 0),
            (1, False, True, 90, 90, 90, 100, 100, 1),
            (1, False, False, 100, 100, 95, 100, 100, 0),
        ],
        shape,
    )
    [row] = found.transform(stan_multi.compared).collect()
    assert (row.once, row.missed) == (1.0, 2)
    assert row.saved == pytest.approx(0.2)
    assert row.more == pytest.approx(80 / 90)
