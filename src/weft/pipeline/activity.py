"""What the users of a lake did, for simulated networks: the busiest topics, and of their users the
busiest, with all that these did there, in the order of time.

A simulated network holds some hundred peers, a lake millions of users. Topics and users are chosen
and not drawn, because a random user of a real trace does almost nothing: the topics in which most
happens, and the users that do most in these; of equal ones the first by number. So rates, bursts
and each topic's publishers are those of the trace, among its busiest users.

The lines are those that `weft.sim.recorded` reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from weft.errors import WeftError
from weft.pipeline.lake import Lake
from weft.pipeline.schemas import TEXT, WHOLE, columns, selected

# A line of the file: a subscription, or (with a time) an event.
LINE = columns(user=TEXT, topic=TEXT, at_ms=WHOLE)


class NothingHappened(WeftError):
    """A lake has no events with times, or too few users that did something."""


def busiest(events: DataFrame, users: int, topics: int) -> DataFrame:
    """The rows of HAPPENED in the busiest topics, of the users that are busiest there; rows without
    a time are left out."""
    timed = events.where("time is not null").select("user", "topic", "time")
    chosen = timed.transform(_most, "topic", topics)
    inside = timed.join(F.broadcast(chosen), "topic", "left_semi")
    return inside.join(F.broadcast(inside.transform(_most, "user", users)), "user", "left_semi")


def _most(events: DataFrame, by: str, number: int) -> DataFrame:
    counted = events.groupBy(by).agg(F.count(F.lit(1)).alias("events"))
    return counted.orderBy(F.desc("events"), by).limit(number).select(by)


def named(lake: Lake, spark: SparkSession, users: int, topics: int) -> DataFrame:
    """The subscriptions of the chosen users to the chosen topics, and what these users did there,
    by name: LINE, in the order of time."""
    happened = lake.table(spark, "events").transform(busiest, users, topics).persist()
    found = happened.agg(F.count_distinct("user"), F.count_distinct("topic")).collect()[0]
    if not found[0]:
        raise NothingHappened(
            f"{lake.place}: no events with times; 'weft data ingest' keeps them from files that "
            "have a time column"
        )
    if found[0] < users or found[1] < topics:
        raise NothingHappened(
            f"{lake.place}: the {found[1]} busiest topics have {found[0]} active users; "
            f"{users} users and {topics} topics were asked for"
        )
    held = lake.memberships(spark).join(F.broadcast(happened.select("user").distinct()), "user")
    held = held.join(F.broadcast(happened.select("topic").distinct()), "topic")
    begin = happened.agg(F.min("time").alias("begin"))
    since = (F.unix_micros("time") - F.unix_micros("begin")) / 1000
    timed = happened.crossJoin(F.broadcast(begin)).withColumn("at_ms", F.floor(since))
    both = held.select("user", "topic", F.lit(None).cast(WHOLE).alias("at_ms")).unionByName(
        timed.select("user", "topic", "at_ms")
    )
    by_user = lake.users(spark).withColumnRenamed("name", "user_name")
    by_topic = lake.topics(spark).withColumnRenamed("name", "topic_name")
    texts = both.join(by_user, "user").join(by_topic, "topic")
    ordered = texts.orderBy(F.asc_nulls_first("at_ms"), "user", "topic")
    names = {"user": F.col("user_name"), "topic": F.col("topic_name")}
    return selected(ordered.withColumns(names), LINE)


def lines(frame: DataFrame) -> Iterator[str]:
    """The rows of LINE as JSON, one by one; the driver holds only a part of them at a time."""
    for row in frame.toLocalIterator():
        said = {name: value for name, value in row.asDict().items() if value is not None}
        yield json.dumps(said, ensure_ascii=False)
