"""tadht-space: how many locations a peer has, and how many entries its tables hold.

Peers are each in about |T_p| of the topics, from a few to many, and topics are dense: each has far
more than k members. Counted after everybody has subscribed, one after the other: |L_p|, and the
entries of a peer's tables once every bucket is as full as it gets (20 to a bucket). The lobby,
where everybody has a location, too, is counted apart.

Also larger and larger networks with the same number of topics per peer: entries per table against
the logarithm of the number N of all locations, those in the lobby included.
"""

from __future__ import annotations

import numpy as np

from weft.engine.core.draws import base_key
from weft.engine.experiments.common import Columns, Params, Point, Size, workload
from weft.engine.topic_dht.roles import FORWARDS, settled
from weft.engine.topic_dht.space import places_of, table_sizes
from weft.rules.draw import absorb, stream_of

SEEDS = {"quick": 2, "full": 5}
BUCKET = 20
"""paper (Kademlia's k)."""
CHILDREN, PER_PEER = (4, 8, 16), (2, 5, 10, 20, 40)
"""k, and topics of a peer."""
_MEMBERS = 100  # of a topic, on average


def points(size: Size) -> list[Point]:
    peers = 10_000 if size == "full" else 1_000
    sizes = [2**exponent * 125 for exponent in range(8 if size == "full" else 5)]
    every = [(peers, k, held) for k in CHILDREN for held in PER_PEER]
    every += [(count, 8, 10) for count in sizes]
    return [
        {
            "peers": count,
            "k": k,
            "per_peer": held,
            "topics": max(1, count * held // _MEMBERS),
            "subscriptions": count * held,
        }
        for count, k, held in dict.fromkeys(every)
    ]


def run(params: Params, seed: int) -> Columns:
    """Rows: one per peer."""
    held = workload(params, seed)
    places = places_of(held.peers, seed)
    roles = settled(held, places, params["k"], seed)
    forwards = np.flatnonzero(roles.parent == FORWARDS)
    key = int(base_key(seed, stream_of("tadht-space.topic")))
    hashes = np.array([absorb(key, topic) for topic in range(held.topics + 1)], np.uint64)
    topics = np.concatenate([held.topic_of[forwards], np.full(held.peers, held.topics)])
    owners = np.concatenate([held.members[forwards], np.arange(held.peers)])
    sizes = table_sizes(hashes[topics], places[owners], BUCKET)
    own, lobby = sizes[: len(forwards)], sizes[len(forwards) :]
    entries = np.bincount(held.members[forwards], weights=own, minlength=held.peers)
    some = held.per_peer() > 0
    return {
        "peer": np.flatnonzero(some),
        "topics_held": held.per_peer()[some],
        "locations": roles.locations[some].astype(np.int64),
        "children_most": int(roles.state.children.max()),
        "entries": entries[some].astype(np.int64),
        "entries_lobby": lobby[some],
        "network": len(owners),
    }


def seconds(params: Params) -> float:
    return 0.5 + float(params["subscriptions"]) * 5e-6
