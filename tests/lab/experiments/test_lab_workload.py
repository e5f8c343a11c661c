"""The experiments on workloads: their transforms on small frames, and one from end to end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from weft.engine.data.grid import Grid, PowerLaw
from weft.lab import run as lab
from weft.lab import workload
from weft.lab.experiments import stan_3, stan_5, stan_table1
from weft.lab.run import matching
from weft.lab.sources import GRID, Source
from weft.lab.task import shape_of
from weft.pipeline.schemas import DRAW


def rows_of(spark: SparkSession, columns: Any, rows: list[dict[str, Any]]) -> DataFrame:
    shape = shape_of(columns)
    return spark.createDataFrame([[row.get(name) for name in shape.names] for row in rows], shape)


def test_traces_belong_to_one_of_the_two_figures() -> None:
    groups = Source("youtube_groups", Path("a"), Path("b"))
    pages = Source("wikipedia_edits", Path("a"), Path("b"))
    asked_for = Source("mine", Path("a"))
    for source, third, fourth in (
        (groups, 1, 0),
        (pages, 0, 1),
        (Source(GRID), 1, 1),
        (asked_for, 1, 1),
    ):
        assert len(stan_3.points("full", source, wikipedia=False)) == third
        assert len(stan_3.points("full", source, wikipedia=True)) == fourth
    assert stan_3.points("quick", groups, wikipedia=False) == []
    assert workload.points("quick", asked_for) == [{"size": "quick"}]


def test_universes_are_counted_from_their_rows(spark: SparkSession) -> None:
    pairs = [("open", 5, 1, 7), ("open", 5, 2, 7), ("open", 5, 1, 8), ("whole", 0, 9, 9)]
    frame = spark.createDataFrame(pairs, "reading string, seeds long, user long, topic long")
    found = sorted(map(tuple, frame.transform(stan_table1.sizes_of).collect()))
    assert found == [("open", 5, 2, 2, 3, 1), ("whole", 0, 1, 1, 1, 1)]


def test_draws_are_compared_with_the_rows_of_universes(spark: SparkSession) -> None:
    draws = [("closed", 5, 0, 2, 9, 30), ("closed", 5, 1, 3, 9, 30), ("closed", 8, 0, 4, 9, 40)]
    chosen = [draws[1], draws[2]]
    real = [("closed", 5, 3, 8, 30, 11), ("whole", 0, 50, 99, 400, 1)]
    found = spark.createDataFrame(draws, DRAW).transform(
        stan_table1.beside_rows,
        spark.createDataFrame(chosen, DRAW),
        spark.createDataFrame(real, stan_table1.MADE_SHAPE),
    )
    assert sorted(map(tuple, found.collect())) == [
        ("closed", 5, 0, 2, 9, 30, False, None, None),
        ("closed", 5, 1, 3, 9, 30, True, 11, 1),  # 9 nodes by the draw, 8 in the rows
        ("closed", 8, 0, 4, 9, 40, True, None, None),  # not made
        ("whole", 0, 0, 50, 99, 400, True, 1, 0),
    ]


def test_universes_must_grow_with_their_seeds(spark: SparkSession) -> None:
    def row(reading: str, seeds: int, topics: int, nodes: int, **more: Any) -> dict[str, Any]:
        sizes = {"reading": reading, "seeds": seeds, "topics": topics, "nodes": nodes}
        return {"source": "grid", "seed": 1, "median": True, "wrong": 0, **sizes, **more}

    rows = [
        row("closed", 5, 10, 100, least=31),
        row("closed", 20, 12, 90, least=30),
        row("closed", 20, 1, 1, median=False),
        row("closed", 100, 24, 300, least=33, wrong=1),
        row("closed", 200, 23, 999, least=33),
        row("closed", 500, 24, 998, least=33),  # the smaller one is full: not compared
        row("open", 5, 99, 500, least=35),
        row("pruned", 0, 99, 1_000, least=30),
        row("whole", 0, 999, 9_999, least=1),
    ]
    [found] = rows_of(spark, stan_table1.COLUMNS, rows).transform(stan_table1.growth).collect()
    assert (found.least, found.wrong) == (30, 1)
    assert found.more_topics == pytest.approx(23 / 24)
    assert found.more_nodes == pytest.approx(0.9)


def test_a_law_is_told_once(spark: SparkSession) -> None:
    shared = {"source": "grid", "universe": "whole", "seed": 1, "exponent": 2.5, "least": 3}
    rows = [
        {**shared, "kind": "subscribers per topic", "size": size, "count": 1, "tail": 7}
        for size in (1, 2, 3)
    ]
    [found] = rows_of(spark, stan_3.COLUMNS, rows).transform(stan_3.laws).collect()
    assert (found.exponent, found.least, found.tail) == (2.5, 3, 7)


def test_correlations_stand_beside_those_of_chance(spark: SparkSession) -> None:
    def row(shuffle: int, mean: float, high: float) -> dict[str, Any]:
        shared = {"source": "grid", "universe": "whole", "seed": 1, "topics": 9}
        return {**shared, "shuffle": shuffle, "mean": mean, "percentile_99": high}

    rows = [row(0, 0.1, 0.6), row(0, 0.1, 0.6), row(1, 0.09, 0.2)]
    [found] = rows_of(spark, stan_5.COLUMNS, rows).transform(stan_5.beside_chance).collect()
    assert found.above == pytest.approx(3.0)
    assert (found.topics, found.mean, found.mean_shuffled) == (9, 0.1, 0.09)


def test_workloads_run_on_a_grid_from_end_to_end(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = Grid(800, 40, PowerLaw(2.2, 2.0, 30.0), PowerLaw(3.0, 0.04, 0.4), least_members=30)
    monkeypatch.setattr(workload, "SMALL", tiny)
    monkeypatch.setattr(workload, "QUICK_SEEDS", (3, 12))
    entries = matching(["stan-table1", "stan-5"])
    verdicts = {each.id: each for each in lab.run(spark, entries, "quick", tmp_path, seeds=1)}
    sizes = verdicts["stan-table1"]
    assert sizes.passed, sizes.tolerance
    assert sizes.measured["grid: whole, topics"]["value"] == 40
    assert sizes.measured["grid: whole, nodes"]["value"] == 800
    assert (sizes.measured["grid: 3 seeds, closed, topics"]["value"] or 0) > 3
    assert verdicts["stan-5"].passed, verdicts["stan-5"].tolerance
    for name in verdicts:
        assert (tmp_path / name / "figure.png").stat().st_size > 10_000
