"""What an experiment declares of its numbers: the columns it stores, the titles of its measures,
what it asks of them, and why.

A measure has a short name, which is a column of the experiment's wide table, and a title, by which
people read it. Bounds and their reasons are given by the short names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from weft.lab.ground import Ground
from weft.pipeline.schemas import AT_LEAST, AT_MOST, NUMBER, SMALL, TEXT, TRUTH, WHOLE, columns
from weft.pipeline.transforms import Bound, Transform, numbers


def texts(*names: str) -> StructType:
    """Columns of texts, in this order. The functions that follow do the same for other types."""
    return columns(**dict.fromkeys(names, TEXT))


def truths(*names: str) -> StructType:
    return columns(**dict.fromkeys(names, TRUTH))


def smalls(*names: str) -> StructType:
    return columns(**dict.fromkeys(names, SMALL))


def wholes(*names: str) -> StructType:
    return columns(**dict.fromkeys(names, WHOLE))


def reals(*names: str) -> StructType:
    return columns(**dict.fromkeys(names, NUMBER))


def at_most(bound: float | Column, *names: str) -> dict[str, Bound]:
    """Each of these measures is asked to be at most so much."""
    return dict.fromkeys(names, (AT_MOST, bound))


def at_least(bound: float | Column, *names: str) -> dict[str, Bound]:
    """Each of these measures is asked to be at least so much."""
    return dict.fromkeys(names, (AT_LEAST, bound))


def told(
    titles: Mapping[str, Column], by: tuple[str, ...] = (), prefix: Column | None = None
) -> Transform:
    """Measures of which nothing is asked: what each title is worked out from, in every group."""
    names = {f"told_{place}": title for place, title in enumerate(titles)}
    wide = [column.alias(name) for name, column in zip(names, titles.values(), strict=True)]

    def transform(frame: DataFrame) -> DataFrame:
        return frame.select(*by, "seed", *wide).transform(numbers(names, by=by, prefix=prefix))

    return transform


def each(name: str) -> Column:
    """The beginning of a measure's name in each group: what the column says, and a colon."""
    return F.concat(F.col(name), F.lit(": "))


def reasons(
    titles: Mapping[str, str], groups: Sequence[str] = ("",), /, **why: Ground
) -> dict[str, Ground]:
    """How the bounds of measures come about, by their titles; `groups` are the beginnings of their
    names where a measure is judged for several."""
    return {f"{group}{titles[name]}": ground for group in groups for name, ground in why.items()}
