"""StaN on Spark: packing, each transform on small frames, and the jobs against the engine."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.pipeline.stan import REDUCTION, node_sizes, reductions, stan_nodes
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from stan_kit import views_of
from weft.engine.data.grid import Grid, draw_grid
from weft.engine.stan import overlays as engine
from weft.engine.stan.fitness import fitness
from weft.engine.stan.overlays import IDEAL, Config, fewest
from weft.pipeline import stan
from weft.pipeline.memberships import grid_memberships
from weft.pipeline.schemas import (
    FITNESS,
    LINKS,
    NODE_SIZES,
    VIEW_SIZES,
)
from weft.pipeline.session import packed
from weft.pipeline.stan import (
    cost_of,
    links,
    neighbours_of,
    omniscient,
    overlay_fitness,
    pieces,
    view_sizes,
)

GRID = Grid(nodes=60, topics=8)
HELD = draw_grid(GRID, 1)
OVERLAYS = engine.overlays_of(HELD.topic_of, HELD.members)


def test_bins_cost_about_the_same() -> None:
    costs = np.array([cost_of(size, Config(), (0, 8)) for size in range(2, 400)])
    chosen = packed(costs, 7)
    loads = np.bincount(chosen, weights=costs)
    assert len(loads) == 7
    assert loads.max() < 1.01 * loads.min()


def test_a_topic_that_is_larger_than_all_others_has_a_bin_of_its_own() -> None:
    chosen = packed(np.array([1.0, 100.0, 1.0, 1.0]), 2)
    assert chosen.tolist() == [1, 0, 1, 1]


def test_the_ideal_and_overheard_walks_cost_more() -> None:
    plain = cost_of(1000, Config(), (0, 8))
    assert cost_of(1000, Config(), (0, 8, IDEAL)) > plain + 1000**2
    assert cost_of(1000, Config(overheard=True), (0, 8)) > 2 * plain


@pytest.mark.parametrize("links_at_once", [1, 500, 10**9])
def test_pieces_are_all_of_it(links_at_once: int) -> None:
    found = list(pieces(OVERLAYS, links_at_once))
    assert np.concatenate([each.topics for each in found]).tolist() == OVERLAYS.topics.tolist()
    assert np.array_equal(np.concatenate([each.members for each in found]), OVERLAYS.members)
    assert np.array_equal(np.concatenate([each.sizes() for each in found]), OVERLAYS.sizes())
    if links_at_once == 1:
        assert all(each.count == 1 for each in found)


def test_no_topics_are_no_pieces() -> None:
    none = engine.overlays_of(np.zeros(0, np.int32), np.zeros(0, np.int32))
    assert list(pieces(none, 10)) == []


def test_neighbours_are_told_once_per_user() -> None:
    # Nodes 4 and 9 are together in topics 0 and 1; 5 is alone in topic 2.
    overlays = engine.overlays_of(np.array([0, 0, 1, 1, 2]), np.array([4, 9, 4, 9, 5]))
    found = neighbours_of(engine.run(overlays, Config(), 1), 8)
    assert found.to_pylist() == [
        {"round": 8, "user": 4, "topics": 2, "logical": 2, "neighbours": [9]},
        {"round": 8, "user": 5, "topics": 1, "logical": 0, "neighbours": []},
        {"round": 8, "user": 9, "topics": 2, "logical": 2, "neighbours": [4]},
    ]


def test_view_sizes_count_different_neighbours(spark: SparkSession) -> None:
    linked = spark.createDataFrame(
        [
            (0, 7, 2, 5, [1, 2, 3, 4]),
            (0, 7, 1, 3, [2, 3, 9]),
            (8, 7, 2, 5, [1, 2, 3]),
            (8, 7, 1, 3, [1, 2, 3]),
            (8, 8, 1, 0, []),
        ],
        LINKS,
    )
    expected = spark.createDataFrame(
        [(0, 7, 3, 8, 5), (8, 7, 3, 8, 3), (8, 8, 1, 0, 0)], VIEW_SIZES
    )
    assertDataFrameEqual(linked.transform(view_sizes), expected, ignoreNullable=True)


def test_node_sizes_put_before_after_and_ideal_side_by_side(spark: SparkSession) -> None:
    sizes = spark.createDataFrame(
        [(0, 7, 3, 8, 5), (4, 7, 3, 8, 4), (8, 7, 3, 8, 3), (IDEAL, 7, 3, 8, 2), (0, 8, 1, 1, 1)],
        VIEW_SIZES,
    )
    expected = spark.createDataFrame([(7, 3, 8, 5, 3, 2), (8, 1, 1, 1, None, None)], NODE_SIZES)
    assertDataFrameEqual(sizes.transform(node_sizes), expected, ignoreNullable=True)


def test_reductions_are_pooled_over_users(spark: SparkSession) -> None:
    nodes = spark.createDataFrame(
        [(1, 1, 4, 4, 4, 4), (2, 12, 40, 30, 15, 14), (3, 10, 20, 20, 18, 16)], NODE_SIZES
    )
    expected = spark.createDataFrame(
        [(1, 3, 64, 54, 37, 34, 1 / 3), (10, 2, 60, 50, 33, 30, 0.5)], REDUCTION
    )
    assertDataFrameEqual(nodes.transform(reductions), expected, ignoreNullable=True)


@pytest.mark.parametrize("bin_cost", [1.0, 1e12])
def test_the_job_says_what_the_engine_says(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, bin_cost: float
) -> None:
    """Whatever the bins: every user's view sizes are those of one run over all topics; and no
    process has the whole table."""
    monkeypatch.setattr(stan, "BIN_COST", bin_cost)
    monkeypatch.delattr(stan, "held")
    config = Config(overheard=True, patience=1, lean=True)
    interests = engine.interests_of(HELD.topic_of, HELD.members)
    outcome = engine.run(OVERLAYS, config, 3, (0, 8, IDEAL), interests)
    expected = {
        round_: engine.distinct(outcome.owners(), outcome.at(round_), HELD.peers)
        for round_ in (0, 8, IDEAL)
    }
    logical = np.bincount(OVERLAYS.members, weights=OVERLAYS.degrees(), minlength=HELD.peers)
    found = grid_memberships(spark, GRID, 1).transform(stan_nodes, config, 3)
    assert found.schema == NODE_SIZES
    rows = {row.user: row for row in found.collect()}
    assert len(rows) == HELD.peers
    for user, row in rows.items():
        assert row.topics == HELD.per_peer()[user]
        assert row.lvs == logical[user]
        known = tuple(expected[round_][user] for round_ in (0, 8, IDEAL))
        assert (row.ipvs, row.fpvs, row.ideal) == known


def test_any_rounds_can_be_asked_for(spark: SparkSession) -> None:
    memberships = grid_memberships(spark, GRID, 1)
    sizes = memberships.transform(links, Config(), 3, range(9)).transform(view_sizes)
    sums = {
        row["round"]: row.pvs
        for row in sizes.groupBy("round").sum("pvs").toDF("round", "pvs").collect()
    }
    assert sorted(sums) == list(range(9))
    assert sums[8] < 0.95 * sums[0]


def test_fitness_is_computed_overlay_by_overlay(spark: SparkSession) -> None:
    memberships = grid_memberships(spark, GRID, 1)
    found = memberships.transform(overlay_fitness, Config(), 3)
    assert found.schema == FITNESS
    rows = {(row.topic, row["round"]): row for row in found.collect()}
    assert len(rows) == 2 * OVERLAYS.count
    outcome = engine.run(OVERLAYS, Config(), 3)
    topic = int(OVERLAYS.topics[2])
    members = OVERLAYS.members[OVERLAYS.offsets[2] : OVERLAYS.offsets[3]]
    views = np.searchsorted(members, views_of(outcome, topic, 8)).astype(np.int32)
    expected = fitness(views.ravel(), np.full(len(views), views.shape[1]))
    row = rows[topic, 8]
    assert (row.members, row.view) == views.shape
    assert (row.weak, row.strong, row.unlinked) == (
        expected.weak,
        expected.strong,
        expected.unlinked,
    )
    assert (row.clustering, row.diameter) == (expected.clustering, expected.diameter)


def test_the_omniscient_are_asked_user_by_user(spark: SparkSession) -> None:
    found = omniscient(grid_memberships(spark, GRID, 1)).orderBy("user").collect()
    expected = fewest(HELD, np.arange(HELD.peers))
    assert [row.user for row in found] == list(range(HELD.peers))
    assert [row.pvs for row in found] == expected.tolist()
