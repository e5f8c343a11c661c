"""Parts of a trace: where lines fall, which are bad, and that any cut has the same outcome."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow  # type: ignore[import-untyped]
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession
from trace_kit import S, batch, record

from weft.pipeline import tables
from weft.pipeline.schemas import BAD_LINE, PART_LINES, TRAFFIC_PART
from weft.pipeline.traces import pieces
from weft.pipeline.traces.measure import measure
from weft.pipeline.traces.source import BadTrace, Source, find


def line(peer: str, at: int) -> str:
    return json.dumps({"type": "JOIN", "peerID": peer, "timestamp": at, "join": {"topic": "/t"}})


@pytest.fixture
def files(tmp_path: Path) -> Source:
    folder = tmp_path / "trace"
    folder.mkdir()
    texts = [line("a", 1), "oops", "", line("a", 2), "{}", "oops"]
    (folder / "a.jsonl").write_text("\n".join(texts))  # the last line does not end
    packed = f"{line('b', 3)}\n" * 5 + "no\n"
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(packed.encode()))
    (folder / "c.jsonl").write_text("")
    return find([folder])


@pytest.mark.parametrize("size", [7, 100, 1 << 20])
def test_any_cut_has_the_same_outcome(
    size: int, files: Source, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", size)
    cut = pieces.parts_of(files)
    assert (len(cut) > 2) == (size < 1000)  # the packed file is one, the empty one none
    out = tmp_path / "out"
    pieces.add_up(pieces.shared_out(spark, cut), out)
    found = tables.read(spark, out / pieces.BAD, BAD_LINE).transform(
        pieces.rejects(tables.read(spark, out / pieces.LINES, PART_LINES))
    )
    assert sorted((Path(row.file).name, row.line, row.text) for row in found.collect()) == [
        ("a.jsonl", 2, "oops"),
        ("a.jsonl", 5, "{}"),
        ("a.jsonl", 6, "oops"),
        ("b.jsonl.gz", 6, "no"),
    ]
    traffic = tables.read(spark, out / "traffic", TRAFFIC_PART).groupBy("peer").sum("messages")
    assert {row.peer: row["sum(messages)"] for row in traffic.collect()} == {"a": 2, "b": 5}


def test_row_groups_are_parts_and_columns_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "some.parquet"
    known = batch(*(record("a", at, "SEND_RPC", rpc="Ping") for at in range(10)))
    table = pyarrow.Table.from_batches([known]).drop_columns(["hops", "reason"])
    table = table.set_column(0, "peer", pyarrow.array(["a"] * 10, pyarrow.large_string()))
    parquet.write_table(table, path, row_group_size=4)
    cut = [part for part, _ in pieces.parts_of(find([path]))]
    assert [(part.start, part.end) for part in cut] == [(0, 1), (1, 2), (2, 3)]
    read = [block for part in cut for block, bad, lines in pieces.blocks(part)]
    assert [len(block) for block in read] == [4, 4, 2]
    assert all(block.schema == known.schema for block in read)
    rows = [row for block in read for row in block.to_pylist()]
    assert [row["timestamp_ns"] for row in rows] == [at * S for at in range(10)]
    assert {row["hops"] for row in rows} == {None}


def test_parquet_that_is_none_is_said(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(BadTrace, match=r"cannot be read: .*bad\.parquet: "):
        measure(spark, find([tmp_path / "bad.parquet"]), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_parquet_with_other_types_is_said(spark: SparkSession, tmp_path: Path) -> None:
    table = pyarrow.table({"peer": ["a"], "timestamp_ns": ["late"], "kind": ["JOIN"]})
    parquet.write_table(table, tmp_path / "odd.parquet")
    with pytest.raises(BadTrace, match=r"odd\.parquet: .*late"):
        measure(spark, find([tmp_path / "odd.parquet"]), tmp_path / "out")


def test_an_empty_trace_has_empty_tables(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    found = measure(spark, find([tmp_path / "empty.jsonl"]), tmp_path / "out")
    assert found["events"] == found["peers"] == found["messages"] == 0
    assert found["delivery_ratio"] is None
