"""What is new and what the lake has, as one table of memberships."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from weft.pipeline.schemas import MEMBERSHIP, PAIR, selected

Transform = Callable[[DataFrame], DataFrame]


def prefixed(user: str, topic: str) -> Transform:
    """`PAIR` → `PAIR`, with something put before the names."""

    def transform(pairs: DataFrame) -> DataFrame:
        longer = pairs.withColumns(
            {
                "user": F.concat(F.lit(user), F.col("user")),
                "topic": F.concat(F.lit(topic), F.col("topic")),
            }
        )
        return selected(longer, PAIR)

    return transform


def interned(users: DataFrame, topics: DataFrame) -> Transform:
    """`PAIR` → `MEMBERSHIP`, by the dictionaries `USER` and `TOPIC`."""

    def transform(pairs: DataFrame) -> DataFrame:
        by_name = pairs.withColumnsRenamed({"user": "user_name", "topic": "topic_name"})
        numbers = by_name.join(users.withColumnRenamed("name", "user_name"), "user_name").join(
            topics.withColumnRenamed("name", "topic_name"), "topic_name"
        )
        return selected(numbers, MEMBERSHIP)

    return transform


def merged(known: DataFrame) -> Transform:
    """`MEMBERSHIP` with what is known already: once each, with the earliest time."""

    def transform(new: DataFrame) -> DataFrame:
        both = new.unionByName(known)
        earliest = both.groupBy("user", "topic").agg(F.min("time_ms").alias("time_ms"))
        return selected(earliest, MEMBERSHIP)

    return transform
