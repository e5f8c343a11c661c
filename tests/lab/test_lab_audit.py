"""Defects that are planted, and the audit that sees whether verdicts notice them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import dice
from weft.lab import ground
from weft.lab.audit import audit, compared, summary, table, unmoved
from weft.lab.defect import Defect, given, planted
from weft.lab.ground import Basis
from weft.lab.run import all_entries
from weft.lab.verdict import Verdict, crosses

LOADED = Defect("loaded dice", {"dice:throw": dice.loaded})
HARMLESS = Defect("other paint", {"dice:throw": given()})
BLANK = Defect("no numbers", {"dice:throw": dice.blank})


def test_a_planted_defect_is_gone_afterwards_even_after_a_failure() -> None:
    before = dice.throw
    with pytest.raises(KeyError), planted(LOADED):
        assert dice.throw({"faces": 6, "throws": 10}, 1)["mean"][0] == 6
        raise KeyError
    assert dice.throw is before


def test_a_defect_in_no_place_is_refused() -> None:
    nowhere = Defect("lost", {"dice:no_such_die": given()})
    with pytest.raises(AttributeError, match="no such place"), planted(nowhere):
        pass


def test_every_defect_of_every_experiment_has_its_places() -> None:
    for entry in all_entries().values():
        names = [defect.slug for defect in entry.defects]
        assert len(set(names)) == len(names), entry.id
        for defect in entry.defects:
            with planted(defect):
                pass


def test_defects_change_what_is_done_and_not_how_it_is_counted() -> None:
    """But for one, which stands for events that go to everybody: the engine has no such kernel."""
    measuring = ("Counts.", ":_sum", ":live_bytes")
    found = {
        (entry.id, defect.name)
        for entry in all_entries().values()
        for defect in entry.defects
        if any(name in place for place in defect.instead for name in measuring)
    }
    assert found == {("tera-6c", "nothing is confined: events go to all peers")}


def test_every_counted_bound_has_a_defect_that_should_move_it() -> None:
    for entry in all_entries().values():
        counted = [name for name, why in entry.tolerances.items() if why.counted]
        assert bool(counted) == bool(entry.defects), entry.id
        assert all(why.why for why in entry.tolerances.values()), entry.id


def test_an_audit_names_the_verdict_that_no_defect_moves(
    spark: SparkSession, tmp_path: Path
) -> None:
    noticing = dice.entry(defects=(HARMLESS, LOADED))
    idle = dice.entry(id="idle", defects=(HARMLESS,))
    sure = ground.by_construction("2026-11-16", "It is made so.")
    checked = dice.entry(id="checked", tolerances={"gap": sure})
    found = audit(spark, [noticing, idle, checked], tmp_path)
    assert [(each.experiment, each.moved) for each in found] == [("dice", True), ("idle", False)]
    assert unmoved(found) == [("idle", "gap")]
    assert "1 of 2 counted verdicts can fall short" in summary(found)
    paint, loaded_ = found[0].effects
    assert not paint.noticed and loaded_.noticed
    value, slack = found[0].measured["value"], found[0].slack
    assert value is not None and slack is not None and value + slack == pytest.approx(0.1)
    assert loaded_.passing is not None and 0 < loaded_.passing < 1
    assert "loaded dice" in table(found) and "passes up to" in table(found)
    rows = tmp_path / "dice" / "defects" / "loaded-dice" / "rows.parquet"
    assert rows.is_dir() and not (tmp_path / "dice" / "figure.png").exists()


def test_a_verdict_that_has_fallen_short_needs_no_further_defect(
    spark: SparkSession, tmp_path: Path
) -> None:
    """And no point is run at which nothing is planted; a defect without points is none."""
    some = replace(LOADED, where=lambda params: params["faces"] == 6)
    never = Defect("a seventh die", {"dice:throw": dice.blank}, where=lambda params: False)
    entry = dice.entry(defects=(never, some, replace(some, name="no more")))
    [each] = audit(spark, [entry], tmp_path)
    assert each.moved and [effect.defect for effect in each.effects] == ["loaded dice"]
    assert len(list((tmp_path / "dice" / "rows.parquet").glob("*.parquet"))) == entry.seeds["quick"]
    [each] = audit(spark, [entry], tmp_path, every=True)
    assert [effect.defect for effect in each.effects] == ["loaded dice", "no more"]


def test_a_verdict_that_no_defect_is_planted_near_is_named() -> None:
    entry = dice.entry(tolerances={"other": dice.entry().tolerances["gap"]}, defects=(LOADED,))
    gap = verdict_of(Basis.CONSTRUCTION, True, 0.1)
    [each] = compared(entry, gap, {})
    assert not each.moved and unmoved([each]) == [("dice", "other")]
    assert "is not asked at any point" in table([each])


def test_a_bound_on_traces_is_seen_by_the_same_bound_on_the_grid() -> None:
    entry, gap = all_entries()["stan-8"], verdict_of(Basis.PAPER, True, 0.095)
    ratio, beyond = (name for name in entry.tolerances if name.startswith("grid, "))

    def found(*asked: str) -> list[str]:
        names = [f"grid: {name}" for name in asked]
        measured = dict.fromkeys(names, gap.measured["gap"])
        tolerance = dict.fromkeys(names, gap.tolerance["gap"])
        healthy = replace(gap, id=entry.id, measured=measured, tolerance=tolerance)
        return [each.measure for each in compared(entry, healthy, {})]

    assert found(ratio, beyond) == [f"grid: {ratio}", f"grid: {beyond}"]
    unseen = [name for name in entry.tolerances if entry.tolerances[name].why.startswith("Eight")]
    assert found(ratio) == [f"grid: {ratio}", *unseen] and len(unseen) == 3


def test_what_could_not_be_measured_is_not_noticed(spark: SparkSession, tmp_path: Path) -> None:
    silent = dice.entry(id="silent", defects=(BLANK,))
    found = audit(spark, [silent], tmp_path)
    assert [(each.experiment, each.moved) for each in found] == [("silent", False)]
    assert unmoved(found) == [("silent", "gap")]
    assert "no numbers: could not be measured, which says nothing of the bound" in table(found)
    [never] = compared(silent, verdict_of(Basis.PAPER, False, 0.1, value=None), {})
    assert not never.moved and "could not be measured" in table([never])


# --- what bounds rest on --------------------------------------------------------------------------


def verdict_of(basis: Basis, passed: bool, high: float, value: float | None = 0.09) -> Verdict:
    return Verdict(
        id="dice",
        title="Dice",
        size="quick",
        claim="fair",
        passed=passed,
        measured={"gap": {"value": value, "low": 0.08, "high": high, "seeds": 2}},
        tolerance={
            "gap": {
                "relation": "at most",
                "bound": 0.1,
                "passed": passed,
                "why": "so",
                "basis": basis.value,
                "chosen": "2026-11-16",
            }
        },
        seeds=[1, 2],
        points=1,
        seconds=1.0,
        code=["x"],
        command="./weft",
    )


def test_a_verdict_says_what_it_rests_on_in_the_same_words_everywhere() -> None:
    assert verdict_of(Basis.PAPER, True, 0.095).outcome == "holds"
    assert verdict_of(Basis.PAPER, True, 0.11).outcome == "holds, close to a bound"
    assert verdict_of(Basis.PAPER, False, 0.2).outcome == "falls short"
    sure = verdict_of(Basis.CONSTRUCTION, True, 0.095)
    assert sure.outcome == "by construction" and not sure.counted
    least = {**sure.tolerance["gap"], "relation": "at least", "bound": 0.085}
    assert crosses(sure.measured["gap"], least)  # type: ignore[arg-type]  # the same keys


def test_a_check_by_construction_that_fails_is_a_fall_short() -> None:
    assert verdict_of(Basis.CONSTRUCTION, False, 0.2).outcome == "falls short"


def test_grounds_have_a_day() -> None:
    entry = all_entries()["tera-4a"]
    days = {why.chosen.isoformat() for why in entry.tolerances.values()}
    assert days == {"2026-11-15"}
    with pytest.raises(ValueError, match="Invalid isoformat"):
        replace(ground.asked("2026-11-16", "x"), chosen=ground.paper("soon", "x").chosen)
