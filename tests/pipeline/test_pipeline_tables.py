"""Tables: files that are whole or not there, keys that say what is finished."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from weft.pipeline import tables
from weft.pipeline.location import Location
from weft.pipeline.schemas import NUMBER, TEXT, WHOLE, columns

SHAPE = columns(point=TEXT, seed=WHOLE, load=NUMBER)


def part(folder: Path, key: str, seed: int, load: list[float]) -> int:
    values = {"point": ["p"] * len(load), "seed": [seed] * len(load), "load": np.array(load)}
    return tables.write_part(folder, key, values, SHAPE, {"seconds": "1.5"})


def test_a_keyed_table_holds_what_was_written_under_each_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "rows.parquet"
    assert tables.finished(folder) == set()
    assert part(folder, "p-1", 1, [1.0, 2.0]) == 2
    assert part(folder, "p-2", 2, [3.0]) == 1
    assert tables.finished(folder) == {"p-1", "p-2"}
    expected = spark.createDataFrame([("p", 1, 1.0), ("p", 1, 2.0), ("p", 2, 3.0)], SHAPE)
    assertDataFrameEqual(tables.read_parts(spark, folder, ["p-1", "p-2"], SHAPE), expected)
    alone = spark.createDataFrame([("p", 2, 3.0)], SHAPE)
    assertDataFrameEqual(tables.read_parts(spark, folder, ["p-2"], SHAPE), alone)


def test_a_task_that_is_run_twice_leaves_one_file(spark: SparkSession, tmp_path: Path) -> None:
    part(tmp_path, "p-1", 1, [1.0])
    part(tmp_path, "p-1", 1, [1.0])
    assert [path.name for path in tmp_path.iterdir()] == ["p-1.parquet"]


def test_notes_are_kept_beside_the_rows(tmp_path: Path) -> None:
    part(tmp_path, "p-1", 1, [1.0])
    assert tables.notes_of(tmp_path, "p-1") == {"seconds": "1.5"}


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    values = {"point": ["p"], "seed": ["not a number"], "load": [1.0]}
    with pytest.raises((ValueError, TypeError)):
        tables.write_part(tmp_path, "p-1", values, SHAPE)
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_a_killed_worker_are_not_finished_and_can_be_tidied(tmp_path: Path) -> None:
    part(tmp_path, "p-1", 1, [1.0])
    (tmp_path / ".p-2.0123").write_bytes(b"half a file")
    assert tables.finished(tmp_path) == {"p-1"}
    tables.tidy(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["p-1.parquet"]


def test_forgotten_tasks_are_not_finished(tmp_path: Path) -> None:
    part(tmp_path, "p-1", 1, [1.0])
    part(tmp_path, "p-2", 2, [1.0])
    tables.forget(tmp_path, ["p-1", "p-3"])
    assert tables.finished(tmp_path) == {"p-2"}


def test_a_plain_table_takes_the_place_of_the_older_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "loads.parquet"
    older = spark.createDataFrame([("p", 1, 1.0)], SHAPE)
    newer = spark.createDataFrame([("p", 1, 2.0)], SHAPE)
    tables.write(older, folder)
    assertDataFrameEqual(tables.read(spark, folder, SHAPE), older)
    tables.write(newer, folder)
    assertDataFrameEqual(tables.read(spark, folder, SHAPE), newer)
    assert [path.name for path in tmp_path.iterdir()] == ["loads.parquet"]


def test_a_plain_table_that_fails_to_be_written_leaves_the_older_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "loads.parquet"
    older = spark.createDataFrame([("p", 1, 1.0)], SHAPE)
    tables.write(older, folder)
    broken = older.selectExpr("point", "seed", "cast(raise_error('no') as double) as load")
    with pytest.raises(Exception, match="no"):
        tables.write(broken, folder)
    assertDataFrameEqual(tables.read(spark, folder, SHAPE), older)
    assert [path.name for path in tmp_path.iterdir()] == ["loads.parquet"]


def test_numbers_are_written_as_differences_and_repeated_texts_as_codes(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [("p", number, 1.0) for number in range(50)]
    table = Location.of(tmp_path / "rows")
    [file] = tables.write_files(spark.createDataFrame(rows, SHAPE).coalesce(1), table)
    group = parquet.read_metadata(tmp_path / "rows" / file.name).row_group(0)
    found = {group.column(n).path_in_schema: group.column(n).encodings for n in range(3)}
    assert "DELTA_BINARY_PACKED" in found["seed"]
    assert "RLE_DICTIONARY" in found["point"] and "RLE_DICTIONARY" not in found["load"]


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "PLAIN"])
def test_texts_are_read_as_codes_however_they_are_written(tmp_path: Path, encoding: str) -> None:
    """Arrow reads no codes of texts that are written as differences."""
    points = ["p1", "p2", "p1", None]
    table = pyarrow.table({"point": points, "seed": [1, 2, 3, 4]})
    parquet.write_table(
        table, tmp_path / "rows", use_dictionary=False, column_encoding={"point": encoding}
    )
    place = Location.of(tmp_path / "rows")
    [batch] = tables.read_batches(place, [0], SHAPE, ["point"], 100)
    assert pyarrow.types.is_dictionary(batch.column("point").type)
    assert batch.column("point").to_pylist() == points
    assert batch.column("load").to_pylist() == [None] * 4


def test_a_brief_table_has_all_rows_and_no_bounds(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("p", 2, 1.5), ("", None, None), (None, 3, 0.5)]
    frame = spark.createDataFrame(rows, SHAPE).coalesce(1)
    tables.write(frame, tmp_path / "brief", brief=True)
    assertDataFrameEqual(tables.read(spark, tmp_path / "brief", SHAPE), frame)
    assert tables.count(tmp_path / "brief") == 3
    [file] = (tmp_path / "brief").glob("*.parquet")
    group = parquet.read_metadata(file).row_group(0)
    assert not any(group.column(number).is_stats_set for number in range(len(SHAPE)))
