"""The correlation of topics by its definition, for tables that fit into memory."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from weft.engine.core.arrays import Numbers, Reals
from weft.engine.data.memberships import Memberships


def most_popular(held: Memberships, wanted: int) -> Numbers:
    """The topics with the most subscribers, first the largest; equal ones by number. A topic of
    none, or of all nodes, varies with nothing and is left out."""
    sizes = held.sizes()
    order = np.argsort(-sizes, kind="stable")
    nodes = int((held.per_peer() > 0).sum())
    varied = (sizes[order] > 0) & (sizes[order] < nodes)
    return np.asarray(order[varied][:wanted], np.int64)


def correlations(held: Memberships, topics: Numbers) -> Reals:
    """The correlation of every two of these topics."""
    ones = sparse.csc_matrix(
        (np.ones(held.total), (held.members, held.topic_of)), shape=(held.peers, held.topics)
    )[:, topics]
    nodes = float((held.per_peer() > 0).sum())
    sizes = held.sizes()[topics].astype(np.float64)
    deviations = np.sqrt(sizes * (nodes - sizes))
    common = np.asarray((ones.T @ ones).todense())
    matrix = (nodes * common - np.outer(sizes, sizes)) / np.outer(deviations, deviations)
    return np.asarray(matrix, np.float64)
