"""Events over a topic-aware DHT: trees by halving, and gossip."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.rules import treecast
from weft.rules.draw import absorb, mix
from weft.rules.fairness import jain
from weft.rules.prefix import common_prefix

# --- Trees by halving what a member is in charge of

BITS = 64
Links = dict[int, dict[int, list[int]]]


def some_members(count: int, seed: int) -> list[int]:
    return sorted({mix(seed * 1_000_003 + number) for number in range(count)})


def all_links(members: list[int], count: int, bits: int = BITS) -> Links:
    """What members keep that know everybody."""
    return {
        own: {
            level: treecast.kept_links(own, level, known, (), count, own, bits)
            for level, known in treecast.levels(own, members, bits).items()
        }
        for own in members
    }


def cast(
    root: int, links: Links, key: int, bits: int = BITS
) -> tuple[list[int], int, dict[int, int]]:
    """Which members receive, in how many rounds, and how much each sends."""
    received, sends, rounds = [root], dict.fromkeys(links, 0), 0
    going = [(root, treecast.ROOT_CHARGE)]
    while going:
        following = []
        for own, charge in going:
            told = treecast.delegates(own, charge, links[own], absorb(key, own % 2**32), bits)
            sends[own] += len(told)
            following += told
        rounds += bool(following)
        received += [member for member, _ in following]
        going = following
    return received, rounds, sends


@given(st.sets(st.integers(0, 255), min_size=1), st.integers(1, 3), st.data())
def test_every_member_gets_it_exactly_once(
    places: set[int], count: int, data: st.DataObject
) -> None:
    """N−1 messages, from any root, whichever of its links a member chooses."""
    members = sorted(places)
    root = data.draw(st.sampled_from(members))
    links = all_links(members, count, bits=8)
    received, rounds, sends = cast(root, links, data.draw(st.integers(0, 2**64 - 1)), bits=8)
    assert sorted(received) == members
    assert sum(sends.values()) == len(members) - 1
    assert rounds <= 8


@given(st.sets(st.integers(0, 255), min_size=2), st.data())
def test_incomplete_links_reach_nobody_twice(places: set[int], data: st.DataObject) -> None:
    members = sorted(places)
    links = all_links(members, 2, bits=8)
    for own in members:
        for level in list(links[own]):
            if data.draw(st.booleans()):
                del links[own][level]
    received, _, _ = cast(members[0], links, 7, bits=8)
    assert len(set(received)) == len(received)


@given(st.integers(0, 2**BITS - 1), st.integers(0, BITS - 1), st.integers(0, 2**64 - 1))
def test_a_random_place_lies_in_the_half_across(own: int, level: int, randomness: int) -> None:
    place = treecast.random_place(own, level, BITS, randomness)
    assert common_prefix(own, place, BITS) == level
    target = treecast.link_target(own, level, BITS)
    assert common_prefix(target, place, BITS) > level
    assert abs(target - own) == 2**BITS >> (level + 1)  # the paper's ± m/2^i


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=12, unique=True), st.data())
def test_wide_places_decide_as_their_first_bits_do(known: list[int], data: st.DataObject) -> None:
    """What the engine does with 64 bits is what peers do with 256."""
    own, key = data.draw(st.integers(0, 2**64 - 1)), data.draw(st.integers(0, 2**64 - 1))
    others = [one for one in known if one != own]
    narrow = treecast.levels(own, others, 64)
    wide = treecast.levels(own << 192, [one << 192 for one in others], 256)
    assert wide == {level: [one << 192 for one in ones] for level, ones in narrow.items()}
    chosen = treecast.delegates(own, 0, narrow, key, 64)
    assert treecast.delegates(own << 192, 0, wide, key, 256) == [(o << 192, c) for o, c in chosen]


def test_rounds_grow_with_the_logarithm() -> None:
    for size in (16, 64, 256):
        members = some_members(size, 1)
        links = all_links(members, 4)
        longest = max(cast(root, links, root)[1] for root in members[:16])
        assert longest <= 1.5 * math.log2(size) + 3


def test_random_roots_share_the_work() -> None:
    """Several links per level do, one does not."""
    members = some_members(64, 2)
    shares = {}
    for count in (1, 4):
        links = all_links(members, count)
        total = dict.fromkeys(members, 0)
        for turn in range(1_000):
            root = members[mix(turn) % len(members)]
            for own, sent in cast(root, links, turn)[2].items():
                total[own] += sent
        squares = float(sum(sent * sent for sent in total.values()))
        shares[count] = jain(float(sum(total.values())), squares, float(len(total)))
    assert shares[4] > 0.95 > 0.9 > shares[1]


def test_links_stay_while_they_are_known() -> None:
    own, known = 0, [2**BITS - 1 - number for number in range(10)]
    first = treecast.kept_links(own, 0, known, (), 3, 5, BITS)
    assert len(set(first)) == 3
    assert treecast.kept_links(own, 0, known, first, 3, 99, BITS) == first
    without = [one for one in known if one != first[1]]
    mended = treecast.kept_links(own, 0, without, first, 3, 99, BITS)
    assert mended[:2] == [first[0], first[2]] and mended[2] in without
    assert treecast.kept_links(own, 0, [], first, 3, 5, BITS) == []


def test_other_roots_are_different_members() -> None:
    members = some_members(10, 3)
    roots = treecast.other_roots(members, 3, 11, BITS)
    assert len(set(roots)) == 3 and set(roots) <= set(members)
    assert treecast.other_roots(members[:2], 3, 11, BITS) == treecast.other_roots(
        members[:2], 2, 11, BITS
    )
    drawn = {treecast.other_roots(members, 1, key, BITS)[0] for key in range(200)}
    assert len(drawn) > 5


@given(st.sets(st.integers(0, 2**16 - 1), min_size=2, max_size=60), st.integers(2, 4), st.data())
def test_no_member_is_inside_of_two_trees(
    places: set[int], trees: int, data: st.DataObject
) -> None:
    """So any f crashes leave one tree of f + 1 whole, which reaches everybody else."""
    members, bits = sorted(places), 16
    key = data.draw(st.integers(0, 2**64 - 1))
    first = data.draw(st.sampled_from(members))
    others = [one for one in members if one != first]
    roots = [first, *treecast.other_roots(others, trees - 1, key, bits)]
    inside: list[set[int]] = []
    for tree, root in enumerate(roots):
        going, got, inner = [(root, treecast.ROOT_CHARGE)], [root], set()
        while going:
            own, charge = going.pop()
            known = treecast.levels(own, members, bits)
            told = treecast.forest_delegates(own, charge, known, key, bits, tree, roots, 61)
            inner |= {own} if told else set()
            got += [one for one, _ in told]
            going += told
        assert sorted(got) == members
        inside.append(inner)
    assert sum(map(len, inside)) == len(set().union(*inside))


def test_a_half_that_is_too_large_to_know_is_put_in_charge_of_a_member_of_another_tree() -> None:
    """A sender that may not know all of a half cannot serve it by itself."""
    own, roots, bits = 0, [0, 1], 8
    there = [one for one in range(128, 256) if treecast.tree_of(one, roots, bits) == 1][:5]
    for whole, told in ((6, [(one, bits) for one in there]), (5, None)):
        chosen = treecast.forest_delegates(own, 0, {0: there}, 3, bits, 0, roots, whole)
        assert chosen == told if told else [charge for _, charge in chosen] == [1]


def test_who_is_in_charge_of_whom() -> None:
    assert treecast.is_in_charge(0b1010, 2, 0b1011, 4)
    assert not treecast.is_in_charge(0b1010, 2, 0b1111, 4)
    assert treecast.is_in_charge(0b1010, treecast.ROOT_CHARGE, 0b0101, 4)


def test_there_are_no_other_levels() -> None:
    for level in (-1, 8):
        with pytest.raises(ValueError, match="no level"):
            treecast.link_target(3, level, 8)


# --- How many to tell, and which


def spread(members: int, mode: treecast.Mode, seed: int) -> tuple[int, int]:
    """How many the push reaches from a uniform view of everybody, and with how many messages."""
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
