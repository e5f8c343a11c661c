"""Scamp's decisions: copies, keeping, replacing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weft.rules import scamp


@given(st.integers(1, 50), st.integers(0, 5), st.integers(0, 49))
def test_every_member_of_a_contacts_view_has_a_copy_and_c_are_drawn(
    view: int, extra: int, drawn: int
) -> None:
    drawn %= view
    slots = [scamp.first_slot(copy, view, drawn) for copy in range(scamp.copies(view, extra))]
    assert slots == [*range(view), *[drawn] * extra]


def test_smaller_views_keep_more_readily_and_an_empty_one_always() -> None:
    assert [scamp.one_in(view) for view in (0, 1, 9)] == [1, 2, 10]
    assert [scamp.is_isolated(view) for view in (0, 1)] == [True, False]


@given(st.integers(0, 60), st.integers(1, 30), st.integers(0, 5))
def test_all_holders_but_c_and_one_replace_a_leaver(holders: int, view: int, extra: int) -> None:
    replaced = [scamp.is_replaced(place, holders, extra) for place in range(holders)]
    assert sum(replaced) == max(0, holders - extra - 1)
    assert replaced == sorted(replaced, reverse=True)
    slots = [scamp.replacement(place, view) for place in range(sum(replaced))]
    assert max((slots.count(slot) for slot in slots), default=0) <= -(-holders // view)


def test_a_copy_does_not_wander_for_ever() -> None:
    assert not scamp.is_given_up(1)
    assert scamp.is_given_up(scamp.HOPS_MAX)
