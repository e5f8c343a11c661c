"""The shapes of tables, declared once. A transform ends in a `select` that matches one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

# Who is subscribed to what: distinct (user, topic); the earliest time known, or null.
MEMBERSHIP = columns(user=WHOLE, topic=WHOLE, time_ms=WHOLE)

# The dictionaries: the name behind each number.
USER = columns(user=WHOLE, name=TEXT)
TOPIC = columns(topic=WHOLE, name=TEXT)

# A row that could not be read. `line` is the line of a text file, the row of a Parquet file, the
# page of an XML dump, counted from 1; `text` is the beginning of what stands there.
REJECT = columns(file=TEXT, line=WHOLE, reason=TEXT, text=TEXT)

# A file that was read: as what (`format`, with the options that change its meaning as `reading`),
# how many rows it gave, and how many were rejected.
SOURCE = columns(
    file=TEXT, sha256=TEXT, bytes=WHOLE, format=TEXT, reading=TEXT, rows=WHOLE, rejects=WHOLE
)

# --- ingesting ------------------------------------------------------------------------------------

# A line of text, and where it stands: in which file, in which block of it, at which position, which
# grows by one from line to line within a block.
LINE = columns(file=SMALL, block=WHOLE, position=WHOLE, value=TEXT)

# What was found in a line or another record: memberships by name, or bad ones, with the reason and
# the text that is to blame.
FOUND = columns(user=TEXT, topic=TEXT, time_ms=WHOLE, problem=TEXT, text=TEXT)
RECORD = columns(file=SMALL, block=WHOLE, position=WHOLE, found=ArrayType(FOUND))

# The same one by one, with the line; and those that are good, once each, with the earliest time.
ENTRY = columns(
    file=TEXT, line=WHOLE, user=TEXT, topic=TEXT, time_ms=WHOLE, problem=TEXT, text=TEXT
)
PAIR = columns(user=TEXT, topic=TEXT, time_ms=WHOLE)

# The files of one ingest by number; `label` names what has no other name than its place in a file.
FILE = columns(file=SMALL, path=TEXT, label=TEXT)

# What a file gave; `wrong` are those of its bad rows that speak against its format.
COUNTED = columns(file=SMALL, rows=WHOLE, rejects=WHOLE, wrong=WHOLE)

# Names in order: `place` is the number of a part of the table, times 2³³, plus the place in it.
NAME = columns(name=TEXT)
PLACED = columns(name=TEXT, place=WHOLE)
NUMBERED = columns(id=WHOLE, name=TEXT)

# --- traces ---------------------------------------------------------------------------------------

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

# A line of a trace: what it says, or why it cannot be read (`problem`) and its `text`.
TRACE_LINE = joined(TRACE, columns(file=TEXT, text=TEXT, problem=TEXT))

# A part of a trace that one task reads: bytes of a file, or row groups of a Parquet file. How many
# lines begin in it; and which of them cannot be read, counted from the beginning of the part.
PART = columns(file=TEXT, start=WHOLE, end=WHOLE)
PART_LINES = columns(file=TEXT, start=WHOLE, lines=WHOLE)
BAD_LINE = columns(file=TEXT, start=WHOLE, line=WHOLE, reason=TEXT, text=TEXT)

# The pieces that all figures are made of. They add up: those of two parts of a trace, merged, are
# those of the whole.
#
# Messages by who wrote the record, its kind and the message's kind.
TRAFFIC = columns(peer=TEXT, kind=TEXT, rpc=TEXT, messages=WHOLE, bytes=WHOLE)
# Subscriptions that begin (`begins`) and end.
CHANGE = columns(peer=TEXT, topic=TEXT, timestamp_ns=WHOLE, begins=TRUTH)
# By how much the number of a topic's subscribers changes, and when.
STEP = columns(topic=TEXT, timestamp_ns=WHOLE, step=SMALL)
# Connections that begin and end.
CONNECTION = columns(peer=TEXT, other=TEXT, timestamp_ns=WHOLE, begins=TRUTH)
# Events as they were published.
PUBLISH = columns(message=TEXT, topic=TEXT, publisher=TEXT, published_ns=WHOLE)
# An event at a peer: when it was first delivered there, over how many hops, and how often.
DELIVERY = columns(message=TEXT, peer=TEXT, delivered_ns=WHOLE, hops=SMALL, times=WHOLE)
# Copies of events that a peer got from another: `parasites` of topics it was not subscribed to at
# the time, `routed` the same on the way to an access point.
RECEIPT_PIECE = columns(
    peer=TEXT, topic=TEXT, other=TEXT, copies=WHOLE, parasites=WHOLE, routed=WHOLE
)
# What a task finds of traffic and receipts: copies of events that came from one peer, with their
# times. Whether they were wanted is known when all changes of subscriptions are.
TRAFFIC_PART = joined(TRAFFIC, columns(latest_ns=WHOLE))
COPIES = columns(peer=TEXT, topic=TEXT, other=TEXT, rpc=TEXT, times_ns=ArrayType(WHOLE))

# The figures.
#
# Events: how many were `subscribers` when it was published, how many of those it was `delivered`
# to, to how many `others` (who subscribed later), how many deliveries were one too many (`twice`).
EVENT = columns(
    message=TEXT,
    topic=TEXT,
    publisher=TEXT,
    published_ns=WHOLE,
    subscribers=WHOLE,
    delivered=WHOLE,
    others=WHOLE,
    twice=WHOLE,
    latency_ns_max=WHOLE,
    hops_max=SMALL,
)
# Deliveries to others than the publisher, counted by hops and by time in bins of 1/128 of their
# value; `latency_ns` is the upper end of the bin.
LATENCY = columns(hops=SMALL, latency_ns=WHOLE, deliveries=WHOLE)
# Messages by kind, `group` payload, control or maintenance.
MESSAGES = columns(
    group=TEXT,
    rpc=TEXT,
    sent=WHOLE,
    bytes_sent=WHOLE,
    received=WHOLE,
    dropped=WHOLE,
    per_notification=NUMBER,
    bytes_per_notification=NUMBER,
)
# Peers: what each did, and how many links it had (`connections`: the mean over time).
PEER_LOAD = columns(
    peer=TEXT,
    topics=WHOLE,
    sent=WHOLE,
    received=WHOLE,
    payload_sent=WHOLE,
    bytes_sent=WHOLE,
    published=WHOLE,
    deliveries=WHOLE,
    duplicates=WHOLE,
    parasites=WHOLE,
    routed=WHOLE,
    connections=NUMBER,
    connections_max=WHOLE,
    links=WHOLE,
    topic_links=WHOLE,
)
TOPIC_LOAD = columns(
    topic=TEXT,
    subscribers=WHOLE,
    events=WHOLE,
    expected=WHOLE,
    delivered=WHOLE,
    ratio=NUMBER,
    copies=WHOLE,
    parasites=WHOLE,
    routed=WHOLE,
)
# All of it in one number each.
FIGURE = columns(figure=TEXT, value=NUMBER)

# --- universes and profiles ---------------------------------------------------------------------

# How many subscribe to a topic.
TOPIC_SIZE = columns(topic=WHOLE, subscribers=WHOLE)
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
)
# Pearson's correlation of two of the most popular topics, by their places in that order; `shuffle`
# is 0 for memberships as they are, else the number of a shuffle that keeps all degrees.
CORRELATION = columns(shuffle=WHOLE, one=WHOLE, other=WHOLE, value=NUMBER)
CORRELATION_SUMMARY = columns(
    shuffle=WHOLE, topics=WHOLE, mean=NUMBER, median=NUMBER, percentile_99=NUMBER, largest=NUMBER
)

# --- StaN ---------------------------------------------------------------------------------------

# Which bin a topic is computed in.
BIN = columns(topic=WHOLE, bin=SMALL)
# What some topics of a user look like after so many rounds (−1: StaN's own ideal): how many topics
# they are, the links there (`logical`), and the different neighbours among them.
LINKS = columns(
    round=SMALL, user=SMALL, topics=SMALL, logical=SMALL, neighbours=ArrayType(SMALL, False)
)
# How many logical and physical links a user has, over all its topics.
VIEW_SIZES = columns(round=SMALL, user=WHOLE, topics=WHOLE, lvs=WHOLE, pvs=WHOLE)
# The same before (`ipvs`) and after (`fpvs`), and StaN's own ideal.
NODE_SIZES = columns(user=WHOLE, topics=WHOLE, lvs=WHOLE, ipvs=WHOLE, fpvs=WHOLE, ideal=WHOLE)
# What became of physical links: over all users, or those in `least` topics or more.
REDUCTION = columns(
    least=SMALL, users=WHOLE, lvs=WHOLE, ipvs=WHOLE, fpvs=WHOLE, ideal=WHOLE, improved_40=NUMBER
)
# An overlay as a graph: `weak` and `strong` components, members nobody links to, the mean
# clustering coefficient, the longest way between two members.
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
