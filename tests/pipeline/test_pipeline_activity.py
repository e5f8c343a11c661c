"""Events of a lake: every row with its time and its other columns, and a workload of them."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from spark_fixture import SharedSpark
from weft.cli import data, data_events
from weft.cli.parser import parser_for
from weft.pipeline import activity
from weft.pipeline.activity import NothingHappened
from weft.pipeline.ingest.job import ingest
from weft.pipeline.lake import Lake
from weft.sim.recorded import recorded

EDITS = """user,topic,time,size,comment
ann,cats,10,5,"a, b"
ann,cats,10,5,"a, b"
bob,cats,11,7,
bob,dogs,12,1,x
cid,dogs,13,1,y
ann,ants,14,1,z
"""
MORE = {"user": ["eve"], "topic": ["cats"], "size": [3]}
LINES = '{"user": "dan", "topic": "cats", "time": 20, "minor": true}\n' * 2


@pytest.fixture(scope="module")
def lake(shared_spark: SharedSpark, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("events")
    (folder / "edits.csv").write_text(EDITS)
    (folder / "lines.jsonl").write_text(LINES)
    parquet.write_table(pyarrow.table(MORE), folder / "more.parquet")
    (folder / "plain.csv").write_text("user,topic\nann,cats\nann,cats\n")
    files = [folder / name for name in ("edits.csv", "lines.jsonl", "more.parquet", "plain.csv")]
    ingest(shared_spark.session(), files, folder / "lake")
    return Lake(folder / "lake")


def test_every_row_is_kept_with_its_time_and_its_other_columns(
    spark: SparkSession, lake: Lake
) -> None:
    names = lake.users(spark).withColumnRenamed("name", "who")
    rows = lake.table(spark, "events").join(names, "user").collect()
    found = sorted(
        (row.who, row.time and row.time.second, json.loads(row.extra or "null")) for row in rows
    )
    edit, later = {"size": "5", "comment": "a, b"}, {"size": "1", "comment": "z"}
    assert found[:3] == [("ann", 10, edit), ("ann", 10, edit), ("ann", 14, later)]
    assert found[-3:] == [
        *[("dan", 20, {"minor": "true"})] * 2,
        ("eve", None, {"size": 3}),
    ]
    assert len(rows) == lake.rows("events") == 9  # of the file without times and more: none
    assert lake.rows("memberships") == 7


def test_the_busiest_users_of_the_busiest_topics_are_a_workload(
    spark: SparkSession, lake: Lake
) -> None:
    lines = list(activity.lines(activity.named(lake, spark, 3, 2)))
    assert [json.loads(line) for line in lines[-6:]] == [
        *[{"user": "ann", "topic": "cats", "at_ms": 0}] * 2,
        {"user": "bob", "topic": "cats", "at_ms": 1000},
        {"user": "bob", "topic": "dogs", "at_ms": 2000},
        *[{"user": "dan", "topic": "cats", "at_ms": 10_000}] * 2,
    ]
    held = {(each["user"], each["topic"]) for each in map(json.loads, lines[:-6])}
    assert held == {("ann", "cats"), ("bob", "cats"), ("bob", "dogs"), ("dan", "cats")}
    played = recorded("some", lines)
    assert len(played.interests) == 3 and len(played.topics) == 2


def test_too_few_users_are_said(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(NothingHappened, match="4 active users; 9 users"):
        activity.named(lake, spark, 9, 3)


def test_a_workload_of_users_is_for_its_owner_and_follows_no_link_of_others(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user of the folder guesses how a half-written file is called."""
    victim, out = tmp_path / "victim", tmp_path / "edits.jsonl"
    victim.write_bytes(b"precious")
    (tmp_path / f".edits.jsonl.{os.getpid()}").symlink_to(victim)
    monkeypatch.setattr(data_events, "session", lambda *_: nullcontext(spark))
    sizes = ("--peers", "3", "--topics", "2")
    asked = ["events", str(lake.place), *sizes, "--out", str(out)]
    data.run(parser_for("data", data).parse_args(asked))
    assert len(recorded("some", out.read_text().splitlines()).interests) == 3
    assert out.lstat().st_mode & 0o077 == 0
    assert victim.read_bytes() == b"precious"
