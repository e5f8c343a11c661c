"""Whole ingests, with Spark and files: what is added, what is refused, what stays as it was."""

from __future__ import annotations

import bz2
import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from samples import JOINED, content, weft_trace
from spark_fixture import SharedSpark
from weft.pipeline import tables
from weft.pipeline.ingest import dictionary, files, job
from weft.pipeline.ingest.files import Inspected
from weft.pipeline.ingest.job import STEPS, Summary, ingest
from weft.pipeline.ingest.options import BadInput, Options
from weft.pipeline.lake import Lake, NotALake
from weft.pipeline.resources import Busy, claimed
from weft.pipeline.schemas import TEXT, WHOLE, columns

FIRST = "user,topic,time\nbob,cats,2\nann,cats,3\nann,cats,1\n,cats,9\nann,dogs,x\n"
SECOND = "cid\tcats\nann\tdogs\nann\tcats\nzoe\tants\n"


def named(spark: SparkSession, lake: Path) -> set[tuple[str, str, int | None]]:
    """The memberships of a lake, by name."""
    opened = Lake(lake)
    users = {row.user: row.name for row in opened.users(spark).collect()}
    topics = {row.topic: row.name for row in opened.topics(spark).collect()}
    held = opened.memberships(spark)
    rows = held.select("user", "topic", F.unix_millis("time").alias("ms")).collect()
    assert len({(row.user, row.topic) for row in rows}) == len(rows) == opened.rows("memberships")
    return {(users[row.user], topics[row.topic], row.ms) for row in rows}


def numbers(spark: SparkSession, lake: Path) -> tuple[dict[str, int], dict[str, int]]:
    opened = Lake(lake)
    users = {row.name: row.user for row in opened.users(spark).collect()}
    return users, {row.name: row.topic for row in opened.topics(spark).collect()}


@pytest.fixture(scope="module")
def first(
    shared_spark: SharedSpark, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Summary]:
    """A lake with one small file in it. Tests must leave it as it is."""
    folder = tmp_path_factory.mktemp("first")
    (folder / "first [1].csv").write_text(FIRST)
    return folder, ingest(shared_spark.session(), [folder / "first [1].csv"], folder / "lake")


def test_one_file(spark: SparkSession, first: tuple[Path, Summary]) -> None:
    folder, summary = first
    lake, source = folder / "lake", str(folder / "first [1].csv")
    assert named(spark, lake) == {("ann", "cats", 1000), ("bob", "cats", 2000)}
    assert numbers(spark, lake) == ({"ann": 0, "bob": 1}, {"cats": 0})
    assert sorted(Lake(lake).table(spark, "rejects").collect()) == [
        Row(file=source, line=5, reason="no user", text=",cats,9"),
        Row(
            file=source,
            line=6,
            reason="the time is neither a number nor an ISO date",
            text="ann,dogs,x",
        ),
    ]
    [kept] = Lake(lake).table(spark, "sources").collect()
    assert (kept.file, kept.format, kept.rows, kept.rejects) == (source, "csv", 3, 2)
    assert summary.after == {
        "memberships": 2,
        "events": 3,
        "users": 2,
        "topics": 1,
        "rejects": 2,
        "sources": 1,
        "quality": 8,
        "trace": 0,
    }
    happened = Lake(lake).table(spark, "events")
    assert sorted(happened.select("user", F.unix_seconds("time")).collect()) == [
        (0, 1),
        (0, 3),
        (1, 2),
    ]
    assert sorted(path.name for path in lake.iterdir()) == [
        "events",
        "memberships",
        "quality",
        "rejects",
        "sources",
        "topics",
        "users",
        "versions",
    ]


def test_the_same_again_changes_nothing(spark: SparkSession, first: tuple[Path, Summary]) -> None:
    folder, _ = first
    before = content(folder / "lake")
    copy = folder / "copy.data"
    copy.write_text(FIRST)
    summary = ingest(spark, [folder / "first [1].csv", copy], folder / "lake")
    assert (summary.read, len(summary.known)) == ([], 2)
    assert content(folder / "lake") == before


def cut_gzip(folder: Path) -> Path:
    path = folder / "cut.csv.gz"
    path.write_bytes(gzip.compress(FIRST.encode() * 50)[:-12])
    return path


def cut_bzip2(folder: Path) -> Path:
    path = folder / "cut.csv.bz2"
    path.write_bytes(bz2.compress(FIRST.encode() * 50)[:-12])
    return path


def damaged_parquet(folder: Path) -> Path:
    path = folder / "bad.parquet"
    parquet.write_table(pyarrow.table({"user": ["ann"] * 9, "topic": ["cats"] * 9}), path)
    content = bytearray(path.read_bytes())
    content[10:40] = b"\xff" * 30  # in a page, behind which the footer is whole
    path.write_bytes(content)
    return path


def padded_gzip(folder: Path) -> Path:
    path = folder / "padded.csv.gz"
    path.write_bytes(gzip.compress(FIRST.encode()) + bytes(100))
    return path


def mostly_bad(folder: Path) -> Path:
    path = folder / "bad.csv"
    path.write_text("user,topic\nann,cats\nalas\nalack\n")
    return path


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (cut_gzip, "cut.csv.gz: cut off: the gzip archive"),
        (cut_bzip2, "cut.csv.bz2: cut off: the bzip2 archive"),
        (damaged_parquet, "bad.parquet: Spark cannot read it: "),
        (padded_gzip, "padded.csv.gz: Spark cannot read it: not a gzip file"),
        (mostly_bad, "not csv, it seems: 2 of 3 rows are bad; line 3: not 2 columns: 'alas'"),
    ],
)
def test_what_cannot_be_taken_leaves_the_lake_as_it_was(
    spark: SparkSession,
    first: tuple[Path, Summary],
    tmp_path: Path,
    make: Callable[[Path], Path],
    said: str,
) -> None:
    lake = first[0] / "lake"
    before = content(lake)
    good = tmp_path / "good.csv"
    good.write_text("user,topic\nann,birds\n")
    with pytest.raises(BadInput) as caught:
        ingest(spark, [good, make(tmp_path)], lake)
    assert said in str(caught.value)
    assert content(lake) == before


def test_a_lake_is_not_made_of_nothing(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "header.csv").write_text("user,topic\n")
    with pytest.raises(BadInput, match="no rows in it as csv"):
        ingest(spark, [tmp_path / "header.csv"], tmp_path / "lake")
    assert not (tmp_path / "lake").exists()


def test_an_interruption_leaves_the_lake_as_it_was(
    spark: SparkSession, first: tuple[Path, Summary], tmp_path: Path
) -> None:
    lake = first[0] / "lake"
    before = content(lake)
    more = tmp_path / "more.tsv"
    more.write_text(SECOND)

    def interrupt(step: int, text: str) -> None:
        if text == STEPS[-1]:  # users and topics are written by now
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest(spark, [more], lake, watch=interrupt)
    assert content(lake) == before


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"FEW_PAIRS": 0, "ONE_TASK": 2},  # many rows of few names
        {"FEW_PAIRS": 0, "ONE_TASK": 2, "MANY": 2},  # many rows of many names
        {"FEW_PAIRS": 0, "ONE_TASK": 0, "NAMES_SENT": 0},
    ],
)
def test_new_files_add_and_numbers_stay(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    """Whatever is done for few rows and for many."""
    for limit, rows in limits.items():
        monkeypatch.setattr(job, limit, rows)
    one, two, lake = tmp_path / "one.csv", tmp_path / "two.tsv.gz", tmp_path / "lake"
    one.write_text(FIRST)
    two.write_bytes(gzip.compress(SECOND.encode()))
    ingest(spark, [one], lake)
    opened = Lake(lake)
    (lake / "users" / "000002.parquet").mkdir()  # a killed process left this
    ingest(spark, [one, two], lake)
    assert named(spark, lake) == {
        ("ann", "cats", 1000),
        ("bob", "cats", 2000),
        ("cid", "cats", None),
        ("ann", "dogs", None),
        ("zoe", "ants", None),
    }
    assert numbers(spark, lake) == (
        {"ann": 0, "bob": 1, "cid": 2, "zoe": 3},
        {"cats": 0, "ants": 1, "dogs": 2},
    )
    assert Lake(lake).rows("rejects") == 2 and Lake(lake).rows("sources") == 2
    assert opened.memberships(spark).count() == 2  # still the version that was opened
    assert opened.version.content != Lake(lake).version.content


def test_names_whose_codes_are_equal_stay_apart(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many rows names are looked up by a hash, for which anybody can make equal names."""
    monkeypatch.setattr(job, "FEW_PAIRS", 0)
    monkeypatch.setattr(job, "ONE_TASK", 2)
    one, other = "7cn4NyVN4ITfbsVW", "rjQMzA6n7rhFjeWm"
    names = spark.createDataFrame([(0, one), (1, other)], columns(user=WHOLE, name=TEXT))
    codes = {row.code for row in names.transform(dictionary.coded, "user").collect()}
    assert len(codes) == 1
    file = tmp_path / "rows.csv"
    file.write_text(f"user,topic,time\n{one},{other},1\n{other},{one},2\n{one},cats,3\n")
    ingest(spark, [file], tmp_path / "lake")
    expected = {(one, other, 1000), (other, one, 2000), (one, "cats", 3000)}
    assert named(spark, tmp_path / "lake") == expected
    assert Lake(tmp_path / "lake").rows("memberships") == 3


def test_traces_parquet_and_communities_together(spark: SparkSession, tmp_path: Path) -> None:
    shape = columns(member=TEXT, group=TEXT, time_ms=WHOLE)
    table = spark.createDataFrame([("ann", "cats", 5)], shape).coalesce(1)
    tables.write(table, tmp_path / "in" / "table")
    (tmp_path / "in" / "x.cmty.txt").write_text("bob\tann\n# two\ncid\n")
    (tmp_path / "in" / "trace.jsonl").write_text(weft_trace() + "no record\n")
    lake = tmp_path / "lake"
    summary = ingest(spark, [tmp_path / "in"], lake)
    assert {read.reading.format for read in summary.read} == {
        "parquet",
        "snap-communities",
        "weft-trace",
    }
    joined = {(peer, topic, ns // 1_000_000) for peer, topic, ns in JOINED}
    assert named(spark, lake) == {
        ("ann", "cats", 5),
        ("bob", "x.cmty.txt:1", None),
        ("ann", "x.cmty.txt:1", None),
        ("cid", "x.cmty.txt:3", None),
        ("carol", "/b", None),
        *joined,
    }
    assert Lake(lake).table(spark, "trace").count() == Lake(lake).rows("trace") == 5
    [bad] = Lake(lake).table(spark, "rejects").collect()
    assert (bad.file, bad.line) == (str(tmp_path / "in" / "trace.jsonl"), 6)
    other = tmp_path / "x.cmty.txt"
    other.write_text("zoe\n")
    with pytest.raises(BadInput, match="tell them apart with --topic-prefix"):
        ingest(spark, [other], lake)
    ingest(spark, [other], lake, options=Options(topic_prefix="other/"))
    assert ("zoe", "other/x.cmty.txt:1", None) in named(spark, lake)


def test_few_rows_leave_the_files_of_others_as_they_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"

    def files() -> set[str]:
        return {each.url for each in Lake(lake).files("memberships")}

    def add(text: str) -> Summary:
        path = tmp_path / "rows.csv"
        path.write_text("user,topic,time\n" + text)
        return ingest(spark, [path], lake)

    add("ann,cats,5\nbob,cats,5\n")
    first = files()
    summary = add("ann,cats,9\ncid,cats,1\nann,dogs,2\n")  # one is known, and later
    assert (summary.quality.memberships, summary.quality.duplicates) == (2, 1)
    second = files()
    assert first < second
    add("cid,cats,\nann,dogs,1\n")  # one is known without a time, one is earlier
    assert first <= files() and not second <= files()
    assert named(spark, lake) == {
        ("ann", "cats", 5000),
        ("bob", "cats", 5000),
        ("cid", "cats", 1000),
        ("ann", "dogs", 1000),
    }
    assert DeltaTable(lake / "memberships").to_pyarrow_table().num_rows == 4
    assert Lake(lake, version=2).memberships(spark).count() == 4


def test_one_writer_at_a_time(spark: SparkSession, first: tuple[Path, Summary]) -> None:
    folder, _ = first
    with claimed(folder / "lake"), pytest.raises(Busy, match="another run is writing"):
        ingest(spark, [folder / "first [1].csv"], folder / "lake")


def test_other_folders_are_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text(FIRST)
    before = content(tmp_path)
    with pytest.raises(NotALake, match="not a lake, and not empty"):
        ingest(spark, [tmp_path / "one.csv"], tmp_path)
    with pytest.raises(NotALake, match=r"one.csv: a file, not a folder"):
        ingest(spark, [tmp_path / "one.csv"], tmp_path / "one.csv")
    assert content(tmp_path) == before


def test_what_is_no_lake_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotALake, match="no lake here; 'weft data ingest FILE --out"):
        Lake(tmp_path)
    with pytest.raises(NotALake, match="no lake here"):
        Lake(tmp_path / "missing")
    (tmp_path / "lake.json").write_text("{}")
    with pytest.raises(NotALake, match="made by an older weft; 'weft data convert"):
        Lake(tmp_path)
    wrong = pyarrow.table({"layout": [2], "version": [1]})
    write_deltalake(tmp_path / "other" / "versions", wrong)
    with pytest.raises(NotALake, match="damaged"):
        Lake(tmp_path / "other")


def test_universes_have_their_place(spark: SparkSession, first: tuple[Path, Summary]) -> None:
    lake = Lake(first[0] / "lake")
    assert lake.universes() == []
    assert lake.universe_folder("seeds-5").local == lake.path / "universes" / "seeds-5"
    with pytest.raises(ValueError, match="letters, digits"):
        lake.universe_folder("../out")
    with pytest.raises(NotALake, match="no universe 'seeds-5' here"):
        lake.universe(spark, "seeds-5")


def test_many_small_files_are_few_tasks_and_their_bad_rows_are_placed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers look at them: no beginning of a file comes to the driver."""
    monkeypatch.setattr(files, "SMALL_BYTES", 0)
    folder, lake = tmp_path / "many", tmp_path / "lake"
    folder.mkdir()
    for number in range(300):
        bad = "no row\n" if number % 100 == 7 else ""
        text = f"user,topic,time\nu{number % 50},t{number % 3},{number}\n{bad}"
        (folder / f"{number:03}.csv").write_text(text)
    staged = []

    def watch(step: int, text: str) -> None:
        if text == STEPS[2]:
            staged.extend(lake.rglob("read-0/*.parquet"))

    summary = ingest(spark, [folder], lake, watch=watch)
    assert 0 < len(staged) <= 4  # one for each task; there were ten
    rejects = Lake(lake).table(spark, "rejects").collect()
    assert sorted((row.file, row.line, row.reason) for row in rejects) == [
        (str(folder / f"{number:03}.csv"), 3, "not 3 columns") for number in (7, 107, 207)
    ]
    quality = summary.quality
    assert (quality.rows_in, quality.kept, quality.rejected) == (303, 300, 3)
    assert quality.memberships == len({(n % 50, n % 3) for n in range(300)})
    assert quality.encodings == (("utf-8", 300),)


def test_files_are_judged_where_they_are_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SMALL_BYTES", 0)
    here = os.getpid()

    def judge(file: Inspected) -> tuple[bool, str]:
        if b"odd" in file.head:
            raise BadInput(f"{file.path}: odd")
        return os.getpid() == here, file.lines[0]

    (tmp_path / "a").write_text("first\n")
    (tmp_path / "b").symlink_to(tmp_path / "a")  # another name for the same
    found = files.inspected(spark, [tmp_path / "b", tmp_path / "a"], judge)
    assert [(file.path, file.head, judged) for file, judged in found] == [
        (str(tmp_path / name), b"", (False, "first")) for name in "ba"
    ]
    for name in "xy":
        (tmp_path / name).write_text("odd\n")
    with pytest.raises(BadInput, match=r"^\S*/y: odd$"):
        files.inspected(spark, [tmp_path / name for name in "ayx"], judge)
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"a,b\n" * 99)[:-9])
    with pytest.raises(BadInput, match=r"^\S*/cut\.gz: cut off"):
        files.inspected(spark, [tmp_path / "x", tmp_path / "cut.gz"], judge)
