"""Lookup walks: as many visits as the wanted success takes, split over the walks."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from weft.rules import tera


@given(st.floats(0.01, 0.9999), st.integers(1, 400), st.integers(1, 10_000))
def test_so_many_visits_are_enough_and_one_fewer_is_not(
    success: float, table_size: int, topics: int
) -> None:
    visits = tera.visits_needed(success, table_size, topics, most=1 << 40)
    missed = max(0.0, 1 - table_size / topics)
    assert 1 - missed**visits >= success - 1e-9
    if visits > 1:
        assert 1 - missed ** (visits - 1) < success + 1e-9


def test_the_papers_example() -> None:
    # A thousand topics, tables of 400: P = 0.99 takes ln 0.01 / ln 0.6 = 9.01 visits.
    assert tera.visits_needed(0.99, 400, 1_000, 1_000) == 10


@given(st.floats(0.01, 0.9999), st.integers(0, 500), st.integers(0, 10**18), st.integers(1, 4_096))
@example(success=0.9, table_size=1, topics=10**17, most=100)
def test_visits_are_bounded_whatever_the_estimate_says(
    success: float, table_size: int, topics: int, most: int
) -> None:
    assert 1 <= tera.visits_needed(success, table_size, topics, most) <= most


def test_an_empty_table_says_nothing() -> None:
    assert tera.visits_needed(0.9, 0, 100, 77) == 77
    assert tera.visits_needed(0.9, 100, 100, 77) == 1


@given(st.integers(1, 10_000), st.integers(1, 64))
def test_walks_share_the_visits(visits: int, walks: int) -> None:
    steps = tera.steps_of_each(visits, walks)
    assert steps * walks >= visits > (steps - 1) * walks


@pytest.mark.parametrize(("visits", "steps"), [(1, 1), (4, 1), (5, 2), (40, 10)])
def test_the_lifetime_of_each_of_four_walks(visits: int, steps: int) -> None:
    assert tera.steps_of_each(visits, 4) == steps
