"""The general overlay at 10⁷ and 10⁸ peers, with few subscribers among them.

At this size only the views fit into memory (128 bytes a peer). The rest is kept for those peers
that have it: topic overlays for the subscribers, under numbers of their own. A table belongs to
every peer; what it holds in the long run is drawn when a walk asks for it (`apt.settled_point`),
and is the same whenever it is asked. Walks make all their steps within one cycle.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from weft.engine.advertise import phases
from weft.engine.apt import NOT_FOUND
from weft.engine.costs import Costs, flood_costs
from weft.engine.counts import Counts
from weft.engine.cyclon import Overlay, random_overlay
from weft.engine.events import Totals, random_peers
from weft.engine.flood import Flood
from weft.engine.layout import Array
from weft.engine.lookup import Ground, Lookups
from weft.engine.topics import Topics, random_topics
from weft.engine.workload import Sizes, memberships, spread
from weft.engine.world import Settings
from weft.rules.walk import steps_of_each

_SPREAD_OVER = 10**6


@dataclass
class LargeWorld:
    """A general overlay too large for tables, and the topics of some of its peers."""

    peers: int
    sizes: Sizes
    table_size: int
    visits: int
    seed: int
    settings: Settings = field(default_factory=Settings)
    overlay: Overlay = field(init=False)
    topics: Topics = field(init=False)
    subscribers: Array = field(init=False)  # their numbers among all peers, ascending

    def __post_init__(self) -> None:
        # Who subscribes is drawn among some of the peers, evenly spaced over all of them: with
        # so few subscribers it makes no difference, and needs no table of all peers.
        some = spread(self.sizes, min(self.peers, _SPREAD_OVER), self.seed)
        found, compact = np.unique(some.members, return_inverse=True)
        self.subscribers = found.astype(np.int64) * (self.peers // some.peers)
        held = memberships(len(found), some.offsets, compact.astype(np.int32))
        self.topics = random_topics(held, self.seed)
        self.overlay = random_overlay(self.peers, self.seed)

    def measure(self, cycles: int, events_per_cycle: int) -> Costs:
        """As `costs.measure`; the baseline's flood is counted, not run."""
        upkeep, events, totals = Counts(), Counts(), Totals()
        flood = Flood(self.topics.rows, self.topics.memberships.offsets)
        phase = phases(len(self.subscribers), self.settings.advertise_every, self.seed)
        for cycle in range(1, cycles + 1):
            upkeep.exchange_general += self.overlay.run(1)
            upkeep.exchange_topic += self.topics.run(1)
            upkeep.advert += self._adverts(phase, cycle)
            self._publish(cycle, events_per_cycle, events, totals, flood)
        while not flood.is_over:
            flood.advance()
        events.dissemination = flood.messages
        messages, reached = flood_costs(self.overlay, 0)
        return Costs(cycles, upkeep, events, totals, flood.notified, messages, reached)

    def _adverts(self, phase: Array, cycle: int) -> int:
        """Messages to D neighbours by each subscriber whose turn it is."""
        due = self.subscribers[(cycle + phase) % self.settings.advertise_every == 0]
        known = self.overlay.rows.counts()[due]
        return int(np.minimum(known, self.settings.advertise_to).sum(dtype=np.int64))

    def _publish(
        self, cycle: int, count: int, events: Counts, totals: Totals, flood: Flood
    ) -> None:
        held = self.topics.memberships
        wanted = np.arange(count) % held.topics
        who = random_peers(count, self.peers, self.seed, "large.who", cycle)
        totals.published += count
        totals.wanted += int(held.sizes()[wanted].sum())
        # A publisher among the few subscribers is one in ten thousand or less: all look up.
        totals.lookups += count
        steps = steps_of_each(self.visits, self.settings.walks)
        lookups = Lookups(who, wanted, self.seed, self.settings.walks, steps, cycle)
        ground = Ground(self.overlay.rows, held, None, settled_size=self.table_size)
        while not lookups.is_over:
            lookups.advance(ground)
        events.lookup += lookups.messages
        found = lookups.found[lookups.found != NOT_FOUND]
        totals.lost += count - len(found)
        events.route += len(found)
        for membership in found:
            topic = int(held.topic_of[membership])
            totals.expected += int(held.sizes()[topic])
            flood.start(topic, int(membership))
        flood.advance()
