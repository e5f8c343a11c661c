"""A lake asked in SQL."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from samples import content
from weft.pipeline import catalog, delta
from weft.pipeline.ingest.job import ingest
from weft.pipeline.lake import SHAPES, Lake
from weft.pipeline.schemas import MEMBERSHIP


def test_every_column_is_documented() -> None:
    assert {name: list(known) for name, known in catalog.COLUMNS.items()} == {
        name: shape.names for name, shape in SHAPES.items()
    }


def test_tables_and_universes_have_names(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "subs.csv").write_text(
        "user,topic,time\nann,cats,5\nbob,cats,6\nbob,dogs,7\n,x,1\n"
    )
    ingest(spark, [tmp_path / "subs.csv"], tmp_path / "lake")
    lake = Lake(tmp_path / "lake")
    held = lake.memberships(spark).where("user = 1")
    delta.replaced(held, lake.universe_folder("seeds-1") / "memberships", MEMBERSHIP)
    catalog.registered(spark, lake)
    asked = spark.sql(
        "select name, count(*) n, min(time) first from memberships join topics using (topic) "
        "group by name order by n desc"
    )
    rows = [{name: catalog.plain(row[name]) for name in asked.columns} for row in asked.collect()]
    assert json.loads(json.dumps(rows)) == [
        {"name": "cats", "n": 2, "first": "1970-01-01T00:00:05+00:00"},
        {"name": "dogs", "n": 1, "first": "1970-01-01T00:00:07+00:00"},
    ]
    assert spark.sql("select * from universe_seeds_1").count() == 2
    [known] = spark.sql(
        "select * from columns where table = 'rejects' and column = 'line'"
    ).collect()
    assert (known.type, known.rows) == ("bigint", 1)
    assert catalog.asked(spark, "-- how many\nselect 1 n union all values (2); ").count() == 2
    assert catalog.asked(spark, "describe memberships").count() == 3
    before = content(tmp_path)
    for statement, says in (
        ("insert overwrite memberships values (1, 2, null)", "this would change something"),
        ("with x as (select 1 a) insert into users select a, 'x' from x", "this would change"),
        ("from users insert overwrite topics select 1, 'x'", "this would change something"),
        (f"insert overwrite directory '{tmp_path}' using csv select 1", "this would change"),
        ("drop view memberships", "this would change something"),
        ("create table t as select 1", "this would change something"),
        ("selec 1", r"Syntax error at or near 'selec'. \(line 1, pos 0\)"),
        ("select 1; select 2", r"near 'select'.* \(line 1, pos 10\)"),
        ("select 1) union (select 2", "Syntax error"),
        ("select nope from users", "`nope` cannot be resolved"),
        ("", "Syntax error"),
    ):
        with pytest.raises(catalog.NoQuestion, match=says) as caught:
            catalog.asked(spark, statement)
        assert "\n" not in str(caught.value)
    assert content(tmp_path) == before
    assert spark.sql("select * from memberships").count() == 3


def test_values_as_json_has_them() -> None:
    row = Row(at=datetime(2026, 1, 1, tzinfo=UTC), day=date(2026, 1, 1), part=Decimal("0.5"))
    assert catalog.plain([row, {1: b"\xff"}]) == [
        {"at": "2026-01-01T00:00:00+00:00", "day": "2026-01-01", "part": 0.5},
        {"1": "ff"},
    ]
    strange = [timedelta(days=1), time(12), float("nan"), Decimal("1e30"), True, None, 1j]
    assert catalog.plain(strange) == [86400.0, "12:00:00", None, 10**30, True, None, "1j"]
