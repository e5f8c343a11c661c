"""A world that comes and goes."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.graph import indegrees

from weft.engine.core.layout import empty_rows, random_rows
from weft.engine.data.memberships import spread
from weft.engine.tera.access_points import NOT_FOUND
from weft.engine.tera.cyclon import join
from weft.engine.tera.lookup import Lookups
from weft.engine.tera.world import ChurnWorld, Rates, WorldSettings, build_churning
from weft.rules.deployment import stale_share

CYCLES = 60


def run(rates: Rates, seed: int = 1, peers: int = 600, topics: int = 12) -> ChurnWorld:
    held = spread(np.full(topics, 100), peers, seed)
    world = build_churning(WorldSettings(table_size=6, visits=20), rates, held, CYCLES, seed)
    for _ in range(CYCLES):
        world.step()
    return world


@pytest.mark.parametrize("mended", [False, True])
def test_sizes_stay_while_nobody_does(mended: bool) -> None:
    world = run(Rates(peers=0.02, subscriptions=0.02, mended=mended))
    assert world.peer_there.sum() == 600
    sizes = world.held.sizes()
    assert sizes.sum() >= 0.97 * 1_200
    assert world.peers > 600 + 0.6 * 0.02 * 600 * CYCLES
    there = np.flatnonzero(world.member_there)
    assert world.peer_there[world.member_peer[there]].all()
    pairs = world.member_peer[there] * 100 + world.member_topic[there]
    assert len(set(pairs.tolist())) == len(there)


def test_without_churn_nothing_is_stale() -> None:
    world = run(Rates())
    used = np.arange(6) < world.tables.counts[:600, None]
    assert world.member_there[world.tables.points[:600][used]].all()
    assert world.lookups_failed == 0


def test_entries_go_stale_as_the_form_says() -> None:
    rate = 0.01
    world = run(Rates(subscriptions=rate))
    used = np.arange(6) < world.tables.counts[:600, None]
    stale = 1 - world.member_there[world.tables.points[:600][used]].mean()
    assert stale == pytest.approx(stale_share(rate, 600, 100, 5, 5), abs=0.02)


def test_a_seed_decides_who_comes_and_goes() -> None:
    one, same, other = (run(Rates(peers=0.03), seed=seed) for seed in (4, 4, 5))
    assert one.rows.octets.tobytes() == same.rows.octets.tobytes()
    assert one.rows.octets.tobytes() != other.rows.octets.tobytes()
    assert one.counts == same.counts


def test_newcomers_are_known_as_well_as_others() -> None:
    peers, newcomers = 400, 100
    rows = empty_rows(peers + newcomers, 20)
    first = random_rows(peers, 20, 3)
    rows.octets[: len(first.octets)] = first.octets
    alive = np.ones(peers + newcomers, np.uint8)
    for item in range(newcomers):
        member = (item * 37) % peers
        messages = join(rows, peers + item, member, alive, 8, np.uint64(item))
        assert messages > 20
    known = indegrees(rows, peers + newcomers)
    assert known[peers:].mean() == pytest.approx(20, abs=3)
    assert (rows.counts()[peers:] >= 18).all()


def test_when_mended_advertisements_ride_on_exchanges_and_keep_tables_fresher() -> None:
    """They take no message of their own, and tables hear of each member twice a cycle."""
    stale = {}
    for mended in (False, True):
        world = run(Rates(peers=0.01, subscriptions=0.01, mended=mended))
        assert (world.counts.advert == 0) == mended
        there = np.flatnonzero(world.peer_there[: world.peers])
        used = np.arange(world.tables.size) < world.tables.counts[there][:, None]
        stale[mended] = 1 - world.member_there[world.tables.points[there][used]].mean()
    assert stale[True] < 0.75 * stale[False]


def test_all_access_points_that_walks_found_are_tried() -> None:
    """Algorithms 1 to 3: a lookup fails only if none of them is there."""
    world = run(Rates(subscriptions=0.02))
    origins, topics = np.arange(300), np.arange(300) % 12
    found = world.find_points(origins, topics, -1, own=False)
    lookups = Lookups(origins, topics, world.seed, world.settings.walks, 5, -1)
    while not lookups.is_over:
        lookups.advance(world.ground())
    there = (lookups.listed != NOT_FOUND) & (world.member_there[lookups.listed] != 0)
    live = (found != NOT_FOUND) & (world.member_there[found] != 0)
    assert list(live) == list(there.any(axis=1))
    first = (lookups.found != NOT_FOUND) & (world.member_there[lookups.found] != 0)
    assert live.mean() > first.mean() + 0.1
