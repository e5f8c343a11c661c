"""Scamp in columns: equal to the rules, views of (c+1)·ln n, one connected overlay."""

from __future__ import annotations

import numpy as np
import pytest

from weft.engine.stan import overlays as stan
from weft.engine.stan.fitness import fitness
from weft.engine.stan.overlays import IDEAL, Config
from weft.engine.stan.scamp import CONTACT, COPIES, ORDER, Scamp, views_of
from weft.rules import scamp as rules
from weft.rules.draw import absorb, below

FRESH = Scamp(turnover=0.0, leases=0)


def subscribed(members: int, extra: int, key: int) -> list[list[int]]:
    """All members subscribe, one after the other, by the rules."""
    order = list(range(members))
    for place in range(members - 1, 0, -1):
        other = below(absorb(absorb(key, ORDER), place), place + 1)
        order[place], order[other] = order[other], order[place]
    views: list[list[int]] = [[] for _ in order]
    for place in range(1, members):
        turn = absorb(absorb(key, COPIES), place - 1)
        contact, member = order[below(absorb(turn, CONTACT), place)], order[place]
        views[member].append(contact)
        _send_copies(views, member, views[contact], extra, absorb(turn, COPIES))
    return views


def _send_copies(
    views: list[list[int]], member: int, known: list[int], extra: int, key: int
) -> None:
    size = len(known)
    if not size:
        known.append(member)
        return
    for copy in range(rules.copies(size, extra)):
        path = absorb(key, copy)
        at, hops = known[rules.first_slot(copy, size, below(absorb(path, 0), size))], 1
        while not rules.is_given_up(hops):
            bits, view = absorb(path, hops), views[at]
            new = at != member and member not in view
            if new and below(bits, rules.one_in(len(view))) == 0:
                view.append(member)
                break
            at, hops = view[below(absorb(bits, 0), len(view))], hops + 1


@pytest.mark.parametrize(("members", "extra"), [(1, 1), (2, 0), (3, 1), (25, 0), (80, 2)])
def test_subscriptions_follow_the_rules(members: int, extra: int) -> None:
    sizes, neighbours = views_of(members, Scamp(extra, 0.0, 0), 77)
    expected = subscribed(members, extra, 77)
    assert sizes.tolist() == [len(view) for view in expected]
    assert neighbours.tolist() == [member for view in expected for member in view]


@pytest.mark.parametrize("extra", [0, 1, 2])
@pytest.mark.parametrize("members", [300, 2_000])
def test_views_find_their_own_size(members: int, extra: int) -> None:
    """About (c+1)·ln n (the paper's Section 3), and nobody is told n."""
    found = [views_of(members, Scamp(extra, 0.0, 0), key)[0] for key in range(12)]
    # A subscription adds the links of its contact, and c + 1: a harmonic sum from two members on.
    wanted = 1 + (extra + 1) * sum(1 / number for number in range(3, members + 1))
    # One overlay's mean is off by a twentieth: what the first few members did stays in it.
    assert np.mean([sizes.mean() for sizes in found]) == pytest.approx(wanted, rel=0.1)
    assert max(sizes.max() for sizes in found) < rules.room(members, extra)


@pytest.mark.parametrize("past", [FRESH, Scamp(), Scamp(turnover=0.5), Scamp(leases=4)])
def test_overlays_stay_connected_and_as_large_whatever_their_past(past: Scamp) -> None:
    wanted = rules.mean_view(400, rules.EXTRA)
    for seed in range(5):
        sizes, neighbours = views_of(400, past, seed)
        found = fitness(neighbours, sizes.astype(np.int64), ways=False)
        assert found.weak == 1
        assert found.strong <= 3  # a member that many holders dropped may be in nobody's view
        assert 0.75 * wanted < sizes.mean() < 1.25 * wanted
        assert sizes.min() >= 1
        begin = 0
        for member, size in enumerate(sizes.tolist()):
            view = neighbours[begin : begin + size].tolist()
            assert member not in view
            assert len(set(view)) == size
            begin += size


def test_stans_rounds_keep_scamps_view_sizes_and_share_links() -> None:
    random = np.random.default_rng(4)
    nodes = np.concatenate([random.choice(120, 80, replace=False) for _ in range(8)])
    overlays = stan.overlays_of(np.repeat(np.arange(8), 80), nodes)
    outcome = stan.run(overlays, Config(scamp=Scamp()), 3, (0, 8, IDEAL))
    found = stan.sizes_of(outcome)
    assert outcome.degrees.min() < outcome.degrees.max()
    begins = np.concatenate([[0], np.cumsum(outcome.degrees)])
    for round_ in (0, 8, IDEAL):
        links = outcome.at(round_)
        for place, member in enumerate(overlays.members.tolist()):
            view = links[begins[place] : begins[place + 1]].tolist()
            assert member not in view
            assert len(set(view)) == len(view)
    before, after, best = (int(found.physical[round_].sum()) for round_ in (0, 8, IDEAL))
    assert before - after > 0.8 * (before - best) > 0
    few = overlays.topics[2:4]
    some = np.isin(np.repeat(np.arange(8), 80), few)
    alone = stan.run(
        stan.overlays_of(np.repeat(np.arange(8), 80)[some], nodes[some]),
        Config(scamp=Scamp()),
        3,
        (8,),
    )
    starts = outcome.starts()
    assert np.array_equal(alone.at(8), outcome.at(8)[starts[2] : starts[4]])


def test_nobody_leaves_scamps_overlays_during_the_rounds() -> None:
    with pytest.raises(ValueError, match="turnover"):
        Config(scamp=Scamp(), churn=0.1)
    with pytest.raises(ValueError, match="at least 0"):
        Scamp(extra=-1)
