"""How fit an overlay is to carry events (StaN 2.2 and 3.5): components, clustering, diameter.

The graph library is `scipy.sparse.csgraph`: components in C, over the arrays that kernels leave,
under a permissive licence. (igraph has all of it ready-made but is under the GPL; rustworkx has
neither local clustering nor a diameter that needs no table of all pairs.) The diameter is a kernel
of ours, tens of times faster than a search from each member with scipy's.

Components and ways follow links in their direction, as events do; weak components, and the
clustering coefficient as in the paper's description, take them both ways.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse  # type: ignore[import-untyped]
from scipy.sparse import csgraph  # type: ignore[import-untyped]

from weft.engine.core.jit import compiled, u64
from weft.engine.core.layout import Array
from weft.engine.data.workload import Memberships
from weft.rules.stan import view_size

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
    """The longest shortest way, over all starts, between members that have one."""
    return int(_longest_way(graph.indptr, graph.indices))


@compiled
def _longest_way(firsts: Array, neighbours: Array) -> int:
    """Searches in breadth from 64 members at a time: a bit for each of them in a word says who has
    been reached. One look at a link serves all 64."""
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


# --- stan_omniscient ---------------------------------------------------------------------------
#
# What somebody who knows everything would do: the fewest physical links that a node needs.
#
# A node needs, in each of its topics, so many different members of that topic as neighbours.
# Which choice has the fewest neighbours in all is a covering problem, hard to solve exactly; the
# greedy answer takes, again and again, whoever is a member of most topics that still want a
# neighbour. It is within a factor of 1 + ln(topics) of the best and in practice near it. It knows
# nothing of an overlay's fitness: everybody may choose the same well-connected few.


def fewest(held: Memberships, users: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The physical view size of each of these users under the greedy assignment."""
    wanted = np.array([view_size(int(size)) for size in held.sizes()], np.int64)
    arrays = (held.offsets, held.members, held.topic_of, held.of_peer_offsets, held.of_peer)
    return np.asarray(_fewest(*arrays, held.peers, wanted, users), np.int64)


@compiled
def _fewest(
    offsets: Array,
    members: Array,
    topic_of: Array,
    of_peer_offsets: Array,
    of_peer: Array,
    peers: int,
    wanted: Array,
    users: Array,
) -> Array:
    found = np.zeros(len(users), np.int64)
    gain = np.zeros(peers, np.int64)  # open topics of the present user that each is a member of
    candidates = np.empty(peers, np.int64)
    needs = np.zeros(len(wanted), np.int64)
    for place in range(len(users)):
        user = users[place]
        mine = of_peer[of_peer_offsets[user] : of_peer_offsets[user + 1]]
        count = 0
        for at in range(len(mine)):
            topic = topic_of[mine[at]]
            needs[topic] = wanted[topic]
            for to in range(offsets[topic], offsets[topic + 1]):
                other = members[to]
                if other != user and wanted[topic] > 0:
                    if gain[other] == 0:
                        candidates[count] = other
                        count += 1
                    gain[other] += 1
        while True:
            best = -1
            for at in range(count):
                if gain[candidates[at]] > 0 and (best < 0 or gain[candidates[at]] > gain[best]):
                    best = candidates[at]
            if best < 0:
                break
            found[place] += 1
            gain[best] = 0
            _serve(best, offsets, members, topic_of, of_peer_offsets, of_peer, needs, gain)
        for at in range(len(mine)):
            needs[topic_of[mine[at]]] = 0
    return found


@compiled
def _serve(
    chosen: int,
    offsets: Array,
    members: Array,
    topic_of: Array,
    of_peer_offsets: Array,
    of_peer: Array,
    needs: Array,
    gain: Array,
) -> None:
    """A neighbour is chosen: its topics want one less, and where none is wanted any more, being a
    member is worth nothing."""
    for at in range(of_peer_offsets[chosen], of_peer_offsets[chosen + 1]):
        topic = topic_of[of_peer[at]]
        if needs[topic] > 0:
            needs[topic] -= 1
            if needs[topic] == 0:
                for to in range(offsets[topic], offsets[topic + 1]):
                    gain[members[to]] = max(0, gain[members[to]] - 1)
