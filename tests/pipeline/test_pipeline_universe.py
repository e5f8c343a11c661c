"""Pruning and universes: each transform on a small table, the kernel against the transforms."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from weft.engine.data.grid import Grid, PowerLaw, draw_grid
from weft.engine.data.universe import READINGS, Users, added_by, seeds_of, users_of
from weft.pipeline import universe
from weft.pipeline.lake import Lake
from weft.pipeline.memberships import (
    TOPIC_SIZE,
    grid_memberships,
    held,
    make_grid,
    pruned,
    topic_sizes,
)
from weft.pipeline.schemas import DRAW, MEMBERSHIP
from weft.pipeline.universe import Recipe, Universes, closed, medians, opened, own_topics

Pairs = list[tuple[int, int]]
PAIRS: Pairs = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (3, 2), (4, 3), (2, 3)]


def table(spark: SparkSession, pairs: Pairs) -> DataFrame:
    return spark.createDataFrame([(user, topic, None) for user, topic in pairs], MEMBERSHIP)


def pairs_of(frame: DataFrame) -> Pairs:
    assert frame.schema.names == MEMBERSHIP.names
    return sorted((row.user, row.topic) for row in frame.collect())


def test_topics_are_counted(spark: SparkSession) -> None:
    sizes = table(spark, PAIRS).transform(topic_sizes)
    assert sizes.schema.names == TOPIC_SIZE.names
    assert sorted(map(tuple, sizes.collect())) == [(0, 3), (1, 2), (2, 1), (3, 2)]


def test_small_topics_go_and_with_them_users_who_have_no_other(spark: SparkSession) -> None:
    kept = table(spark, PAIRS).transform(pruned, 2)
    assert pairs_of(kept) == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 3), (4, 3)]
    assert pairs_of(table(spark, PAIRS).transform(pruned, 3)) == [(0, 0), (1, 0), (2, 0)]
    assert pairs_of(table(spark, PAIRS).transform(pruned, 9)) == []


def test_one_pass_of_pruning_is_a_fixed_point(spark: SparkSession) -> None:
    frame = grid_memberships(spark, Grid(nodes=120, topics=40, radius=PowerLaw(2, 0.05, 0.5)), 3)
    once = frame.transform(pruned, 8)
    sizes = [row.subscribers for row in once.transform(topic_sizes).collect()]
    assert 0 < len(sizes) < 40
    assert min(sizes) >= 8
    assert pairs_of(once.transform(pruned, 8)) == pairs_of(once)


def test_arrays_keep_the_numbers_of_the_table(spark: SparkSession) -> None:
    found = held(table(spark, [(5, 2), (1, 2), (5, 0)]))
    assert (found.peers, found.topics, found.total) == (6, 3, 3)
    assert found.sizes().tolist() == [1, 0, 2]
    assert found.members.tolist() == [5, 1, 5]
    assert held(table(spark, [])).total == 0


def test_a_closed_universe_has_the_topics_of_the_set(spark: SparkSession) -> None:
    grown = spark.createDataFrame([(1,), (3,)], "topic long")
    assert pairs_of(table(spark, PAIRS).transform(closed, grown)) == [
        (0, 1),
        (1, 1),
        (2, 3),
        (4, 3),
    ]


def test_an_open_universe_has_all_that_its_nodes_subscribe_to(spark: SparkSession) -> None:
    grown = spark.createDataFrame([(1,)], "topic long")
    assert pairs_of(table(spark, PAIRS).transform(opened, grown)) == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]


def test_the_median_draw_is_by_topics_over_nodes(spark: SparkSession) -> None:
    def draw(number: int, topics: int, nodes: int, seeds: int = 5) -> tuple[object, ...]:
        return ("closed", seeds, number, topics, nodes, 100)

    rows = [draw(0, 9, 10), draw(1, 2, 10), draw(2, 0, 0), draw(3, 4, 20), draw(4, 8, 10, seeds=6)]
    found = spark.createDataFrame(rows, DRAW).transform(medians).collect()
    # Ratios 0.9, 0.2, none, 0.2: the second of four; of the equal ones the first drawn.
    assert sorted((row.seeds, row.draw) for row in found) == [(5, 1), (6, 4)]


def test_own_topics_bear_their_users_names(spark: SparkSession) -> None:
    users = spark.createDataFrame([(0, "ann"), (1, "bob")], "user long, name string")
    topics = spark.createDataFrame([(0, "football"), (1, "ann")], "topic long, name string")
    assert [tuple(row) for row in own_topics(users, topics).collect()] == [(0, 1)]


def grown(held: Users, number: int, own: np.ndarray | None = None) -> tuple[int, ...]:
    """The topics of a draw from one seed, where there are four."""
    seeds = seeds_of(np.arange(4), 1, number, 1)
    chosen = np.isin(np.arange(4), seeds)
    return tuple(np.union1d(seeds, added_by(held, chosen, 1, number, 1, own)).tolist())


def test_a_set_grows_by_one_topic_of_each_user() -> None:
    # Topic 0 has users 0 and 1; their other topics are 1 and 2; topic 3 is out of reach.
    held = users_of(np.array([0, 1, 0, 1, 2]), np.array([0, 0, 1, 2, 3]))
    sets = {grown(held, number) for number in range(200)}
    assert {(0,), (0, 1), (0, 2), (0, 1, 2)} <= sets
    assert not any(0 in each and 3 in each for each in sets)
    own = np.array([3, -1, -1])
    assert {grown(held, number, own) for number in range(50)} == {(0, 3), (1, 3), (2,), (3,)}
    with pytest.raises(ValueError, match="5 seeds of 4"):
        seeds_of(np.arange(4), 5, 0, 1)


def test_parts_of_a_table_say_together_what_the_whole_says() -> None:
    drawn = draw_grid(Grid(nodes=60, topics=12), 4)
    users, topics = drawn.members.astype(np.int64), drawn.topic_of.astype(np.int64)
    chosen = np.arange(12) < 3
    whole = added_by(users_of(users, topics), chosen, 3, 7, 1)
    parts = [users_of(users[users % 3 == part], topics[users % 3 == part]) for part in range(3)]
    said = [added_by(part, chosen, 3, 7, 1) for part in parts]
    assert np.unique(np.concatenate(said)).tolist() == whole.tolist()


def test_sizes_of_draws_are_those_of_the_universes(spark: SparkSession) -> None:
    grid = Grid(nodes=150, topics=60, radius=PowerLaw(2.0, 0.05, 0.4))
    frame = grid_memberships(spark, grid, 5).cache()
    universes = Universes(spark, frame, Recipe(draws=5, least=6, seed=2))
    draws = universes.draws([2, 10]).cache()
    assert draws.count() == 2 * 5 * len(READINGS)
    for reading in READINGS:
        for seeds, number in ((2, 0), (10, 3)):
            rows = pairs_of(universes.universe(seeds, number, reading))
            wanted = draws.where(f"reading = '{reading}' and seeds = {seeds} and draw = {number}")
            [row] = wanted.collect()
            found = len({topic for _, topic in rows}), len({user for user, _ in rows}), len(rows)
            assert (row.topics, row.nodes, row.memberships) == found
    median = draws.where("seeds = 10 and reading = 'open'").transform(medians).collect()[0]
    assert pairs_of(universes.median(10, "open")) == pairs_of(
        universes.universe(10, median.draw, "open")
    )
    with pytest.raises(ValueError, match="61 seeds"):
        universes.draws([61])


def test_a_grid_becomes_a_lake_and_keeps_its_universes(spark: SparkSession, tmp_path: Path) -> None:
    grid = Grid(nodes=60, topics=12)
    make_grid(spark, grid, 4, tmp_path / "grid")
    lake = Lake(tmp_path / "grid")
    rows = {name: lake.rows(name) for name in ("memberships", "users", "topics")}
    assert rows == {"memberships": draw_grid(grid, 4).total, "users": 60, "topics": 12}
    assert pairs_of(lake.memberships(spark)) == pairs_of(grid_memberships(spark, grid, 4))
    assert lake.users(spark).where("name = 'n7'").first() == (7, "n7")
    assert lake.topics(spark).where("name = '/t/3'").first() == (3, "/t/3")

    recipe = Recipe(draws=3, least=2, seed=5)
    [made] = universe.make(spark, lake, [2], recipe=recipe, name="two")
    found = pairs_of(lake.universe(spark, "two"))
    assert lake.universes() == ["two"]
    assert (made.name, made.seeds, made.memberships) == ("two", 2, len(found))
    assert made.nodes == len({user for user, _ in found})
    note = json.loads((lake.path / "universes" / "two" / "universe.json").read_text())
    assert (note["reading"], note["draws"], note["least"], note["draw"]) == (
        "closed",
        3,
        2,
        made.draw,
    )
    draws = DeltaTable(lake.path / "universes" / "two" / "draws")
    assert draws.to_pyarrow_table().num_rows == 3
