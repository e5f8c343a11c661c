"""What experiments share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

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
