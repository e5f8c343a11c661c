"""The experiments: each transform on a small frame, and some entries from end to end."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import weft
from frames import count, frame, only
from weft.lab import costs
from weft.lab import run as lab
from weft.lab.counted import GENERAL, TOPIC
from weft.lab.experiment import SIZES, Experiment
from weft.lab.experiments import (
    tera_3,
    tera_4a,
    tera_4b,
    tera_5,
    tera_6,
    tera_churn,
    tera_hetero,
)
from weft.lab.run import all_entries, matching
from weft.lab.task import shape_of
from weft.pipeline.schemas import MEASURE
from weft.pipeline.transforms import judged
from weft.protocol.delivery import RECV_RPC

TERA = (
    [f"tera-{name}" for name in ("3a", "3b", "3c", "4a", "4b", "5a", "5b")]
    + [f"tera-{name}" for name in ("6a", "6b", "6c", "6d")]
    + ["tera-churn", "tera-hetero", "tera-mem"]
)


def test_every_row_of_the_paper_has_an_entry() -> None:
    assert sorted(name for name in all_entries() if name.startswith("tera-")) == TERA


def test_entries_are_listed_without_spark() -> None:
    program = (
        "import sys; from weft.lab.run import all_entries; print(*all_entries()); "
        "assert 'matplotlib' not in sys.modules"  # workers may have none
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(Path(weft.__file__).resolve().parents[1]), "HOME": str(Path.home())},
        capture_output=True,
        text=True,
        check=True,
    )
    assert [name for name in done.stdout.split() if name.startswith("tera-")] == TERA


@pytest.mark.parametrize("entry", all_entries().values(), ids=lambda entry: entry.id)
def test_measures_of_every_entry_have_the_declared_shape(
    spark: SparkSession, entry: Experiment
) -> None:
    nothing = spark.createDataFrame([], shape_of(entry.columns))
    for size in SIZES:
        found = nothing.transform(entry.measure, size).schema
        assert [(each.name, each.dataType) for each in found] == [
            (each.name, each.dataType) for each in MEASURE
        ]


# --- 3: evenness of tables ------------------------------------------------------------------------


def test_unevenness_compares_the_spread_with_its_floor(spark: SparkSession) -> None:
    shared = {
        "kind": "true",
        "seed": 1,
        "active": 3,
        "mean_expected": 20.0,
        "spread_floor": 0.2,
        "spread_average_floor": 0.1,
        "rank_correlation_noise": 0.5,
    }
    rows = frame(
        spark,
        tera_3.COLUMNS,
        [
            {**shared, "topic": 0, "popularity": 9, "held": 8, "held_average": 9.0},
            {**shared, "topic": 1, "popularity": 4, "held": 10, "held_average": 10.0},
            {**shared, "topic": 2, "popularity": 1, "held": 12, "held_average": 11.0},
        ],
    )
    only(
        rows.transform(tera_3.unevenness),
        filled=0.5,
        spread=math.sqrt(8 / 3) / 10,
        spread_to_floor=math.sqrt(8 / 3) / 10 / 0.2,
        spread_average=math.sqrt(2 / 3) / 10,
        average_to_floor=math.sqrt(2 / 3) / 10 / 0.1,
        ranks=-1.0,
        rank_noise=0.5,
        spread_noise=0.5,
    )


# --- 4: lookups and merging -----------------------------------------------------------------------


def test_gaps_of_lookups_are_taken_after_averaging_over_seeds(spark: SparkSession) -> None:
    def row(seed: int, visits: int, success: float, predicted: float) -> dict[str, Any]:
        numbers = {"success": success, "predicted": predicted}
        return {"table_size": 10, "seed": seed, "visits": visits, **numbers}

    rows = frame(
        spark,
        tera_4a.COLUMNS,
        [
            row(1, 1, 0.5, 0.4),  # noise: the other seed has as much below
            row(2, 1, 0.3, 0.4),
            row(1, 2, 0.55, 0.6),
            row(2, 2, 0.57, 0.6),
        ],
    )
    only(rows.transform(tera_4a.gaps), table_size=10, visits=2, value=0.04, seeds=2)


def test_gaps_of_merging_know_the_noise_of_their_trials(spark: SparkSession) -> None:
    def row(seed: int, horizon: int, merged: float, predicted: float) -> dict[str, Any]:
        place = {"shuffle_length": 20, "members": 4, "trials": 50, "horizon": horizon}
        return {**place, "seed": seed, "merged": merged, "predicted": predicted}

    rows = frame(
        spark,
        tera_4b.COLUMNS,
        [row(1, 1, 0.21, 0.2), row(2, 1, 0.21, 0.2), row(1, 2, 0.4, 0.5), row(2, 2, 0.5, 0.5)],
    )
    only(rows.transform(tera_4b.gaps), horizon=2, value=0.05, noise=math.sqrt(0.25 / 100))


# --- 5: load --------------------------------------------------------------------------------------


def test_fairness_of_load(spark: SparkSession) -> None:
    def peer(held: int, general: int, extra: int, topic: int) -> list[dict[str, Any]]:
        known = {"peer": str(held), "subscriptions_held": held, "events_lost": 2}
        return [
            count(GENERAL, 3, **known),
            count(GENERAL, general - 3, RECV_RPC, **known),
            count(tera_5.SINGLE, extra, **known),
            count(TOPIC, topic, RECV_RPC, **known),
        ]

    rows = frame(
        spark, tera_5.COLUMNS, [*peer(1, 12, 0, 10), *peer(2, 10, 4, 20), *peer(3, 8, 8, 30)]
    )
    only(
        rows.transform(tera_5.fairness),
        flat=1.2,
        flat_single=16 / 14,
        spread=math.sqrt(8 / 3) / 10,
        fair=1.0,
        fair_single=1.0,
        lost=2,
    )


# --- 6: costs -------------------------------------------------------------------------------------


def test_the_crossing_lies_on_a_straight_line_in_logarithms(spark: SparkSession) -> None:
    def row(rate_shown: float, tera: float, flooding: float) -> dict[str, Any]:
        costs = {"tera": tera, "flooding": flooding}
        return {"seed": 1, "rate": 0.0, "rate_shown": rate_shown, **costs}

    # From 100 times dearer to 100 times cheaper between rates 0.01 and 1: even at 0.1.
    rows = frame(
        spark,
        costs.COSTS,
        [
            row(0.0001, 1e6, 1.0),
            row(0.01, 100.0, 1.0),
            row(1.0, 1.0, 100.0),
            row(100.0, 1.0, 900.0),
        ],
    )
    found = rows.transform(tera_6.with_crossings).where("crossing is not null")
    only(found.select("rate_shown", "crossing"), rate_shown=0.01, crossing=0.1)


@pytest.mark.parametrize(("fixed", "takes_over"), [(338.0, True), (37.0, False)])
def test_lookups_take_over_only_if_fixed_tables_make_topics_dearer(
    spark: SparkSession, fixed: float, takes_over: bool
) -> None:
    """Few topics are cheaper than one with any table, which is no merit of lookups."""

    def run(tables: str, topics: int, tera: float) -> list[dict[str, Any]]:
        known = {"simulated": "all", "peers": 100, "missed": 0, "lookups": 1, "rate_shown": 1.0}
        known |= {"point": f"{tables}, {topics}", "tables": tables, "topics": topics}
        known |= {"notifications": 10.0}
        return [
            count("tera_lookup", 10 * tera, system=costs.TERA, **known),
            count(costs.FLOOD, 200, system=costs.FLOODING, **known),
        ]

    rows = run("fixed", 1, 5.0) + run("fixed", 100, fixed)
    rows += run("growing", 1, 5.0) + run("growing", 100, 36.0)
    found = tera_6.measure_b(frame(spark, costs.COLUMNS, rows), "quick").transform(judged)
    named = found.where(found["measure"] == tera_6.TITLES["fixed"]).head()
    assert named is not None
    assert named["passed"] is takes_over


def test_common_numbers_of_costs_leave_out_what_is_by_formula(spark: SparkSession) -> None:
    simulated = {"seed": 1, "simulated": "all", "peers": 100, "tera": 22.0, "tera_formula": 20.0}
    simulated |= {"flood_per_event": 2_000.0, "size_estimation": 1.1}
    counted = {"missed": 0, "events_lost": 1, "lookups": 1_000}
    by_formula = {"seed": 1, "simulated": "formula", "peers": 10, "flood_per_event": 5.0}
    nothing = {"missed": 0, "events_lost": 0, "lookups": 0, "size_estimation": math.nan}
    rows = frame(
        spark,
        costs.COSTS,
        [{**simulated, **counted}, {**by_formula, **nothing, "tera": 9.0, "tera_formula": 1.0}],
    )
    numbers = [column.alias(name) for name, column in costs.common_numbers().items()]
    only(
        rows.groupBy("seed").agg(*numbers),
        exact=0.0,
        missed=0,
        lost=0.001,
        formula=0.1,
        size_least=0.05,
        size_most=0.05,
    )


# --- churn and capacity ---------------------------------------------------------------------------


def test_resistance_takes_each_number_from_its_own_runs(spark: SparkSession) -> None:
    def row(churn: str, rate: float, mended: bool, value: float) -> dict[str, Any]:
        names = ("lookup_any", "lookup_retried", "delivery", "delivery_joined", "stale_entries")
        place = {"seed": 1, "churn": churn, "rate": rate, "mended": mended, "lookups": 500}
        return {**place, **dict.fromkeys(names, value)}

    rows = frame(
        spark,
        tera_churn.COLUMNS,
        [
            row("none", 0.0, False, 1.0),
            row("none", 0.0, False, 0.98),
            row("both", 0.001, False, 0.9),
            row("both", 0.01, False, 0.8),
            row("both", 0.01, True, 0.6),
            row("both", 0.05, True, 0.1),
            row("peers", 0.01, False, 0.2),
        ],
    )
    only(
        rows.transform(tera_churn.resistance),
        quiet_lookups=0.99,
        quiet_delivery=0.99,
        slow_lookups=0.9,
        slow_delivery=0.9,
        joined=0.8,
        mended_lookups=0.6,
        mended_delivery=0.6,
        fresher=0.75,
        made=1_000,
    )


def _unequal(choice: str, loads: list[int]) -> list[dict[str, Any]]:
    known = {"choice": choice, "delivery": 1.0, "messages_all": 100}
    return [
        count(TOPIC, load, peer=str(peer), capacity=float(1 + peer), **known)
        for peer, load in enumerate(loads)
    ]


def test_fairness_by_capacity_and_its_gain(spark: SparkSession) -> None:
    flat_loads, aware_loads = [10] * 4 + [20] + [10] * 5, [8 + 2 * n for n in range(10)]
    some = _unequal("flat", flat_loads) + _unequal("aware", aware_loads)
    rows = frame(spark, tera_hetero.COLUMNS, some)
    found = rows.transform(tera_hetero.fairness)
    aware = found.where("choice = 'aware'")
    busy = [(8 + 2 * n) / (1 + n) for n in range(10)]
    only(
        aware,
        ranks=1.0,
        sent=1.0,
        jain=sum(busy) ** 2 / 10 / sum(each**2 for each in busy),
        weakest=8.0,
        weakest_share=8.0 / (sum(busy) / 10),
        noise=math.sqrt(2 / 9),
    )
    # Ranks of the flat loads: 10 at the fifth of ten places, else 5.
    flat = -2.5 / math.sqrt(82.5 * 22.5)
    only(found.transform(tera_hetero.gains), gain=1 - flat, sent=1.0, weakest=0.8, delivery=1.0)


def test_peers_that_all_take_themselves_for_equally_strong_relieve_no_weak_one(
    spark: SparkSession,
) -> None:
    loads = [10 + n for n in range(10)]
    some = _unequal("flat", loads) + _unequal("aware", loads)
    found = tera_hetero.measure(frame(spark, tera_hetero.COLUMNS, some), "quick").transform(judged)
    row = found.where(found["measure"] == tera_hetero.TITLES["weakest"]).head()
    assert row is not None
    assert (row["value"], row["passed"]) == (1.0, False)


# --- from end to end ------------------------------------------------------------------------------


def test_quick_runs_leave_verdicts(spark: SparkSession, tmp_path: Path) -> None:
    """The costs are as the paper says; a live peer's table takes more memory than it says."""
    outcomes = {"tera-6a": True, "tera-6c": True, "tera-mem": False}
    verdicts = lab.run(spark, matching(list(outcomes)), "quick", tmp_path)
    assert {each.id: each.passed for each in verdicts} == outcomes
    for name, passed in outcomes.items():
        written = json.loads((tmp_path / name / "verdict.json").read_text())
        assert written["passed"] is passed
        assert written["command"].startswith(f"./weft lab run {name} --quick")
        assert written["measured"].keys() >= written["tolerance"].keys()
        assert (tmp_path / name / "figure.png").stat().st_size > 10_000
    cost = {each.id: each.measured for each in verdicts}["tera-6a"]
    # The flood inside topics, an exchange of views per subscription, and next to nothing else.
    assert cost["TERA less the view size, at the right end"]["value"] == pytest.approx(
        2.03, abs=0.01
    )
