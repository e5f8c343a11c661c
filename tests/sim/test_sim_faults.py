"""Fault plans follow from the seed, stay within their phase and leave enough peers alive."""

from __future__ import annotations

import json

import pytest

from weft.sim.faults import (
    DISASTERS,
    FAULTS,
    Disaster,
    Fault,
    FaultPlan,
    Timeline,
    draw_faults,
    draw_timeline,
)

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


def test_a_run_ends_after_two_waits_for_what_was_withheld() -> None:
    usual, longer = draw_timeline(5, 10_000), draw_timeline(5, 10_000, withheld_ms=600_000)
    assert longer.quiet_ms == usual.quiet_ms
    assert longer.end_ms - longer.quiet_ms > 2 * 600_000
    assert longer.look_ms == usual.look_ms == usual.end_ms  # it may end then, if all holds
    calm = draw_timeline(5, 10_000, calm=True)
    assert draw_timeline(5, 10_000, calm=True, withheld_ms=600_000) == calm


# --- disasters ----------------------------------------------------------------------------------


def _with(seed: int, *disasters: Disaster) -> tuple[Timeline, FaultPlan]:
    timeline = draw_timeline(seed, 10_000, disasters=disasters)
    return timeline, draw_faults(seed, PEERS, timeline, disasters)


@pytest.mark.parametrize("disaster", DISASTERS)
def test_a_disaster_adds_to_what_the_seed_stands_for(disaster: Disaster) -> None:
    for seed in SEEDS[:60]:
        timeline, plan = _with(seed, disaster)
        usual = draw_faults(seed, PEERS, timeline)
        assert plan != usual
        assert (plan.stormy, plan.stalls, plan.clocks) == (usual.stormy, usual.stalls, usual.clocks)
        assert plan.crashes[: len(usual.crashes)] == usual.crashes


def test_a_mass_crash_takes_most_at_one_moment_by_one_ending() -> None:
    endings, shares = set(), set()
    for seed in SEEDS:
        timeline, plan = _with(seed, "mass-crash")
        mass = plan.crashes[len(draw_faults(seed, PEERS, timeline).crashes) :]
        assert len({crash.at_ms for crash in mass}) == len({crash.how for crash in mass}) == 1
        assert timeline.faults_ms <= mass[0].at_ms < timeline.heal_ms
        assert all(crash.restart_ms is not None for crash in mass if crash.peer == 0)
        endings.add(mass[0].how)
        shares.add(len(mass) * 100 // PEERS)
    assert endings == {"silent", "clean"}
    assert min(shares) <= 32 and max(shares) >= 84


def test_power_loss_is_silent_and_all_are_back_within_a_second() -> None:
    for seed in SEEDS:
        timeline, plan = _with(seed, "power-loss")
        group = plan.crashes[len(draw_faults(seed, PEERS, timeline).crashes) :]
        assert {crash.how for crash in group} == {"silent"}
        assert len({crash.at_ms for crash in group}) == 1
        back = [crash.restart_ms for crash in group if crash.restart_ms is not None]
        assert len(back) == len(group) and max(back) - min(back) < 1_000
        assert group[0].at_ms < min(back) and max(back) <= timeline.heal_ms


def test_a_long_partition_outlasts_what_views_remember() -> None:
    for seed in SEEDS:
        timeline, plan = _with(seed, "long-partition")
        (cut,) = plan.episodes
        assert cut.end_ms == timeline.heal_ms and cut.end_ms - cut.start_ms >= 60 * 10_000


def test_a_crowd_is_there_within_a_second() -> None:
    for seed in SEEDS:
        _, plan = _with(seed, "flash-crowd")
        assert plan.crowd is not None and plan.crowd.span_ms <= 1_000
        assert set(plan.crowd.newcomers) <= set(plan.crowd.peers) and 0 not in plan.crowd.peers
        assert len(plan.crowd.peers) >= PEERS * 30 // 100


@pytest.mark.parametrize("fault", FAULTS)
def test_a_class_of_faults_can_be_left_out(fault: Fault) -> None:
    """And what is left out is all that changes."""
    differing = 0
    for seed in SEEDS[:60]:
        timeline, plan = _plan(seed)
        less = draw_faults(seed, PEERS, timeline, without=(fault,)).mix()
        changed = {name for name, value in plan.mix().items() if less[name] != value}
        assert changed <= _NAMES[fault]
        differing += bool(changed)
    assert differing


_NAMES: dict[Fault, set[str]] = {
    "loss": {"loss_percent"},
    "duplication": {"duplicate_percent"},
    "distance": {"distance_ms_max"},
    "crashes": {"crashes"},
    "partitions": {"partitions"},
    "stalls": {"stalls"},
    "slow": {"slow"},
    "clocks": {"clock_offset_ms_max", "clock_drift_ppm_max"},
    "churn": {"churn_percent"},
}
