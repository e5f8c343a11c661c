"""tadht-fair: whether who receives more also forwards more, and nobody much more than others.

10⁴ peers, 10³ topics with popularity by Zipf 0.7, 2·10⁵ subscriptions; as many events in each
topic, each published by a random member, whose tree it goes out by. Per peer: copies of events
sent, and events received, over all of its topics.
"""

from __future__ import annotations

import numpy as np

from weft.engine.experiments.common import Columns, Params, Point, Size, workload
from weft.engine.experiments.tadht_events import K, modes_of
from weft.engine.topic_dht.events import LINKS, SCHEMES, Events
from weft.engine.topic_dht.roles import settled
from weft.engine.topic_dht.space import places_of

SEEDS = {"quick": 2, "full": 3}
SIZES: dict[str, Point] = {
    "quick": {"peers": 2_000, "topics": 1_000, "subscriptions": 40_000, "zipf": 0.7, "events": 5},
    "full": {
        "peers": 10_000,
        "topics": 1_000,
        "subscriptions": 200_000,
        "zipf": 0.7,
        "events": 30,
    },
}


def points(size: Size) -> list[Point]:
    """Every scheme with several links per level, and trees with the paper's one."""
    return [
        {**SIZES[size], "k": K, "scheme": scheme, "mode": mode, "links": links}
        for scheme in SCHEMES
        for mode in modes_of(scheme)
        for links in ((LINKS, 1) if scheme.endswith("treecast") else (LINKS,))
    ]


def run(params: Params, seed: int) -> Columns:
    """Rows: one per peer."""
    held = workload(params, seed)
    roles = settled(held, places_of(held.peers, seed), params["k"], seed)
    events = Events(roles, params["scheme"], seed, params["mode"], params["links"])
    missed = 0
    for topic in range(held.topics):
        for _ in range(params["events"]):
            missed += events.publish(topic, events.random_member(topic)).missed
    sent = np.bincount(held.members, weights=events.sent, minlength=held.peers)
    received = np.bincount(held.members, weights=events.received, minlength=held.peers)
    some = received > 0
    return {
        "peer": np.flatnonzero(some),
        "topics_held": held.per_peer()[some],
        "locations": roles.locations[some].astype(np.int64),
        "sent": sent[some].astype(np.int64),
        "received": received[some].astype(np.int64),
        "missed": missed,
    }


def seconds(params: Params) -> float:
    return 2.0 + float(params["events"] * params["subscriptions"]) * 2.5e-6
