"""Trees by halving the ring."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.rules import treecast


@given(st.integers(1, 8), st.data())
def test_a_full_ring_gets_it_once_each(bits: int, data: st.DataObject) -> None:
    root = data.draw(st.integers(0, 2**bits - 1))
    received: list[int] = []
    going: list[tuple[int, int | None]] = [(root, None)]
    while going:
        place, level = going.pop()
        following = treecast.next_level(level)
        if following <= bits:
            for target in treecast.link_targets(place, following, bits):
                received.append(target)
                going.append((target, following))
    assert sorted([*received, root]) == list(range(2**bits))


@given(st.integers(2, 10), st.data())
def test_the_arcs_of_a_level_divide_the_arc_above(bits: int, data: st.DataObject) -> None:
    target = data.draw(st.integers(0, 2**bits - 1))
    level = data.draw(st.integers(1, bits - 1))

    def arc(place: int, at: int) -> list[int]:
        first, length = treecast.arc_of(place, at, bits)
        return [(first + step) % 2**bits for step in range(length)]

    below = [
        one for t in treecast.link_targets(target, level + 1, bits) for one in arc(t, level + 1)
    ]
    assert sorted([*below, target]) == sorted(arc(target, level))


def test_levels_end_at_the_closest_neighbour() -> None:
    assert treecast.levels_needed(1, 8) == 8
    assert treecast.levels_needed(0, 8) == 8
    assert treecast.levels_needed(128, 8) == 1
    for distance in range(1, 256):
        level = treecast.levels_needed(distance, 8)
        assert 256 >> level <= distance


def test_there_is_no_level_0() -> None:
    with pytest.raises(ValueError, match="level 0"):
        treecast.link_targets(3, 0, 8)
