"""TERA's closed forms against the paper's numbers, each other, and thrown dice."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.rules import deployment, draw

STREAM = draw.stream_of("sizing.test")
successes = st.floats(0.01, 0.999)
sizes = st.integers(1, 500)


@given(successes, sizes, st.integers(1, 5_000))
def test_so_many_visits_suffice_and_one_fewer_does_not(
    success: float, table_size: int, topics: int
) -> None:
    visits = deployment.visits_for(success, table_size, topics)
    assert deployment.lookup_success(table_size, topics, visits) >= success - 1e-9
    if visits > 1:
        assert deployment.lookup_success(table_size, topics, visits - 1) < success + 1e-9


@given(successes, st.integers(1, 200), st.integers(1, 5_000))
def test_so_large_a_table_suffices_and_a_smaller_one_does_not(
    success: float, visits: int, topics: int
) -> None:
    table_size = deployment.table_size_for(success, visits, topics)
    assert deployment.lookup_success(table_size, topics, visits) >= success - 1e-6
    if table_size > 1:
        assert deployment.lookup_success(table_size - 1, topics, visits) < success + 1e-6


def test_the_papers_largest_table() -> None:
    assert deployment.table_bytes(400, 256) == 104_000
    assert deployment.lookup_success(400, 1_000, 10) == pytest.approx(1 - 0.6**10)


@pytest.mark.parametrize("success", [0.0, 1.0, -1.0, 2.0])
def test_certainty_is_not_for_sale(success: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        deployment.visits_for(success, 10, 100)
    with pytest.raises(ValueError, match="between 0 and 1"):
        deployment.table_size_for(success, 10, 100)


def test_lookups_by_dice() -> None:
    """Walks that each stop at their own first success: how many succeed, how far they go."""
    table_size, topics, visits, walks, runs = 10, 100, 24, 4, 4_000
    found = visited = 0
    for run in range(runs):
        key = draw.key_of(1, STREAM, 0, run)
        hits = 0
        for walk in range(walks):
            for step in range(visits // walks):
                visited += 1
                if draw.below(draw.absorb(key, 100 * walk + step), topics) < table_size:
                    hits += 1
                    break
        found += hits > 0
    success = deployment.lookup_success(table_size, topics, visits)
    assert found / runs == pytest.approx(success, abs=4 * math.sqrt(success * (1 - success) / runs))
    expected = deployment.visits_expected(table_size, topics, visits, walks)
    assert visited / runs == pytest.approx(expected, rel=0.02)


def test_parts_of_a_topic_meet_by_dice() -> None:
    """In one cycle all members advertise to their whole view, drawn afresh."""
    peers, members, view_size, runs = 60, 3, 4, 4_000
    met = 0
    for run in range(runs):
        key = draw.key_of(2, STREAM, 0, run)
        views = [
            draw.slots_in(draw.subset_mask(draw.absorb(key, one), peers - 1, view_size))
            for one in range(members + 1)
        ]
        # Seen from each peer, the others are 0 … peers−2; the lone one is 0 for the members, and
        # the members are 0 … members−1 for the lone one.
        met += any(0 in view for view in views[:members]) or min(views[members]) < members
    once = 1 - deployment.no_meeting(peers, members, view_size)
    assert met / runs == pytest.approx(once, abs=4 * math.sqrt(once * (1 - once) / runs))
    assert deployment.merged_within(1, peers, members, view_size) == pytest.approx(once)
    assert deployment.merged_within(50, peers, members, view_size) > 0.999


def test_a_topic_that_fills_every_view_is_always_met() -> None:
    assert deployment.no_meeting(30, 26, 5) == 0


@given(st.integers(100, 10_000), st.integers(1, 500), st.integers(1, 20))
def test_costs_are_never_negative_and_flooding_costs_by_peers(
    peers: int, topics: int, per_topic: int
) -> None:
    system = deployment.Deployment(peers, topics, topics * min(per_topic, peers))
    costs = deployment.tera_costs(system)
    for part in (costs.exchange_general, costs.exchange_topic, costs.advert, costs.lookup):
        assert part >= 0
    assert costs.total() >= costs.maintenance() >= 2 * peers
    flood = deployment.flooding_costs(system)
    assert flood.dissemination == system.rate * topics * peers * min(20, peers - 1)
    assert deployment.per_notification(flood, system) > 0
