"""Profiles: each transform on a small table, and the known figures of a real trace."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest
from pyspark.sql import SparkSession

from correlation_reference import correlations as matrix_of
from correlation_reference import most_popular
from weft.engine.data.correlation import shuffled
from weft.engine.data.grid import Grid, draw_grid
from weft.engine.data.memberships import Memberships, memberships
from weft.engine.data.powerlaw import fit
from weft.pipeline import profile
from weft.pipeline.memberships import grid_memberships, held
from weft.pipeline.profile import (
    SUBSCRIBERS,
    SUBSCRIPTIONS,
    correlation_summary,
    correlations,
    distribution,
    fitted,
    nodes_in,
)
from weft.pipeline.schemas import CORRELATION, CORRELATION_SUMMARY, DISTRIBUTION, FIT, MEMBERSHIP

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
PAIRS = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (3, 2), (2, 2)]


def test_distributions_count_topics_and_nodes(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(user, topic, None) for user, topic in PAIRS], MEMBERSHIP)
    found = frame.transform(distribution)
    assert found.schema.names == DISTRIBUTION.names
    assert sorted(map(tuple, found.collect())) == [
        (SUBSCRIBERS, 2, 2),
        (SUBSCRIBERS, 3, 1),
        (SUBSCRIPTIONS, 1, 1),
        (SUBSCRIPTIONS, 2, 3),
    ]


def test_each_group_gets_the_fit_of_its_own(spark: SparkSession) -> None:
    steep = [("steep", size, max(1, int(9_000 * size**-3.0))) for size in range(1, 15)]
    flat = [("flat", size, max(1, int(9_000 * size**-1.5))) for size in range(1, 200)]
    found = spark.createDataFrame(steep + flat, DISTRIBUTION).transform(fitted, "kind")
    assert found.schema.names == ["kind", *FIT.names]
    rows = {row.kind: row for row in found.collect()}
    for name, data in (("steep", steep), ("flat", flat)):
        expected = fit(np.array([row[1] for row in data]), np.array([row[2] for row in data]))
        assert rows[name].exponent == pytest.approx(expected.exponent)
        assert (rows[name].least, rows[name].tail) == (expected.least, expected.tail)
    assert rows["steep"].exponent > rows["flat"].exponent + 1


def test_correlations_of_all_pairs_as_they_are_and_shuffled(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(user, topic, None) for user, topic in PAIRS], MEMBERSHIP)
    found = correlations(spark, frame, (4,), popular=2)
    assert found.schema.names == CORRELATION.names
    rows = {(row.shuffle, row.one, row.other): row.value for row in found.collect()}
    arrays = held(frame)
    topics = most_popular(arrays, 2)
    assert topics.tolist() == [0, 1]
    # Of four nodes three have the first topic, two the second, and both of these the first.
    assert rows[0, 0, 1] == pytest.approx((4 * 2 - 3 * 2) / np.sqrt(3 * 1 * 2 * 2))
    assert rows[4, 0, 1] == pytest.approx(matrix_of(shuffled(arrays, 4), topics)[0, 1])
    # How many nodes there are is known from the distributions.
    nodes = nodes_in(row.asDict() for row in frame.transform(distribution).collect())
    [known] = correlations(spark, frame, (), popular=2, nodes=nodes).collect()
    assert (nodes, known.value) == (4, rows[0, 0, 1])
    with pytest.raises(ValueError, match="from 1 on"):
        correlations(spark, frame, (0,))


def test_correlations_are_those_of_the_matrix_of_ones_and_zeros(spark: SparkSession) -> None:
    grid = Grid(nodes=80, topics=12)
    drawn = draw_grid(grid, 3)
    ones = np.zeros((80, 12))
    ones[drawn.members, drawn.topic_of] = 1
    topics = most_popular(drawn, 9)
    expected = np.asarray(np.corrcoef(ones.T))[np.ix_(topics, topics)]
    frame = grid_memberships(spark, grid, 3)
    rows = correlations(spark, frame, (), popular=9).collect()
    assert len(rows) == 9 * 8 // 2
    for row in rows:
        assert row.value == pytest.approx(expected[row.one, row.other], abs=1e-12)


def test_a_table_too_large_for_a_task_is_shuffled_in_rounds(spark: SparkSession) -> None:
    grid = Grid(nodes=200, topics=30)
    frame = grid_memberships(spark, grid, 5).cache()
    found = [(row.user, row.topic) for row in profile.shuffled(frame, 3, at_once=400).collect()]
    true = [(row.user, row.topic) for row in frame.collect()]
    assert len(set(found)) == len(found) == len(true) and len(true) > 800
    for place in (0, 1):
        assert Counter(row[place] for row in found) == Counter(row[place] for row in true)
    assert len(set(found) & set(true)) < 0.8 * len(true)


def test_summaries_are_over_pairs(spark: SparkSession) -> None:
    rows = [(0, 0, 1, 0.1), (0, 0, 2, 0.2), (0, 1, 2, 0.6), (1, 0, 1, 0.0)]
    found = spark.createDataFrame(rows, CORRELATION).transform(correlation_summary)
    assert found.schema.names == CORRELATION_SUMMARY.names
    first, second = found.orderBy("shuffle").collect()
    assert tuple(first) == pytest.approx((0, 3, 0.3, 0.2, 0.592, 0.6))
    assert tuple(second) == pytest.approx((1, 2, 0.0, 0.0, 0.0, 0.0))


def trace(name: str) -> Memberships:
    file = DATA / name / "subs.csv.gz"
    if not file.is_file():
        pytest.skip(f"{name} is not here")
    table = pyarrow.csv.read_csv(file)
    users, topics = (np.unique(table.column(n), return_inverse=True)[1] for n in ("user", "topic"))
    order = np.argsort(topics, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(topics))]).astype(np.int64)
    return memberships(int(users.max()) + 1, offsets, users[order].astype(np.int32))


@pytest.mark.parametrize("count", [1, 2, 101, 256])
def test_quantiles_lie_between_their_neighbours(spark: SparkSession, count: int) -> None:
    """On a place of the order, or between two of them in proportion."""
    values = np.random.default_rng(count).normal(size=count)
    rows = [(0, 0, other + 1, float(value)) for other, value in enumerate(values)]
    [found] = spark.createDataFrame(rows, CORRELATION).transform(correlation_summary).collect()
    expected = np.quantile(values, [0.5, 0.99])
    assert [found.median, found.percentile_99] == pytest.approx(expected, rel=1e-12)


def test_the_known_correlations_of_a_trace() -> None:
    groups = trace("youtube_groups")
    topics = most_popular(groups, 1_000)
    pairs = np.triu_indices(1_000, 1)
    true, chance = (matrix_of(each, topics)[pairs] for each in (groups, shuffled(groups, 1)))
    assert round(float(np.percentile(true, 99)), 2) == 0.13
    assert round(float(np.percentile(chance, 99)), 2) == 0.04
    assert true.mean() == pytest.approx(chance.mean(), abs=0.001)
