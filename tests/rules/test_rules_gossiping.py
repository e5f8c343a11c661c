"""How many to tell, and whom."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from weft.rules import treecast
from weft.rules.draw import absorb


def spread(members: int, mode: treecast.Mode, seed: int) -> tuple[int, int]:
    """Whom the push reaches from a uniform view of everybody, and how many messages it takes."""
    everybody = list(range(members))
    informed, fresh, messages = {0}, [0], 0
    while fresh:
        following = []
        for own in fresh:
            others = [one for one in everybody if one != own]
            count = treecast.fanout(members, mode)
            told = treecast.partners(others, count, absorb(absorb(7, seed), own))
            messages += len(told)
            for one in told:
                if one not in informed:
                    informed.add(one)
                    following.append(one)
        fresh = following
    return len(informed), messages


def test_the_push_reaches_nearly_always_everybody() -> None:
    whole = 0
    for seed in range(20):
        reached, messages = spread(200, "push", seed)
        assert messages == reached * (math.ceil(math.log(200)) + treecast.PUSH_MARGIN)
        whole += reached == 200
    assert whole >= 16  # expected 19 of 20


def test_a_few_reach_most() -> None:
    for seed in range(5):
        reached, messages = spread(400, "push-pull", seed)
        assert messages == treecast.FEW * reached
        assert reached > 0.88 * 400


@given(st.integers(1, 10**6))
def test_fanouts_grow_with_the_logarithm(members: int) -> None:
    assert treecast.fanout(members, "push") >= math.log(members) + treecast.PUSH_MARGIN
    assert treecast.fanout(members, "push") <= math.log(members) + treecast.PUSH_MARGIN + 2
    assert treecast.fanout(members, "push-pull") == treecast.FEW
    assert 2 < treecast.pull_rounds(members) <= 2 + 5


@given(st.lists(st.integers(), unique=True, max_size=20), st.integers(0, 8), st.integers(0, 2**64))
def test_partners_are_some_of_the_others(view: list[int], count: int, key: int) -> None:
    without = view[:2]
    chosen = treecast.partners(view, count, key, without)
    assert len(chosen) == len(set(chosen)) == min(count, len(view) - len(without))
    assert set(chosen) <= set(view[2:])
