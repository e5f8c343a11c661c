"""Events from publisher to subscribers: outer-cluster routing, then a flood inside the topic.

A publisher that subscribes to the topic diffuses the event itself. Every other one takes an access
point from its own table or looks one up by walks, and sends it the event; an event whose lookup
finds nobody is lost, and counted (TERA, Section 3, "Event Management").

Messages sent in a cycle are handled in the next: a step of a walk, its answer, the event on its
way to the access point, and every hop of the flood take a cycle each.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

from weft import trace
from weft.documents.run import Event
from weft.engine.core.arrays import Ids, Numbers
from weft.engine.core.jit import compiled
from weft.engine.data.memberships import Memberships, membership_of, topic_name
from weft.engine.tera.access_points import NOT_FOUND, Tables, find
from weft.engine.tera.flood import Flood
from weft.engine.tera.lookup import Lookups
from weft.engine.tera.world import World
from weft.ids import PEER_ID_BYTES, PeerId, Topic, peer_text
from weft.protocol import delivery
from weft.protocol.publication import RouteEvent
from weft.protocol.wire import Payload
from weft.rules.tera import steps_of_each


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
    forwarded: Numbers | None = None  # counts copies sent, per membership
    fanout: Ids | None = None  # members send to so many random neighbours; None: to all
    flood: Flood = field(init=False)
    totals: Totals = field(default_factory=Totals)
    visits_found: list[Numbers] = field(default_factory=list)
    _lookups: list[Lookups] = field(default_factory=list)
    # (due cycle, membership, event, publisher)
    _on_the_way: deque[tuple[int, int, int, int]] = field(default_factory=deque)
    _looked_up: dict[int, Numbers] = field(default_factory=dict)  # the events of a batch of lookups
    _batches: int = 0

    def __post_init__(self) -> None:
        topics = self.world.topics
        self.flood = Flood(
            topics.rows,
            self.world.memberships.offsets,
            loads=topics.loads,
            forwarded=self.forwarded,
            fanout=self.fanout,
            seed=self.world.seed,
        )

    @property
    def is_over(self) -> bool:
        return not self._lookups and not self._on_the_way and self.flood.is_over

    def publish(self, topics: Numbers, publishers: Numbers) -> None:
        """Publish one event per topic named, by the publisher beside it."""
        world = self.world
        held = world.memberships
        start = _where_to_start(topics, publishers, held, world.tables)
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
        self.world.note_routed(publisher, membership)
        self._on_the_way.append((due, membership, event, publisher))
        if len(self._on_the_way) > 1 and due < self._on_the_way[-2][0]:
            self._on_the_way = deque(sorted(self._on_the_way))

    def _look_up(self, topics: Numbers, publishers: Numbers, events: Numbers) -> None:
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
    wanted: Numbers, publishers: Numbers, held: Memberships, tables: Tables
) -> Numbers:
    """For each event: the publisher's own membership, and what its table has; −1 for none."""
    found = np.full((len(wanted), 2), -1, np.int64)
    for item in range(len(wanted)):
        peer, topic = publishers[item], wanted[item]
        found[item, 0] = membership_of(held, peer, topic)
        slot = find(tables, peer, topic)
        if slot != NOT_FOUND:
            found[item, 1] = tables.points[peer, slot]
    return found


# --- tracing -----------------------------------------------------------------------------------
#
# The trace of an engine's run: what happens to events, in the records that peers write.
#
# A cycle is a second. Written are JOIN for every membership, PUBLISH_MESSAGE, the way to an
# access point (RouteEvent) and the flood (Payload), each sent and received, and DELIVER_MESSAGE
# or DUPLICATE_MESSAGE for every copy. View exchanges, advertisements and lookups are only counted
# in the engine, so they are not in its trace.
#
# Only small runs are traced: writing a record takes longer than computing what it tells.


CYCLE_NS = 1_000_000_000
_NUMBER_BYTES = 8


def peer_of(number: int) -> PeerId:
    """The id of an engine's peer."""
    return PeerId(number.to_bytes(_NUMBER_BYTES, "big").ljust(PEER_ID_BYTES, b"\0"))


class EventTrace:
    """Writes records to a file; `Events` tells it what happens."""

    def __init__(self, memberships: Memberships, file: BinaryIO) -> None:
        self._held = memberships
        self._writer = trace.Writer(file)
        self._published: list[tuple[Topic, Event]] = []
        self._spreading: dict[int, int] = {}  # event of the flood → event as published
        self._hops: dict[int, dict[int, int]] = {}  # event of the flood → member: hops
        for peer, topic in zip(memberships.members, memberships.topic_of, strict=True):
            self._write(0, int(peer), delivery.JOIN, {"topic": topic_name(int(topic))})

    def published(self, cycle: int, topics: Numbers, publishers: Numbers) -> None:
        for topic, publisher in zip(topics, publishers, strict=True):
            event = Event(peer_of(int(publisher)), 1, len(self._published) + 1, cycle * 1000, b"")
            self._published.append((Topic(topic_name(int(topic))), event))
            self._write(cycle, int(publisher), delivery.PUBLISH_MESSAGE, self._about(-1))

    def routed(self, cycle: int, number: int, publisher: int, membership: int) -> None:
        """An event leaves for an access point."""
        point = int(self._held.members[membership])
        self._rpc(cycle, delivery.SEND_RPC, publisher, point, RouteEvent.__name__, number)

    def entered(
        self, cycle: int, number: int, spreading: int, membership: int, routed_by: int | None
    ) -> None:
        """An event is in its topic, at a member: its publisher, or the access point."""
        point = int(self._held.members[membership])
        if routed_by is not None:
            self._rpc(cycle, delivery.RECV_RPC, point, routed_by, RouteEvent.__name__, number)
        self._spreading[spreading] = number
        hops = 0 if routed_by is None else 1
        self._hops[spreading] = {membership: hops}
        fields = {"receivedFrom": peer_text(peer_of(point)), "hops": hops}
        self._write(cycle, point, delivery.DELIVER_MESSAGE, {**self._about(number), **fields})

    def spreading(self, cycle: int, flood: Flood) -> None:
        """The flood is about to make a hop: every member of its front sends to its whole view."""
        counts, views = flood.rows.counts(), flood.rows.ids()
        for event, row in flood.front():
            hops = self._hops[event][row] + 1
            for other in views[row, : counts[row]]:
                self._pushed(cycle, event, row, int(other), hops)

    def _pushed(self, cycle: int, event: int, row: int, other: int, hops: int) -> None:
        number, known = self._spreading[event], self._hops[event]
        sender, receiver = int(self._held.members[row]), int(self._held.members[other])
        self._rpc(cycle, delivery.SEND_RPC, sender, receiver, Payload.__name__, number)
        self._rpc(cycle, delivery.RECV_RPC, receiver, sender, Payload.__name__, number)
        kind = delivery.DUPLICATE_MESSAGE if other in known else delivery.DELIVER_MESSAGE
        known.setdefault(other, hops)
        fields = {"receivedFrom": peer_text(peer_of(sender)), "hops": hops}
        self._write(cycle, receiver, kind, {**self._about(number), **fields})

    def _rpc(self, cycle: int, kind: str, peer: int, other: int, rpc: str, number: int) -> None:
        about = self._about(number)
        meta = {"kind": rpc, "topic": about["topic"], "messages": [about]}
        role = "sendTo" if kind == delivery.SEND_RPC else "receivedFrom"
        self._write(cycle, peer, kind, {role: peer_text(peer_of(other)), "meta": meta})

    def _about(self, number: int) -> dict[str, object]:
        topic, event = self._published[number]
        return {"messageID": trace.message_id(topic, event), "topic": topic}

    def _write(self, cycle: int, peer: int, kind: str, fields: dict[str, object]) -> None:
        self._writer.write(peer_of(peer), cycle * CYCLE_NS, kind, fields)
