"""Overlay ids converge in whatever order members meet; quiet topics slow down."""

from __future__ import annotations

import functools

from hypothesis import given
from hypothesis import strategies as st

from weft.ids import OverlayId
from weft.rules import tera

ids = st.integers(0, (1 << 63) - 1).map(OverlayId)


@given(st.lists(ids, min_size=1), st.randoms(use_true_random=False))
def test_any_order_of_meeting_ends_with_the_same_id(found: list[OverlayId], order: object) -> None:
    survivor = functools.reduce(tera.surviving, found)
    order.shuffle(found)  # type: ignore[attr-defined]
    assert functools.reduce(tera.surviving, found) == survivor == min(found)


@given(ids, ids)
def test_both_sides_choose_the_same(mine: OverlayId, theirs: OverlayId) -> None:
    survivor = tera.surviving(mine, theirs)
    assert survivor == tera.surviving(theirs, mine)
    assert survivor in (mine, theirs)


@given(st.integers(1, 64), st.integers(1, 64))
def test_quiet_doubles_up_to_the_longest_and_news_resets(period: int, longest: int) -> None:
    assert tera.next_period(period, changed=True, longest=longest) == 1
    quiet = tera.next_period(period, changed=False, longest=longest)
    assert quiet == min(longest, 2 * period)


def test_from_busy_to_quiet() -> None:
    period, seen = 1, []
    for _ in range(5):
        period = tera.next_period(period, changed=False, longest=6)
        seen.append(period)
    assert seen == [2, 4, 6, 6, 6]
