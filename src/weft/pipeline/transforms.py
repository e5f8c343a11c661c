"""Statistics that many tables need, each DataFrame → DataFrame, composed with `df.transform`.

A seed is one independent run, so every confidence interval is taken over seeds: first one number
per seed, then its mean and Student's 95 % interval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TypeAlias

import numpy as np
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from scipy import special

from weft.pipeline.schemas import (
    AT_LEAST,
    AT_MOST,
    JUDGED,
    MEASURE,
    REPORTED,
    selected,
)

Transform: TypeAlias = Callable[[DataFrame], DataFrame]

STUDENT_T = special.stdtrit(np.arange(1, 101), 0.975).tolist()
"""Student's t at 97.5 % for 1 … 100 degrees of freedom. Spark has no such function, and a table
spares its queries a Python process."""
_NORMAL = float(special.ndtri(0.975))


def over_seeds(*by: str, value: str = "value", keep: tuple[str, ...] = ()) -> Transform:
    """One number per seed → its mean as `value`, with `low`, `high` and the count of `seeds`.

    Several rows of one seed are averaged first. The columns to `keep` are averaged too.
    """

    def transform(frame: DataFrame) -> DataFrame:
        kept = [F.avg(name).alias(name) for name in keep]
        per_seed = frame.groupBy(*by, "seed").agg(F.avg(value).alias("value"), *kept)
        merged = per_seed.groupBy(*by).agg(
            F.avg("value").alias("mean"),
            F.stddev_samp("value").alias("std"),
            count("seeds"),
            *kept,
        )
        half = _student_t(F.col("seeds") - 1) * F.col("std") / F.sqrt("seeds")
        return merged.select(
            *by,
            F.col("mean").alias("value"),
            (F.col("mean") - half).alias("low"),
            (F.col("mean") + half).alias("high"),
            "seeds",
            *keep,
        )

    return transform


def ranked(*names: str, by: tuple[str, ...]) -> Transform:
    """Add `NAME_rank` for columns: the rank within each group; equal values share their mean."""

    def transform(frame: DataFrame) -> DataFrame:
        return frame.withColumns({f"{name}_rank": _rank(name, by) for name in names})

    return transform


def magnitude(frame: DataFrame) -> DataFrame:
    """A signed `value` with its interval → how far from 0 it is."""
    half = (F.col("high") - F.col("low")) / 2
    size = F.abs("value")
    return frame.withColumns(
        {"value": size, "low": F.greatest(F.lit(0.0), size - half), "high": size + half}
    )


def largest(value: str, *by: str) -> Transform:
    """The row with the largest `value` (of each group)."""

    def transform(frame: DataFrame) -> DataFrame:
        row = F.max_by(F.struct(*frame.columns), value).alias("row")
        grouped = frame.groupBy(*by) if by else frame.groupBy()
        return grouped.agg(row).select("row.*")

    return transform


def measured(
    name: str | Column, relation: str | Column = REPORTED, bound: float | Column | None = None
) -> Transform:
    """Name a number (with `value`, `low`, `high`, `seeds`) and say what the claim asks of it."""

    def transform(frame: DataFrame) -> DataFrame:
        asked = F.lit(relation) if isinstance(relation, str) else relation
        limit = bound if isinstance(bound, Column) else F.lit(bound).cast("double")
        named = frame.withColumns(
            {
                "measure": name if isinstance(name, Column) else F.lit(name),
                "relation": asked,
                "bound": F.when(asked != REPORTED, limit),
            }
        )
        return selected(named, MEASURE)

    return transform


Bound: TypeAlias = tuple[str, float | Column]  # a relation and what it is to


def numbers(
    titles: Mapping[str, str],
    asked: Mapping[str, Bound] | None = None,
    *,
    by: tuple[str, ...] = (),
    prefix: Column | None = None,
    judged_where: Column | None = None,
    keep: tuple[str, ...] = (),
) -> Transform:
    """A wide table with one row per seed (and group) → measures, one per column with a title.

    `asked` holds the bounds of some columns, for the groups in `judged_where`; a bound may use the
    columns to `keep`. Groups are told apart by the `prefix` of their measures' names.
    """
    bounds = asked or {}

    def transform(frame: DataFrame) -> DataFrame:
        doubles = [F.col(name).cast("double").alias(name) for name in titles]
        wide = frame.select(*by, "seed", *keep, *doubles)
        long = wide.unpivot([*by, "seed", *keep], list(titles), "name", "value")
        relation = chosen("name", {name: bound[0] for name, bound in bounds.items()}, REPORTED)
        if judged_where is not None:
            relation = F.when(judged_where, relation).otherwise(REPORTED)
        limit = chosen("name", {name: bound[1] for name, bound in bounds.items()}, None)
        title = chosen("name", titles, None)
        title = title if prefix is None else F.concat(prefix, title)
        means = long.transform(over_seeds(*by, "name", keep=keep))
        return means.transform(measured(title, relation, limit))

    return transform


def chosen(column: str, cases: Mapping[str, str | float | Column], otherwise: object) -> Column:
    """A value for each text that a column may hold."""
    found = F.lit(otherwise)
    for text, value in cases.items():
        case = value if isinstance(value, Column) else F.lit(value)
        found = F.when(F.col(column) == text, case).otherwise(found)
    return found


def together(*frames: DataFrame) -> DataFrame:
    """The rows of several tables of one shape."""
    return reduce(DataFrame.unionByName, frames)


def judged(frame: DataFrame) -> DataFrame:
    """Compare each measure with its bound. A measure without a number (null or NaN) falls short."""
    holds = (
        F.when(F.col("relation") == AT_MOST, F.col("value") <= F.col("bound"))
        .when(F.col("relation") == AT_LEAST, F.col("value") >= F.col("bound"))
        .otherwise(None)
    )
    asked = F.col("relation") != REPORTED
    known = F.col("value").isNotNull() & ~F.isnan("value") & F.col("bound").isNotNull()
    verdict = F.when(asked & ~known, F.lit(False)).otherwise(holds)
    return selected(frame.withColumn("passed", verdict), JUDGED)


def count(name: str) -> Column:
    """How many rows a group has."""
    return F.count(F.lit(1)).alias(name)


def _student_t(freedom: Column) -> Column:
    """The quantile for so many degrees of freedom; null for none."""
    table = F.array(*(F.lit(each) for each in STUDENT_T))
    # The first terms of its expansion in 1/freedom.
    many = F.lit(_NORMAL) + F.lit((_NORMAL**3 + _NORMAL) / 4) / freedom
    return (
        F.when(freedom < 1, None)
        .when(freedom <= len(STUDENT_T), F.get(table, (freedom - 1).cast("int")))
        .otherwise(many)
    )


def _rank(name: str, by: tuple[str, ...]) -> Column:
    """The mean rank of a value within its group."""
    same = Window.partitionBy(*by, name)
    order = Window.partitionBy(*by).orderBy(name)
    return F.rank().over(order) + (F.count(F.lit(1)).over(same) - 1) / 2
