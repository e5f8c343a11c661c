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
from weft.ids import PeerId, Topic
from weft.lab.stan_peers import interests_of
from weft.protocol import config as c
from weft.protocol import messages as m
from weft.protocol import seam
from weft.protocol.multi_topic import Again
from weft.protocol.peer import Peer
from weft.protocol.recent import Repair
from weft.sim.dice import Dice
from weft.sim.network import Conditions, Network
from weft.sim.node import Node, contact_of
from weft.sim.world import World

SETTLE_MS = 300_000  # measured: links have found their places by then
WARM_EVENTS = 200  # guess: enough to shape every topic's tree
GAP_MS = 500  # guess: an event has reached everyone before the next one


class CountingWorld(World):
    """Counts how often each event's payload crosses each connection, in either direction."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.crossings: Counter[tuple[bytes, frozenset[PeerId]]] = Counter()
        self.references = 0

    def _on_received(self, node: Node, fact: seam.Received) -> None:
        super()._on_received(node, fact)
        message = fact.message
        ends = frozenset((node.contact.peer, fact.sender.peer))
        if isinstance(message, Again):
            self.references += 1
        elif m.payloads_in(message):
            events = message.events if isinstance(message, Repair) else [message.event]  # type: ignore[attr-defined]
            for event in events:
                self.crossings[event.payload, ends] += 1


def run(params: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """One run; rows are the connections that carried an event, one row per event and connection
    class: how many crossings it saw."""
    grid = draw_grid(Grid(nodes=params["nodes"], topics=params["topics"]), seed)
    interests = interests_of(grid)
    dice = Dice(seed)
    config = c.Config(stan=c.Stan(enabled=params["stan"]))
    world = CountingWorld(Network(seed, Conditions()))
    _populate(world, interests, config, seed, dice)
    world.run_until(world.now_ms + SETTLE_MS)
    for number in range(WARM_EVENTS):
        _publish(world, interests, dice, number, params["together"], params["parts"])
    world.crossings.clear()
    world.references = 0
    before = len(world.record.deliveries)
    events = [
        _publish(world, interests, dice, WARM_EVENTS + number, params["together"], params["parts"])
        for number in range(params["events"])
    ]
    world.run_until(world.now_ms + 20_000)
    return _counted(world, before, events)


def _populate(
    world: World, interests: list[list[str]], config: c.Config, seed: int, dice: Dice
) -> None:
    contacts = [contact_of(seed, peer) for peer in range(len(interests))]
    for contact in contacts:
        world.add(contact, lambda me=contact: Peer(me, seed, config))  # type: ignore[misc]
    for peer, node in enumerate(world.nodes):
        world.start(node, [contacts[dice.below("stan.join", peer, peer)]] if peer else [])
        world.run_until(world.now_ms + 10)
    for node, topics in zip(world.nodes, interests, strict=True):
        for topic in topics:
            world.subscribe(node, Topic(topic))


def _publish(
    world: World, interests: list[list[str]], dice: Dice, number: int, together: bool, parts: int
) -> int:
    """Publish one event in several topics of a peer; returns in how many."""
    able = [peer for peer, topics in enumerate(interests) if len(topics) >= 2]
    peer = dice.pick("stan.publisher", able, number)
    topics = [Topic(each) for each in dice.some("stan.topics", interests[peer], parts, number)]
    payload = b"event %d" % number
    if together:
        world.publish_together(world.nodes[peer], topics, payload)
    else:
        for topic in topics:
            world.publish(world.nodes[peer], topic, payload)
    world.run_until(world.now_ms + GAP_MS)
    return len(topics)


def _counted(world: CountingWorld, before: int, events: list[int]) -> dict[str, Any]:
    per_link = np.array(list(world.crossings.values()), np.int64)
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
        "references": world.references,
        "deliveries": len(notes),
        "owed": owed,
        "delivered_twice": int(sum(count > 1 for count in notes.values())),
    }
