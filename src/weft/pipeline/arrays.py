"""Memberships as arrays, for kernels: collected once, numbered as in the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.engine.data.workload import Memberships, memberships

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def held(frame: DataFrame) -> Memberships:
    """A table of memberships as arrays: 12 bytes each. Users and topics keep their numbers; a
    number that does not occur is a user without topics, or a topic without subscribers."""
    table = frame.select("user", "topic").toArrow()
    users = table.column("user").to_numpy().astype(np.int32)
    topics = table.column("topic").to_numpy().astype(np.int32)
    # In order of users, so that the order of the rows, which is chance, does not matter.
    order = np.lexsort((users, topics))
    sizes = np.bincount(topics) if len(topics) else np.zeros(0, np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return memberships(int(users.max()) + 1 if len(users) else 0, offsets, users[order])
