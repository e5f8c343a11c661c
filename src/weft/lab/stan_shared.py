"""Events in several topics: what crosses the connections between peers, with and without sharing
(StaN 2.1, the dissemination management), in the real state machines under the simulator.

Peers of a synthetic grid find each other and their links; then subscribers publish events, each in
several topics of theirs: once as one event in all of them, once as one event for each. What is
counted are events with their payload, by the connection that they cross.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.engine.data.grid import Grid, draw_grid
from weft.ids import Contact, PeerId, Topic
from weft.lab.stan_peers import interests_of, populate
from weft.protocol import config as c
from weft.protocol import messages as m
from weft.protocol.multi_topic import Again
from weft.protocol.wire import Message
from weft.sim.builder import SimNet
from weft.sim.node import Node
from weft.sim.world import Observer, World

SETTLE_MS = 300_000  # measured: links have found their places by then
WARM_EVENTS = 200  # guess: enough to shape every topic's tree
GAP_MS = 500  # guess: an event has reached everyone before the next one


class Crossings(Observer):
    """Counts how often each event's payload crosses each connection, in either direction."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[bytes, frozenset[PeerId]]] = Counter()
        self.references = 0

    def begin(self) -> None:
        self.counts.clear()
        self.references = 0

    def handled(self, now_ms: int, receiver: Node, sender: Contact, message: Message) -> None:
        ends = frozenset((receiver.contact.peer, sender.peer))
        self.references += isinstance(message, Again)
        for event in m.events_in(message):
            self.counts[event.payload, ends] += 1


def run(params: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """One run; rows are the connections that carried an event, one row per event and connection
    class: how many crossings it saw."""
    grid = draw_grid(Grid(nodes=params["nodes"], topics=params["topics"]), seed)
    interests = interests_of(grid)
    crossings = Crossings()
    net = SimNet(seed, c.Config(stan=c.Stan(enabled=params["stan"])), observers=[crossings])
    populate(net, interests)
    net.run(SETTLE_MS)
    for number in range(WARM_EVENTS):
        _publish(net, interests, number, params["together"], params["parts"])
    crossings.begin()
    before = len(net.world.record.deliveries)
    events = [
        _publish(net, interests, WARM_EVENTS + number, params["together"], params["parts"])
        for number in range(params["events"])
    ]
    net.run(20_000)
    return _counted(net.world, crossings, before, events)


def _publish(
    net: SimNet, interests: list[list[str]], number: int, together: bool, parts: int
) -> int:
    """Publish one event in several topics of a peer; returns in how many."""
    able = [peer for peer, topics in enumerate(interests) if len(topics) >= 2]
    peer = net.dice.pick("stan.publisher", able, number)
    topics = [Topic(each) for each in net.dice.some("stan.topics", interests[peer], parts, number)]
    payload = b"event %d" % number
    if together:
        net.world.publish_together(net.nodes[peer], topics, payload)
    else:
        for topic in topics:
            net.world.publish(net.nodes[peer], topic, payload)
    net.run(GAP_MS)
    return len(topics)


def _counted(world: World, crossings: Crossings, before: int, events: list[int]) -> dict[str, Any]:
    per_link = np.array(list(crossings.counts.values()), np.int64)
    delivered = world.record.deliveries[before:]
    notes = Counter((d.peer, d.topic, d.event.payload) for d in delivered)
    owed = sum(
        1
        for d in {(p.topic, p.payload) for p in list(world.record.publications.values())}
        if int(d[1].split()[1]) >= WARM_EVENTS
        for node in world.nodes
        if d[0] in node.stays
    )
    return {
        "published": len(events),
        "topics_per_event": float(np.mean(events)),
        "crossings": int(per_link.sum()),
        "connections": len(per_link),
        "crossings_most": int(per_link.max()),
        "crossed_again": int((per_link > 1).sum()),
        "references": crossings.references,
        "deliveries": len(notes),
        "owed": owed,
        "delivered_twice": int(sum(count > 1 for count in notes.values())),
    }
