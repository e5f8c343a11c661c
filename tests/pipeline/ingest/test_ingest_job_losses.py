"""Nothing is lost silently: files that once lost good rows, and what must come of them now."""

from __future__ import annotations

import bz2
import gzip
import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from weft.pipeline.ingest import files
from weft.pipeline.ingest.files import inspect, listed
from weft.pipeline.ingest.job import Most, TooManyRejects, ingest
from weft.pipeline.ingest.mediawiki import NO_REVISION, NOT_XML
from weft.pipeline.ingest.options import BadInput, Options, looks_like_header
from weft.pipeline.ingest.records import NO_TIME, NO_USER, NOT_TEXT, NULS
from weft.pipeline.ingest.rows import (
    HALF,
    MORE_JSON,
    NOT_PLAIN,
    OPEN_QUOTE,
    TWICE,
    QuotedRow,
    plan_delimited,
    plan_json,
    plan_parquet,
    quoted_rows,
)
from weft.pipeline.lake import Lake

Held = set[tuple[str, str, int | None]]
Bad = list[tuple[str, int, str]]


def taken(
    spark: SparkSession, paths: Sequence[Path], options: Options | None = None
) -> tuple[Held, Bad]:
    """The memberships of a lake of these files, by name, with their seconds; and its rejects."""
    place = paths[0].parent / "lake"
    ingest(spark, paths, place, options=options)
    lake = Lake(place)
    users = lake.users(spark).withColumnRenamed("name", "user_name")
    topics = lake.topics(spark).withColumnRenamed("name", "topic_name")
    named = lake.memberships(spark).join(users, "user").join(topics, "topic")
    rows = named.select("user_name", "topic_name", F.unix_seconds("time").alias("s")).collect()
    bad = lake.table(spark, "rejects").collect()
    return {tuple(row) for row in rows}, sorted(
        (Path(row.file).name, row.line, row.reason) for row in bad
    )


def page(number: int, end: str = "</revision>") -> str:
    return (
        f"<page><title>P{number}</title><revision><id>{number}</id>"
        f"<timestamp>1970-01-01T00:00:01Z</timestamp><contributor><username>ann</username>"
        f"</contributor>{end}</page>\n"
    )


def test_a_broken_page_costs_no_other_page(spark: SparkSession, tmp_path: Path) -> None:
    pages = [page(n, "" if n == 10 else "</revision>") for n in range(1, 201)]
    pages[20] = pages[20].replace("</page>", "")  # and this one has no end
    dump = tmp_path / "dump.xml"
    dump.write_text("<mediawiki>\n" + "".join(pages) + "</mediawiki>\n")
    held, bad = taken(spark, [dump])
    assert {topic for _, topic, _ in held} == {f"P{n}" for n in range(1, 201) if n != 10}
    assert bad == [("dump.xml", 10, NOT_XML)]


def test_a_page_whose_tags_are_damaged_is_not_passed_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    pages = [page(n) for n in range(1, 21)]
    pages[2] = pages[2].replace("<page>", "<pag3>")
    pages[4] = pages[4].replace("<page>", "")
    pages[6] = pages[6].replace("<page>", "<PAGE>")
    pages[8] = pages[8].replace("page>", "PAGE>")
    pages[10] = pages[10].replace("<revision>", "<revison>").replace("</revision>", "</revison>")
    upload = "<upload><timestamp>1970-01-01T00:00:02Z</timestamp><contributor/></upload>"
    pages[12] = pages[12].replace("</page>", f"{upload}</page>")
    pages[14] = pages[14].replace("</page>", "")
    pages[15] = page(16) + "</mediawiki>\n<mediawiki>\n<!-- <b> --><siteinfo><a/></siteinfo>\n"
    dump = tmp_path / "dump.xml"
    head = '<?xml version="1.0"?>\n<mediawiki xml:lang="en">\n<siteinfo><base>x</base></siteinfo>\n'
    dump.write_text(head + "".join(pages) + "<pag3>left</pag3></mediawiki>\n")
    held, bad = taken(spark, [dump])
    lost = [3, 5, 7, 9, 11, 21]
    kept = [n for n in range(1, 21) if n not in lost]
    assert sorted(int(topic[1:]) for _, topic, _ in held) == kept
    reasons = {line: NO_REVISION if line == 11 else NOT_XML for line in lost}
    assert bad == [("dump.xml", line, reasons[line]) for line in lost]


def test_names_of_a_dump_that_are_not_utf8_are_not_made_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    dump = tmp_path / "dump.xml"
    pages = [page(n).encode() for n in range(1, 8)]
    pages[1] = pages[1].replace(b"ann", b"J\xf6rg")
    pages[2] = pages[2].replace(b"ann", b"J\xe4rg")
    pages[3] = pages[3].replace(b"P4", b"\xdcber")
    pages[4] = pages[4].replace(b"</contributor>", b"</contributor><text>gr\xfcn</text>")
    dump.write_bytes(b"<mediawiki>\n" + b"".join(pages) + b"</mediawiki>\n")
    held, bad = taken(spark, [dump])
    assert held == {("ann", f"P{n}", 1) for n in (1, 5, 6, 7)}
    assert bad == [("dump.xml", line, NOT_TEXT) for line in (2, 3, 4)]


def test_parquet_files_with_other_columns_keep_their_times(
    spark: SparkSession, tmp_path: Path
) -> None:
    paths = [tmp_path / f"{name}.parquet" for name in ("a", "b", "c")]
    parquet.write_table(pyarrow.table({"user": ["ann"], "topic": ["x"]}), paths[0])
    parquet.write_table(pyarrow.table({"topic": ["x"], "time": [7], "user": ["bob"]}), paths[1])
    parquet.write_table(pyarrow.table({"user": [5], "topic": ["x"], "time": [8]}), paths[2])
    assert taken(spark, paths) == ({("ann", "x", None), ("bob", "x", 7), ("5", "x", 8)}, [])


def test_parquet_as_pandas_writes_it_and_with_any_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "frame.parquet"
    when = pyarrow.array([9_000_000_001], pyarrow.timestamp("ns"))
    names = ("_file", "_position", "_entry")
    held = {"user": ["ann"], "topic": ["x"], "time": when, **{key: [1] for key in names}}
    parquet.write_table(pyarrow.table(held), path, version="2.6")
    assert taken(spark, [path]) == ({("ann", "x", 9)}, [])
    [event] = Lake(tmp_path / "lake").table(spark, "events").collect()
    assert event.extra == '{"_file":1,"_position":1,"_entry":1}'


def test_parquet_that_spark_reads_wrong_by_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Texts as differences, without compression, as its own writer may be asked to write them."""
    rows = spark.range(0, 2_000, 1, 1).select(
        F.concat(F.lit("user"), F.col("id")).alias("user"),
        F.concat(F.lit("topic"), F.col("id") % 50).alias("topic"),
    )
    options = {"writer.version": "v2", "enable.dictionary": "false", "compression": "none"}
    writer = rows.write.options(**{f"parquet.{name}": value for name, value in options.items()})
    writer.parquet(str(tmp_path / "rows"))
    held, bad = taken(spark, [tmp_path / "rows"])
    assert held == {(f"user{n}", f"topic{n % 50}", None) for n in range(2_000)}
    assert bad == []


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "utf-32-le"])
def test_other_encodings_are_read(spark: SparkSession, tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "subs.csv"
    path.write_bytes("user,topic\nänn,cats\nbob,犬\n".encode(encoding))
    assert taken(spark, [path]) == ({("änn", "cats", None), ("bob", "犬", None)}, [])
    [known] = Lake(tmp_path / "lake").table(spark, "sources").collect()
    assert known.encoding.startswith(encoding)


def test_nuls_in_a_name_are_no_name(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "subs.csv"
    path.write_text("user,topic\nann,cats\nbob,dogs\nb\0b,cats\n")
    held, bad = taken(spark, [path])
    assert held == {("ann", "cats", None), ("bob", "dogs", None)}
    assert bad == [("subs.csv", 4, NULS)]


def test_names_may_begin_like_json(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "subs.jsonl"
    path.write_text(
        '{"user": "[bot] ann", "topic": "{x}"}\n'
        '{"user": "[1, 2]", "topic": " [y"}\n'
        '{"user": ["ann"], "topic": "x"}\n'
        '{"user": "ann", "topic": {"name": "x"}}\n'
    )
    held, bad = taken(spark, [path])
    assert held == {("[bot] ann", "{x}", None), ("[1, 2]", "[y", None)}
    assert bad == [("subs.jsonl", 3, NOT_PLAIN), ("subs.jsonl", 4, NOT_PLAIN)]


def test_quoted_line_breaks_are_part_of_a_name(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "subs.csv"
    path.write_text(
        'user,topic\n"ann\nlee",cats\nbob,"a ""big"" dog"\n5" disk,cats\n'
        '"cid,cats\ndan,cats\neve,"x\ny\nz"\nfay,cats\n'
    )
    returned = tmp_path / "returned.csv"  # Spark ends lines at these, too
    returned.write_bytes(b'user,topic\n"guy\rlee",cats\n')
    held, bad = taken(spark, [path, returned])
    assert held == {
        ("ann\nlee", "cats", None),
        ("guy\nlee", "cats", None),
        ("bob", 'a "big" dog', None),
        ('5" disk', "cats", None),
        ("dan", "cats", None),
        ("eve", "x\ny\nz", None),
        ("fay", "cats", None),
    }
    assert bad == [("subs.csv", 6, OPEN_QUOTE)]


def test_a_csv_may_begin_like_xml_or_json(spark: SparkSession, tmp_path: Path) -> None:
    path, other = tmp_path / "subs.csv", tmp_path / "other.csv"
    path.write_text('<anon>,cats\n"bob\nlee",cats\ncid,cats\ndan,cats\n')
    held, bad = taken(spark, [path])
    assert {user for user, _, _ in held} == {"<anon>", "bob\nlee", "cid", "dan"}
    assert bad == []
    other.write_text(path.read_text().replace("<anon>", "{anon}"))
    assert plan_delimited("csv", inspect(str(other)), Options()).breaks


def test_a_quote_that_never_ends_costs_its_line() -> None:
    lines = ['a,"b', *(f"u{n},t" for n in range(3))]
    rows = list(quoted_rows(lines, ",", 2))
    assert rows[0] == QuotedRow(1, 'a,"b', [], OPEN_QUOTE)
    assert [row.cells for row in rows[1:]] == [["u0", "t"], ["u1", "t"], ["u2", "t"]]
    assert [row.line for row in rows] == [1, 2, 3, 4]


def test_an_unknown_header_is_no_membership(spark: SparkSession, tmp_path: Path) -> None:
    words, numbers = tmp_path / "words.csv", tmp_path / "numbers.csv"
    words.write_text("fan_name,bandName,since\nann,abba,5\nbob,queen,6\n")
    numbers.write_text("abonné,sujet\n1,20\n2,30\n")
    assert taken(spark, [words, numbers]) == (
        {("ann", "abba", 5), ("bob", "queen", 6), ("1", "20", None), ("2", "30", None)},
        [],
    )


@pytest.mark.parametrize(
    ("cells", "below", "expected"),
    [
        (["ann", "movie"], [["bob", "song"]], False),  # a row, as far as anybody can tell
        (["movie", "tag"], [["movie", "x"]], False),  # a name that occurs as a value
        (["bob", "7"], [["1", "7"], ["2", "8"]], False),
        (["UserId", "groupName"], [["1", "x"]], True),
        (["x", "y"], [["1", "2"], ["3", "4"]], True),
        (["x", "y"], [], False),
        (["Abonnent", "Kanal"], [["anna", "x"], ["bernd", "x"]], True),
        (["email", "mailing_list"], [["a@x.de", "x"]], True),
        (["Teilnehmer", "Raum", "Datum"], [["anna", "x", "2024-01-01"]], True),
        (["Abonnée", "Thème"], [["anna", "x"]], True),
        (["usuario", "página"], [["anna", "x"]], True),
    ],
)
def test_what_a_header_is(cells: list[str], below: list[list[str]], expected: bool) -> None:
    assert looks_like_header(cells, below) is expected


def test_a_first_row_that_may_be_a_header_is_named(spark: SparkSession, tmp_path: Path) -> None:
    texts = {
        "unknown": "Wer,Was\nann,x\nbob,y\n",
        "again": "ann,x\nbob,x\n",
        "digits": "ann7,x\nbob,y\n",
        "known": "user,topic\nann,x\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.csv").write_text(text)
    summary = ingest(spark, listed([tmp_path]), tmp_path / "lake")
    assert summary.quality.doubts == ((str(tmp_path / "unknown.csv"), "Wer,Was"),)
    kept = Lake(tmp_path / "lake").table(spark, "quality")
    [row] = kept.where("figure = 'first row may be a header'").collect()
    assert (row.reason, row.rows) == (str(tmp_path / "unknown.csv"), 1)
    assert summary.quality.rows_in == 8
    for header in (True, False):
        reading = plan_delimited(
            "csv", inspect(str(tmp_path / "unknown.csv")), Options(header=header)
        )
        assert (reading.doubt, reading.header) == ("", "Wer,Was" if header else None)


def test_more_rejects_than_allowed_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path, lake = tmp_path / "subs.csv", tmp_path / "lake"
    path.write_text("user,topic\nann,cats\nann,cats\nbob,cats\n,cats\nalas\n")
    for most in (Most(1), Most(share=0.3)):
        with pytest.raises(TooManyRejects, match=r"2 of 5 rows are bad, and --rejects-max allows"):
            ingest(spark, [path], lake, rejects_max=most)
        assert not lake.exists()
    summary = ingest(spark, [path], lake, rejects_max=Most(2))
    found = summary.quality
    assert (found.rows_in, found.kept, found.rejected) == (5, 3, 2)
    assert (found.duplicates, found.memberships, found.encodings) == (1, 2, (("utf-8", 1),))
    kept = Lake(lake).table(spark, "quality").where("version = 1").collect()
    assert {(row.figure, row.reason): row.rows for row in kept} == {
        ("rows_in", None): 5,
        ("kept", None): 3,
        ("rejected", None): 2,
        ("duplicates", None): 1,
        ("memberships", None): 2,
        ("rejected by reason", "no user"): 1,
        ("rejected by reason", "not 2 columns"): 1,
        ("files by encoding", "utf-8"): 1,
    }


def test_what_cannot_be_read_is_said_in_a_line(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged, long = tmp_path / "damaged.parquet", tmp_path / "long.csv"
    parquet.write_table(pyarrow.table({"user": ["ann"], "topic": ["x"]}), damaged)
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-20] + b"\xff" * 12 + whole[-8:])
    assert inspect(str(damaged)).problem.startswith("damaged: the footer of this Parquet file")
    monkeypatch.setattr(files, "LINE_BYTES_MAX", 3 << 20)
    long.write_bytes(b"user,topic\nann,cats\n" + b"x" * (4 << 20) + b",cats\n")
    for path, said in ((damaged, "damaged: the footer"), (long, "line 3 is longer than 3 MB")):
        with pytest.raises(BadInput, match=f"{path.name}: {said}") as caught:
            ingest(spark, listed([path]), tmp_path / "lake")
        assert "\n" not in str(caught.value)


def test_a_file_that_changes_meanwhile_is_not_taken(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "subs.csv"
    path.write_text("user,topic\nann,cats\n")

    def write_more(step: int, text: str) -> None:
        if text == "reading":
            path.write_text(path.read_text() + "bob,cats\n")

    with pytest.raises(BadInput, match=r"subs.csv: changed while it was read; nothing was added"):
        ingest(spark, [path], tmp_path / "lake", watch=write_more)
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("column", ["user", "topic", "time"])
def test_a_nested_column_is_no_name(tmp_path: Path, column: str) -> None:
    path = tmp_path / "subs.parquet"
    plain: dict[str, list[object]] = {"user": ["ann"], "topic": ["x"], "time": [5]}
    parquet.write_table(pyarrow.table({**plain, column: [["a", "b"]]}), path)
    file = inspect(str(path))
    with pytest.raises(BadInput, match=rf"the column '{column}' holds list<.*, no plain values"):
        plan_parquet(file, Options())


def test_an_hour_without_a_date_is_no_time(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "subs.csv"
    path.write_text("user,topic,time\nann,x,12:30\nbob,x,2026-11-16T10:00Z\ncid,x,5\ndan,x,6\n")
    held, bad = taken(spark, [path])
    assert held == {("bob", "x", 1_794_823_200), ("cid", "x", 5), ("dan", "x", 6)}
    assert bad == [("subs.csv", 2, NO_TIME)]


def test_fields_that_the_first_object_lacks_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    soon, late = tmp_path / "soon.jsonl", tmp_path / "late.jsonl"
    soon.write_text('{"user":"ann","topic":"x"}\n{"user":"bob","topic":"x","time":5,"on":"tv"}\n')
    plain = '{"user":"cid","topic":"x"}\n'
    late.write_text(plain * (files.HEAD // len(plain) + 1) + '{"user":"dan","topic":"x","n":7}\n')
    held, bad = taken(spark, [soon, late])
    assert (held, bad) == (
        {("ann", "x", None), ("bob", "x", 5), ("cid", "x", None), ("dan", "x", None)},
        [],
    )
    events = Lake(tmp_path / "lake").table(spark, "events")
    said = {row.extra for row in events.where("extra is not null").collect()}
    assert said == {'{"on":"tv"}', '{"n":"7"}'}


def test_what_else_is_on_a_line_of_json_is_not_passed_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, others = tmp_path / "subs.jsonl", ("fay", "gus", "hal", "ida", "jim", "kay")
    path.write_text(
        '{"user": "ann", "topic": "}{", "more": [{"a": {}}, {"b": "},{"}]}  \n'
        '{"user": "bob", "topic": "x"}{"user": "cid", "topic": "x"}\n'
        '{"user": "bob", "topic": "x"}, {"user": "cid", "topic": "x"}\n'
        '{"user": "bob", "topic": "x"} and so on\n'
        '{"user": "\\ud83d?", "topic": "x"}\n'
        '{"user": "\\ud83d\\ude00?", "topic": "x"}\n'
        '{"user": "\\\\ud83d?", "topic": "x"}\n'
        '{"user": "dan", "topic": "x"}\n{"user": "eve", "topic": "x"}\n'
        + "".join(f'{{"user": "bob", "topic": "x"}}{each}{{"user": "cid"}}\n' for each in ";]:\x1e")
        + '{"user": "bob", "topic": "x"}, "user": "cid"}\n'
        + '{"user": "bob", "topic": "x"} "and" {"user": "cid", "topic": "x"}\n'
        + '{"user": "bob", "topic": "x", "more": {"a": {}}}, "user": "cid"}\n'
        + "".join(f'{{"user": "{name}", "topic": "x"}}\n' for name in others)
    )
    held, bad = taken(spark, [path])
    names = {"ann", "\U0001f600?", "\\ud83d?", "dan", "eve", *others}
    assert {user for user, _, _ in held} == names
    more = [("subs.jsonl", line, MORE_JSON) for line in (2, 3, 4)]
    last = [("subs.jsonl", line, MORE_JSON) for line in range(10, 17)]
    assert bad == [*more, ("subs.jsonl", 5, HALF), *last]


def test_a_field_that_is_given_twice_is_no_name(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "subs.jsonl"
    path.write_text(
        '{"user": "ann", "topic": "x", "more": {"user": "bob", "topic": "y"}}\n'
        '{"user": "bob", "topic": "x", "user": "cid"}\n'
        '{"user": "dan", "topic": "x", "more": 1, "more": 2, "text": "\\"user\\": "}\n'
        '{"user": "eve", "topic": "x"}\n'
    )
    held, bad = taken(spark, [path])
    assert {user for user, _, _ in held} == {"ann", "dan", "eve"}
    assert bad == [("subs.jsonl", 2, TWICE)]


def test_times_of_json_may_have_fractions(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "subs.jsonl"
    times = ("1700000000.5", "12345678.0", "1.7e9", "5.25", "1e99")
    path.write_text(
        "".join(f'{{"user": "{time}", "topic": "x", "time": {time}}}\n' for time in times)
    )
    seconds = {("1700000000.5", 1_700_000_000), ("12345678.0", 12_345_678), ("5.25", 5)}
    kept, bad = taken(spark, [path])
    assert kept == {
        *((user, "x", time) for user, time in seconds),
        ("1.7e9", "x", 1_700_000_000),
    }
    assert bad == [("subs.jsonl", 5, NO_TIME)]


@pytest.mark.parametrize("above", ["sep=,", "# exported, by x", "Report,"])
def test_a_header_below_other_lines_is_no_membership(tmp_path: Path, above: str) -> None:
    path = tmp_path / "subs.csv"
    path.write_text(f"{above}\ntopic,user\nx,ann\ny,bob\n")
    with pytest.raises(BadInput, match="'topic, user' is a header, it seems, but other lines"):
        plan_delimited("csv", inspect(str(path)), Options())
    assert plan_delimited("csv", inspect(str(path)), Options(header=False)).header is None


def test_dates_without_dashes_are_no_seconds(tmp_path: Path) -> None:
    path = tmp_path / "subs.csv"
    for text in (
        "user,topic,date\nann,x,20240131\nbob,y,\n",
        "ann,x, 20240131\nbob,y,20240201\n",
    ):
        path.write_text(text)
        with pytest.raises(BadInput, match="times such as '20240131' are dates, it seems; write"):
            plan_delimited("csv", inspect(str(path)), Options())
        assert plan_delimited("csv", inspect(str(path)), Options(unit="s")).time == 2
    for text in ("ann,x,20240131\nbob,y,20241301\n", "user,topic,time_ms\nann,x,20240131\n"):
        path.write_text(text)
        assert plan_delimited("csv", inspect(str(path)), Options()).time == 2


@pytest.mark.parametrize("time", ['"20240131"', "20240131"])
def test_dates_without_dashes_in_json_are_no_seconds_either(tmp_path: Path, time: str) -> None:
    path = tmp_path / "subs.jsonl"
    lines = (f'{{"user": "ann", "topic": "x", "time": {time}}}', '{"user": "bob", "topic": "y"}')
    path.write_text("\n".join(lines))
    with pytest.raises(BadInput, match="times such as '20240131' are dates, it seems; write"):
        plan_json(inspect(str(path)), Options())
    assert plan_json(inspect(str(path)), Options(unit="s")).time == "time"


def test_what_stands_beside_an_edge_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    edges, plain = tmp_path / "edges.txt", tmp_path / "graph.txt"
    edges.write_text("# from to weight time\n1 2\n1 2 0.5 9\n")
    plain.write_text("# from to\n1 2\n3 4\n")
    extras = {
        None: '{"column 3":"0.5","column 4":"9"}',
        "4": '{"column 3":"0.5"}',
    }
    for number, (time, extra) in enumerate(extras.items()):
        place = tmp_path / f"lake-{number}"
        ingest(spark, [edges], place, options=Options(time=time))
        events = Lake(place).table(spark, "events").orderBy("extra").collect()
        assert [row.extra for row in events] == [None, extra]
    ingest(spark, [plain], tmp_path / "plain")
    assert Lake(tmp_path / "plain").rows("events") == 0


def test_numbers_that_are_none_are_no_names(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "subs.parquet"
    held = {"user": [1.5, float("nan")], "topic": ["x", "y"], "_metadata": [1, 2]}
    parquet.write_table(pyarrow.table(held), path)
    kept, bad = taken(spark, [path])
    assert kept == {("1.5", "x", None)}
    assert bad == [("subs.parquet", 2, NO_USER)]
    rows = Lake(tmp_path / "lake").table(spark, "events").collect()
    assert [row.extra for row in rows] == ['{"_metadata":1}']


def test_parquet_of_any_kind(spark: SparkSession, tmp_path: Path) -> None:
    users = pyarrow.array([b"ann", b"\xff\xfe", b"cid", b"dan", b"eve", b"fay"])
    times = [1.5, 2.0, float("inf"), float("nan"), 1e35, 7.0]
    hours = pyarrow.array([1] * 6, pyarrow.time64("us"))
    path = tmp_path / "subs.parquet"
    held = {"user": users, "topic": ["x"] * 6, "time": times, "hour": hours}
    parquet.write_table(pyarrow.table(held), path)
    kept, bad = taken(spark, [path])
    assert kept == {("ann", "x", 1), ("dan", "x", None), ("fay", "x", 7)}
    assert [(line, why) for _, line, why in bad] == [(2, NOT_TEXT), (3, NO_TIME), (5, NO_TIME)]


def test_very_long_names(spark: SparkSession, tmp_path: Path) -> None:
    path, name = tmp_path / "subs.csv", "long" * 50_000
    path.write_text(f"user,topic\n{name},x\nbob,{name}\n")
    assert taken(spark, [path]) == ({(name, "x", None), ("bob", name, None)}, [])


def test_what_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "subs.parquet"
    twice = pyarrow.table([["ann"], ["x"], ["bob"]], names=["user", "topic", "USER"])
    parquet.write_table(twice, path)
    with pytest.raises(BadInput, match=r"two columns are called 'USER'"):
        plan_parquet(inspect(str(path)), Options())
    hours = pyarrow.array([1], pyarrow.time64("us"))
    parquet.write_table(pyarrow.table({"user": ["ann"], "topic": ["x"], "time": hours}), path)
    with pytest.raises(BadInput, match=r"'time' holds time64\[us\], hours without a date"):
        plan_parquet(inspect(str(path)), Options())
    long = pyarrow.array([1], pyarrow.decimal256(50, 2))
    parquet.write_table(pyarrow.table({"user": ["ann"], "topic": ["x"], "n": long}), path)
    with pytest.raises(BadInput, match=r"'n' holds decimal256\(50, 2\), which Spark cannot read"):
        plan_parquet(inspect(str(path)), Options())
    strange = tmp_path / os.fsdecode(b"b\xff.csv")
    strange.write_text("user,topic\nann,x\n")
    with pytest.raises(BadInput, match="the name is not UTF-8"):
        listed([tmp_path])


def test_the_first_row_is_what_spark_takes_for_it(tmp_path: Path) -> None:
    path = tmp_path / "subs.csv"
    path.write_text('user,"the\ntopic"\nann,x\n')
    found = plan_delimited("csv", inspect(str(path)), Options(topic="2"))
    assert (found.width, found.header, found.breaks) == (2, 'user,"the\ntopic"', True)
    path.write_text("ann\u2028\x0b,x\nbob,y\n")  # ends of lines for Python alone
    assert plan_delimited("csv", inspect(str(path)), Options()).header is None
    path.write_text("user;topic\nann;x\n")
    with pytest.raises(BadInput, match="with ';' between columns, say --separator"):
        plan_delimited("csv", inspect(str(path)), Options())


def test_a_quote_in_the_midst_of_a_cell_is_a_character() -> None:
    rows = quoted_rows(['"a"b,x', 'c,"d', 'e"'], ",", 2)
    assert [row.cells for row in rows] == [['"a"b', "x"], ["c", "d\ne"]]


GOOD = {
    "csv": "user,topic\nann,x\n",
    "tsv": "user\ttopic\nann\tx\n",
    "jsonl": '{"user": "ann", "topic": "x"}\n',
    "mediawiki-xml": f"<mediawiki>\n{page(1)}</mediawiki>\n",
    "snap-edges": "# edges\nann\tx\n",
    "snap-communities": "ann\n",
}
NOTHING = {
    "none": b"",
    "none.gz": b"",
    "blank.gz": gzip.compress(b"\n \n"),
    "packed.bz2": bz2.compress(b""),
    "packed.gz": gzip.compress(b""),
    "mark": b"\xef\xbb\xbf",
    "wide": b"\xff\xfe",
}


@pytest.mark.parametrize("form", [*GOOD, "parquet", "auto"])
def test_an_empty_file_costs_no_good_one(spark: SparkSession, tmp_path: Path, form: str) -> None:
    good = tmp_path / "good"
    if form == "parquet":
        parquet.write_table(pyarrow.table({"user": ["ann"], "topic": ["x"]}), good)
    else:
        good.write_text(GOOD.get(form, GOOD["csv"]))
    for name, content in NOTHING.items():
        (tmp_path / name).write_bytes(content)
    paths = [tmp_path / name for name in (*NOTHING, "good")]
    found = ingest(spark, paths, tmp_path / "lake", form, rejects_max=Most(0)).quality
    assert (found.kept, found.rejected) == (1, 0)
    assert found.without_rows == tuple(map(str, paths[:-1]))
    kept = Lake(tmp_path / "lake").table(spark, "quality").where("figure = 'file without rows'")
    assert {(row.reason, row.rows) for row in kept.collect()} == {(str(p), 0) for p in paths[:-1]}
    again = ingest(spark, paths, tmp_path / "lake", form)
    assert (again.read, again.known) == ([], [str(good)])
    assert again.quality.without_rows == found.without_rows


def test_a_file_with_a_header_only_is_named(spark: SparkSession, tmp_path: Path) -> None:
    bare = [tmp_path / name for name in ("bare.csv", "bare.parquet", "bare.xml")]
    bare[0].write_text("user,topic\n")
    parquet.write_table(pyarrow.table({"user": ["ann"], "topic": ["x"]}).slice(0, 0), bare[1])
    bare[2].write_text("<mediawiki>\n</mediawiki>\n")
    good = tmp_path / "good.csv"
    good.write_text(GOOD["csv"])
    assert taken(spark, [good, *bare[:2]]) == ({("ann", "x", None)}, [])
    # A file that was read before is a good one, too.
    found = ingest(spark, [good, *bare], tmp_path / "lake", rejects_max=Most(0))
    assert (found.known, found.quality.without_rows) == (
        [str(good), *map(str, bare[:2])],
        (str(bare[2]),),
    )
    assert Lake(tmp_path / "lake").rows("memberships") == 1


def test_empty_files_alone_are_refused_in_a_line(spark: SparkSession, tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.csv" for number in range(7)]
    for path in paths:
        path.write_bytes(b"")
    with pytest.raises(BadInput, match=r"^\S*/0\.csv, [^\n]* and 2 more: empty$"):
        ingest(spark, paths, tmp_path / "lake")
    paths[3].write_text("user,topic\n")
    with pytest.raises(BadInput, match=r"^[^\n]* and 2 more: no rows in it as csv$"):
        ingest(spark, paths, tmp_path / "lake")
    assert not (tmp_path / "lake").exists()


def test_blanks_for_longer_than_is_looked_at_are_not_nothing(tmp_path: Path) -> None:
    path = tmp_path / "subs.csv"
    for encoding in ("utf-8", "utf-16"):
        path.write_text("\n" * files.HEAD + "ann,x\n", encoding=encoding)
        assert not inspect(str(path)).empty
    path.write_text("\n" * 9, encoding="utf-16")
    assert inspect(str(path)).empty
