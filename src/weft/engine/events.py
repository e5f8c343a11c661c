"""Events from publisher to subscribers: outer-cluster routing, then a flood inside the topic.

A publisher that subscribes to the topic diffuses the event itself. Any other takes an access
point from its own table or looks one up by walks, and sends it the event; an event whose lookup
finds nobody is lost, and counted (TERA, Section 3, "Event Management").

Messages sent in a cycle are handled in the next: a step of a walk, its answer, the event on its
way to the access point, and every hop of the flood take a cycle each.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.engine.apt import NOT_FOUND, find
from weft.engine.draws import absorb, base_key, below
from weft.engine.flood import Flood
from weft.engine.jit import compiled
from weft.engine.layout import Array
from weft.engine.lookup import Lookups
from weft.engine.tracing import EventTrace
from weft.engine.workload import membership_of
from weft.engine.world import World
from weft.rules.draw import stream_of
from weft.rules.walk import steps_of_each


@dataclass
class Totals:
    """What became of published events."""

    published: int = 0
    lookups: int = 0  # events that needed walks
    lost: int = 0  # events whose lookup found nobody
    wanted: int = 0  # subscribers of all events
    expected: int = 0  # subscribers of the events that were not lost


@dataclass
class Events:
    """All events under way in a world; call `advance` once per cycle, after `World.step`."""

    world: World
    trace: EventTrace | None = None  # where to write what happens to events
    flood: Flood = field(init=False)
    totals: Totals = field(default_factory=Totals)
    visits_found: list[Array] = field(default_factory=list)
    _lookups: list[Lookups] = field(default_factory=list)
    # (due cycle, membership, event, publisher)
    _on_the_way: deque[tuple[int, int, int, int]] = field(default_factory=deque)
    _looked_up: dict[int, Array] = field(default_factory=dict)  # the events of a batch of lookups
    _batches: int = 0

    def __post_init__(self) -> None:
        topics = self.world.topics
        self.flood = Flood(topics.rows, self.world.memberships.offsets, handled=topics.handled)

    @property
    def is_over(self) -> bool:
        return not self._lookups and not self._on_the_way and self.flood.is_over

    def publish(self, topics: Array, publishers: Array) -> None:
        """Publish one event per topic named, by the publisher beside it."""
        world = self.world
        held = world.memberships
        start = _where_to_start(
            topics,
            publishers,
            held.of_peer_offsets,
            held.of_peer,
            held.topic_of,
            world.tables.topics,
            world.tables.points,
            world.tables.counts,
        )
        events = self.totals.published + np.arange(len(topics))
        self.totals.published += len(topics)
        self.totals.wanted += int(held.sizes()[topics].sum())
        if self.trace is not None:
            self.trace.published(world.cycle, topics, publishers)
        for item in np.flatnonzero(start[:, 0] >= 0):
            self._start(int(start[item, 0]), int(events[item]))
        for item in np.flatnonzero((start[:, 0] < 0) & (start[:, 1] >= 0)):
            publisher, point = int(publishers[item]), int(start[item, 1])
            self._route(int(events[item]), publisher, point, world.cycle + 1)
        unknown = (start[:, 0] < 0) & (start[:, 1] < 0)
        if unknown.any():
            self._look_up(topics[unknown], publishers[unknown], events[unknown])

    def advance(self) -> None:
        """One cycle: arrivals diffuse, walks make a step, floods a hop."""
        while self._on_the_way and self._on_the_way[0][0] <= self.world.cycle:
            _, membership, event, publisher = self._on_the_way.popleft()
            self._start(membership, event, publisher)
        ground = self.world.ground()
        for lookups in self._lookups:
            before = lookups.messages, lookups.found.copy()
            lookups.advance(ground)
            self.world.counts.lookup += lookups.messages - before[0]
            for item in np.flatnonzero((before[1] == NOT_FOUND) & (lookups.found != NOT_FOUND)):
                origin, point = int(lookups.origins[item]), int(lookups.found[item])
                event = int(self._looked_up[lookups.batch][item])
                self._route(event, origin, point, self.world.cycle + 2)
            if lookups.is_over:
                self.totals.lost += int((lookups.found == NOT_FOUND).sum())
                self.visits_found.append(lookups.found_visit)
                del self._looked_up[lookups.batch]
        self._lookups = [lookups for lookups in self._lookups if not lookups.is_over]
        sent = self.flood.messages
        if self.trace is not None:
            self.trace.spreading(self.world.cycle, self.flood)
        self.flood.advance()
        self.world.counts.dissemination += self.flood.messages - sent

    def _start(self, membership: int, event: int, routed_by: int | None = None) -> None:
        held = self.world.memberships
        topic = int(held.topic_of[membership])
        self.totals.expected += int(held.offsets[topic + 1] - held.offsets[topic])
        spreading = self.flood.start(topic, membership)
        if self.trace is not None:
            self.trace.entered(self.world.cycle, event, spreading, membership, routed_by)

    def _route(self, event: int, publisher: int, membership: int, due: int) -> None:
        self.world.counts.route += 1
        if self.trace is not None:
            self.trace.routed(self.world.cycle, event, publisher, membership)
        if self.world.general_load is not None:
            self.world.general_load[publisher] += 1
            self.world.general_load[self.world.memberships.members[membership]] += 1
        self._on_the_way.append((due, membership, event, publisher))
        if len(self._on_the_way) > 1 and due < self._on_the_way[-2][0]:
            self._on_the_way = deque(sorted(self._on_the_way))

    def _look_up(self, topics: Array, publishers: Array, events: Array) -> None:
        settings = self.world.settings
        self.totals.lookups += len(topics)
        self._batches += 1
        self._looked_up[self._batches] = events
        steps = steps_of_each(settings.visits, settings.walks)
        self._lookups.append(
            Lookups(publishers, topics, self.world.seed, settings.walks, steps, self._batches)
        )


@compiled
def _where_to_start(
    wanted: Array,
    publishers: Array,
    of_peer_offsets: Array,
    of_peer: Array,
    topic_of: Array,
    topics: Array,
    points: Array,
    counts: Array,
) -> Array:
    """For each event: the publisher's own membership, and what its table has; −1 for none."""
    found = np.full((len(wanted), 2), -1, np.int64)
    for item in range(len(wanted)):
        peer, topic = publishers[item], wanted[item]
        found[item, 0] = membership_of(of_peer_offsets, of_peer, topic_of, peer, topic)
        slot = find(topics, counts, peer, topic)
        if slot != NOT_FOUND:
            found[item, 1] = points[peer, slot]
    return found


@compiled
def _draw_peers(found: Array, peers: int, key: Any) -> None:
    for item in range(len(found)):
        found[item] = below(absorb(key, item), peers)


def random_peers(count: int, peers: int, seed: int, purpose: str, tick: int) -> Array:
    """Peers drawn uniformly, with repetition."""
    found = np.empty(count, np.int64)
    key = base_key(seed, stream_of(purpose, str(tick)))
    _draw_peers(found, peers, key)
    return found
