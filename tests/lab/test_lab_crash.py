"""The experiments on mass crashes: what they ask of small tables, and a small run of each."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import SparkSession

from frames import frame
from weft.lab.experiment import Entry, Size
from weft.lab.experiments import crash
from weft.lab.run import all_entries
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
        return {**place, "seed": 1, "in_time": in_time, "at_end": 100.0, "live": 9, "pieces": 1}

    rows = [
        row(routing, crashed, start, 99.5 if routing == "tera" else 10.0)
        for routing in ("tera", "flood")
        for crashed in crash.BROKEN
        for start, _ in crash.BUCKETS
    ]
    [entry, _] = crash.ENTRIES
    found = measures_of(entry, frame(spark, crash.COLUMNS, rows), "full")
    verdict = judge(entry, found, size="full", seeds=1, points=8, notes=[])
    short = [name for name, asked in verdict.tolerance.items() if not asked["passed"]]
    assert len(verdict.tolerance) == 4 + 4 + 4 + 2 + 1
    assert all(name.startswith("tera, 100: ") for name in verdict.tolerance)
    assert all(": 0 %" in name or ": 50 %" in name for name in short)
    assert len(short) == 8


@pytest.mark.parametrize("told", [True, False])
def test_a_small_network_goes_on_after_a_crash_of_half(told: bool) -> None:
    point = {"routing": "tera", "subscribers": 20, "crashed": 50, "told": told}
    found = crash.run(point, 1)
    assert np.all(np.asarray(found["in_time"]) == 100)
    assert found["pieces"] == 1
