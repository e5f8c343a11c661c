"""Each transform alone, on a small frame, against the expected frame written out."""

from __future__ import annotations

import math

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual
from scipy import stats

from weft.pipeline.schemas import (
    AT_LEAST,
    AT_MOST,
    JUDGED,
    MEASURE,
    NUMBER,
    REPORTED,
    SMALL,
    TEXT,
    WHOLE,
    columns,
    selected,
)
from weft.pipeline.transforms import (
    judged,
    largest,
    magnitude,
    measured,
    numbers,
    over_seeds,
    ranked,
    together,
)


def test_over_seeds_gives_the_mean_and_students_interval(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [
            ("a", 1, 10.0),
            ("a", 2, 12.0),
            ("a", 3, 14.0),
            ("b", 1, 5.0),
        ],
        columns(group=TEXT, seed=WHOLE, value=NUMBER),
    )
    # Three values with standard deviation 2: the half-width is t(2) · 2/√3.
    half = float(stats.t.ppf(0.975, 2)) * 2 / math.sqrt(3)
    expected = spark.createDataFrame(
        [("a", 12.0, 12.0 - half, 12.0 + half, 3), ("b", 5.0, None, None, 1)],
        columns(group=TEXT, value=NUMBER, low=NUMBER, high=NUMBER, seeds=WHOLE),
    )
    assertDataFrameEqual(rows.transform(over_seeds("group")), expected, ignoreNullable=True)


def test_over_seeds_weighs_seeds_and_not_rows(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [(1, 1.0), (1, 1.0), (1, 1.0), (2, 5.0)], columns(seed=WHOLE, load=NUMBER)
    )
    [row] = rows.transform(over_seeds(value="load")).collect()
    assert row.value == 3.0
    assert row.seeds == 2


def test_over_seeds_uses_an_expansion_beyond_the_table(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [(seed, float(seed % 2)) for seed in range(142)], columns(seed=WHOLE, value=NUMBER)
    )
    [row] = rows.transform(over_seeds()).collect()
    half = stats.t.ppf(0.975, 141) * math.sqrt(142 * 0.25 / 141) / math.sqrt(142)
    assert row.high - row.value == pytest.approx(half, rel=1e-4)


def test_over_seeds_averages_what_it_keeps(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [(1, 1.0, 10.0), (2, 3.0, 20.0)], columns(seed=WHOLE, value=NUMBER, noise=NUMBER)
    )
    [row] = rows.transform(over_seeds(keep=("noise",))).collect()
    assert (row.value, row.noise) == (2.0, 15.0)


def test_ranked_shares_ranks_among_equals_within_each_group(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [(1, 5, 1.0), (1, 7, 1.0), (1, 7, 3.0), (1, 9, 2.0), (2, 8, 4.0), (2, 1, 6.0)],
        columns(seed=WHOLE, subscriptions=SMALL, load=NUMBER),
    )
    expected = spark.createDataFrame(
        [
            (1, 5, 1.0, 1.0, 1.5),
            (1, 7, 1.0, 2.5, 1.5),
            (1, 7, 3.0, 2.5, 4.0),
            (1, 9, 2.0, 4.0, 3.0),
            (2, 8, 4.0, 2.0, 1.0),
            (2, 1, 6.0, 1.0, 2.0),
        ],
        columns(
            seed=WHOLE,
            subscriptions=SMALL,
            load=NUMBER,
            subscriptions_rank=NUMBER,
            load_rank=NUMBER,
        ),
    )
    found = rows.transform(ranked("subscriptions", "load", by=("seed",)))
    assertDataFrameEqual(found, expected, ignoreNullable=True)


def test_magnitude_is_how_far_from_zero_a_number_is(spark: SparkSession) -> None:
    shape = columns(value=NUMBER, low=NUMBER, high=NUMBER)
    rows = spark.createDataFrame([(-0.5, -0.6, -0.4), (0.1, -0.1, 0.3)], shape)
    expected = spark.createDataFrame([(0.5, 0.4, 0.6), (0.1, 0.0, 0.3)], shape)
    assertDataFrameEqual(rows.transform(magnitude), expected, ignoreNullable=True)


def test_numbers_makes_a_measure_of_each_titled_column(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [
            ("true", 1, 1.0, 5, 0.5),
            ("true", 2, 3.0, 5, 0.5),
            ("guess", 1, 9.0, 7, 0.5),
        ],
        columns(kind=TEXT, seed=WHOLE, spread=NUMBER, count=SMALL, noise=NUMBER),
    )
    half = float(stats.t.ppf(0.975, 1)) * math.sqrt(2) / math.sqrt(2)
    expected = spark.createDataFrame(
        [
            ("true: how even", 2.0, 2.0 - half, 2.0 + half, 2, AT_MOST, 1.5),
            ("true: how many", 5.0, 5.0, 5.0, 2, REPORTED, None),
            ("guess: how even", 9.0, None, None, 1, REPORTED, None),
            ("guess: how many", 7.0, None, None, 1, REPORTED, None),
        ],
        MEASURE,
    )
    found = rows.transform(
        numbers(
            {"spread": "how even", "count": "how many"},
            {"spread": (AT_MOST, 1 + F.col("noise"))},
            by=("kind",),
            prefix=F.concat("kind", F.lit(": ")),
            judged_where=F.col("kind") == "true",
            keep=("noise",),
        )
    )
    assertDataFrameEqual(found, expected, ignoreNullable=True)


def test_numbers_needs_no_groups(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, 4.0)], columns(seed=WHOLE, spread=NUMBER))
    expected = spark.createDataFrame([("how even", 4.0, None, None, 1, AT_LEAST, 2.0)], MEASURE)
    found = rows.transform(numbers({"spread": "how even"}, {"spread": (AT_LEAST, 2.0)}))
    assertDataFrameEqual(found, expected, ignoreNullable=True)


def test_largest_keeps_the_whole_row(spark: SparkSession) -> None:
    shape = columns(apt=SMALL, walk=SMALL, gap=NUMBER)
    rows = spark.createDataFrame([(10, 1, 0.01), (10, 2, 0.03), (50, 1, 0.02)], shape)
    assertDataFrameEqual(
        rows.transform(largest("gap")), spark.createDataFrame([(10, 2, 0.03)], shape)
    )
    assertDataFrameEqual(
        rows.transform(largest("gap", "apt")),
        spark.createDataFrame([(10, 2, 0.03), (50, 1, 0.02)], shape),
    )


def test_measured_names_a_number_and_its_bound(spark: SparkSession) -> None:
    summary = spark.createDataFrame(
        [(0.5, 0.4, 0.6, 8, 0.55)],
        columns(value=NUMBER, low=NUMBER, high=NUMBER, seeds=WHOLE, floor=NUMBER),
    )
    expected = spark.createDataFrame(
        [
            ("fixed", 0.5, 0.4, 0.6, 8, AT_MOST, 0.7),
            ("computed", 0.5, 0.4, 0.6, 8, AT_LEAST, 0.55),
            ("only said", 0.5, 0.4, 0.6, 8, REPORTED, None),
        ],
        MEASURE,
    )
    named = together(
        summary.transform(measured("fixed", AT_MOST, 0.7)),
        summary.transform(measured("computed", AT_LEAST, summary["floor"])),
        summary.transform(measured("only said")),
    )
    assertDataFrameEqual(named, expected, ignoreNullable=True)


def test_judged_compares_and_never_passes_what_is_not_a_number(spark: SparkSession) -> None:
    def row(name: str, value: float | None, relation: str, bound: float | None) -> Row:
        return Row(
            measure=name,
            value=value,
            low=None,
            high=None,
            seeds=1,
            relation=relation,
            bound=bound,
        )

    measures = spark.createDataFrame(
        [
            row("below", 1.0, AT_MOST, 2.0),
            row("equal", 2.0, AT_MOST, 2.0),
            row("above", 3.0, AT_MOST, 2.0),
            row("enough", 3.0, AT_LEAST, 2.0),
            row("too little", 1.0, AT_LEAST, 2.0),
            row("nothing", None, AT_MOST, 2.0),
            row("no number", math.nan, AT_LEAST, 2.0),
            row("no bound", 1.0, AT_MOST, None),
            row("said", 1.0, REPORTED, None),
        ],
        MEASURE,
    )
    outcome = measures.transform(judged)
    assert outcome.schema == JUDGED
    assert {each.measure: each.passed for each in outcome.collect()} == {
        "below": True,
        "equal": True,
        "above": False,
        "enough": True,
        "too little": False,
        "nothing": False,
        "no number": False,
        "no bound": False,
        "said": None,
    }


def test_selected_keeps_order_and_types(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(3, "x", 1)], "b int, c string, a int")
    shape = columns(a=WHOLE, b=NUMBER)
    assertDataFrameEqual(selected(frame, shape), spark.createDataFrame([(1, 3.0)], shape))
