"""What somebody who knows everything would do: the fewest physical links that a node needs.

A node needs, in each of its topics, so many different members of that topic as neighbours. Which
choice has the fewest neighbours in all is a covering problem, hard to solve exactly; the greedy
answer takes, again and again, whoever is a member of most topics that still want a neighbour. It
is within a factor of 1 + ln(topics) of the best and in practice near it. It knows nothing of an
overlay's fitness: everybody may choose the same well-connected few.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from weft.engine.jit import compiled
from weft.engine.layout import Array
from weft.engine.workload import Memberships
from weft.rules.stan import view_size


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
