"""The shapes of tables, declared once. A transform ends in a `select` that matches one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TRUTH = BooleanType()
NUMBER = DoubleType()
SMALL = IntegerType()
WHOLE = LongType()
TEXT = StringType()


def columns(**types: DataType) -> StructType:
    """A table with these columns, in this order."""
    return StructType([StructField(name, type_) for name, type_ in types.items()])


def joined(*parts: StructType) -> StructType:
    """The columns of several shapes side by side."""
    return StructType([each for part in parts for each in part.fields])


def selected(frame: DataFrame, shape: StructType) -> DataFrame:
    """Exactly the columns of a shape, with its types."""
    return frame.select(*(frame[each.name].cast(each.dataType) for each in shape.fields))


# Which run of an experiment a row is from: the place of its point (a hash of the parameters), and
# the seed. Together with the experiment they name a task, which can be run again alone.
TASK = columns(point=TEXT, seed=WHOLE)

# What a worker says of a finished task: how many rows, and the CPU time it took.
RECEIPT = columns(experiment=TEXT, point=TEXT, seed=WHOLE, rows=WHOLE, seconds=NUMBER)

# A number that an experiment measured, with its 95 % confidence interval over seeds (null where
# there is only one), and what the claim asks of it: `value` AT_MOST or AT_LEAST `bound`, or nothing
# (then `bound` is null, and the number is only REPORTED).
AT_MOST = "at most"
AT_LEAST = "at least"
REPORTED = "reported"
MEASURE = columns(
    measure=TEXT, value=NUMBER, low=NUMBER, high=NUMBER, seeds=WHOLE, relation=TEXT, bound=NUMBER
)

# The same, judged; `passed` is null where nothing is asked.
JUDGED = joined(MEASURE, columns(passed=TRUTH))
