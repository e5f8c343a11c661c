"""What the experiments on StaN compute at one point: columns, from the overlays of its memberships.

These run in workers, or on the driver where a point is spread over all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.engine.stan.overlays import IDEAL, Config
from weft.lab.overlaid import Overlaid
from weft.pipeline.stan import MANY_TOPICS
from weft.rules.stan import PATIENCE

Params = Mapping[str, Any]

LEAST = (1, MANY_TOPICS)

PLAIN, OVERHEARD, MENDED, LEAN = "plain", "overheard walks", "mended", "lean"
SHARING = {PLAIN: Config(), OVERHEARD: Config(overheard=True)}
FITNESS_OF = {PLAIN: Config(), MENDED: Config(overheard=True, patience=PATIENCE)}
LEANING = {PLAIN: Config(patience=PATIENCE), LEAN: Config(patience=PATIENCE, lean=True)}
"""Without overheard walks: those bring views nearer to the ideal of lean weights, which saves less
than what walks find at first, because walks find members of many topics first."""

STEPS = (
    *(0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192),
    *(256, 320, 384, 512),
)
"""The rounds that are looked at: all at first, then ever fewer."""


def nodes(params: Params, seed: int, over: Overlaid) -> dict[str, Any]:
    """stan-7: every user's views, before, after and at best."""
    config = SHARING[params.get("variant", PLAIN)]
    found = over.sizes(config, seed, (0, config.rounds, IDEAL))
    return {
        "user": found.nodes,
        "topics": found.topics,
        "lvs": found.logical,
        "ipvs": found.physical[0],
        "fpvs": found.physical[config.rounds],
        "ideal": found.physical[IDEAL],
    }


def pooled(params: Params, seed: int, over: Overlaid) -> dict[str, Any]:
    """stan-8: physical links per user, before, after and at best."""
    columns = nodes(params, seed, over)
    means = {name: float(np.mean(columns[name])) for name in ("ipvs", "fpvs", "ideal")}
    return {"topics": over.topics(), "users": len(columns["user"]), **means}


def fit(params: Params, seed: int, over: Overlaid) -> dict[str, Any]:
    """stan-9: every overlay as a graph, before and after."""
    return over.fitness(FITNESS_OF[params["variant"]], seed)


def leaning(params: Params, seed: int, over: Overlaid) -> dict[str, Any]:
    """stan-lean: what is saved, and how fit the overlays are."""
    config = LEANING[params["variant"]]
    found = over.sizes(config, seed, (0, config.rounds))
    saved = []
    for least in LEAST:
        some = found.topics >= least
        first, last = (found.physical[round_][some].sum() for round_ in (0, config.rounds))
        saved.append(float(1 - last / first) if first else float("nan"))
    graphs = over.fitness(config, seed, ways=False)
    after = graphs["round"] > 0
    return {
        "reduction_all": saved[0],
        "reduction_many": saved[1],
        "overlays": int(after.sum()),
        "strong": float(np.mean(graphs["strong"][after] == 1)),
        "clustering_before": float(np.mean(graphs["clustering"][~after])),
        "clustering_after": float(np.mean(graphs["clustering"][after])),
    }


def worn(params: Params, seed: int, over: Overlaid) -> dict[str, Any]:
    """stan-loss, stan-churn: all physical links together, from look to look."""
    config = Config(
        rounds=params["rounds"],
        loss=params["loss"],
        churn=params["churn"],
        overheard=params["overheard"],
    )
    looks = (*(step for step in STEPS if step < config.rounds), config.rounds)
    found = over.sizes(config, seed, (*looks, IDEAL))
    sums = {round_: int(sizes.sum()) for round_, sizes in found.physical.items()}
    return {
        "round": np.array(looks),
        "pvs": np.array([sums[look] for look in looks]),
        "ipvs": sums[0],
        "ideal": sums[IDEAL],
    }


def omniscient(params: Params, seed: int, over: Overlaid) -> dict[str, Any]:
    """stan-omni: links of all users, and of those in many topics, by kind of overlay."""
    columns = {**nodes(params, seed, over), "omni": over.fewest()}
    groups = [columns["topics"] >= least for least in LEAST]
    return {
        "least": np.array(LEAST),
        "users": np.array([int(group.sum()) for group in groups]),
        **{
            name: np.array([int(columns[name][group].sum()) for group in groups])
            for name in ("lvs", "ipvs", "fpvs", "ideal", "omni")
        },
    }
