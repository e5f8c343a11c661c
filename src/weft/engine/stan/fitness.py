"""How fit an overlay is to carry events (StaN 2.2 and 3.5): components, clustering, diameter.

The graph library is `scipy.sparse.csgraph`: components in C, over the arrays that kernels leave,
under a permissive licence. (igraph has all of it ready-made but is under the GPL; rustworkx has
neither local clustering nor a diameter that needs no table of all pairs.) The diameter is a kernel
of ours, tens of times faster than a search from each member with scipy's.

Strong components and paths follow links in their direction, as events do; weak components, and the
clustering coefficient as in the paper's description, take links in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from weft.engine.core.arrays import Ids, Numbers, offsets_of
from weft.engine.core.jit import compiled, u64


@dataclass(frozen=True)
class Fitness:
    """Figures of one overlay."""

    weak: int  # components
    strong: int
    unlinked: int  # members in nobody's view
    clustering: float
    diameter: int  # the longest of the shortest paths, between members that have one


def fitness(neighbours: Ids, sizes: Numbers, ways: bool = True) -> Fitness:
    """The figures of an overlay. `neighbours` holds the view of one member after the other, as
    places among the members, `sizes` the size of each view. Without `ways` the diameter, which
    takes the longest to compute, is left out (0)."""
    members = len(sizes)
    ones = np.ones(neighbours.size, np.int32)
    graph = sparse.csr_matrix((ones, neighbours, offsets_of(sizes)), (members, members))
    degrees = np.bincount(neighbours, minlength=members)
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
    """The longest of the shortest paths, between members that have one."""
    return int(_longest_way(graph.indptr, graph.indices))


@compiled
def _longest_way(firsts: Ids, neighbours: Ids) -> int:
    """Searches in breadth from 64 members at a time: a bit for each of them in a word says which
    of them has reached a member. One look at a link serves all 64."""
    members = len(firsts) - 1
    longest = 0
    for start in range(0, members, 64):
        reached = np.zeros(members, np.uint64)
        for place in range(min(64, members - start)):
            reached[start + place] = u64(1) << u64(place)
        front = reached.copy()
        steps = 0
        while True:
            found = np.zeros(members, np.uint64)
            for member in range(members):
                if front[member] != u64(0):
                    for at in range(firsts[member], firsts[member + 1]):
                        found[neighbours[at]] |= front[member]
            more = False
            for member in range(members):
                found[member] &= ~reached[member]
                reached[member] |= found[member]
                more |= found[member] != u64(0)
            if not more:
                break
            steps += 1
            front = found
        longest = max(longest, steps)
    return longest
