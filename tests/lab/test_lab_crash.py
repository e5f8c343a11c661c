"""The experiments on mass crashes: what they ask of small tables, and a small run of each."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from frames import frame, stored
from weft.lab.experiment import Entry, Size
from weft.lab.experiments import crash
from weft.lab.run import all_entries
from weft.lab.task import tasks_of
from weft.lab.verdict import judge, measures_of


def test_every_row_has_an_entry() -> None:
    assert [name for name in all_entries() if name.startswith("crash-")] == [
        "crash-broken",
        "crash-silent",
    ]


@pytest.mark.parametrize("entry", crash.ENTRIES, ids=lambda entry: entry.id)
@pytest.mark.parametrize("size", ["quick", "full"])
def test_the_points_reach_as_far_as_the_claim_that_is_drawn_in(entry: Entry, size: Size) -> None:
    crashed = {point["crashed"] for point in entry.points(size)}
    assert {50, 80, crash.CLAIM_CRASHED} <= crashed


def test_each_cell_is_judged_for_each_routing_but_the_reference(spark: SparkSession) -> None:
    def row(routing: str, crashed: int, from_s: int, in_time: float) -> dict[str, object]:
        place = {"routing": routing, "subscribers": 100, "crashed": crashed, "from_s": from_s}
        return {**place, "in_time": in_time, "at_end": 100.0, "live": 9, "pieces": 1}

    rows = [
        row(routing, crashed, start, 99.5 if routing == "tera" else 10.0)
        for routing in ("tera", "flood")
        for crashed in crash.BROKEN
        for start, _ in crash.BUCKETS
    ]
    judged = crash.cells_of(crash.BROKEN)
    entry = replace(crash.ENTRIES[0], measure=lambda rows, size: rows.transform(judged))
    found = measures_of(entry, frame(spark, crash.SHARES, rows), "full")
    verdict = judge(entry, found, size="full", seeds=1, points=8, notes=[])
    short = [name for name, asked in verdict.tolerance.items() if not asked["passed"]]
    assert len(verdict.tolerance) == 4 + 4 + 4 + 2 + 1
    assert all(name.startswith("tera, 100: ") for name in verdict.tolerance)
    assert all(": 0 %" in name or ": 50 %" in name for name in short)
    assert len(short) == 8


def test_a_small_network_goes_on_after_a_crash_of_half(spark: SparkSession) -> None:
    """By the pipeline's tables of the trace."""
    results = []
    for entry, told in zip(crash.ENTRIES, (True, False), strict=True):
        point = {"routing": "tera", "subscribers": 20, "crashed": 50, "told": told}
        [task] = tasks_of(entry, [point], 1)
        results.append((task, crash.run(point, 1)))
    found = crash.shares(stored(spark, *results)).collect()
    assert sorted(row.from_s for row in found) == [0, 0, 5, 5, 15, 15, 30, 30]
    assert {(row.in_time, row.at_end, row.pieces) for row in found} == {(100.0, 100.0, 1)}


def test_what_comes_late_or_never_is_a_share_of_the_wanted(spark: SparkSession) -> None:
    point = {"routing": "flood", "subscribers": 10, "crashed": 0, "told": True}
    [task] = tasks_of(crash.ENTRIES[0], [point], 1)
    rows = stored(spark, (task, crash.run(point, 1)))
    given = F.col("piece") == "deliveries"
    late_ns = F.when(given, F.col("delivered_ns") + 20_000_000_000)
    slow = crash.shares(rows.withColumn("delivered_ns", late_ns))
    assert {(row.in_time, row.at_end) for row in slow.collect()} == {(0.0, 100.0)}
    [one] = rows.where(given).select("peer").distinct().limit(1).collect()
    without = crash.shares(rows.where(~(given & (F.col("peer") == one.peer))))
    assert all(80 < row.at_end < 100 for row in without.collect())
