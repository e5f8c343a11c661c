"""What an experiment declares of its numbers: the columns it stores, the titles of its measures,
what it asks of them, and why.

A measure has a short name, which is a column of the experiment's wide table, and a title, by which
people read it. Bounds and their reasons are given by the short names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column
from pyspark.sql.types import DataType, StructType

from weft.pipeline.schemas import AT_LEAST, AT_MOST, columns
from weft.pipeline.transforms import Bound


def typed(kind: DataType, *names: str) -> StructType:
    """Columns of one type, in this order."""
    return columns(**dict.fromkeys(names, kind))


def at_most(bound: float | Column, *names: str) -> dict[str, Bound]:
    """Each of these measures is asked to be at most so much."""
    return dict.fromkeys(names, (AT_MOST, bound))


def at_least(bound: float | Column, *names: str) -> dict[str, Bound]:
    """Each of these measures is asked to be at least so much."""
    return dict.fromkeys(names, (AT_LEAST, bound))


def reasons(
    titles: Mapping[str, str], groups: Sequence[str] = ("",), /, **why: str
) -> dict[str, str]:
    """How the bounds of measures come about, by their titles; `groups` are the beginnings of their
    names where a measure is judged for several."""
    return {f"{group}{titles[name]}": text for group in groups for name, text in why.items()}
