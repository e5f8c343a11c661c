"""The numbers of the experiments on StaN, each from a small table with the outcome written out."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from weft.lab import stan, universes
from weft.lab.experiments import stan_7, stan_8, stan_9, stan_loss, stan_omni
from weft.lab.sources import GRID, Source
from weft.lab.task import shape_of
from weft.pipeline.schemas import MEMBERSHIP, NUMBER, SMALL, TEXT, columns
from weft.pipeline.transforms import judged


def test_the_distance_of_two_distributions(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [
            *(("a", 0, value) for value in (1.0, 2.0, 3.0, 4.0)),
            *(("a", 8, value) for value in (3.0, 4.0, 5.0)),
            ("b", 0, 1.0),
            ("b", 8, 1.0),
        ],
        columns(group=TEXT, round=SMALL, value=NUMBER),
    )
    distance = stan.ks_distance("group", value="value", after=F.col("round") > 0)
    found = {row["group"]: row for row in rows.transform(distance).collect()}
    # At 2, half of the first are there and none of the second; at 4, all and two thirds.
    assert found["a"].ks == pytest.approx(0.5)
    assert found["b"].ks == 0.0


def test_links_are_pooled_over_users_and_over_those_in_many_topics(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [
            ("p", 1, "grid", "whole", "plain", 1, 2, 20, 20, 18, 17),
            ("p", 1, "grid", "whole", "plain", 2, 12, 90, 80, 40, 36),
        ],
        shape_of(stan_7.COLUMNS),
    )
    found = {row.least: row for row in rows.transform(stan_7.pooled).collect()}
    assert found[1].reduction == pytest.approx(1 - 58 / 100)
    assert found[1].ideal_reduction == pytest.approx(1 - 53 / 100)
    assert found[1].reached == pytest.approx(42 / 47)
    assert found[1].above == 0.0
    assert found[1].improved_40 == 0.5
    assert found[10].users == 1
    assert found[10].reached == pytest.approx(40 / 44)


def test_remembered_walks_are_judged_beside_plain_ones(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [
            ("p", 1, "grid", "whole", variant, 1, 12, 90, 80, after, 36)
            for variant, after in (("plain", 40), ("remembered walks", 37), ("overheard walks", 39))
        ],
        shape_of(stan_7.COLUMNS),
    )
    found = rows.transform(stan_7.measure, "quick").transform(judged).collect()
    name = ", users in 10 topics or more, share of the ideal reduction that is reached"
    passed = {row.measure.removesuffix(name): row.passed for row in found if name in row.measure}
    assert passed["grid: whole"] is False  # 40 of 44
    assert passed["grid: whole, remembered walks"] is True  # 43 of 44
    assert passed["grid: whole, overheard walks"] is None  # told


def test_nodes_are_those_of_whole_traces_with_means_over_runs(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [
            ("p", 1, "grid", "whole", "plain", 1, 2, 20, 20, 18, 17),
            ("p", 2, "grid", "whole", "plain", 1, 2, 20, 19, 16, 17),
            ("q", 1, "grid", "open", "plain", 7, 2, 20, 19, 16, 17),
            ("r", 1, "grid", "whole", "overheard walks", 1, 2, 20, 19, 10, 17),
        ],
        shape_of(stan_7.COLUMNS),
    )
    [row] = rows.transform(stan_7.nodes).collect()
    assert (row.node, row.topics, row.lvs, row.ipvs, row.fpvs) == (1, 2, 20.0, 19.5, 17.0)


def test_growth_is_the_slope_over_all_users_of_a_universe(spark: SparkSession) -> None:
    def row(held: int, users: int, ipvs: int, fpvs: int, ideal: int) -> tuple[object, ...]:
        sums = (users * ipvs, users * fpvs, users * ideal)
        return ("p", 1, "grid", "grid", 0, 100, "plain", 16, held, users, *sums)

    rows = spark.createDataFrame(
        [row(10, 3, 40, 30, 28), row(20, 1, 80, 50, 46), row(30, 2, 120, 70, 64)],
        shape_of(stan_8.COLUMNS),
    )
    [found] = rows.transform(stan_8.growth).collect()
    assert found.before == pytest.approx(4)
    assert found.after == pytest.approx(2)
    assert found.ratio == pytest.approx(0.5)
    assert found.ideal_ratio == pytest.approx(0.45)
    assert found.beyond == pytest.approx(0.05)


def test_fitness_is_compared_before_and_after(spark: SparkSession) -> None:
    def row(topic: int, round_: int, strong: int, clustering: float) -> tuple[object, ...]:
        place = ("p", 1, "grid", "whole", "plain")
        return (*place, topic, round_, 30, 9, 1, strong, strong - 1, clustering, 3)

    rows = spark.createDataFrame(
        [row(1, 0, 1, 0.2), row(2, 0, 1, 0.4), row(1, 8, 1, 0.3), row(2, 8, 2, 0.5)],
        shape_of(stan_9.COLUMNS),
    )
    [found] = rows.transform(stan_9.figures_of).collect()
    assert (found.weak, found.strong, found.strong_before) == (1.0, 0.5, 1.0)
    assert (found.unlinked, found.overlays) == (0.5, 2)
    assert found.clustering_before == pytest.approx(0.3)
    assert found.clustering_after == pytest.approx(0.4)
    assert (found.clustering_ks, found.diameter_ks) == (0.5, 0.0)


def test_large_topics_are_spread_over_sizes(spark: SparkSession) -> None:
    rows = [
        (user, topic, None) for topic in range(50) for user in range(80 + topic)
    ]  # 30 topics of 100 and more
    found = spark.createDataFrame(rows, MEMBERSHIP).transform(universes.of_large_topics)
    topics = sorted(row.topic for row in found.select("topic").distinct().collect())
    assert len(topics) == universes.LARGE_TOPICS
    assert topics[0] == 20
    assert topics[-1] >= 48


def test_rounds_until_enough_is_there(spark: SparkSession) -> None:
    def row(round_: int, pvs: int) -> tuple[object, ...]:
        return ("p", 1, "grid", "whole", 0.1, 0.0, False, round_, pvs, 200, 100)

    rows = spark.createDataFrame(
        [row(0, 200), row(4, 120), row(8, 108), row(12, 104), row(16, 100)],
        shape_of(stan_loss.COLUMNS),
    )
    [found] = rows.transform(stan_loss.rounds_needed).collect()
    assert found.rounds == 12
    assert found.steady == pytest.approx(0.98)
    assert found.settled == 12  # 0.92 is less than 0.95 of 0.98


def test_churn_is_compared_with_the_same_rounds_without(spark: SparkSession) -> None:
    def row(churn: float, round_: int, pvs: int) -> tuple[object, ...]:
        return ("p", 1, "grid", "whole", 0.0, churn, False, round_, pvs, 200, 100)

    rows = spark.createDataFrame(
        [
            *(row(0.0, 0, 200), row(0.0, 4, 150), row(0.0, 8, 120), row(0.0, 12, 120)),
            *(row(0.01, 0, 200), row(0.01, 4, 160), row(0.01, 8, 120), row(0.01, 12, 128)),
        ],
        shape_of(stan_loss.COLUMNS),
    )
    found = {row.churn: row for row in rows.transform(stan_loss.against_calm).collect()}
    assert (found[0.0].early, found[0.0].kept) == (1.0, 1.0)
    assert found[0.01].early == pytest.approx((0.8 + 1.0) / 2)
    assert found[0.01].kept == pytest.approx(0.9)
    assert found[0.01].steady == pytest.approx(0.72)


def test_walks_that_come_back() -> None:
    assert stan_loss.survival(0.0) == 1.0
    assert stan_loss.survival(0.5) == 2.0**-8


def test_overlays_of_all_kinds_are_compared(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [("p", 1, "grid", "whole", 1, 10, 500, 400, 300, 290, 200)], shape_of(stan_omni.COLUMNS)
    )
    [found] = rows.transform(stan_omni.compared).collect()
    assert (found.fewer, found.closed) == (0.75, 0.5)
    assert found.more == pytest.approx(2 / 3)
    assert found.omni_mean == 20.0


def test_a_grid_has_as_many_topics_for_its_nodes_as_the_papers() -> None:
    grid = universes.grid_of(100)
    assert (grid.nodes, grid.topics) == (100, 16)
    assert stan.smallest(Source(GRID)) == []
