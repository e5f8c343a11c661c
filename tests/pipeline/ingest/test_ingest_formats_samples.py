"""The formats as their makers write them: samples that lie beside the project, where they do."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from weft.pipeline.ingest.job import ingest
from weft.pipeline.lake import Lake

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
DUMPS = DATA / "mediawiki_samples"

# file: format, rows (revisions, or edits), rejects (revisions whose contributor is deleted)
EXPECTED = {
    "pages-articles-sample1.xml.bz2": ("mediawiki-xml", 8, 0),
    "stub-articles-sample.xml.gz": ("mediawiki-xml", 23, 0),
    "stub-history-sample.xml.gz": ("mediawiki-xml", 118, 0),
    "refinery/MediawikiDumperOutputTest.Commonswiki.Sample.xml": ("mediawiki-xml", 38, 21),
    "refinery/MediawikiDumperOutputTest.Simplewiki.Sample.xml": ("mediawiki-xml", 29, 4),
    "refinery/mediawiki-dump-test.xml": ("mediawiki-xml", 5, 1),
    "mediawiki_history_3rows.tsv": ("mediawiki-history", 2, 0),
}


@pytest.mark.skipif(not DUMPS.is_dir(), reason="no mediawiki_samples beside the project")
def test_mediawiki_samples(spark: SparkSession, tmp_path: Path) -> None:
    summary = ingest(spark, [DUMPS / name for name in EXPECTED], tmp_path / "lake")
    found = {
        Path(read.file.path).relative_to(DUMPS).as_posix(): (
            read.reading.format,
            read.rows,
            read.rejects,
        )
        for read in summary.read
    }
    assert found == EXPECTED
    lake = Lake(tmp_path / "lake")
    users = {row.name: row.user for row in lake.users(spark).collect()}
    topics = {row.name: row.topic for row in lake.topics(spark).collect()}
    held = lake.memberships(spark).select("user", "topic", F.unix_millis("time").alias("ms"))
    since = {(row.user, row.topic): row.ms for row in held.collect()}
    # 2001-01-15T13:10:27Z by an address, a title with a namespace, and an edit of the history table
    assert since[users["10.0.0.2"], topics["Page title"]] == 979_564_227_000
    assert (users["10.0.0.2"], topics["Talk:Page title"]) in since
    assert since[users["BattyBot"], topics["Dmitry Bukhman"]] == 1_675_200_727_000


EDITS = DATA / "wikipedia_edits" / "subs.csv.gz"


@pytest.mark.skipif(not EDITS.is_file(), reason="no wikipedia_edits beside the project")
def test_a_month_of_edits(spark: SparkSession, tmp_path: Path) -> None:
    summary = ingest(spark, [EDITS], tmp_path / "lake")
    assert [read.reading.format for read in summary.read] == ["csv"]
    assert [summary.after[table] for table in ("memberships", "users", "topics")] == [
        18_257,
        8_227,
        1_000,
    ]
    lake = Lake(tmp_path / "lake")
    third = lake.memberships(spark).where("unix_millis(time) = 131000").collect()
    assert [(row.user, row.topic) for row in third] == [(2, 2)]
    # Names that are 0 … n − 1 keep their values.
    assert lake.users(spark).where("name != string(user)").count() == 0
