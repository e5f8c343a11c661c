"""The shapes of tables, declared once. A transform ends in a `select` that matches one of them.

Here stand those that several modules share; the others stand beside their transforms.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

TRUTH = BooleanType()
NUMBER = DoubleType()
SMALL = IntegerType()
WHOLE = LongType()
TEXT = StringType()
TIME = TimestampType()  # microseconds, UTC


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

# --- the lake -----------------------------------------------------------------------------------

# The topics that users are subscribed to: distinct (user, topic); the earliest time known, or null.
MEMBERSHIP = columns(user=WHOLE, topic=WHOLE, time=TIME)

# What users did where and when, one row for each time it is stated: edits, check-ins. `extra` is a
# JSON object with the other columns of the file, or null; the time is null where none is stated.
HAPPENED = columns(user=WHOLE, topic=WHOLE, time=TIME, extra=TEXT)

# The dictionaries: the name behind each number.
USER = columns(user=WHOLE, name=TEXT)
TOPIC = columns(topic=WHOLE, name=TEXT)

# A row that could not be read. `line` is the line of a text file, the row of a Parquet file, the
# page of an XML dump, counted from 1; `text` is the beginning of what stands there.
REJECT = columns(file=TEXT, line=WHOLE, reason=TEXT, text=TEXT)

# A file that was read: as what (`format`, with the options that change its meaning as `reading`),
# how many rows it gave, how many were rejected, and the encoding of its text (null: it has none, or
# it was read before that was noted).
SOURCE = columns(
    file=TEXT,
    sha256=TEXT,
    bytes=WHOLE,
    format=TEXT,
    reading=TEXT,
    rows=WHOLE,
    rejects=WHOLE,
    encoding=TEXT,
)

# What became of the rows of one ingest, which made this `version` of the lake: for each `figure`
# how many rows; those that were rejected, with the reason, and files by their encoding.
QUALITY = columns(version=WHOLE, figure=TEXT, reason=TEXT, rows=WHOLE)

# The versions of a lake: when each was made, what was ingested until then (`content` names it), and
# for each table which version of it belongs to the lake's, and how many rows that has. A version of
# a lake without tables has one row, whose `table` is null.
LAKE_VERSION = columns(
    layout=SMALL,
    version=WHOLE,
    at=TIME,
    content=TEXT,
    table=TEXT,
    table_version=WHOLE,
    rows=WHOLE,
)

# What happened, one row per record of a trace (docs/trace.md). `other` is the peer at the other
# end, `rpc` the kind of message that was sent, received or dropped. A record about several events
# has a row for each, numbered by `part`; the first alone has `bytes` and counts as a message.
TRACE = columns(
    peer=TEXT,
    timestamp_ns=WHOLE,
    kind=TEXT,
    message=TEXT,
    topic=TEXT,
    other=TEXT,
    rpc=TEXT,
    part=SMALL,
    bytes=WHOLE,
    hops=SMALL,
    reason=TEXT,
)

# The same in a lake: with the time as other tables have it. The nanoseconds stay what counts.
KEPT_TRACE = joined(TRACE, columns(time=TIME))

# --- universes and profiles ---------------------------------------------------------------------

# How large one draw of a universe is, read in one way (`closed` or `open`).
DRAW = columns(reading=TEXT, seeds=WHOLE, draw=WHOLE, topics=WHOLE, nodes=WHOLE, memberships=WHOLE)
# How many topics have so many subscribers, how many nodes so many subscriptions (`kind`).
DISTRIBUTION = columns(kind=TEXT, size=WHOLE, count=WHOLE)
# A power law fitted to one of them; see `weft.engine.data.powerlaw`.
FIT = columns(
    exponent=NUMBER,
    error=NUMBER,
    least=WHOLE,
    tail=WHOLE,
    total=WHOLE,
    distance=NUMBER,
    against_exponential=NUMBER,
    against_lognormal=NUMBER,
)
# Pearson's correlation of two of the most popular topics, by their places in that order; `shuffle`
# is 0 for memberships as they are, else the number of a shuffle that keeps all degrees.
CORRELATION = columns(shuffle=WHOLE, one=WHOLE, other=WHOLE, value=NUMBER)
CORRELATION_SUMMARY = columns(
    shuffle=WHOLE, topics=WHOLE, mean=NUMBER, median=NUMBER, percentile_99=NUMBER, largest=NUMBER
)

# --- StaN ---------------------------------------------------------------------------------------

# What some topics of a user look like after so many rounds (−1: StaN's own ideal): how many topics
# they are, the links there (`logical`), and the different neighbours among them.
LINKS = columns(
    round=SMALL, user=SMALL, topics=SMALL, logical=SMALL, neighbours=ArrayType(SMALL, False)
)
# How many logical and physical links a user has, over all its topics.
VIEW_SIZES = columns(round=SMALL, user=WHOLE, topics=WHOLE, lvs=WHOLE, pvs=WHOLE)
# The same before (`ipvs`) and after (`fpvs`), and StaN's own ideal.
NODE_SIZES = columns(user=WHOLE, topics=WHOLE, lvs=WHOLE, ipvs=WHOLE, fpvs=WHOLE, ideal=WHOLE)
# An overlay as a graph: `weak` and `strong` components, members without links to them, the mean
# clustering coefficient, the longest of the shortest paths between two members.
FITNESS = columns(
    topic=WHOLE,
    round=SMALL,
    members=SMALL,
    view=SMALL,
    weak=SMALL,
    strong=SMALL,
    unlinked=SMALL,
    clustering=NUMBER,
    diameter=SMALL,
)
