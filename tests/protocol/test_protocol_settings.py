"""Settings behave as frozen dataclasses do, though hardly anything is compiled for each class."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, asdict, replace

import pytest

from weft.protocol.settings import Settings, require_positive


class Inner(Settings):
    """Settings of a layer."""

    cycles: int = 3

    def __post_init__(self) -> None:
        require_positive(self, "inner")


class Outer(Settings):
    """Settings that hold others."""

    name: str
    inner: Inner = Inner()


def test_settings_are_compared_by_their_values_and_their_kind() -> None:
    assert Outer("a") == Outer("a", Inner(3)) != Outer("a", Inner(4))
    assert Outer("a") != ("a", Inner())
    assert len({Outer("a"), Outer("a"), Outer("b")}) == 2


def test_settings_are_shown_by_their_fields() -> None:
    assert repr(Outer("a")) == "Outer(name='a', inner=Inner(cycles=3))"
    assert asdict(Outer("a")) == {"name": "a", "inner": {"cycles": 3}}


def test_settings_cannot_be_changed_only_replaced() -> None:
    outer = Outer("a")
    for name in ("name", "inner", "unknown"):
        with pytest.raises(FrozenInstanceError, match=name):
            setattr(outer, name, "b")
    with pytest.raises(FrozenInstanceError, match="name"):
        del outer.name
    assert replace(outer, name="b") == Outer("b") and outer == Outer("a")


def test_replaced_settings_are_checked_too() -> None:
    with pytest.raises(ValueError, match=r"inner\.cycles must be at least 1"):
        replace(Inner(), cycles=0)
