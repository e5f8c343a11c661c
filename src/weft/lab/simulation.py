"""What the simulations of several experiments need: memberships by parameters, and ranks."""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata  # type: ignore[import-untyped]

from weft.engine.core.layout import Array
from weft.engine.data.workload import Memberships, spread, uniform_sizes, zipf_sizes
from weft.lab.experiment import Params


def workload(params: Params, seed: int, all_active: bool = True) -> Memberships:
    """Memberships by the parameters peers, topics, subscriptions and zipf (0: uniform)."""
    peers, topics, subscriptions = params["peers"], params["topics"], params["subscriptions"]
    if params.get("zipf", 0.0):
        sizes = zipf_sizes(topics, subscriptions, params["zipf"])
    else:
        sizes = uniform_sizes(topics, subscriptions, peers, seed, all_active)
    return spread(sizes, peers, seed)


def rank_correlation(one: Array, other: Array) -> float:
    """Spearman's; 0 if either column does not vary."""
    a, b = rankdata(one), rankdata(other)
    if a.std() == 0 or b.std() == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])
