"""Names become numbers, pairs of names memberships.

Numbers are 0, 1, 2 …, in an order that depends on the names alone. New names get the numbers after
those of the lake, shorter names first, then by their bytes; so names that are numbers keep their
order, and the names 0 to n − 1 get their own values. A name keeps its number for ever.

The order is made by Spark's distributed sort. Each name then keeps its place (which part of the
sorted table, and where in it); the parts are counted, which is a small table, and that makes the
numbers. Places must be written down between the two, because a sort that is run again may cut its
parts elsewhere.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from weft.pipeline.schemas import MEMBERSHIP, TEXT, WHOLE, columns, selected

CODE = "code"
"""The column of a dictionary that has a hash of 64 bits in place of each name."""
# Names; the same in order, where `place` is the number of a part of the table, times 2³³, plus the
# place in it; and with the numbers that they get.
NAME = columns(name=TEXT)
PLACED = columns(name=TEXT, place=WHOLE)
NUMBERED = columns(id=WHOLE, name=TEXT)
PART_BITS = 33
"""Where Spark's `monotonically_increasing_id` puts the part's number."""


def mentioned(known: DataFrame, names: DataFrame, column: str) -> DataFrame:
    """Of a dictionary (`USER` or `TOPIC`) the entries of some `NAME`s, which are few."""
    return known.join(F.broadcast(names), "name", "left_semi").select(column, "name")


def unknown(names: DataFrame, known: DataFrame) -> DataFrame:
    """`NAME`, with repetitions → `NAME`: each new name once, known ones left out."""
    return selected(names.distinct().join(known.select("name"), "name", "left_anti"), NAME)


def placed(names: DataFrame) -> DataFrame:
    """`NAME` → `PLACED`, in order."""
    ordered = names.withColumn("length", F.length("name")).orderBy("length", "name")
    return selected(ordered.withColumn("place", F.monotonically_increasing_id()), PLACED)


def numbered(names: DataFrame, first: int) -> DataFrame:
    """`PLACED` → `NUMBERED`, from this number on."""
    part = F.shiftrightunsigned("place", PART_BITS)
    parts = names.groupBy(part.alias("part")).agg(F.count("*").alias("names"))
    earlier = Window.orderBy("part").rowsBetween(Window.unboundedPreceding, -1)
    before = F.coalesce(F.sum("names").over(earlier), F.lit(0))
    starts = parts.select("part", (before + first).alias("start"))
    within = F.col("place").bitwiseAND(F.lit((1 << PART_BITS) - 1))
    known = names.withColumn("part", part).join(F.broadcast(starts), "part")
    return selected(known.withColumn("id", F.col("start") + within), NUMBERED)


def numbered_here(names: DataFrame, first: int) -> DataFrame:
    """`NAME`, of which there are few → `NUMBERED`, from this number on: sorted by one task, whose
    row numbers are the places."""
    lengths = names.coalesce(1).withColumn("length", F.length("name"))
    ordered = lengths.sortWithinPartitions("length", "name")
    return selected(ordered.withColumn("id", F.monotonically_increasing_id() + first), NUMBERED)


# --- pairs become memberships ---------------------------------------------------------------------


def prefixed(pairs: DataFrame, user: str, topic: str) -> DataFrame:
    """`PAIR` or `STATED`, with something put before the names."""
    return pairs.withColumns(
        {
            "user": F.concat(F.lit(user), F.col("user")),
            "topic": F.concat(F.lit(topic), F.col("topic")),
        }
    )


def coded(names: DataFrame, column: str) -> DataFrame:
    """`USER` or `TOPIC` with a `CODE` for each name. Where no two codes are equal and all names to
    be looked up are in it, it says of each name what the dictionary does."""
    return names.select(column, F.xxhash64("name").alias(CODE))


def interned(
    pairs: DataFrame, users: DataFrame, topics: DataFrame, shape: StructType = MEMBERSHIP
) -> DataFrame:
    """`PAIR` → `MEMBERSHIP`, or `STATED` → `HAPPENED`, by the dictionaries `USER` and `TOPIC`, each
    perhaps `coded`."""
    found = pairs
    for column, names in (("user", users), ("topic", topics)):
        has_codes, key = CODE in names.columns, f"{column}_key"
        wanted = F.xxhash64(column) if has_codes else F.col(column)
        known = names.withColumnRenamed(CODE if has_codes else "name", key)
        found = found.withColumn(key, wanted).drop(column).join(known, key)
    return selected(found.withColumn("time", F.timestamp_micros("time_us")), shape)


def met(known: DataFrame, new: DataFrame, *also: str) -> DataFrame:
    """Of `MEMBERSHIP`s that are known, with columns that are to be kept `also`, those that are
    among some new ones, which are few: `user`, `topic`, `earlier` (the new time, if that is the
    earlier one, or null) and the others. What is known does not move."""
    few = F.broadcast(new.select("user", "topic", F.col("time").alias("new_time")))
    again = known.join(few, ["user", "topic"])
    sooner = F.col("time").isNull() | (F.col("new_time") < F.col("time"))
    return again.select("user", "topic", F.when(sooner, F.col("new_time")).alias("earlier"), *also)


def fresh(new: DataFrame, met_again: DataFrame) -> DataFrame:
    """`MEMBERSHIP`s without those that were met again."""
    few = F.broadcast(met_again.select("user", "topic"))
    return selected(new.join(few, ["user", "topic"], "left_anti"), MEMBERSHIP)


def sooner(known: DataFrame, met_again: DataFrame) -> DataFrame:
    """`MEMBERSHIP`s with the earlier times of those that were met again."""
    few = met_again.where(F.col("earlier").isNotNull()).select("user", "topic", "earlier")
    joined = known.join(F.broadcast(few), ["user", "topic"], "left")
    return selected(joined.withColumn("time", F.coalesce("earlier", "time")), MEMBERSHIP)


def merged(new: DataFrame, known: DataFrame) -> DataFrame:
    """`MEMBERSHIP` with what is known already: once each, with the earliest time."""
    return new.unionByName(known).transform(earliest)


def earliest(memberships: DataFrame) -> DataFrame:
    """`MEMBERSHIP`, perhaps repeated → `MEMBERSHIP`: once each, with the earliest time."""
    first = memberships.groupBy("user", "topic").agg(F.min("time").alias("time"))
    return selected(first, MEMBERSHIP)
