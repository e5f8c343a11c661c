"""Types of the engine's columns, declared once, and what is computed of whole columns.

A kernel's argument is a column of one of these types or a NamedTuple of several that belong
together; numba takes both. Where a column may be of several types, it is an `Array`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from weft.rules import fairness

Octets: TypeAlias = npt.NDArray[np.uint8]  # bytes; also yes or no for each of many
Ids: TypeAlias = npt.NDArray[np.int32]  # numbers of peers, memberships, topics
Numbers: TypeAlias = npt.NDArray[np.int64]  # counts, offsets, and indices
Loads: TypeAlias = npt.NDArray[np.int64]  # messages: a row per peer or view, two columns (below)
Words: TypeAlias = npt.NDArray[np.uint64]  # keys of draws, random bits, places
Reals: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Array: TypeAlias = npt.NDArray[Any]

SENT, RECEIVED = 0, 1
"""The columns of `Loads`."""


def no_loads(rows: int) -> Loads:
    """Loads of so many rows, before any message."""
    return np.zeros((rows, 2), np.int64)


def offsets_of(sizes: Array) -> Numbers:
    """Where each of several stretches begins that lie side by side, given their sizes; and where
    the last one ends."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def jain(values: Array) -> float:
    """Jain's index: 1 if all are equal, 1/n if one has everything."""
    squares = float((values**2).sum())
    return fairness.jain(float(values.sum()), squares, float(len(values))) if squares else 1.0
