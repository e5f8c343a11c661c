"""What peers take on by their capacity: usual peers what they are told, others more or less. And
which walks of others they carry: of many senders few each, of few many, in all a bounded number."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from weft.rules.capacity import (
    CAPACITY_LEAST,
    CAPACITY_MOST,
    EXCHANGES_PER_CYCLE,
    STEPS_MAX,
    WALKS_MAX,
    carries_walk,
    links_most,
    popularity_told,
    scaled,
    told_besides,
    told_in,
)

CAPACITIES = some.floats(CAPACITY_LEAST, CAPACITY_MOST)
NUMBERS = some.integers(1, 64)


@given(NUMBERS, NUMBERS, NUMBERS)
def test_a_usual_peer_does_what_it_is_told_whatever_the_bounds(
    usual: int, least: int, most: int
) -> None:
    assert scaled(usual, 1.0, least, most) == usual
    assert told_in(1.0, 1_000) == 1_000
    assert told_besides(1.0, most) == 0
    assert popularity_told(usual, 1.0) == usual


@given(NUMBERS, CAPACITIES, CAPACITIES)
def test_stronger_peers_take_on_no_less(usual: int, one: float, other: float) -> None:
    weak, strong = sorted((one, other))
    assert scaled(usual, weak, 4, 20) <= scaled(usual, strong, 4, 20)
    assert links_most(usual, 5, weak) <= links_most(usual, 5, strong)
    assert told_in(weak, 1_000) <= told_in(strong, 1_000)
    assert told_besides(weak, 20) <= told_besides(strong, 20)


def test_bounds_keep_events_spreading_and_overlays_connected() -> None:
    assert [scaled(6, capacity, 4, 20) for capacity in (0.1, 0.5, 2.0, 100.0)] == [4, 4, 12, 20]
    assert [links_most(10, 5, capacity) for capacity in (0.1, 0.8, 3.0, 100.0)] == [5, 8, 30, 64]


@given(some.sampled_from((0.25, 0.5, 1.0, 2.0, 5.0, 8.5)), some.integers(100, 10_000))
def test_a_topic_comes_into_tables_as_often_whatever_its_members_can_do(
    capacity: float, popularity: int
) -> None:
    """How often its members advertise it, times the chance that a table takes it in."""
    told = EXCHANGES_PER_CYCLE * told_in(capacity, 1_000) / 1_000 + told_besides(capacity, 20)
    usual = EXCHANGES_PER_CYCLE / popularity
    assert abs(told / popularity_told(popularity, capacity) / usual - 1) < 0.03


# --- walks of others


def carried_of(senders: int, steps: int) -> int:
    """How many walks are carried for each of some peers that flood in turns, with walks of so many
    steps."""
    walks = 0
    while carries_walk((walks // senders + 1) * steps, walks):
        walks += 1
    return walks // senders


@given(some.integers(1, 3_000), some.integers(1, 200))
def test_each_of_many_that_flood_gets_its_share_and_all_together_leave_room(
    senders: int, steps: int
) -> None:
    each = carried_of(senders, steps)
    alpha = STEPS_MAX / WALKS_MAX
    share = alpha * WALKS_MAX / (steps + senders * alpha)  # the module's derivation
    assert share - 1 <= each + 1 and each <= share + 1
    walks = each * senders
    assert walks < WALKS_MAX
    assert carries_walk(1, walks)  # for a peer that has sent none


@given(some.integers(1, 2 * STEPS_MAX), some.integers(0, 2 * WALKS_MAX))
def test_more_use_never_makes_room(steps: int, walks: int) -> None:
    if not carries_walk(steps, walks):
        assert not carries_walk(steps + 1, walks)
        assert not carries_walk(steps, walks + 1)
    assert not carries_walk(steps, WALKS_MAX)
    assert carries_walk(steps, 0) == (steps <= STEPS_MAX)
