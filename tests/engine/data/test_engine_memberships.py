"""Workloads: popularity curves and which peer gets which topic."""

from __future__ import annotations

import numpy as np
import pytest

from weft.engine.data.memberships import membership_of, spread, uniform_sizes, zipf_sizes


def test_a_steep_curve_leaves_few_topics_active() -> None:
    sizes = zipf_sizes(1_000, 5_000, 2.0)
    assert 77 <= len(sizes) <= 79
    assert sizes.sum() == 5_000
    assert sizes[-1] == 1


def test_a_mild_curve_leaves_all_topics_active() -> None:
    sizes = zipf_sizes(1_000, 5_000, 0.7)
    assert len(sizes) == 1_000
    assert (np.diff(sizes) <= 0).all()


def test_uniform_popularity() -> None:
    sizes = uniform_sizes(1_000, 5_000, 10_000, 3, all_active=False)
    assert sizes.sum() == 5_000
    assert 985 <= len(sizes) <= 999  # e⁻⁵ of the topics stay empty
    assert sizes.var() == pytest.approx(5, rel=0.25)


def test_every_topic_gets_a_subscriber_where_asked_for() -> None:
    assert (uniform_sizes(100, 100, 10, 1) == 1).all()
    assert (uniform_sizes(10, 100, 10, 1) == 10).all()
    with pytest.raises(ValueError, match="more subscriptions"):
        uniform_sizes(10, 101, 10, 1)
    with pytest.raises(ValueError, match="fewer subscriptions"):
        uniform_sizes(10, 9, 10, 1)


def test_nobody_subscribes_twice() -> None:
    sizes = np.array([1, 5, 40, 60, 99, 100])
    held = spread(sizes, 100, 2)
    for topic, size in enumerate(sizes):
        members = held.members[held.offsets[topic] : held.offsets[topic + 1]]
        assert len(set(members.tolist())) == size
    assert held.per_peer().sum() == sizes.sum()
    assert (held.sizes() == sizes).all()
    with pytest.raises(ValueError, match="more subscribers"):
        spread(np.array([101]), 100, 2)


def test_all_peers_are_as_likely_to_subscribe() -> None:
    for size in (20, 80):  # below and above half, where those left out are drawn instead
        held = spread(np.full(2_000, size), 100, 5)
        counts = held.per_peer()
        expected = 2_000 * size / 100
        deviation = np.sqrt(2_000 * 0.2 * 0.8)
        assert np.abs(counts - expected).max() < 4.5 * deviation


def test_memberships_are_found_from_either_side() -> None:
    held = spread(np.array([3, 7, 2]), 10, 1)
    for peer in range(10):
        for topic in range(3):
            found = membership_of(held, peer, topic)
            rows = range(held.offsets[topic], held.offsets[topic + 1])
            wanted = [row for row in rows if held.members[row] == peer]
            assert found == (wanted[0] if wanted else -1)
