"""Leaving out topics that too few subscribe to, until none is left (StaN 3.1).

One pass is the fixed point. A topic that goes takes only its own memberships along; a user who
leaves with it had no other, so no other topic loses a subscriber. Counting once is therefore
enough, and a second pass over the result finds nothing to do (a test keeps it so).

No more topics can stay than there are memberships / `least`, so the list of them is small enough to
be sent to every worker, and the memberships themselves never move: two scans and one small
aggregation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from weft.pipeline.schemas import MEMBERSHIP, TOPIC_SIZE, selected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LEAST_SUBSCRIBERS = 30
"""paper (Section 3.1): topics with fewer are left out."""


def topic_sizes(memberships: DataFrame) -> DataFrame:
    """How many subscribers each topic has: `TOPIC_SIZE`."""
    counts = memberships.groupBy("topic").agg(F.count(F.lit(1)).alias("subscribers"))
    return selected(counts, TOPIC_SIZE)


def pruned(memberships: DataFrame, least: int = LEAST_SUBSCRIBERS) -> DataFrame:
    """The memberships in topics of at least so many subscribers: `MEMBERSHIP`."""
    popular = memberships.transform(topic_sizes).where(F.col("subscribers") >= least)
    kept = memberships.join(F.broadcast(popular.select("topic")), "topic", "left_semi")
    return selected(kept, MEMBERSHIP)
