"""tadht-messages, tadht-rounds: what an event of the topic-aware DHT costs, and how long it takes.

Topics of 2⁴ … 2¹⁴ members. Everybody is in ten topics of the same size, so that forwarders have
children (a peer in one topic only must forward it). Publishers are random members of one of the
topics; a topic's events are counted one by one.
"""

from __future__ import annotations

import math

import numpy as np

from weft.engine.data.workload import memberships
from weft.engine.experiments.common import Columns, Params, Point, Size
from weft.engine.topic_dht.events import SCHEMES, Events
from weft.engine.topic_dht.roles import settled
from weft.engine.topic_dht.space import places_of
from weft.rules.treecast import Mode

SEEDS = {"quick": 2, "full": 5}
K = 8
"""guess, as in the machines' settings: children of a forwarder."""
_TOPICS = 10
_EXPONENTS = {"quick": range(4, 11), "full": range(4, 15)}
_EVENTS = {"quick": 40, "full": 60}


def modes_of(scheme: str) -> tuple[Mode, ...]:
    return ("push", "push-pull") if scheme.endswith("gossip") else ("push",)


def points(size: Size) -> list[Point]:
    return [
        {"members": 2**exponent, "scheme": scheme, "mode": mode, "k": K, "events": _EVENTS[size]}
        for exponent in _EXPONENTS[size]
        for scheme in SCHEMES
        for mode in modes_of(scheme)
    ]


def run(params: Params, seed: int) -> Columns:
    """Rows: one per event."""
    count = params["members"]
    offsets = np.arange(_TOPICS + 1, dtype=np.int64) * count
    held = memberships(count, offsets, np.tile(np.arange(count, dtype=np.int32), _TOPICS))
    roles = settled(held, places_of(count, seed), params["k"], seed)
    events = Events(roles, params["scheme"], seed, params["mode"])
    outcomes = []
    for event in range(params["events"]):
        topic = event % _TOPICS
        outcomes.append(events.publish(topic, events.random_member(topic)))
    forwarders = roles.state.forwarders[np.arange(params["events"]) % _TOPICS]
    return {
        "event": np.arange(params["events"]),
        "forwarders": forwarders,
        **{
            name: np.array([getattr(each, name) for each in outcomes])
            for name in ("payloads", "handovers", "calls", "rounds", "missed")
        },
    }


def seconds(params: Params) -> float:
    work = params["events"] * params["members"] * math.log2(params["members"])
    return 0.2 + float(work) * (4e-8 if params["scheme"].endswith("treecast") else 6e-8)
