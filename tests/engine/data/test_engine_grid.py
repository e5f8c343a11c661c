"""The synthetic grid: which peers stand within which interest."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from weft.engine.data.grid import LIVEJOURNAL_SIZED, Grid, PowerLaw, draw_grid
from weft.engine.data.memberships import Memberships
from weft.rules.draw import absorb, stream_of
from weft.rules.stan import kept, view_size, weight


def uniform(seed: int, purpose: str, *coordinates: int) -> float:
    key = absorb(absorb(0, seed), stream_of(purpose))
    for coordinate in coordinates:
        key = absorb(key, coordinate)
    return (key >> 11) * 2.0**-53


def by_hand(grid: Grid, seed: int) -> list[set[int]]:
    """The topics of each node by measuring every distance."""
    places = []
    for topic in range(grid.topics):
        quantile = np.array([uniform(seed, "grid.copies", topic)])
        for copy in range(int(grid.copies.at(quantile)[0])):
            x = uniform(seed, "grid.topic", topic, 2 * copy)
            y = uniform(seed, "grid.topic", topic, 2 * copy + 1)
            places.append((topic, x, y))
    found = []
    for node in range(grid.nodes):
        x, y = uniform(seed, "grid.node.x", node), uniform(seed, "grid.node.y", node)
        radius = float(grid.radius.at(np.array([uniform(seed, "grid.radius", node)]))[0])
        apart = []
        for topic, there_x, there_y in places:
            across, up = abs(x - there_x), abs(y - there_y)
            apart.append((np.hypot(min(across, 1 - across), min(up, 1 - up)), topic))
        near = {topic for distance, topic in apart if distance <= radius}
        found.append(near or {min(apart)[1]})
    return found


def topics_of(held: Memberships) -> list[set[int]]:
    found: list[set[int]] = [set() for _ in range(held.peers)]
    for topic, node in zip(held.topic_of.tolist(), held.members.tolist(), strict=True):
        assert topic not in found[node]
        found[node].add(topic)
    return found


@pytest.mark.parametrize(
    "grid",
    [
        Grid(),
        Grid(nodes=60, topics=1, copies=PowerLaw(2.0, 1.0, 1.0)),  # one identifier, one cell
        Grid(nodes=60, topics=4, radius=PowerLaw(1.5, 0.001, 0.01)),  # most must look far
        Grid(nodes=80, topics=300, copies=PowerLaw(2.0, 3.0, 30.0), radius=PowerLaw(2, 0.001, 0.7)),
    ],
)
def test_a_node_subscribes_to_what_is_within_its_radius(grid: Grid) -> None:
    for seed in (1, 2):
        assert topics_of(draw_grid(grid, seed)) == by_hand(grid, seed)


def test_the_default_grid_has_the_physical_views_of_the_paper() -> None:
    initial, ideal = [], []
    for seed in range(1, 11):
        held = draw_grid(Grid(), seed)
        chance: list[set[int]] = [set() for _ in range(held.peers)]
        lowest: list[set[int]] = [set() for _ in range(held.peers)]
        dice = np.random.default_rng(seed)
        for topic in range(held.topics):
            members = held.members[held.offsets[topic] : held.offsets[topic + 1]]
            for node in members.tolist():
                others = members[members != node]
                wanted = view_size(len(members))
                chance[node].update(dice.choice(others, wanted, replace=False).tolist())
                lowest[node].update(kept(others.tolist(), wanted, partial(weight, node)))
        initial.append(np.mean([len(view) for view in chance]))
        ideal.append(np.mean([len(view) for view in lowest]))
    # Twice the standard error of ten seeds (their standard deviations are 2.3 and 0.5).
    assert np.mean(initial) == pytest.approx(25, abs=1.5)
    assert np.mean(ideal) == pytest.approx(16.1, abs=0.35)


def test_topics_below_the_least_are_left_out() -> None:
    grid = Grid(nodes=2_000, topics=40, radius=PowerLaw(3.0, 0.05, 0.5), least_members=30)
    held = draw_grid(grid, 3)
    assert held.topics == 40
    assert held.sizes().min() >= 30
    assert held.per_peer().min() >= 1
    with pytest.raises(ValueError, match="hardly a topic"):
        draw_grid(Grid(nodes=20, least_members=30), 1)


def test_a_livejournal_sized_universe() -> None:
    held = draw_grid(LIVEJOURNAL_SIZED, 1)
    assert (held.topics, held.peers) == (13_652, 267_230)
    assert held.sizes().min() >= 30
    assert held.per_peer().min() >= 1
    assert 2_000_000 < held.total < 3_000_000


def test_power_laws_have_their_exponents() -> None:
    quantiles = (np.arange(100_000) + 0.5) / 100_000
    for exponent in (1.0, 1.5, 2.5):
        values = PowerLaw(exponent, 2.0, 50.0).at(quantiles)
        assert values.min() >= 2.0
        assert values.max() <= 50.0
        densities, edges = np.histogram(values, np.geomspace(2, 50, 12), density=True)
        middles = np.sqrt(edges[:-1] * edges[1:])
        slope = np.polyfit(np.log(middles), np.log(densities), 1)[0]
        assert slope == pytest.approx(-exponent, abs=0.02)


def test_a_grid_is_refused_where_it_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="least"):
        PowerLaw(2.0, 0.0, 1.0)
    with pytest.raises(ValueError, match="at least one"):
        Grid(nodes=0)
