"""The attack rows: what they ask of small tables, and a small run."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from frames import frame
from weft.lab.defect import Defect, late, planted
from weft.lab.experiment import Columns, Entry, Params
from weft.lab.experiments import attack
from weft.lab.run import all_entries
from weft.lab.verdict import judge, measures_of
from weft.pipeline.transforms import judged
from weft.protocol.config import Defence
from weft.sim.faults import ATTACKS


def test_every_attack_has_a_row() -> None:
    assert sorted(f"attack-{name}" for name in ATTACKS) == sorted(
        name for name in all_entries() if name.startswith("attack-")
    )


def test_each_group_is_judged_and_a_defence_that_is_off_must_be_missed(
    spark: SparkSession,
) -> None:
    def row(hostile: int, history: int, defended: int, **found: float) -> dict[str, object]:
        numbers = dict.fromkeys(attack.TOLD, 1.0)
        asked = {"delivered": 100.0, "of_allowed": 0.5, "forged": 0, "twice": 0, "made_up": 0.0}
        place = {"hostile": hostile, "history": history, "defended": defended}
        return {**place, "honest": 20, "seed": 1, **numbers, **asked, **found}

    rows = [
        row(10, 0, 1, made_up=2.5),
        row(30, 1, 1, delivered=99.5, of_allowed=1.5),
        row(80, 0, 1, delivered=99.5, of_allowed=1.5),
        row(30, 0, 0),
    ]
    entry = next(one for one in attack.ENTRIES if one.id == "attack-eclipse")
    found = measures_of(entry, frame(spark, attack.COLUMNS, rows), "full")
    verdict = judge(entry, found, size="full", seeds=1, points=7, notes=[])
    short = {name for name, asked in verdict.tolerance.items() if not asked["passed"]}
    assert len(verdict.tolerance) == 5 + 5 + 4 + 1
    assert short == {
        f"10 % hostile, without a store: {attack.ASKED['made_up']}",
        f"30 % hostile, with a store: {attack.ASKED['delivered']}",
        f"30 % hostile, with a store: {attack.ASKED['of_allowed']}",
        f"30 % hostile, without a store, defence off: {attack.SHORT}",
    }


@pytest.mark.parametrize("entry", attack.ENTRIES, ids=lambda entry: entry.id)
def test_every_row_is_run_without_what_answers_its_attack(entry: Entry) -> None:
    [off] = [point for point in entry.points("quick") if not point["defended"]]
    assert (off["hostile"], off["history"]) == (30, 0)
    assert off["attack"] in attack.REPLACED or attack.OFF[off["attack"]] != Defence()
    assert attack.DEFENDED in entry.defects


@pytest.mark.parametrize(
    ("with_it", "without", "passed"),
    [
        ({}, {"twice": 3}, True),
        ({}, {}, False),
        ({"of_allowed": 2.0}, {"of_allowed": 3.0}, False),
        ({"of_allowed": 2.0}, {"of_allowed": 3.0, "delivered": 99.9}, True),
        ({"of_allowed": 2.0}, {"of_allowed": 0.5}, False),
    ],
)
def test_a_defence_must_be_missed_in_what_is_kept_with_it(
    spark: SparkSession, with_it: dict[str, float], without: dict[str, float], passed: bool
) -> None:
    kept = {"delivered": 100.0, "of_allowed": 0.5, "forged": 0, "twice": 0, "made_up": 2.0}
    place = {"honest": 20, "hostile": 30, "history": 0, "seed": 1, **kept}
    rows = [{**place, "defended": 1, **with_it}, {**place, "defended": 0, **without}]
    found = attack.measure(frame(spark, attack.COLUMNS, rows), "quick").transform(judged)
    [short] = found.where(found["measure"].endswith(attack.SHORT)).collect()
    assert short.passed is passed


def test_events_are_made_late_while_latency_is_judged_and_not_before_the_attack() -> None:
    """It began during the calm time, which then allowed three times as much."""
    points = attack.ENTRIES[0].points("quick")
    [made_late] = [one for one in attack.ENTRIES[0].defects if one is attack.LATE]
    [begun] = [attack.begins_ms(point) for point in points if made_late.where(point)]
    assert begun < attack.LATE_FROM_MS < begun + attack.LATE_MS


@pytest.mark.parametrize("defended", [0, 1])
def test_poisoned_views_fall_short_without_their_defence(defended: int) -> None:
    point = {"attack": "poison", "honest": 5, "hostile": 30, "history": 0, "defended": defended}
    found = attack.run(point, 1)
    assert (found["made_up"] > 50) is not bool(defended)


@pytest.mark.parametrize("defended", [0, 1])
def test_spam_makes_peers_slow_without_bounds_on_walks(defended: int) -> None:
    point = {"attack": "spam", "honest": 12, "hostile": 30, "history": 0, "defended": defended}
    found = attack.run(point, 2)
    assert (found["of_allowed"] > 1) is not bool(defended)


def _small(name: str, hostile: int, defended: int, honest: int = 8) -> Columns:
    same = {"attack": name, "honest": honest, "history": 0}
    return attack.run({**same, "hostile": hostile, "defended": defended}, 2)


def test_without_announcements_and_comparisons_dropped_events_stay_lost() -> None:
    """Eight members have links to nearly all others, so that nothing gets lost among them."""
    assert _small("drop", 30, 1, 20)["delivered"] == 100 > _small("drop", 30, 0, 20)["delivered"]


def test_without_signatures_forged_events_are_delivered() -> None:
    assert _small("forge", 30, 1)["forged"] == 0 < _small("forge", 30, 0)["forged"]


def test_without_memory_of_publishers_that_gave_way_events_are_handed_out_again() -> None:
    assert _small("replay", 30, 1)["twice"] == 0 < _small("replay", 30, 0)["twice"]


def test_where_lies_are_believed_events_are_late() -> None:
    assert _small("lie", 30, 1)["of_allowed"] < 1 < _small("lie", 30, 0)["of_allowed"]


@pytest.mark.parametrize("name", attack.REPLACED)
def test_what_is_replaced_is_missed_under_attack_alone(name: str) -> None:
    """Else a run without it would fall short of itself, whatever hostile peers do."""
    found = _small(name, 0, 0)
    assert (found["delivered"], found["forged"], found["twice"]) == (100, 0, 0)
    assert found["of_allowed"] < 0.5


def test_a_small_network_under_drops_delivers_all() -> None:
    point = {"attack": "drop", "honest": 8, "hostile": 10, "history": 0, "defended": 1}
    found = attack.run(point, 1)
    assert found["delivered"] == 100 and found["forged"] == found["twice"] == 0
    assert 0 < found["p50_calm"] <= found["p99_calm"]


SMALL_RUN: Params = {"attack": "drop", "honest": 8, "hostile": 30, "history": 0, "defended": 1}


def test_a_run_that_ends_early_is_judged_as_one_that_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = (*attack.ASKED, "p50_calm", "p99_calm", "p50", "p99", "peak")
    early = attack.run(SMALL_RUN, 2)
    monkeypatch.setattr(attack, "SETTLED_MS", attack.END_MS)
    lasting = attack.run(SMALL_RUN, 2)
    assert {name: early[name] for name in judged} == {name: lasting[name] for name in judged}
    assert early["messages"] < lasting["messages"]  # it is weighed for less long


def test_what_is_lost_before_the_attack_allows_nothing_later() -> None:
    """It took two minutes in the calm time, and three times that was allowed."""
    with planted(attack.FORGED_AND_TWICE):
        row = attack.run(SMALL_RUN, 2)
    assert row["p99"] > 100 * row["p99_calm"]
    assert row["of_allowed"] > 1


def test_a_run_in_which_something_is_owed_lasts() -> None:
    """Events that take twice as long as a settled run waits count as delivered."""
    slow = late(
        *("Payload", "Graft", "Repair", "RouteEvent"),
        by_ms=2 * attack.SETTLED_MS,
        after_ms=attack.LATE_FROM_MS,
    )
    with planted(Defect("events are late", slow)):
        row = attack.run(SMALL_RUN, 2)
    assert row["delivered"] == 100.0
    assert row["p99"] > attack.SETTLED_MS
