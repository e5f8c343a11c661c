"""A dictionary that forgets its oldest entries, for all that others can make a peer remember.

What comes from the network is remembered up to a bound, and the entry that was put in first gives
way. An entry that is written again keeps its place in that order; `renew` gives it the youngest.

The front of a plain dictionary is found the slower the more was taken from it. Where a bound is
reached all the time and entries are many, an `OrderedDict` serves better (`documents/dag.py`: 0.4
µs in place of 7 per entry at 65,536).
"""

from __future__ import annotations

from typing import NoReturn, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(dict[K, V]):
    """At most `most` entries, in the order in which their keys came in."""

    __slots__ = ("most",)

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        if len(self) > self.most:
            del self[next(iter(self))]

    def setdefault(self, key: K, default: V) -> V:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *_: object, **__: object) -> NoReturn:
        """Refused, as `|=` is: many entries at once would go past the bound."""
        raise TypeError("the entries of a bounded dictionary are put one by one")

    __ior__ = update

    def put(self, key: K, value: V) -> V | None:
        """Write an entry; returns the value that gave way to it, if one did."""
        super().__setitem__(key, value)
        return self.pop(next(iter(self))) if len(self) > self.most else None

    def renew(self, key: K, value: V) -> None:
        """Write an entry and make it the youngest."""
        self.pop(key, None)
        self[key] = value
