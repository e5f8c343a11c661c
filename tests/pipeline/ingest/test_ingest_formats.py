"""Each format alone: lines, pages or rows in, records out; the expected frame is written out."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from weft.pipeline.ingest import mediawiki, pubsub, snap
from weft.pipeline.ingest import rows as jsonlines
from weft.pipeline.ingest.options import Options
from weft.pipeline.ingest.records import (
    COUNTED,
    LINE,
    NO_TIME,
    NO_TOPIC,
    NO_USER,
    NOT_TEXT,
    PAIR,
    STAGED,
)
from weft.pipeline.ingest.rows import Columnar, Delimited
from weft.pipeline.schemas import TEXT, TRACE, columns
from weft.pipeline.traces.source import TRACE_LINE

Found = tuple[str | None, str | None, int | None, str | None, str | None, str | None]


def lines_of(spark: SparkSession, *texts: str) -> DataFrame:
    return spark.createDataFrame([(0, 0, place, text) for place, text in enumerate(texts)], LINE)


def records_of(spark: SparkSession, *found: list[Found]) -> DataFrame:
    """What each line holds, one by one; a line that holds nothing is a row of nothing."""
    nothing: Found = (None, None, None, None, None, None)
    rows = [(0, 0, place, *one) for place, each in enumerate(found) for one in each or [nothing]]
    return spark.createDataFrame(rows, STAGED)


def good(
    user: str, topic: str | None, time_ms: int | None = None, extra: str | None = None
) -> Found:
    return (user, topic, None if time_ms is None else 1_000 * time_ms, None, None, extra)


def bad(problem: str, text: str) -> Found:
    return (None, None, None, problem, text, None)


def same(found: DataFrame, expected: DataFrame) -> None:
    assertDataFrameEqual(found, expected, ignoreNullable=True)


def test_csv(spark: SparkSession) -> None:
    reading = Delimited("csv", ",", 3, "user,topic,time", 0, 1, 2, "s")
    text = lines_of(
        spark,
        "user,topic,time",
        "ann,cats,12",
        ' bob , "dogs, ""big"" ones" ,1.5',
        "",
        "cid,cats,2001-02-03T04:05:06Z",
        "dan,cats,",
        ",cats,1",
        "eve,,1",
        "fay,cats,soon",
        "gus,cats",
        'hal,"cats,1',
    )
    expected = records_of(
        spark,
        [],
        [good("ann", "cats", 12_000)],
        [good("bob", 'dogs, "big" ones', 1_500)],
        [],
        [good("cid", "cats", 981_173_106_000)],
        [good("dan", "cats")],
        [bad(NO_USER, ",cats,1")],
        [bad(NO_TOPIC, "eve,,1")],
        [bad(NO_TIME, "fay,cats,soon")],
        [bad("not 3 columns", "gus,cats")],
        [bad("not 3 columns", 'hal,"cats,1')],
    )
    same(text.transform(reading.parsed), expected)


def test_tsv_takes_quotes_as_they_are_and_other_units(spark: SparkSession) -> None:
    names = ("column 1", "column 2", "column 3", "column 4")
    reading = Delimited("tsv", "\t", 4, None, 1, 2, 0, "us", names=names)
    text = lines_of(spark, '5000\t"ann\tcats\tx', "1\tbob\tdogs")
    expected = records_of(
        spark,
        [good('"ann', "cats", 5, '{"column 4":"x"}')],
        [bad("not 4 columns", "1\tbob\tdogs")],
    )
    same(text.transform(reading.parsed), expected)


def test_what_is_not_utf8_is_rejected(spark: SparkSession) -> None:
    reading = Delimited("csv", ",", 2, None, 0, 1, None, "s")
    spoiled = spark.sql(
        "SELECT 0 AS file, 0L AS block, 0L AS position, "
        "CAST(CONCAT(X'61FF', CAST(',cats' AS BINARY)) AS STRING) AS value"
    )
    same(spoiled.transform(reading.parsed), records_of(spark, [bad(NOT_TEXT, "a\ufffd,cats")]))


def test_json_lines(spark: SparkSession) -> None:
    reading = jsonlines.JsonLines("who", "what", "when_ms", "ms", more=True)
    text = lines_of(
        spark,
        '{"who": "ann", "what": "cats", "when_ms": 7, "more": [1]}',
        '{"who": 5, "what": 6}',
        '{"what": "cats"}',
        '{"who": "ann", "what": ["cats"]}',
        '{"who": "ann", "wh',
    )
    expected = records_of(
        spark,
        [good("ann", "cats", 7, '{"more":"[1]"}')],
        [good("5", "6")],
        [bad(NO_USER, '{"what": "cats"}')],
        [bad(jsonlines.NOT_PLAIN, '{"who": "ann", "what": ["cats"]}')],
        [bad(jsonlines.NOT_JSON, '{"who": "ann", "wh')],
    )
    same(text.transform(reading.parsed), expected)


def test_parquet_columns_of_any_type(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT * FROM VALUES (1L, 'cats', TIMESTAMP '1970-01-01 00:00:02', 0, 0L), "
        "(NULL, 'dogs', NULL, 0, 1L) AS t(member, group, at, _weft_file, _weft_position)"
    )
    reading = Columnar(Options(time="at"))
    expected = records_of(spark, [good("1", "cats", 2_000)], [bad(NO_USER, '{"group":"dogs"}')])
    same(rows.transform(reading.parsed), expected)


def test_snap_edges(spark: SparkSession) -> None:
    text = lines_of(spark, "# FromNodeId\tToNodeId", "0\t1", "2 3", "4")
    expected = records_of(spark, [], [good("0", "1")], [good("2", "3")], [bad(snap.NOT_EDGE, "4")])
    same(text.transform(snap.Edges(False, None, "s").parsed), expected)
    timed = records_of(spark, [good("0", "1", 9_000), good("1", "0", 9_000)])
    same(lines_of(spark, "0 1 9").transform(snap.Edges(True, 2, "s").parsed), timed)


def test_snap_communities_leave_the_name_to_the_line(spark: SparkSession) -> None:
    text = lines_of(spark, "10\t20\t30", "", "40")
    expected = records_of(
        spark, [good("10", None), good("20", None), good("30", None)], [], [good("40", None)]
    )
    same(text.transform(snap.Communities().parsed), expected)


def test_mediawiki_pages(spark: SparkSession) -> None:
    at = "1970-01-01T00:00:01Z"
    pages = spark.createDataFrame(
        [
            (
                0,
                0,
                0,
                "Earth",
                [
                    ("1", at, ("Ann", None, None)),
                    ("2", at, (None, "10.0.0.2", None)),
                    ("3", at, (None, None, "deleted")),
                    ("4", at, (None, None, None)),
                    ("5", None, ("Ann", None, None)),
                ],
                None,
                5,
                False,
            ),
            (0, 0, 1, "Moon", None, None, 0, False),
            (0, 0, 2, None, None, "<page><title>Mars", 0, False),
            (0, 0, 3, "Sun", [("6", at, ("Bob", None, None))], None, 2, False),
            (0, 0, 4, "Io", [("7", at, ("J\ufffdrg", None, None))], None, 1, True),
            (0, 0, 5, "Io", [("8", at, ("J\ufffdrg", None, None))], None, 1, False),
        ],
        mediawiki.PAGE,
    )
    expected = records_of(
        spark,
        [
            good("Ann", "Earth", 1_000),
            good("10.0.0.2", "Earth", 1_000),
            bad(mediawiki.DELETED, "page Earth, revision 3"),
            bad(NO_USER, "page Earth, revision 4"),
            good("Ann", "Earth"),
        ],
        [],
        [bad(mediawiki.NOT_XML, "<page><title>Mars")],
        [good("Bob", "Sun", 1_000), bad(mediawiki.NO_REVISION, "page Sun")],
        [bad(NOT_TEXT, "page Io, revision 7")],
        [good("J\ufffdrg", "Io", 1_000)],
    )
    same(pages.transform(mediawiki.parsed_pages), expected)


def history(**cells: str) -> str:
    """A line of MediaWiki history with these cells, by the numbers in their names."""
    row = [""] * mediawiki.WIDTH
    for name, text in cells.items():
        row[int(name.removeprefix("c"))] = text
    return "\t".join(row)


def test_mediawiki_history(spark: SparkSession) -> None:
    edit = {"c1": "revision", "c2": "create", "c3": "1970-01-01 00:00:02.0"}
    nameless = history(**edit, c25="Earth", c28="0")
    text = lines_of(
        spark,
        history(**edit, c6="Old name", c7="Ann", c24="Terra", c25="Blue_Earth", c28="0"),
        history(**edit, c6="10.0.0.2", c24="Earth", c26="1"),
        history(c1="user", c2="alterblocks", c3="1970-01-01 00:00:02.0"),
        nameless,
        "enwiki\trevision\tcreate",
    )
    expected = records_of(
        spark,
        [good("Ann", "Blue Earth", 2_000)],
        [good("10.0.0.2", "1:Earth", 2_000)],
        [],
        [bad(NO_USER, nameless)],
        [bad(mediawiki.NOT_HISTORY, "enwiki\trevision\tcreate")],
    )
    same(text.transform(mediawiki.History().parsed), expected)


def test_members_of_a_trace(spark: SparkSession) -> None:
    moves = columns(peer=TEXT, timestamp_ns=TRACE["timestamp_ns"].dataType, kind=TEXT, topic=TEXT)
    trace = spark.createDataFrame(
        [
            ("ann", 1_794_734_120_935_686_943, "JOIN", "/a"),
            ("ann", 1_794_734_130_000_000_000, "LEAVE", "/a"),
            ("ann", 1_794_734_140_000_000_000, "JOIN", "/a"),
            ("bob", 1_794_734_130_000_000_000, "LEAVE", "/a"),
            ("bob", 1_794_734_130_000_000_000, "PUBLISH_MESSAGE", "/b"),
        ],
        moves,
    )
    expected = spark.createDataFrame(
        [("ann", "/a", 1_794_734_120_935_686), ("bob", "/a", None)], PAIR
    )
    same(trace.transform(pubsub.memberships), expected)


def test_a_trace_counts_records_and_not_their_parts(spark: SparkSession) -> None:
    def row(part: int, problem: str | None) -> dict[str, object]:
        return {"file": "file:/x/000003.gz", "part": part, "problem": problem}

    rows = spark.createDataFrame([row(0, None), row(1, None), row(0, "no type")], TRACE_LINE)
    same(rows.transform(pubsub.counted), spark.createDataFrame([(3, 1, 1, 1)], COUNTED))
