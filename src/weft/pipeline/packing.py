"""Sharing work out over tasks, so that all have about as much."""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt


def packed(costs: npt.NDArray[np.float64], bins: int) -> npt.NDArray[np.int32]:
    """A bin for each cost, so that the bins' sums are about equal: the largest first, each into the
    bin that has least so far."""
    loads = [(0.0, number) for number in range(bins)]
    chosen = np.zeros(len(costs), np.int32)
    for place in np.argsort(-costs, kind="stable"):
        load, number = loads[0]
        chosen[place] = number
        heapq.heapreplace(loads, (load + float(costs[place]), number))
    return chosen
