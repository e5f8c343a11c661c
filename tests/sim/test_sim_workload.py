"""The workload is correlated, skewed, complete, and a function of its seed alone."""

from __future__ import annotations

from itertools import combinations

import pytest

from weft.ids import parse_topic
from weft.sim.workload import Shape, Workload, draw_workload


@pytest.fixture(scope="module")
def workload() -> Workload:
    return draw_workload(3, peers=300, topics=60, events=2_000, duration_ms=50_000)


def test_same_seed_same_workload(workload: Workload) -> None:
    again = draw_workload(3, peers=300, topics=60, events=2_000, duration_ms=50_000)
    assert again == workload
    other = draw_workload(4, peers=300, topics=60, events=2_000, duration_ms=50_000)
    assert other.interests != workload.interests


def test_topics_are_distinct_and_well_formed(workload: Workload) -> None:
    assert len(set(workload.topics)) == 60
    for topic in workload.topics:
        assert parse_topic(topic) == topic


def test_everybody_and_every_topic_has_a_part(workload: Workload) -> None:
    assert all(1 <= len(set(topics)) == len(topics) for topics in workload.interests)
    assert min(len(members) for members in workload.subscribers().values()) >= 2


def test_popularity_is_skewed(workload: Workload) -> None:
    sizes = sorted((len(members) for members in workload.subscribers().values()), reverse=True)
    assert sizes[0] > 5 * sizes[len(sizes) // 2]


def test_interests_are_correlated(workload: Workload) -> None:
    """Topics close on the circle share more subscribers than chance has it, others fewer."""
    members = [set(peers) for peers in workload.subscribers().values()]
    lifts = {True: [0.0, 0.0], False: [0.0, 0.0]}
    for one, other in combinations(range(60), 2):
        apart = min(other - one, 60 - other + one)
        common = lifts[apart <= 5]
        common[0] += len(members[one] & members[other])
        common[1] += len(members[one]) * len(members[other]) / 300
    near, far = (common[0] / common[1] for common in (lifts[True], lifts[False]))
    assert near > 2 > 1 > far


def test_events_come_from_inside_and_outside(workload: Workload) -> None:
    interests = [set(topics) for topics in workload.interests]
    outside = sum(p.topic not in interests[p.peer] for p in workload.publications)
    assert abs(outside - 600) <= 5 * (2_000 * 0.3 * 0.7) ** 0.5
    assert len({p.payload for p in workload.publications}) == 2_000
    assert {len(p.payload) for p in workload.publications} == {200}
    times = [p.at_ms for p in workload.publications]
    assert times == sorted(times)
    assert times[0] >= 0 and times[-1] < 50_000


def test_shape_is_followed() -> None:
    shape = Shape(topics_per_peer_max=1, outsider_percent=0, payload_bytes=64)
    workload = draw_workload(1, 50, 5, 200, 1_000, shape)
    interests = [set(topics) for topics in workload.interests]
    assert sum(len(topics) > 1 for topics in interests) <= 2 * 5
    assert all(p.topic in interests[p.peer] for p in workload.publications)
    assert {len(p.payload) for p in workload.publications} == {64}


@pytest.mark.parametrize(
    "shape", [{"near_percent": 101}, {"outsider_percent": -1}, {"payload_bytes": 3}]
)
def test_senseless_shapes_are_refused(shape: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"percent|start at"):
        Shape(**shape)


def test_small_workloads_work() -> None:
    workload = draw_workload(1, peers=2, topics=1, events=5, duration_ms=10)
    assert workload.interests == ((workload.topics[0],),) * 2
    with pytest.raises(ValueError, match="two peers"):
        draw_workload(1, peers=1, topics=1, events=1, duration_ms=10)
