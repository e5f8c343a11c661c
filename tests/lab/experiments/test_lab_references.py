"""The references' experiment: what it asks of small runs, and what its bounds say of themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from frames import frame
from weft.lab.defect import planted
from weft.lab.experiments import references
from weft.lab.ground import Basis
from weft.lab.verdict import measures_of
from weft.references.profiles import VIEW

SCRIBE, GOSSIPSUB = "ref-scribe", "ref-gossipsub"


def rows_of(system: str, **changed: object) -> list[dict[str, Any]]:
    """The rows of a run with twenty peers."""
    point = {"system": system, "peers": 20}
    found: Mapping[str, Any] = references.run(point, 1)
    columns = {name: value for name, value in found.items() if hasattr(value, "to_pylist")}
    same = {name: value for name, value in found.items() if name not in columns}
    listed = zip(*(column.to_pylist() for column in columns.values()), strict=True)
    pieces = (dict(zip(columns, values, strict=True)) for values in listed)
    return [{"point": system, **point, **same, **piece, **changed} for piece in pieces]


def test_a_mesh_is_judged_from_below_too(spark: SparkSession) -> None:
    def short(degree: float) -> list[str]:
        rows = frame(spark, references.COLUMNS, rows_of(GOSSIPSUB, figure=degree))
        found = {row.measure: row for row in measures_of(references.ENTRY, rows, "quick")}
        assert found[f"{GOSSIPSUB}: delivered"].passed
        assert 5 <= found[f"{GOSSIPSUB}: copies per delivery, not too few"].value <= 12
        return [name for name, row in found.items() if row.passed is False]

    assert short(8.0) == []
    assert short(5.9) == [f"{GOSSIPSUB}: the paper's figure, not too small"]
    assert short(12.1) == [f"{GOSSIPSUB}: the paper's figure, not too large"]


def test_copies_and_misses_are_those_of_the_trace(spark: SparkSession) -> None:
    rows = [*rows_of(references.FLOODING), *rows_of(SCRIBE)]
    lost = [row for row in rows if row["piece"] == "deliveries" and row["system"] == SCRIBE][:30]
    kept = [row for row in rows if row not in lost]
    found = {
        row.system: row
        for row in references.figures_of(frame(spark, references.COLUMNS, kept)).collect()
    }
    flooding, scribe = found[references.FLOODING], found[SCRIBE]
    assert flooding.delivery == 1

    assert flooding.wanted == 22 * VIEW - 21  # full views, less one for each peer that got it
    assert flooding.figure == pytest.approx(flooding.copies * 19)
    assert scribe.delivery == pytest.approx(1 - len(lost) / (60 * 20))
    assert scribe.wanted_copies == pytest.approx(scribe.copies - scribe.parasites)


def test_bounds_that_are_ours_say_so() -> None:
    ours = {
        name
        for name, why in references.ENTRY.tolerances.items()
        if why.basis in (Basis.ASKED, Basis.DERIVED)
    }
    gap = "the paper's figure: off by"
    assert {f"ref-{name}: {gap}" for name in ("flooding", "poldercast", "damulticast")} <= ours
    assert f"{SCRIBE}: copies per delivery, without those at peers that are not subscribed" in ours
    assert "ref-damulticast: delivered" in ours
    flooding = replace(references.ENTRY).tolerances[f"{references.FLOODING}: {gap}"]
    assert references.ASKED[references.FLOODING]["gap"] == ("at most", 0.02)
    assert "2026-11-19" in flooding.why


def test_a_peer_that_drops_no_link_is_beyond_the_figure_of_spidercast() -> None:
    point = {"system": references.SPIDERCAST, "peers": 60}
    kept = [d for d in references.DEFECTS if d.where(point) and "drops no link" in d.name]
    with planted(kept[0]):
        found = references.run(point, 1)
    assert found["figure"] / found["wanted"] > 0.55
