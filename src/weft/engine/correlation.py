"""Pearson's correlation between topics: how much more often two share a subscriber than by chance
(StaN 3.2).

A topic is a column of zeros and ones over the nodes. With n nodes, s and t subscribers and c in
common, the correlation of two topics is (n·c − s·t) / √(s(n − s)·t(n − t)).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from weft.engine.jit import compiled
from weft.engine.layout import Array
from weft.engine.workload import Memberships

Matrix = npt.NDArray[np.float64]


def most_popular(held: Memberships, wanted: int) -> npt.NDArray[np.int64]:
    """The topics with the most subscribers, first the largest; equal ones by number. A topic of
    none, or of all nodes, varies with nothing and is left out."""
    sizes = held.sizes()
    order = np.argsort(-sizes, kind="stable")
    varied = (sizes[order] > 0) & (sizes[order] < _nodes(held))
    return np.asarray(order[varied][:wanted], np.int64)


def _nodes(held: Memberships) -> int:
    """How many have a topic."""
    return int((held.per_peer() > 0).sum())


def correlations(held: Memberships, topics: npt.NDArray[np.int64]) -> Matrix:
    """The correlation of every two of these topics."""
    place = np.full(held.topics, -1, np.int64)
    place[topics] = np.arange(len(topics))
    common = np.zeros((len(topics), len(topics)), np.int64)
    _count_common(held.of_peer_offsets, held.of_peer, held.topic_of, place, common)
    nodes = float(_nodes(held))
    sizes = held.sizes()[topics].astype(np.float64)
    deviations = np.sqrt(sizes * (nodes - sizes))
    matrix = (nodes * common - np.outer(sizes, sizes)) / np.outer(deviations, deviations)
    return np.asarray(matrix, np.float64)


@compiled
def _count_common(
    of_peer_offsets: Array, of_peer: Array, topic_of: Array, place: Array, common: Array
) -> None:
    held = np.empty(len(common), np.int64)
    for node in range(len(of_peer_offsets) - 1):
        count = 0
        for at in range(of_peer_offsets[node], of_peer_offsets[node + 1]):
            here = place[topic_of[of_peer[at]]]
            if here >= 0:
                held[count] = here
                count += 1
        for one in range(count):
            for other in range(count):
                common[held[one], held[other]] += 1
