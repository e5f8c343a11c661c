"""What happens to records on their way to tables, one transform at a time."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual

from weft.pipeline.ingest import dictionary
from weft.pipeline.ingest import records as entries
from weft.pipeline.ingest.dictionary import NAME, NUMBERED, PLACED
from weft.pipeline.ingest.records import COUNTED, ENTRY, FILE, PAIR, RECORD
from weft.pipeline.schemas import MEMBERSHIP, REJECT, TOPIC, USER, WHOLE, columns


def same(found: DataFrame, expected: DataFrame) -> None:
    assertDataFrameEqual(found, expected, ignoreNullable=True)


@pytest.fixture
def records(spark: SparkSession) -> DataFrame:
    """A file in two blocks, the second read first, and another file between them."""
    ann, bob = ("ann", "cats", 5, None, None, "{}"), ("bob", None, None, None, None, None)
    bad = (None, None, None, "no user", ",cats", None)
    odd = (None, None, None, "deleted", "x", None)
    return spark.createDataFrame(
        [
            (0, 100, 0, [bad]),
            (0, 100, 1, [ann, odd]),
            (1, 0, 2, [ann]),
            (0, 0, 1 << 33, []),
            (0, 0, (1 << 33) + 1, [ann, bob]),
        ],
        RECORD,
    ).transform(entries.one_by_one)


@pytest.fixture
def files(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(0, "in/a.txt.gz", "a.txt"), (1, "in/b.txt", "b.txt")], FILE)


def test_lines_are_numbered_across_blocks(
    spark: SparkSession, records: DataFrame, files: DataFrame
) -> None:
    expected = spark.createDataFrame(
        [
            ("in/a.txt.gz", 2, "ann", "cats", 5, None, None),
            ("in/a.txt.gz", 2, "bob", "a.txt:2", None, None, None),
            ("in/a.txt.gz", 3, None, None, None, "no user", ",cats"),
            ("in/a.txt.gz", 4, "ann", "cats", 5, None, None),
            ("in/a.txt.gz", 4, None, None, None, "deleted", "x"),
            ("in/b.txt", 1, "ann", "cats", 5, None, None),
        ],
        ENTRY,
    )
    same(records.transform(entries.entries, files), expected)


def test_files_are_counted(spark: SparkSession, records: DataFrame) -> None:
    all_wrong = spark.createDataFrame([(0, 3, 2, 2), (1, 1, 0, 0)], COUNTED)
    same(records.transform(entries.counted), all_wrong)
    one_wrong = spark.createDataFrame([(0, 3, 2, 1), (1, 1, 0, 0)], COUNTED)
    same(records.transform(entries.counted, ["deleted"]), one_wrong)


def test_what_is_good_becomes_pairs_and_the_rest_rejects(spark: SparkSession) -> None:
    found = spark.createDataFrame(
        [
            ("f", 1, "ann", "cats", 9, None, None),
            ("f", 2, "ann", "cats", None, None, None),
            ("f", 3, "ann", "cats", 7, None, None),
            ("f", 4, "bob", "cats", None, None, None),
            ("f", 5, None, None, None, "no user", ",cats"),
        ],
        ENTRY,
    )
    ann = [("ann", "cats", time) for time in (9, None, 7)]
    pairs = spark.createDataFrame([*ann, ("bob", "cats", None)], PAIR)
    same(found.transform(entries.pairs_of), pairs)
    rejects = spark.createDataFrame([("f", 5, "no user", ",cats")], REJECT)
    same(found.transform(entries.bad_entries), rejects)


def test_unknown_names(spark: SparkSession) -> None:
    found = spark.createDataFrame([("ann",), ("bob",), ("bob",), ("cid",)], NAME)
    known = spark.createDataFrame([(0, "cid"), (1, "dan")], USER)
    expected = spark.createDataFrame([("ann",), ("bob",)], NAME)
    same(found.transform(dictionary.unknown, known), expected)


@pytest.mark.parametrize("parts", [1, 3])
def test_numbers_depend_on_the_names_alone(spark: SparkSession, parts: int) -> None:
    mixed = ["10", "b", "9", "a", "100", "é", "2", "ab"]
    found = spark.createDataFrame([(name,) for name in mixed], NAME)
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", str(parts))
    try:
        ordered = found.repartition(parts).transform(dictionary.placed).localCheckpoint()
        numbered = ordered.transform(dictionary.numbered, 40).localCheckpoint()
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before or "1")
    expected = spark.createDataFrame(
        [
            (40, "2"),
            (41, "9"),
            (42, "a"),
            (43, "b"),
            (44, "é"),
            (45, "10"),
            (46, "ab"),
            (47, "100"),
        ],
        NUMBERED,
    )
    same(numbered, expected)


def test_places_of_several_parts_become_numbers(spark: SparkSession) -> None:
    part = 1 << dictionary.PART_BITS
    placed = spark.createDataFrame(
        [("c", 2 * part), ("a", 0), ("d", 2 * part + 1), ("b", 1)], PLACED
    )
    expected = spark.createDataFrame([(7, "a"), (8, "b"), (9, "c"), (10, "d")], NUMBERED)
    same(placed.transform(dictionary.numbered, 7), expected)


def test_names_get_prefixes(spark: SparkSession) -> None:
    found = spark.createDataFrame([("ann", "cats", 1)], PAIR)
    expected = spark.createDataFrame([("u:ann", "en/cats", 1)], PAIR)
    same(found.transform(dictionary.prefixed, "u:", "en/"), expected)


def members(spark: SparkSession, *rows: tuple[int, int, int | None]) -> DataFrame:
    """`MEMBERSHIP`s whose times are so many microseconds."""
    plain = columns(user=WHOLE, topic=WHOLE, us=WHOLE)
    timed = spark.createDataFrame(list(rows), plain).withColumn("time", F.timestamp_micros("us"))
    return timed.select(*MEMBERSHIP.names)


def test_names_become_numbers(spark: SparkSession) -> None:
    pairs = spark.createDataFrame([("ann", "cats", 1), ("bob", "cats", None)], PAIR)
    users = spark.createDataFrame([(0, "bob"), (1, "ann")], USER)
    topics = spark.createDataFrame([(5, "cats")], TOPIC)
    expected = members(spark, (1, 5, 1), (0, 5, None))
    same(pairs.transform(dictionary.interned, users, topics), expected)
    coded = users.transform(dictionary.coded, "user")
    same(pairs.transform(dictionary.interned, coded, topics), expected)


def test_merging_keeps_the_earliest_time(spark: SparkSession) -> None:
    known = members(spark, (0, 0, 9), (0, 1, None), (1, 0, 3), (5, 5, 5))
    new = members(spark, (0, 0, 7), (0, 1, 8), (1, 0, None), (2, 0, 1))
    expected = members(spark, (0, 0, 7), (0, 1, 8), (1, 0, 3), (2, 0, 1), (5, 5, 5))
    same(new.transform(dictionary.merged, known), expected)
    # The same for few new ones: what is met again, what is new, and what is known with its times.
    again = known.transform(dictionary.met, new)
    few = new.transform(dictionary.fresh, again)
    same(few, members(spark, (2, 0, 1)))
    same(few.unionByName(known.transform(dictionary.sooner, again)), expected)
