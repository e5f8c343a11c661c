"""The bounded dictionary: never more than it may hold, the oldest gives way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.bounded import BoundedDict


@given(st.integers(1, 5), st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans())))
def test_the_youngest_stay(most: int, writes: list[tuple[str, bool]]) -> None:
    bounded: BoundedDict[str, int] = BoundedDict(most)
    model: list[str] = []
    for number, (key, renews) in enumerate(writes):
        if renews:
            bounded.renew(key, number)
            model = [*(k for k in model if k != key), key]
        else:
            bounded[key] = number
            model = model if key in model else [*model, key]
        model = model[-most:]
        assert list(bounded) == model
        assert bounded[key] == number


def test_a_default_counts_as_an_entry() -> None:
    bounded: BoundedDict[str, int] = BoundedDict(1)
    assert bounded.setdefault("a", 1) == 1
    assert bounded.setdefault("a", 2) == 1
    assert bounded.setdefault("b", 3) == 3
    assert list(bounded) == ["b"]


def test_many_entries_at_once_are_refused() -> None:
    held: BoundedDict[str, int] = BoundedDict(1)
    with pytest.raises(TypeError):
        held.update({"a": 1, "b": 2})
    with pytest.raises(TypeError):
        held |= {"a": 1, "b": 2}
    assert not held


def test_what_gives_way_is_handed_back() -> None:
    bounded: BoundedDict[str, int] = BoundedDict(1)
    assert bounded.put("a", 1) is None
    assert bounded.put("a", 2) is None
    assert bounded.put("b", 3) == 2
    assert list(bounded.items()) == [("b", 3)]
