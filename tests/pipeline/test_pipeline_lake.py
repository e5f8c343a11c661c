"""Lakes as others see them: one truth for every reader, whatever was killed, on any file system."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path

import pyarrow
import pytest
from deltalake import DeltaTable
from pyarrow import dataset
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from samples import content, weft_trace
from weft.errors import WeftError
from weft.lab import sources
from weft.pipeline import delta
from weft.pipeline.conversion import converted
from weft.pipeline.delta import Overtaken
from weft.pipeline.ingest.job import ingest
from weft.pipeline.lake import SHAPES, Lake, NotALake, Version, drafted, history, tidied
from weft.pipeline.location import BadAddress, Location, Unreachable, Unwritable
from weft.pipeline.resources import wait_until
from weft.pipeline.schemas import MEMBERSHIP, USER
from weft.pipeline.traces.measure import measure
from weft.pipeline.traces.source import find

OLD = Path(__file__).with_name("lake_layout_1.tar.gz")
"""A lake that weft made before lakes were Delta tables, in three ingests, with a universe."""
BEGUN = datetime(2026, 1, 1, tzinfo=UTC)


def users(spark: SparkSession, *names: str, first: int = 0) -> DataFrame:
    return spark.createDataFrame(list(enumerate(names, first)), USER).coalesce(1)


def members(spark: SparkSession, *pairs: tuple[int, int]) -> DataFrame:
    rows = [(user, topic, BEGUN + timedelta(microseconds=user)) for user, topic in pairs]
    return spark.createDataFrame(rows, MEMBERSHIP)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Path:
    """Two versions: two users, then one more."""
    place = tmp_path / "lake"
    with drafted(place) as draft:
        draft.add("users", users(spark, "ann", "bob"))
        draft.add("memberships", members(spark, (0, 0), (1, 0)))
        draft.commit([("one",)], at=BEGUN)
    with drafted(place) as draft:
        draft.add("users", users(spark, "cid", first=2))
        draft.replace("memberships", members(spark, (0, 0), (1, 0), (2, 5)))
        draft.commit([("two",)], at=BEGUN + timedelta(days=1))
    return place


def test_old_versions_can_be_read(spark: SparkSession, lake: Path) -> None:
    assert Lake(lake).rows("memberships") == Lake(lake).memberships(spark).count() == 3
    for old in (Lake(lake, version=1), Lake(lake, as_of=BEGUN + timedelta(hours=5))):
        assert old.rows("memberships") == old.memberships(spark).count() == 2
        assert sorted(row.name for row in old.users(spark).collect()) == ["ann", "bob"]
    with pytest.raises(NotALake, match="no version 7; there are 1 to 2"):
        Lake(lake, version=7)
    with pytest.raises(NotALake, match="no version as old as 2025-12-31"):
        Lake(lake, as_of=BEGUN - timedelta(days=1))


def test_any_reader_of_delta_sees_the_same(spark: SparkSession, lake: Path) -> None:
    at = Lake(lake).memberships(spark).where("user = 2").select(F.unix_micros("time")).collect()
    expected = [(0, 0), (1, 0), (2, 5)]
    table = DeltaTable(lake / "memberships")
    arrow = table.to_pyarrow_table()
    assert arrow.schema.field("time").type == pyarrow.timestamp("us", "UTC")
    pandas = table.to_pandas()
    assert sorted(zip(pandas["user"], pandas["topic"], strict=True)) == expected
    assert at[0][0] == (BEGUN - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) + 2


def test_polars_sees_the_same(lake: Path) -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed here")
    frame = polars.read_delta(str(lake / "memberships"))
    assert sorted(frame.select("user", "topic").rows()) == [(0, 0), (1, 0), (2, 5)]
    assert frame.schema["time"] == polars.Datetime("us", "UTC")


def test_duckdb_sees_the_same(lake: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed here")
    held = DeltaTable(lake / "memberships").to_pyarrow_dataset()
    assert isinstance(held, dataset.Dataset)
    [(rows, last)] = duckdb.sql("SELECT count(*), max(epoch_us(time)) FROM held").fetchall()
    assert (rows, last) == (3, int(BEGUN.timestamp()) * 1_000_000 + 2)


def test_a_draft_that_is_overtaken_takes_all_back(spark: SparkSession, lake: Path) -> None:
    """Two runs from the same version, where nothing locks: the first one to commit wins."""
    place = Location.of(lake)
    with drafted(place) as slow:
        slow.add("users", users(spark, "eve", first=3))
        slow.add("memberships", members(spark, (3, 3)))
        # What another machine would do meanwhile.
        named = Version.read(place)
        fresh = delta.staged(users(spark, "dan", first=3), place / "users", USER)
        number = delta.changed(place / "users", named.tables["users"], fresh)
        made = Version(3, named.tables | {"users": number}, named.rows | {"users": 4}, "other")
        made.write(place)
        with pytest.raises(Overtaken, match="another run has written to it meanwhile"):
            slow.commit([("late",)])
    assert Lake(place).version == made
    for reader in (
        Lake(place).users(spark).toPandas(),
        DeltaTable(lake / "users").to_pandas(),  # by the latest version, not the one that is named
    ):
        assert sorted(reader["name"]) == ["ann", "bob", "cid", "dan"]
    assert DeltaTable(lake / "memberships").to_pyarrow_table().num_rows == 3


def test_what_a_killed_run_committed_of_some_tables_is_no_part_of_the_lake(
    spark: SparkSession, lake: Path
) -> None:
    place = Location.of(lake)
    number = Version.read(place).tables["users"]
    fresh = delta.staged(users(spark, "ghost", first=3), place / "users", USER)
    delta.changed(place / "users", number, fresh)  # and killed, before the lake names it
    stray = delta.staged(users(spark, "stray"), place / "topics", USER)
    delta.changed(place / "topics", None, stray)
    assert sorted(row.name for row in Lake(place).users(spark).collect()) == ["ann", "bob", "cid"]
    with drafted(place) as draft:
        draft.add("users", users(spark, "dan", first=3))
        draft.commit([("three",)])
    names = DeltaTable(lake / "users").to_pandas()["name"]
    assert sorted(names) == ["ann", "bob", "cid", "dan"]
    tidied(place)
    assert DeltaTable(lake / "topics").to_pyarrow_table().num_rows == 0


def test_a_first_run_that_was_killed_can_be_repeated(spark: SparkSession, tmp_path: Path) -> None:
    place = Location.of(tmp_path / "lake")
    half = delta.staged(users(spark, "ghost"), place / "users", USER)
    delta.changed(place / "users", None, half)
    with drafted(place) as draft:
        draft.add("users", users(spark, "ann"))
        draft.commit([("one",)])
    assert list(DeltaTable(tmp_path / "lake" / "users").to_pandas()["name"]) == ["ann"]


def test_what_a_first_run_that_was_killed_left_is_removed_by_one_that_fails(
    tmp_path: Path,
) -> None:
    lake = tmp_path / "lake"
    for left in (".staging-killed", "rejects/rows-killed", "users"):
        (lake / left).mkdir(parents=True)
        (lake / left / "part-0.parquet").write_bytes(b"half a file")
    with pytest.raises(ZeroDivisionError), drafted(lake):
        raise ZeroDivisionError
    assert list(lake.iterdir()) == []


def test_tidying_leaves_one_version_in_few_files(spark: SparkSession, lake: Path) -> None:
    before = Lake(lake)
    orphan = lake / "users" / "rows-killed" / "part-0.parquet"
    orphan.parent.mkdir()
    orphan.write_bytes(b"half a file")
    assert len(before.files("users")) == 2
    done = tidied(lake)
    after = Lake(lake)
    assert (done.forgotten, done.compacted) == (2, 4) and not orphan.exists()
    assert len(after.files("users")) == 1
    assert after.version.content == before.version.content
    assert sorted(row.name for row in after.users(spark).collect()) == ["ann", "bob", "cid"]
    assert after.memberships(spark).count() == 3
    with pytest.raises(NotALake, match="no version 1; there are 3 to 3"):
        Lake(lake, version=1)
    again = content(lake)
    assert tidied(lake).forgotten == 0 and Lake(lake).version == after.version
    assert set(again) <= set(content(lake))


def test_columns_can_be_added_later(spark: SparkSession, lake: Path) -> None:
    place = Location.of(lake) / "users"
    wider = users(spark, "dan", first=3).withColumn("home", F.lit("here"))
    number = Version.read(lake).tables["users"]
    delta.changed(place, number, delta.staged(wider, place, wider.schema))
    rows = DeltaTable(lake / "users").to_pyarrow_table().to_pylist()
    assert {row["name"]: row["home"] for row in rows} == {
        "ann": None,
        "bob": None,
        "cid": None,
        "dan": "here",
    }
    assert Lake(lake).users(spark).count() == 3


# --- older lakes ----------------------------------------------------------------------------------


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with tarfile.open(OLD) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "lake"


def test_a_lake_of_before_is_converted(spark: SparkSession, old: Path, tmp_path: Path) -> None:
    with pytest.raises(NotALake, match="made by an older weft; 'weft data convert"):
        Lake(old)
    made = converted(spark, old)
    lake = Lake(old)
    assert lake.version == made
    assert made.content == "56bb98addbbe56ea6bba5a676664af19c654161920dfad21c478d2a27e4a4e1a"
    assert {name: lake.table(spark, name).count() for name in SHAPES} == {
        "users": 6,
        "topics": 5,
        "memberships": 9,
        "rejects": 3,
        "events": 0,
        "sources": 3,
        "trace": 5,
        "quality": 0,
    }
    rows = lake.memberships(spark).select("user", "topic", F.unix_millis("time").alias("ms"))
    assert {(row.user, row.topic, row.ms) for row in rows.collect()} == {
        *((1, 3, 3000), (4, 4, 2000), (4, 3, 1000), (5, 4, None), (0, 0, 1000)),
        *((0, 2, None), (2, 0, None), (3, 1, None), (1, 0, 2000)),
    }
    assert lake.universes() == ["seeds-2"] and lake.universe(spark, "seeds-2").count() > 0
    left = [path for path in old.rglob("0*.parquet") if path.is_dir()]
    assert not left and not (old / "lake.json").exists()
    # It goes on where it was: the same file again is nothing new, another is.
    two = tmp_path / "two.tsv"
    two.write_text("cid\tcats\nann\tdogs\nann\tcats\nzoe\tants\n")
    assert ingest(spark, [two], old).read == []
    more = tmp_path / "more.tsv"
    more.write_text("dan\tcats\n")
    ingest(spark, [more], old)
    assert Lake(old).rows("users") == 7
    assert Lake(old).users(spark).where("name = 'dan'").collect()[0].user == 6
    with pytest.raises(NotALake, match="of the present layout already"):
        converted(spark, old)


def test_a_trace_is_what_the_lake_names(spark: SparkSession, old: Path, tmp_path: Path) -> None:
    converted(spark, old)
    first = find([old])
    assert first.parquet and list(first.paths) == Lake(old).files("trace")
    (old / "trace" / "left.parquet").write_bytes(b"what a killed run left")
    assert find([old]) == first
    (tmp_path / "same.jsonl").write_text(weft_trace())
    figures = measure(spark, find([tmp_path / "same.jsonl"]), tmp_path / "out")
    assert measure(spark, first, tmp_path / "out") == figures


# --- elsewhere ------------------------------------------------------------------------------------


def answers(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def served(*program: str) -> Iterator[int]:
    """The port of a server that runs while the block does; its number is the last argument."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Not in this process: deltalake's calls let no other thread of it work.
    command = [sys.executable, *program, str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert wait_until(lambda: answers(port), 60)
        yield port
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of an empty bucket of an S3 server on this machine."""
    pytest.importorskip("moto.server", reason="no server of S3: moto is not installed here")
    boto3 = import_module("boto3")
    with served("-m", "moto.server", "-H", "127.0.0.1", "-p") as port:
        told = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }
        for name, value in told.items():
            monkeypatch.setenv(name, value)
        client = boto3.client("s3", endpoint_url=told["AWS_ENDPOINT_URL"], region_name="us-east-1")
        client.create_bucket(Bucket="lakes")
        yield "s3a://lakes"


def test_a_lake_in_s3(
    spark: SparkSession, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.csv").write_text("user,topic,time\nbob,cats,2\nann,cats,3\n,cats,9\n")
    (tmp_path / "two.tsv").write_text("cid\tcats\nann\tdogs\nann\tcats\n")
    place = f"{bucket}/deep/lake"
    ingest(spark, [tmp_path / "one.csv"], place)
    ingest(spark, [tmp_path / "two.tsv"], place)
    lake = Lake(place)
    assert {name: lake.rows(name) for name in ("users", "topics", "memberships", "rejects")} == {
        "users": 3,
        "topics": 2,
        "memberships": 4,
        "rejects": 1,
    }
    assert lake.memberships(spark).count() == 4
    assert Lake(place, version=1).memberships(spark).count() == 2
    table = Location.of(place) / "memberships"
    assert DeltaTable(table.for_delta, storage_options=table.delta_options).version() == 1
    [source] = sources.find(tmp_path, place).found  # as `weft lab run --trace`
    assert (source.name, source.is_ready) == ("lake", True)
    assert source.memberships(spark, seed=1).count() == 4
    assert source.fingerprint() == lake.version.content
    assert tidied(place).forgotten == 2 and Lake(place).memberships(spark).count() == 4
    assert len(history(place)[0]) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.csv", "two.tsv"]


def test_a_lake_at_google(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.csv").write_text("user,topic,time\nbob,cats,2\nann,cats,3\n,cats,9\n")
    (tmp_path / "two.tsv").write_text("cid\tcats\nann\tdogs\nann\tcats\n")
    server = Path(__file__).parents[1] / "google_storage.py"
    with served(str(server)) as port:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"127.0.0.1:{port}")
        place = "gs://lakes/deep/lake"
        ingest(spark, [tmp_path / "one.csv"], place)
        ingest(spark, [tmp_path / "two.tsv"], place)
        assert Lake(place).memberships(spark).count() == 4
        assert Lake(place, version=1).memberships(spark).count() == 2
        assert Lake(place).rows("rejects") == 1
        left = Location.of(place).names()
        assert {name for name in left if name.startswith(".")} == set()
        assert tidied(place).forgotten == 2 and Lake(place).memberships(spark).count() == 4
        table = Location.of(place) / "users"
        kept = delta.staged_rows([{"user": 7, "name": "dan"}], table, USER)
        with pytest.raises(Overtaken):  # as one that another writer has changed meanwhile
            delta.changed(table, 0, kept)
    with pytest.raises(Unreachable, match=r"^gs://lakes/deep/lake\S*: cannot be reached \(.*\)$"):
        Lake(place)
    with pytest.raises(Unreachable, match=r"^gs://lakes/deep/lake: cannot be reached \(.*\)$"):
        Location.of(place).names()


def test_a_server_that_ends_before_the_first_row_is_told_in_a_line(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.csv").write_text("user,topic,time\nbob,cats,2\nann,cats,3\n,cats,9\n")
    server = Path(__file__).parents[1] / "google_storage.py"
    with ExitStack() as running:
        port = running.enter_context(served(str(server)))
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"127.0.0.1:{port}")

        def watch(number: int, text: str) -> None:
            running.close()

        with pytest.raises(WeftError) as caught:
            ingest(spark, [tmp_path / "one.csv"], "gs://lakes/lake", watch=watch)
    assert "gs://lakes/lake" in str(caught.value) and "\n" not in str(caught.value)


def test_hadoop_needs_its_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ARROW_LIBHDFS_DIR", str(tmp_path))
    monkeypatch.delenv("HADOOP_HOME", raising=False)
    monkeypatch.setattr("weft.pipeline.location.find_library", lambda name: None)
    with pytest.raises(BadAddress, match=r"^hdfs://host:8020/lake: this needs Hadoop's libhdfs.so"):
        Location.of("hdfs://host:8020/lake")
    (tmp_path / "libhdfs.so").touch()
    place = Location.of("hdfs://host:8020/lake")
    assert (place.for_spark, place.is_local) == ("hdfs://host:8020/lake", False)


def test_what_cannot_be_reached_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"http://127.0.0.1:{free.getsockname()[1]}"
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
            monkeypatch.setenv(name, "some")
        monkeypatch.setenv("AWS_ENDPOINT_URL", place)
        with pytest.raises(Unreachable, match=r"s3://bucket/lake.*: cannot be reached") as caught:
            Lake("s3://bucket/lake")
    assert "\n" not in str(caught.value)


def test_addresses_are_never_folders() -> None:
    assert Location.of("s3a://bucket/lake/").url == "s3a://bucket/lake"
    assert str(Location.of("file:///data/a%20lake")) == "/data/a lake"
    with pytest.raises(BadAddress, match="no file system that weft knows"):
        Location.of("ftp://host/lake")
    with pytest.raises(BadAddress, match="no bucket or host"):
        Location.of("s3://")
    with pytest.raises(BadAddress, match="a folder of this machine is needed here"):
        _ = Location.of("s3://bucket/lake").local


def test_a_path_that_tables_cannot_tell_is_refused(tmp_path: Path) -> None:
    for given, says in (
        ("", "an empty path"),
        (os.fsdecode(b"lake\xff"), "not a path in UTF-8"),
        ("file:///lake%00", "not a path in UTF-8"),
    ):
        with pytest.raises(BadAddress, match=says):
            Location.of(given)
    (tmp_path / os.fsdecode(b"\xff")).touch()
    with pytest.raises(NotALake, match="not a lake, and not empty"), drafted(tmp_path):
        pass


def test_a_table_that_is_gone_is_not_one_without_rows(spark: SparkSession, lake: Path) -> None:
    log = lake / "users" / "_delta_log"
    for file in log.iterdir():
        file.write_text("damaged")
    shutil.rmtree(lake / "memberships")
    with pytest.raises(NotALake, match="memberships: damaged, version 1 of this table is gone"):
        Lake(lake).memberships(spark)
    with pytest.raises(NotALake, match="users: damaged, version 1 cannot be read"):
        Lake(lake).users(spark)


def test_tidying_tells_what_it_cannot_do(lake: Path, tmp_path: Path) -> None:
    with pytest.raises(NotALake, match="no lake here"):
        tidied(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    for file in (lake / "users").rglob("*.parquet"):
        file.write_bytes(b"damaged")
    with pytest.raises(Unwritable, match="cannot be changed") as caught:
        tidied(lake)
    assert "\n" not in str(caught.value)


def test_why_a_place_elsewhere_cannot_be_reached_is_told_briefly() -> None:
    place = Location.of("s3://bucket/lake", {})
    answer = "<Error><Code>NoSuchBucket</Code>\n<Message>It is not there</Message></Error>"
    told = str(Unreachable(place, OSError(f"Error performing GET {'x' * 400}: {answer}")))
    assert told == "s3://bucket/lake: cannot be reached (NoSuchBucket: It is not there)"
    told = str(Unreachable(place, OSError(f"Error performing GET {'x' * 400}: Connection refused")))
    assert "Error performing GET" in told
    assert told.endswith("Connection refused)")
    assert len(told) < 400
