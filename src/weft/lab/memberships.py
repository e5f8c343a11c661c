"""The memberships that several experiments simulate on, by a point's parameters."""

from __future__ import annotations

from weft.engine.data.memberships import Memberships, spread, uniform_sizes, zipf_sizes
from weft.lab.experiment import Params


def memberships_of(params: Params, seed: int, all_active: bool = True) -> Memberships:
    """Memberships by the parameters peers, topics, subscriptions and zipf (0: uniform)."""
    peers, topics, subscriptions = params["peers"], params["topics"], params["subscriptions"]
    if params.get("zipf", 0.0):
        sizes = zipf_sizes(topics, subscriptions, params["zipf"])
    else:
        sizes = uniform_sizes(topics, subscriptions, peers, seed, all_active)
    return spread(sizes, peers, seed)
