"""StaN's decisions: weights, what is kept, view sizes, adoption."""

from __future__ import annotations

from collections import Counter
from functools import partial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chi_square import chi_square_p
from weft.ids import PeerId
from weft.rules import stan

numbers = st.integers(0, 2**64 - 1)


def test_every_other_is_as_likely_to_be_the_lightest() -> None:
    others = [stan.number_of(bytes([other])) for other in range(10)]
    firsts = Counter(stan.kept(others, 1, partial(stan.weight, at))[0] for at in range(5000))
    assert chi_square_p([firsts[other] for other in others]) > 1e-4


def test_that_one_ranks_high_says_nothing_of_the_other_way() -> None:
    pairs = [(at, other) for at in range(60) for other in range(at)]
    same = sum(
        (stan.weight(at, other) < 2**63) == (stan.weight(other, at) < 2**63) for at, other in pairs
    )
    assert chi_square_p([same, len(pairs) - same]) > 1e-4


def test_lean_weights_prefer_by_what_is_shared() -> None:
    """Of two candidates with one and three shared topics, the second is first in 3 of 4 cases."""
    second = sum(stan.lean_weight(at, 1, 1) > stan.lean_weight(at, 2, 3) for at in range(4000))
    assert chi_square_p([second, 4000 - second], [3000, 1000]) > 1e-4


@given(numbers, numbers, st.integers(1, 1000))
def test_lean_weights_fit_64_bits_and_fall_with_what_is_shared(
    at: int, other: int, shared: int
) -> None:
    one, more = stan.lean_weight(at, other, shared), stan.lean_weight(at, other, shared + 1)
    assert 0 <= more <= one < 2**64
    assert stan.lean_weight(at, other, 0) == 2**64 - 1


@given(numbers, st.lists(numbers, max_size=20), st.lists(numbers, max_size=3), st.integers(0, 12))
def test_the_adopted_stay_and_the_lightest_join_them(
    at: int, candidates: list[int], adopted: list[int], wanted: int
) -> None:
    view = stan.kept(candidates, wanted, lambda other: stan.weight(at, other), adopted)
    assert len(view) == min(wanted, len({*candidates, *adopted}))
    assert len(set(view)) == len(view)
    others = {*candidates} - {*adopted}
    if len(set(adopted)) <= wanted:
        assert set(adopted) <= set(view)
        lightest = sorted(others, key=lambda other: (stan.weight(at, other), other))
        assert set(view) - set(adopted) == set(lightest[: wanted - len(set(adopted))])


@pytest.mark.parametrize(
    ("members", "expected"), [(0, 0), (1, 0), (2, 1), (5, 4), (30, 9), (1000, 12), (10_000, 14)]
)
def test_views_grow_with_the_logarithm(members: int, expected: int) -> None:
    assert stan.view_size(members) == expected


def test_a_walk_visits_one_more_than_its_ttl() -> None:
    assert stan.visits(6) == 7
    assert stan.visits(0) == 1


def test_a_member_that_hears_nothing_from_afar_is_lonely() -> None:
    assert not stan.is_from_afar(0)
    assert stan.is_from_afar(stan.FAR)
    assert not stan.is_lonely(1, 1, patience=2)
    assert stan.is_lonely(1, 2, patience=2)


def test_a_member_that_nobody_holds_is_lonely_at_once() -> None:
    assert stan.is_lonely(0, 0)
    assert not stan.is_lonely(1, 0)


def test_the_asker_itself_does_not_make_one_found() -> None:
    assert stan.can_be_found(True, 1)
    assert not stan.can_be_found(True, 0)
    assert not stan.can_be_found(False, 5)


def test_a_view_adopts_a_quarter_and_always_one() -> None:
    assert stan.adopts(0, 1)
    assert not stan.adopts(1, 4)
    assert stan.adopts(2, 12)
    assert not stan.adopts(3, 12)
    assert not stan.adopts(0, 12, found=False)


# --- routings without walks -----------------------------------------------------------------------

PEERS = [PeerId(bytes([number]) * 32) for number in range(24)]
peers = st.sampled_from(PEERS)


def test_both_ends_rank_each_other_alike_and_nobody_is_favoured() -> None:
    for one in PEERS:
        for other in PEERS:
            assert stan.ranking(one)(other) == stan.ranking(other)(one)
    names = [PeerId(number.to_bytes(32, "big")) for number in range(2000)]
    firsts = Counter(min(PEERS, key=stan.ranking(name)) for name in names)
    assert chi_square_p([firsts[other] for other in PEERS]) > 1e-4


@given(st.lists(peers, max_size=60), st.integers(1, 8))
def test_a_view_that_gives_way_ends_with_those_that_rank_first(
    found: list[PeerId], most: int
) -> None:
    """In whatever order they were found, and however often."""
    place = stan.ranking(PEERS[0])
    view: list[PeerId] = []
    for one in found:
        if one in view:
            continue
        if len(view) == most:
            view.append(one)
            view.remove(stan.gives_way(view[:-1], one, place))
        else:
            view.append(one)
    assert sorted(view) == sorted(sorted(set(found), key=place)[:most])


@given(peers, st.sets(peers), st.sets(peers))
def test_a_leaf_asks_the_first_it_is_linked_to_elsewhere_and_none_if_its_parent_is_one(
    parent: PeerId, elsewhere: set[PeerId], asked: set[PeerId]
) -> None:
    place = stan.ranking(PEERS[0])
    chosen = stan.shared_parent(parent, elsewhere, asked, place)
    left = elsewhere - asked
    if parent in elsewhere or not left:
        assert chosen is None
    else:
        assert chosen == min(left, key=place)


@given(st.integers(2, 6), st.integers(4, 10), st.randoms(use_true_random=False))
def test_moves_to_shared_parents_never_need_more_connections_and_end(
    topics: int, members: int, dice: Random
) -> None:
    """Leaves of trees that all have the same members move one after the other, below any member
    that has a place."""
    group = PEERS[:members]
    trees: list[dict[PeerId, PeerId]] = []  # by member, its parent
    for _ in range(topics):
        order = dice.sample(group, members)
        trees.append({one: dice.choice(order[: at + 1]) for at, one in enumerate(order[1:])})

    def links(one: PeerId, tree: dict[PeerId, PeerId]) -> set[PeerId]:
        return {child for child, above in tree.items() if above == one} | {tree.get(one, one)}

    def connections() -> int:
        return len({frozenset(link) for tree in trees for link in tree.items()})

    steps = 0
    moved = True
    while moved:
        moved = False
        for tree in trees:
            for one, parent in list(tree.items()):
                leaf = one not in tree.values()
                others = {peer for each in trees if each is not tree for peer in links(one, each)}
                chosen = stan.shared_parent(parent, others - {one}, (), stan.ranking(one))
                if leaf and chosen is not None:
                    before = connections()
                    tree[one] = chosen
                    assert connections() < before
                    moved = True
                    steps += 1
    assert steps <= topics * members
