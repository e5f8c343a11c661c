"""How fit an overlay is to carry events (StaN 2.2 and 3.5): components, clustering, diameter.

The graph library is `scipy.sparse.csgraph`: components and breadth-first orders in C, over the
arrays that the kernels leave, under a permissive licence. (igraph has all of it ready-made but is
under the GPL; rustworkx has neither local clustering nor a diameter that needs no table of all
pairs.)

Components and ways follow links in their direction, as events do; weak components, and the
clustering coefficient as in the paper's description, take them both ways.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse  # type: ignore[import-untyped]
from scipy.sparse import csgraph  # type: ignore[import-untyped]

Views = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Fitness:
    """Figures of one overlay."""

    weak: int  # components
    strong: int
    unlinked: int  # members in nobody's view
    clustering: float
    diameter: int  # the longest of the shortest ways, between members that have one


def fitness(views: Views, ways: bool = True) -> Fitness:
    """The figures of an overlay: a row per member, with its neighbours numbered by rows. Without
    `ways`, the diameter is left out (0), which takes the longest."""
    members, view = views.shape
    ones = np.ones(views.size, np.int32)
    starts = np.arange(members + 1) * view
    graph = sparse.csr_matrix((ones, views.ravel(), starts), (members, members))
    degrees = np.bincount(views.ravel(), minlength=members)
    return Fitness(
        weak=int(csgraph.connected_components(graph, True, "weak", return_labels=False)),
        strong=int(csgraph.connected_components(graph, True, "strong", return_labels=False)),
        unlinked=int(np.count_nonzero(degrees == 0)),
        clustering=clustering(graph),
        diameter=diameter(graph) if ways else 0,
    )


def clustering(graph: sparse.csr_matrix) -> float:
    """The mean over members of the share of pairs of neighbours that are linked; a member with
    fewer than two neighbours counts as 0."""
    both = ((graph + graph.T) > 0).astype(np.int32)
    linked = np.asarray((both @ both).multiply(both).sum(axis=1)).ravel()  # twice the triangles
    degrees = np.diff(both.indptr)
    pairs = degrees * (degrees - 1)
    return float(np.mean(linked / np.maximum(pairs, 1))) if len(degrees) else 0.0


def diameter(graph: sparse.csr_matrix) -> int:
    """The longest shortest way, over all starts. In breadth-first order the last is the farthest,
    so its depth is the way's length."""
    longest = 0
    for start in range(graph.shape[0]):
        order, before = csgraph.breadth_first_order(graph, start, directed=True)
        depth, at = 0, int(order[-1])
        while at != start:
            at = int(before[at])
            depth += 1
        longest = max(longest, depth)
    return longest
