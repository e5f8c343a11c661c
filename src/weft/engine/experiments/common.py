"""What experiments share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np

from weft.engine.core.arrays import Array
from weft.engine.data.workload import Memberships, spread, uniform_sizes, zipf_sizes

Size: TypeAlias = Literal["quick", "full"]
Params: TypeAlias = Mapping[str, Any]
Point: TypeAlias = dict[str, Any]
Columns: TypeAlias = dict[str, Any]


def workload(params: Params, seed: int, all_active: bool = True) -> Memberships:
    """Memberships by the parameters peers, topics, subscriptions and zipf (0: uniform)."""
    peers, topics, subscriptions = params["peers"], params["topics"], params["subscriptions"]
    if params.get("zipf", 0.0):
        sizes = zipf_sizes(topics, subscriptions, params["zipf"])
    else:
        sizes = uniform_sizes(topics, subscriptions, peers, seed, all_active)
    return spread(sizes, peers, seed)


def ranks(values: Array) -> Array:
    """Ranks, equal values sharing the mean of theirs."""
    _, first, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means = ends - (counts + 1) / 2
    return means[first]


def rank_correlation(one: Array, other: Array) -> float:
    """Spearman's; 0 if either does not vary."""
    a, b = ranks(one), ranks(other)
    if a.std() == 0 or b.std() == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])
