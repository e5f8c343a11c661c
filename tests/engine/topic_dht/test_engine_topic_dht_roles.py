"""Roles in the topic-aware DHT over arrays: equal to the rules, and right by Lemma 4.2."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topic_dht_reference import BITS, Network
from weft.engine.core.arrays import jain, offsets_of
from weft.engine.data.memberships import Memberships, memberships, spread, zipf_sizes
from weft.engine.topic_dht.roles import (
    ABSENT,
    FORWARDS,
    Roles,
    choose_roles,
    empty_roles,
    heir_of,
    heirs_have_room,
    order_of,
    relieve,
    settled,
    subscribe,
    subscribed,
)
from weft.engine.topic_dht.space import affected, closest, common_prefix, places_of, table_sizes
from weft.rules import prefix, roles

CHOICES = ("forward", "split", "replace", "join")
"""The rule's names for the numbers that arrays hold."""

places64 = st.integers(0, 2**64 - 1)
crowds = st.sets(places64 | st.integers(0, 15), min_size=1, max_size=30)
"""Scattered places and such that share nearly all bits."""


def held_of(groups: list[set[int]], peers: int) -> Memberships:
    offsets = offsets_of(np.array([len(group) for group in groups]))
    members = np.array([peer for group in groups for peer in sorted(group)], np.int32)
    return memberships(peers, offsets, members)


# --- rule by rule ---------------------------------------------------------------------------------


@given(crowds, places64)
def test_who_is_closest_and_whose_children_may_move(crowd: set[int], target: int) -> None:
    places = np.array(sorted(crowd), np.uint64)
    spots = np.arange(len(places), dtype=np.int32)
    here = np.uint64(target)
    at = closest(spots, places, 0, len(places), here)
    assert int(places[at]) == roles.closest_forwarder(target, crowd)
    for one in range(len(places)):
        assert common_prefix(here, places[one]) == prefix.common_prefix(
            target, int(places[one]), BITS
        )
        first, end, _ = affected(spots, places, 0, len(places), one)
        found = [int(places[each]) for each in range(first, end) if each != one]
        others = [int(each) for each in places if each != places[one]]
        assert found == roles.affected(int(places[one]), others, BITS)


loads = st.none() | st.builds(roles.Load, st.integers(1, 9), st.integers(1, 12), st.integers(0, 5))


@given(st.lists(loads, max_size=9), st.integers(0, 4), st.integers(0, 9))
def test_which_role_where(found: list[roles.Load | None], locations: int, more: int) -> None:
    mine = roles.Load(locations, locations + len(found) + more)
    rows = np.zeros((len(found), 3), np.int64)
    for row, load in zip(rows, found, strict=True):
        if load is not None:
            row[:] = load.locations, load.topics, load.children
    choices = np.empty(len(found), np.int64)
    choose_roles(rows, mine.locations, mine.topics, choices)
    expected = roles.choose_roles(dict(enumerate(found)), mine)
    assert [CHOICES[each] for each in choices] == [expected[at] for at in range(len(found))]


@given(crowds, st.integers(1, 4))
def test_tables_hold_as_many_as_their_buckets_can(crowd: set[int], bucket: int) -> None:
    """Two words to a location: here the first one is coarse, as topics are."""
    words = sorted({(place >> 61, place) for place in crowd})
    first, second = (np.array(column, np.uint64) for column in zip(*words, strict=True))
    whole = [one << 64 | other for one, other in words]
    for own, size in zip(whole, table_sizes(first, second, bucket), strict=True):
        shared = [prefix.common_prefix(own, other, 128) for other in whole if other != own]
        assert size == sum(min(bucket, shared.count(length)) for length in set(shared))


# --- the subscription procedure -------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sets(st.integers(0, 23), min_size=1), min_size=1, max_size=6),
    st.lists(places64 | st.integers(0, 99), min_size=24, max_size=24, unique=True),
    st.permutations(range(24)),
    st.integers(1, 5),
)
def test_roles_come_out_as_by_the_rules(
    groups: list[set[int]], places: list[int], order: list[int], k: int
) -> None:
    held = held_of(groups, 24)
    found = empty_roles(held, np.array(places, np.uint64), k)
    expected = Network(k, places)
    for peer in order:
        subscribe(found, np.array([peer]))
        expected.subscribe(peer, [topic for topic, group in enumerate(groups) if peer in group])
    for one in range(held.total):
        topic, place = int(held.topic_of[one]), places[held.members[one]]
        group, parent = expected.groups[topic], int(found.parent[one])
        if parent == FORWARDS:
            assert place in group.children
            assert found.state.children[one] == len(group.children[place])
        else:
            assert places[held.members[parent]] == group.parent(place)
    assert found.locations.tolist() == [expected.locations(peer) for peer in range(24)]


def is_right(found: Roles, places: np.ndarray) -> None:
    """Lemma 4.2 and the bound on children, by looking at everybody."""
    held = found.held
    assert np.all(found.parent != ABSENT)
    assert np.all(found.state.children <= found.k)
    for topic in range(held.topics):
        forwarders = found.forwarders_of(topic)
        spots = places[held.members[forwarders]]
        assert np.all(np.diff(spots.astype(object)) > 0)
        members = np.arange(held.offsets[topic], held.offsets[topic + 1])
        for one in members[found.parent[members] != FORWARDS]:
            distances = spots ^ places[held.members[one]]
            assert found.parent[one] == forwarders[np.argmin(distances)]


def test_a_large_network_is_right() -> None:
    held = spread(zipf_sizes(40, 5_000, 0.7), 800, 3)
    places = places_of(800, 3)
    found = subscribed(held, places, 8, 3)
    is_right(found, places)
    assert sorted(order_of(800, 3)) == list(range(800))
    assert found.locations.min() >= 1, "everybody forwards something"
    assert found.locations.sum() == np.sum(found.parent == FORWARDS)
    again = subscribed(held, places, 8, 3)
    assert np.array_equal(found.parent, again.parent)
    assert not np.array_equal(found.parent, subscribed(held, places, 8, 4).parent)


def test_work_is_shared_more_evenly_after_some_periods() -> None:
    held = spread(zipf_sizes(800, 16_000, 0.7), 800, 3)
    places = places_of(800, 3)
    found = subscribed(held, places, 8, 3)
    before = jain(found.state.work / found.state.topics)
    assert 0 < relieve(found) < 10
    is_right(found, places)
    work = np.bincount(
        held.members, weights=(found.parent == FORWARDS) * (1 + found.state.children)
    )
    assert np.array_equal(work, found.state.work)
    assert jain(work / found.state.topics) > 0.95 > before
    assert all(heir_of(found.state, one) < 0 for one in np.flatnonzero(found.parent == FORWARDS))


def test_wrong_sizes_are_refused() -> None:
    held = held_of([{0, 1}], 2)
    with pytest.raises(ValueError, match="k is at least 1"):
        empty_roles(held, places_of(2, 1), 0)


# --- packing --------------------------------------------------------------------------------------


def test_there_is_room_where_the_rules_say_so() -> None:
    held = spread(zipf_sizes(12, 900, 0.5), 300, 5)
    places = places_of(300, 5)
    found = subscribed(held, places, 4, 5)
    state, said = found.state, set()
    for topic in range(held.topics):
        spots = found.forwarders_of(topic)
        low = int(held.offsets[topic])
        where = {int(places[held.members[one]]): int(one) for one in spots}
        for at, one in enumerate(spots) if len(spots) > 1 else ():
            own = int(places[held.members[one]])
            first, end, _ = affected(state.spots, state.places, low, low + len(spots), low + at)
            children = np.flatnonzero(state.parent == one)
            others = [place for place in where if place != own]
            taken = roles.heirs(own, [int(state.places[c]) for c in children], others, BITS)
            room = all(
                roles.has_room(int(state.children[where[heir]]), more, 4)
                for heir, more in taken.items()
            )
            assert heirs_have_room(state, int(one), first, end, low + at, 4) == room
            said.add(room)
    assert said == {True, False}


@pytest.mark.parametrize("k", [4, 8])
def test_packed_groups_are_right_and_fewer(k: int) -> None:
    held = spread(zipf_sizes(40, 8_000, 0.4), 800, 3)
    places = places_of(800, 3)
    loose, packed = (settled(held, places, k, 3, packs) for packs in (False, True))
    is_right(packed, places)
    assert packed.locations.min() >= 1, "everybody forwards something"
    assert packed.locations.sum() < 0.95 * loose.locations.sum()
    shares = [found.state.work / held.per_peer() for found in (loose, packed)]
    assert jain(shares[1]) > jain(shares[0]) - 0.01
    settled_again = relieve(packed, packs=True)
    assert settled_again == 0, "there is nothing left to do"
