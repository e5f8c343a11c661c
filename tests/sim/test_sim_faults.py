"""Fault plans follow from the seed, stay within their phase and leave enough peers alive."""

from __future__ import annotations

import json

import pytest

from weft.sim.faults import FaultPlan, Timeline, draw_faults, draw_timeline

PEERS = 25
SEEDS = range(300)


def _plan(seed: int) -> tuple[Timeline, FaultPlan]:
    timeline = draw_timeline(seed, 10_000)
    return timeline, draw_faults(seed, PEERS, timeline)


@pytest.fixture(scope="module")
def plans() -> list[tuple[Timeline, FaultPlan]]:
    return [_plan(seed) for seed in SEEDS]


def test_same_seed_same_plan(plans: list[tuple[Timeline, FaultPlan]]) -> None:
    assert plans[:20] == [_plan(seed) for seed in SEEDS[:20]]
    assert len({json.dumps(plan.mix()) for _, plan in plans}) == len(plans)


def test_everything_happens_in_the_fault_phase(plans: list[tuple[Timeline, FaultPlan]]) -> None:
    for timeline, plan in plans:
        low, high = timeline.faults_ms, timeline.heal_ms
        assert low < high < timeline.quiet_ms < timeline.end_ms
        for crash in plan.crashes:
            assert low <= crash.at_ms < high
            assert crash.restart_ms is None or crash.at_ms < crash.restart_ms <= high
        for part in (*plan.episodes, *plan.stalls):
            assert low <= part.start_ms <= part.end_ms <= high
        for earlier, later in zip(plan.episodes, plan.episodes[1:], strict=False):
            assert earlier.end_ms <= later.start_ms


def test_first_peer_comes_back_and_most_stay_alive(
    plans: list[tuple[Timeline, FaultPlan]],
) -> None:
    for _, plan in plans:
        gone = [crash.peer for crash in plan.crashes if crash.restart_ms is None]
        assert 0 not in gone
        assert len(gone) <= PEERS * 30 // 100 + 1
        assert len({crash.peer for crash in plan.crashes}) == len(plan.crashes)


def test_healed_network_loses_nothing(plans: list[tuple[Timeline, FaultPlan]]) -> None:
    for _, plan in plans:
        assert plan.healed.loss_percent == plan.healed.duplicate_percent == 0


def test_every_kind_of_fault_is_drawn_and_left_out(
    plans: list[tuple[Timeline, FaultPlan]],
) -> None:
    just = [plan for _, plan in plans]
    assert {plan.stormy.loss_percent for plan in just} == set(range(31))
    for present in (
        [bool(plan.stormy.duplicate_percent) for plan in just],
        [bool(plan.episodes) for plan in just],
        [bool(plan.crashes) for plan in just],
        [bool(plan.stalls) for plan in just],
        [bool(plan.slow) for plan in just],
        [bool(plan.clocks) for plan in just],
        [bool(plan.churn_percent) for plan in just],
        [plan.stormy.in_order for plan in just],
        [timeline.heal_ms - timeline.faults_ms > 500_000 for timeline, _ in plans],
    ):
        assert 0.08 < sum(present) / len(present) < 0.92
    endings = {crash.how for plan in just for crash in plan.crashes}
    assert endings == {"silent", "clean", "leave"}
    assert {plan.stormy.latency.kind for plan in just} == {"constant", "uniform", "long_tail"}
    cuts = [episode for plan in just for episode in plan.episodes]
    assert {cut.told for cut in cuts} == {cut.partition.one_way for cut in cuts} == {True, False}
    assert {len(set(cut.partition.groups)) for cut in cuts} >= {2, 3}


def test_mix_is_plain_json(plans: list[tuple[Timeline, FaultPlan]]) -> None:
    mix = plans[3][1].mix()
    assert json.loads(json.dumps(mix)) == mix


def test_calm_run_has_no_fault_phase() -> None:
    timeline = draw_timeline(5, 10_000, calm=True)
    assert timeline.faults_ms == timeline.heal_ms < timeline.end_ms
