"""What a notification costs in messages, by kind (TERA 4.3.2).

A world runs for some cycles in which events are published; views, advertisements, walks and
floods are all simulated and counted. Events do not change overlays or tables, so costs add up:
what is sent in a cycle is the maintenance plus what each event causes. `measure` therefore
publishes a bounded number of events per cycle, and from the counts of both follows what
notifications cost at any rate of publishing.

`LargeWorld` measures the same at 10⁷ and 10⁸ peers with few subscribers among them. At this size
only the views fit into memory (128 bytes a peer). The rest is kept for those peers that have it:
topic overlays for the subscribers, under numbers of their own. A table belongs to every peer; what
it holds in the long run is drawn when a walk asks for it (`access_points.settled_point`), and is
the same whenever it is asked. Walks make all their steps within one cycle.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from weft.engine.core.arrays import Ids, Numbers
from weft.engine.core.draws import random_peers
from weft.engine.data.memberships import memberships, spread
from weft.engine.tera.access_points import NOT_FOUND, adverts
from weft.engine.tera.cyclon import Overlay, random_overlay
from weft.engine.tera.events import Events, Totals
from weft.engine.tera.flood import Flood, flood_general
from weft.engine.tera.lookup import Ground, Lookups
from weft.engine.tera.topics import Topics, random_topics
from weft.engine.tera.world import Counts, World, WorldSettings
from weft.rules.tera import steps_of_each

_SPREAD_OVER = 10**6


class Flooded(NamedTuple):
    """Events flooded over the general overlay, all together."""

    events: int
    messages: int
    reached: float  # the share of peers they reached, on average


@dataclass(frozen=True)
class Costs:
    """Measured costs of a system."""

    cycles: int
    maintenance: Counts  # over `cycles`
    events: Counts  # of all published events
    totals: Totals
    notified: int
    flooded: Flooded


def measure(world: World, cycles: int, events_per_cycle: int, floods: int = 2) -> Costs:
    """Run `cycles` cycles with so many events each, then let events under way come to an end.

    With as many events as topics there is one in each; else topics are drawn.
    """
    start, topics, peers = replace(world.counts), world.memberships.topics, world.memberships.peers
    events = Events(world)
    for _ in range(cycles):
        world.step()
        wanted = np.arange(topics)
        if events_per_cycle != topics:
            wanted = random_peers(events_per_cycle, topics, world.seed, "costs.what", world.cycle)
        publishers = random_peers(events_per_cycle, peers, world.seed, "costs.who", world.cycle)
        events.publish(wanted, publishers)
        events.advance()
    upkeep = world.counts.minus(start)
    while not events.is_over:
        world.step()
        events.advance()
    caused = world.counts.minus(start)
    flooded = flood_costs(world.overlay, floods)
    return Costs(cycles, upkeep, caused, events.totals, events.flood.notified, flooded)


def flood_costs(overlay: Overlay, floods: int) -> Flooded:
    """Events that flood the general overlay, `floods` of them. With 0, one flood is counted in
    place of being run: every peer sends to all its neighbours once."""
    if floods == 0:
        return Flooded(1, int(overlay.rows.counts()[: overlay.peers].sum(dtype=np.int64)), 1.0)
    messages = reached = 0
    for item in range(floods):
        flood = flood_general(overlay.rows, overlay.peers)
        source = random_peers(1, overlay.peers, overlay.seed, "costs.flood", item)
        flood.start(0, int(source[0]))
        while not flood.is_over:
            overlay.run(1)
            flood.advance()
        messages += flood.messages
        reached += flood.notified
    return Flooded(floods, messages, reached / floods / overlay.peers)


# --- very many peers ------------------------------------------------------------------------------


@dataclass
class LargeWorld:
    """A general overlay too large for tables, and the topics of some of its peers."""

    peers: int
    sizes: Numbers
    table_size: int
    visits: int
    seed: int
    settings: WorldSettings = field(default_factory=WorldSettings)
    overlay: Overlay = field(init=False)
    topics: Topics = field(init=False)
    subscribers: Numbers = field(init=False)  # their numbers among all peers, ascending

    def __post_init__(self) -> None:
        # Subscribers are drawn among a million peers, evenly spaced over all of them. With so few
        # subscribers the outcome is the same, and no table of all peers is needed.
        some = spread(self.sizes, min(self.peers, _SPREAD_OVER), self.seed)
        found, compact = np.unique(some.members, return_inverse=True)
        self.subscribers = found.astype(np.int64) * (self.peers // some.peers)
        held = memberships(len(found), some.offsets, compact.astype(np.int32))
        self.topics = random_topics(held, self.seed)
        self.overlay = random_overlay(self.peers, self.seed)

    def measure(self, cycles: int, events_per_cycle: int) -> Costs:
        """As `measure`; the baseline's flood is counted, not run."""
        upkeep_counts, event_counts, totals = Counts(), Counts(), Totals()
        flood = Flood(self.topics.rows, self.topics.memberships.offsets)
        each = np.full(len(self.subscribers), self.settings.advertise_to, np.int32)
        phase = adverts(self.settings.advertise_every, each, self.seed).plan.phase
        for cycle in range(1, cycles + 1):
            upkeep_counts.exchange_general += self.overlay.run(1)
            upkeep_counts.exchange_topic += self.topics.run(1)
            upkeep_counts.advert += self._adverts(phase, cycle)
            self._publish(cycle, events_per_cycle, event_counts, totals, flood)
        while not flood.is_over:
            flood.advance()
        event_counts.dissemination = flood.messages
        flooded = flood_costs(self.overlay, 0)
        return Costs(cycles, upkeep_counts, event_counts, totals, flood.notified, flooded)

    def _adverts(self, phase: Ids, cycle: int) -> int:
        """Messages to D neighbours by each subscriber whose turn it is."""
        due = self.subscribers[(cycle + phase) % self.settings.advertise_every == 0]
        known = self.overlay.rows.counts()[due]
        return int(np.minimum(known, self.settings.advertise_to).sum(dtype=np.int64))

    def _publish(
        self, cycle: int, count: int, event_counts: Counts, totals: Totals, flood: Flood
    ) -> None:
        held = self.topics.memberships
        wanted = np.arange(count) % held.topics
        publishers = random_peers(count, self.peers, self.seed, "large.who", cycle)
        totals.published += count
        totals.wanted += int(held.sizes()[wanted].sum())
        # At most one publisher in ten thousand is a subscriber, so all are counted as looking up.
        totals.lookups += count
        steps = steps_of_each(self.visits, self.settings.walks)
        lookups = Lookups(publishers, wanted, self.seed, self.settings.walks, steps, cycle)
        ground = Ground(self.overlay.rows, held, None, settled_size=self.table_size)
        while not lookups.is_over:
            lookups.advance(ground)
        event_counts.lookup += lookups.messages
        found = lookups.found[lookups.found != NOT_FOUND]
        totals.lost += count - len(found)
        event_counts.route += len(found)
        for membership in found:
            topic = int(held.topic_of[membership])
            totals.expected += int(held.sizes()[topic])
            flood.start(topic, int(membership))
        flood.advance()
