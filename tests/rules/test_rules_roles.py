"""Which members forward and which are children."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chi_square import chi_square_p
from weft.rules import roles
from weft.rules.draw import draw
from weft.rules.prefix import common_prefix
from weft.rules.roles import Load, has_room, heirs, retires

BITS = 8
places = st.sets(st.integers(0, 2**BITS - 1), min_size=1, max_size=20).map(sorted)


def test_fairness_is_the_papers_inequality() -> None:
    for l_q in range(5):
        for t_q in range(1, 5):
            for l_p in range(5):
                for t_p in range(1, 5):
                    unfair = (l_q - 1) / t_q > (l_p + 1) / t_p
                    assert roles.is_unfair(Load(l_q, t_q), Load(l_p, t_p)) == unfair


def test_taking_over_never_reverses_the_unfairness() -> None:
    for l_q in range(1, 8):
        for l_p in range(8):
            if roles.is_unfair(Load(l_q, 4), Load(l_p, 4)):
                assert not roles.is_unfair(Load(l_p + 1, 4), Load(l_q - 1, 4))


def test_a_child_takes_over_only_if_the_larger_share_becomes_smaller() -> None:
    for work in range(2, 30):
        for children in range(1, 9):
            for mine in range(20):
                parent, child = Load(1, 7, children, work), Load(1, 5, 0, mine)
                taken = children + 1
                before = max(work / 7, mine / 5)
                after = max((work - taken) / 7, (mine + taken) / 5)
                if taken <= work and roles.relieves(child, parent):
                    assert after < before
                    assert not roles.relieves(
                        Load(1, 7, 0, work - taken), Load(1, 5, children, mine + taken)
                    )


def test_a_forwarder_that_does_little_else_is_left_alone() -> None:
    idle = Load(0, 10)
    assert not roles.relieves(idle, Load(1, 1, children=8, work=9))
    assert not roles.relieves(idle, Load(2, 10, children=8, work=17))
    assert not roles.relieves(idle, Load(2, 10, children=8, work=18))  # each would serve 9
    assert roles.relieves(idle, Load(3, 10, children=8, work=19))


def test_the_bound_of_the_location_view() -> None:
    assert roles.location_view_bound(9, 8) == 2.0
    assert roles.is_overfull(9, 8) and not roles.is_overfull(8, 8)


def test_roles_are_chosen_in_the_papers_order() -> None:
    busy, idle = Load(9, 10, children=2), Load(1, 10, children=5)
    found = {"/none": None, "/busy": busy, "/idle": idle}
    chosen = roles.choose_roles(found, Load(0, 3))
    assert chosen == {"/none": "forward", "/busy": "replace", "/idle": "join"}
    # Without any location there is first a split, where there are most children.
    assert roles.choose_roles({"/busy": busy, "/idle": idle}, Load(0, 2))["/idle"] == "split"
    assert roles.choose_roles({"/idle": idle}, Load(1, 2)) == {"/idle": "join"}


@given(places, st.integers(0, 2**BITS - 1))
def test_only_the_affected_lose_children_to_a_newcomer(forwarders: list[int], new: int) -> None:
    if new in forwarders:
        return
    near = roles.affected(new, forwarders, BITS)
    for child in range(2**BITS):
        before = roles.closest_forwarder(child, forwarders)
        after = roles.closest_forwarder(child, [*forwarders, new])
        assert after == before or (after == new and before in near)


@given(places)
def test_a_split_always_makes_a_forwarder_lose_somebody(places: list[int]) -> None:
    own, *children = places
    if not children:
        return
    chosen = roles.split_target(own, children)
    assert chosen in children
    left = [one for one in children if one != chosen and not roles.is_closer(one, chosen, own)]
    assert len(left) < len(children)
    assert roles.heir(own, children) == roles.closest_forwarder(own, children)


@given(places)
def test_the_closest_to_a_random_target_is_drawn_by_the_forks_above_it(
    locations: list[int],
) -> None:
    """Why `Region` is needed: with b forks on its way, a location's share is 2^−b."""
    forks = [
        {common_prefix(own, other, BITS) for other in locations if other != own}
        for own in locations
    ]
    weights = [2.0 ** -len(levels) for levels in forks]
    counts = dict.fromkeys(locations, 0)
    for target in range(2**BITS):
        closest = roles.closest_forwarder(target, locations)
        assert closest is not None
        counts[closest] += 1
    assert [counts[one] / 2**BITS for one in locations] == weights


def test_seats_of_regions_are_uniform_where_the_closest_is_not() -> None:
    locations = sorted({draw(1, 2, 3, 4, item) >> 56 for item in range(40)})
    bits, seats, tries = 3, 16, 40_000
    counts = dict.fromkeys(locations, 0)
    closest = dict.fromkeys(locations, 0)
    for tick in range(tries):
        target = draw(1, 5, 0, tick, 0) >> 56
        inside = tuple(one for one in locations if one >> (BITS - bits) == target >> (BITS - bits))
        region = roles.Region(inside, seats)
        assert region.is_whole
        chosen = region.on(draw(1, 6, 0, tick, 0) % seats)
        if chosen is not None:
            counts[chosen] += 1
        near = roles.closest_forwarder(target, locations)
        assert near is not None
        closest[near] += 1
    assert chi_square_p(list(counts.values())) > 0.001
    assert chi_square_p(list(closest.values())) < 1e-9  # Lemma 4.7 as the paper proves it


def test_regions_have_room_for_three_times_as_many() -> None:
    assert not roles.Region((1, 2, 3), 3).is_whole and roles.Region((1, 2), 3).is_whole
    assert [roles.region_bits(count, 18) for count in (1, 6, 7, 12, 13, 96)] == [0, 0, 1, 1, 2, 4]


def test_how_many_there_are_is_estimated_from_the_closest_few() -> None:
    bits, count = 64, 500
    locations = [draw(7, 1, 0, 0, item) for item in range(count)]
    estimates = []
    for tick in range(200):
        target = draw(7, 2, 0, tick, 0)
        found = sorted(locations, key=lambda one: one ^ target)[:20]
        estimates.append(roles.forwarders_estimate(target, found, bits))
    assert 0.9 * count < sum(estimates) / len(estimates) < 1.1 * count


def test_members_of_a_forwarder_that_stops_go_to_the_closest_around_it() -> None:
    assert heirs(0b1000, [0b1010, 0b1110], [0b0001, 0b1100], 4) == {0b1100: 3}
    assert heirs(0b1000, [0b1010, 0b1110], [0b1100, 0b1111], 4) == {0b1100: 1, 0b1111: 2}


def test_a_forwarder_stops_for_one_that_forwards_no_more_of_its_topics() -> None:
    assert retires(Load(2, 4), Load(2, 4))
    assert not retires(Load(2, 4), Load(3, 4))
    assert retires(Load(2, 4), Load(3, 6))
    assert not retires(Load(1, 1), Load(1, 9)), "everybody forwards something"
    assert has_room(3, 1, 4) and not has_room(3, 2, 4)
