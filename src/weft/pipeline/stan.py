"""StaN over a table of memberships: logical and physical links of every node, round by round.

Workers improve overlays (`weft.engine.stan.overlays`) and answer, for each user and round, with the
different neighbours over those of its topics that were computed together. Counting the different
ones over all of a user's topics is then an aggregation: the physical view size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import Column
from pyspark.sql import functions as F

from weft.engine.stan import overlays as engine
from weft.engine.stan.overlays import IDEAL, Config, Outcome, Overlays
from weft.engine.stan.views import Interests
from weft.pipeline.schemas import (
    LINKS,
    NODE_SIZES,
    REDUCTION,
    VIEW_SIZES,
    selected,
)
from weft.pipeline.stan_bins import computed

if TYPE_CHECKING:
    from pyarrow import Table  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame

LINKS_AT_ONCE = 1 << 23
"""guess: links that a task holds, over all rounds asked for: some 200 MB while they are sorted."""
MANY_TOPICS = 10
"""Users in so many topics or more are those that StaN is for."""


def links(
    memberships: DataFrame, config: Config, seed: int, rounds: Sequence[int] | None = None
) -> DataFrame:
    """Who is linked to whom after each of `rounds` (0: the random views that StaN starts from;
    IDEAL: its own ideal; by default these two and the last): `LINKS`."""
    asked = tuple(rounds) if rounds is not None else (0, config.rounds, IDEAL)

    def compute(overlays: Overlays, interests: Interests | None) -> Iterator[Table]:
        outcome = engine.run(overlays, config, seed, asked, interests)
        for round_ in asked:
            yield neighbours_of(outcome, round_)

    return computed(memberships, config, asked, compute, LINKS, LINKS_AT_ONCE)


def neighbours_of(outcome: Outcome, round_: int) -> Table:
    """The different neighbours of each user over the overlays of an outcome."""
    import pyarrow  # noqa: PLC0415
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

    overlays = outcome.overlays
    pairs = outcome.owners().astype(np.int64) << 32
    pairs |= outcome.at(round_)
    pairs = np.unique(pairs)
    # Some may have no neighbour: the only subscribers of their topics.
    users, topics = np.unique(overlays.members, return_counts=True)
    firsts = np.searchsorted(pairs, np.append(users, users[-1:] + 1).astype(np.int64) << 32)
    rows = np.searchsorted(users, overlays.members)
    logical = np.bincount(rows, weights=overlays.degrees(), minlength=len(users))
    values = pyarrow.array((pairs & 0xFFFFFFFF).astype(np.int32))
    columns = [
        np.full(len(users), round_, np.int32),
        users.astype(np.int32),
        topics.astype(np.int32),
        logical.astype(np.int32),
        pyarrow.ListArray.from_arrays(pyarrow.array(firsts.astype(np.int32)), values),
    ]
    return pyarrow.table(columns, schema=to_arrow_schema(LINKS))


def view_sizes(linked: DataFrame) -> DataFrame:
    """Logical and physical view sizes of each user after each round: `LINKS` → `VIEW_SIZES`."""
    different = F.array_distinct(F.flatten(F.collect_list("neighbours")))
    counted = linked.groupBy("round", "user").agg(
        F.sum("topics").alias("topics"),
        F.sum("logical").alias("lvs"),
        F.size(different).alias("pvs"),
    )
    return selected(counted, VIEW_SIZES)


def node_sizes(sizes: DataFrame) -> DataFrame:
    """Before, after and at best, side by side: `VIEW_SIZES` → `NODE_SIZES`."""
    last = F.max("round").alias("last")
    ends = sizes.crossJoin(F.broadcast(sizes.agg(last)))

    def at(where: Column, name: str) -> Column:
        return F.max(F.when(where, F.col("pvs"))).alias(name)

    wide = ends.groupBy("user").agg(
        F.max("topics").alias("topics"),
        F.max("lvs").alias("lvs"),
        at(F.col("round") == 0, "ipvs"),
        at(F.col("round") == F.col("last"), "fpvs"),
        at(F.col("round") == IDEAL, "ideal"),
    )
    return selected(wide, NODE_SIZES)


def stan_nodes(memberships: DataFrame, config: Config, seed: int) -> DataFrame:
    """StaN from beginning to end: what each user's views come to (`NODE_SIZES`)."""
    found = links(memberships, config, seed, (0, config.rounds, IDEAL))
    return found.transform(view_sizes).transform(node_sizes)


def reductions(nodes: DataFrame, least: Sequence[int] = (1, MANY_TOPICS)) -> DataFrame:
    """Physical links pooled over users in so many topics or more: `NODE_SIZES` → `REDUCTION`."""
    groups = F.explode(F.array(*(F.lit(number) for number in least))).alias("least")
    some = nodes.select("*", groups).where(F.col("topics") >= F.col("least"))
    better = (1 - F.col("fpvs") / F.col("ipvs") > 0.4).cast("double")
    pooled = some.groupBy("least").agg(
        F.count(F.lit(1)).alias("users"),
        *(F.sum(name).alias(name) for name in ("lvs", "ipvs", "fpvs", "ideal")),
        F.avg(better).alias("improved_40"),
    )
    return selected(pooled, REDUCTION)
