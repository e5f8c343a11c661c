"""How evenly something is spread over many: Jain's index (Jain, Chiu, Hawe 1984)."""

from __future__ import annotations

from typing import Protocol, Self, TypeVar


class Number(Protocol):
    """A number, or an expression that stands for one, as a column of a query does."""

    def __mul__(self, other: Self, /) -> Self: ...

    def __truediv__(self, other: Self, /) -> Self: ...


N = TypeVar("N", bound=Number)


def jain(total: N, squares: N, count: N) -> N:
    """Jain's index of `count` numbers, from their sum and the sum of their squares: 1 if all are
    equal, 1/n if one has everything."""
    return total * total / (count * squares)
