"""Who is taken as a link."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weft.rules import tree

counts = st.integers(0, 64)


@given(counts, counts)
def test_somebody_without_links_is_never_refused(held: int, most: int) -> None:
    assert tree.accepts(held, most, urgent=True)
    assert tree.accepts(held, most, urgent=False) == (held < most)


@given(counts, counts)
def test_a_link_is_given_up_only_when_there_is_no_room(held: int, most: int) -> None:
    assert tree.must_evict(held, most) != tree.accepts(held, most, urgent=False)


@given(counts, counts, counts)
def test_asking_stops_when_there_are_enough(held: int, asked: int, wanted: int) -> None:
    more = tree.still_wanted(held, asked, wanted)
    assert more >= 0
    assert held + asked + more >= wanted
    assert more == 0 or held + asked + more == wanted
