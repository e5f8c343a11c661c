"""Experiments: every one runs from plain parameters, repeatably, and gives columns of one length;
small versions bear out what they claim."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from weft.lab.costs import FLOODING, TERA
from weft.lab.defect import Defect, planted
from weft.lab.experiment import SIZES, Columns, Entry, Size
from weft.lab.experiments import (
    tera_3,
    tera_4a,
    tera_4b,
    tera_5,
    tera_6,
    tera_churn,
    tera_hetero,
    tera_mem,
)
from weft.lab.run import matching

ENTRIES = [entry for entry in matching(["tera-*"]) if isinstance(entry, Entry)]

SMALL: list[tuple[ModuleType, dict[str, Any]]] = [
    (tera_3, {"peers": 300, "topics": 60, "subscriptions": 200, "zipf": 0.7, "kind": "unscaled"}),
    (tera_4a, {"peers": 200, "topics": 50, "subscriptions": 200, "cycles": 60, "lookups": 50}),
    (tera_4b, {"peers": 200, "members": 8, "shuffle_length": 8, "trials": 10, "cycles": 9}),
    (tera_5, {"peers": 200, "topics": 20, "subscriptions": 900, "zipf": 0.0, "cycles": 10}),
    (tera_6, {"peers": 300, "topics": 10, "subscriptions": 200, "cycles": 3, "rate": 0.0}),
    (tera_6, {"peers": 20_000, "topics": 10, "subscriptions": 200, "cycles": 2}),
    (tera_churn, {"peers": 200, "topics": 10, "subscriptions": 400, "cycles": 10, "rate": 0.01}),
    (tera_hetero, {"peers": 200, "topics": 10, "subscriptions": 400, "zipf": 0.7, "cycles": 5}),
    (tera_mem, {"peers": 50, "topics": 100, "subscriptions": 200, "cycles": 50}),
]
REST = {
    "table_size": 10,
    "visits_max": 40,
    "rate": 1.0,
    "simulated": "all",
    "lookups": 40,
    "churn": "both",
    "mended": True,
    "zipf": 0.0,
    "events": 2,
    "choice": "aware",
    "topic_bytes": 64,
}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
@pytest.mark.parametrize("size", SIZES)
def test_points_are_plain_data(entry: Entry, size: Size) -> None:
    points = entry.points(size)
    assert json.loads(json.dumps(points)) == points
    assert len({json.dumps(point, sort_keys=True) for point in points}) == len(points) > 0
    assert all(entry.seconds(point) >= 0 for point in points)


@pytest.mark.parametrize(("module", "params"), SMALL)
def test_a_seed_decides_the_columns(module: ModuleType, params: dict[str, Any]) -> None:
    point = {**REST, **params}
    if module is tera_6 and params["peers"] == 20_000:
        point["simulated"] = "general"
    one, same = (module.run(point, 3) for _ in range(2))
    assert one.keys() == same.keys()
    lengths = {len(value) for value in one.values() if np.ndim(value)}
    assert len(lengths) == 1
    for name, value in one.items():
        assert np.array_equal(np.asarray(value), np.asarray(same[name])), name


@pytest.mark.parametrize("defect", tera_hetero.ENTRY.defects, ids=lambda defect: defect.slug)
def test_every_defect_of_unequal_peers_changes_what_is_run(defect: Defect) -> None:
    """One of them lowered a bound that no peer comes near, so that nothing changed."""
    shape = {"peers": 200, "topics": 10, "subscriptions": 400, "zipf": 0.7, "cycles": 5}
    healthy = tera_hetero.run({**REST, **shape}, 3)
    with planted(defect):
        found = tera_hetero.run({**REST, **shape}, 3)
    assert not np.array_equal(found["messages"], healthy["messages"])


def test_the_floor_of_evenness() -> None:
    uniform = np.full(1_000, 5)
    assert tera_3.floor(uniform, 10_000, 10) == pytest.approx(0.0944, abs=0.0005)
    # With very popular topics advertisements come as if at random: the binomial deviation.
    assert tera_3.floor(np.full(100, 10**6), 10_000, 10) == pytest.approx(
        np.sqrt(0.9 / 1_000), rel=1e-4
    )
    assert tera_3.floor_of_average(0.1, 16, 0.0) == pytest.approx(0.025)
    assert tera_3.floor_of_average(0.1, 16, 0.999999) == pytest.approx(0.1, rel=1e-3)


def spread(found: Columns) -> float:
    return float(found["held"].std() / found["held"].mean())


def rank_correlation(found: Columns) -> float:
    """Spearman's, of how often topics are held with their popularity."""
    return float(spearmanr(found["held"], found["popularity"]).statistic)


def test_tables_are_as_even_as_chance_allows_and_the_textbook_breaks_it() -> None:
    point = tera_3.points("b", "quick")[0]
    true = tera_3.run(point, 1)
    assert spread(true) == pytest.approx(true["spread_floor"], rel=0.2)
    assert abs(rank_correlation(true)) < 4 * true["rank_correlation_noise"]
    textbook = tera_3.run({**point, "kind": "textbook"}, 1)
    assert spread(textbook) > 2 * textbook["spread_floor"]
    assert rank_correlation(textbook) > 0.8


def test_lookups_follow_the_form() -> None:
    point = next(p for p in tera_4a.points("quick") if p["table_size"] == 50)
    gaps = [tera_4a.run(point, seed) for seed in (1, 2)]
    success = np.mean([found["success"] for found in gaps], axis=0)
    assert np.abs(success - gaps[0]["predicted"]).max() < 0.03


def test_costs_of_the_large_world_agree_with_the_form() -> None:
    point = next(p for p in tera_6.points_d("quick") if p["peers"] == 10**5)
    whole = tera_6.run({**point, "cycles": 3}, 1)
    large = tera_6.run({**point, "cycles": 3, "simulated": "general"}, 1)
    for found in (whole, large):
        for system in (TERA, FLOODING):
            of_it = np.array(found["system"]) == system
            sent = (np.array(found["messages"]) * np.array(found["weight"]))[of_it].sum()
            given = np.array(found["notifications"])[of_it][0]
            assert sent / given == pytest.approx(found[f"{system}_formula"][0], rel=0.01)
        assert found["missed"][0] == 0


def test_tables_take_the_papers_memory() -> None:
    found = tera_mem.run(tera_mem.points("quick")[0], 1)
    assert found["bytes"].max() <= 104_000
    assert (found["entries"] == 400).mean() > 0.9
