"""What a notification costs in messages, by kind (TERA 4.3.2).

A world runs for some cycles in which events are published; views, advertisements, walks and
floods are all simulated and counted. Events do not change overlays or tables, so costs add up:
what is sent in a cycle is the maintenance plus what each event causes. `measure` therefore
publishes a bounded number of events per cycle, and `Costs.per_notification` puts maintenance
and events together for any rate of publishing.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from weft.engine.tera.cyclon import Overlay
from weft.engine.tera.events import Events, Totals, random_peers
from weft.engine.tera.flood import flood_general

if TYPE_CHECKING:
    from weft.engine.tera.world import World

# --- counts ------------------------------------------------------------------------------------
#
# How many messages of each kind were sent, and in which overlay.


@dataclass
class Counts:
    """Messages, by what they are for. One request and its reply are two messages."""

    exchange_general: int = 0  # view exchanges in the general overlay
    exchange_topic: int = 0  # view exchanges in topic overlays
    exchange_forced: int = 0  # view exchanges forced by merging partitions
    advert: int = 0  # advertisements, the whole list in one message
    advert_entries: int = 0  # the same, had each topic been a message of its own
    lookup: int = 0  # steps of walks, and answers
    route: int = 0  # events on their way to an access point
    dissemination: int = 0  # events inside topic overlays
    join: int = 0  # walks of newcomers and what they are given
    size: int = 0  # size estimation

    def maintenance(self) -> int:
        """What is sent whether or not anything is published; size estimation apart."""
        exchanges = self.exchange_general + self.exchange_topic + self.exchange_forced
        return exchanges + self.advert + self.join

    def for_events(self) -> int:
        return self.lookup + self.route + self.dissemination

    def total(self) -> int:
        return self.maintenance() + self.for_events()

    def minus(self, earlier: Counts) -> Counts:
        """What was sent since an earlier reading."""
        return Counts(
            **{f.name: getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self)}
        )

    def copy(self) -> Counts:
        return Counts(**self.as_dict())

    def as_dict(self) -> dict[str, int]:
        return {f.name: int(getattr(self, f.name)) for f in fields(self)}


@dataclass(frozen=True)
class Costs:
    """Measured costs of a system."""

    cycles: int
    maintenance: Counts  # over `cycles`
    events: Counts  # of all published events
    totals: Totals
    notified: int
    flood_per_event: float  # messages of one event flooded over the general overlay
    flood_reached: float  # the share of peers it reached

    def per_cycle(self, kind: str) -> float:
        return float(getattr(self.maintenance, kind)) / self.cycles

    def per_event(self, kind: str) -> float:
        return float(getattr(self.events, kind)) / max(1, self.totals.published)

    def notified_per_event(self) -> float:
        return self.notified / max(1, self.totals.published)

    def per_notification(self, events_per_cycle: float) -> float:
        """TERA's messages per notification at a rate of publishing."""
        upkeep = self.maintenance.maintenance() / self.cycles
        each = self.events.for_events() / max(1, self.totals.published)
        return (upkeep / events_per_cycle + each) / self.notified_per_event()

    def flooding_per_notification(self, events_per_cycle: float) -> float:
        """The baseline's, which keeps up the general overlay alone."""
        upkeep = self.per_cycle("exchange_general")
        each = self.flood_per_event
        return (upkeep / events_per_cycle + each) / self.wanted_per_event()

    def wanted_per_event(self) -> float:
        """Subscribers per event, had no lookup failed."""
        return self.totals.wanted / max(1, self.totals.published)


def measure(world: World, cycles: int, events_per_cycle: int, floods: int = 2) -> Costs:
    """Run `cycles` cycles with so many events each, then let events under way come to an end.

    With as many events as topics there is one in each; else topics are drawn.
    """
    start, topics, peers = world.counts.copy(), world.memberships.topics, world.memberships.peers
    events = Events(world)
    for _ in range(cycles):
        world.step()
        wanted = np.arange(topics)
        if events_per_cycle != topics:
            wanted = random_peers(events_per_cycle, topics, world.seed, "costs.what", world.cycle)
        who = random_peers(events_per_cycle, peers, world.seed, "costs.who", world.cycle)
        events.publish(wanted, who)
        events.advance()
    upkeep = world.counts.minus(start)
    while not events.is_over:
        world.step()
        events.advance()
    caused = world.counts.minus(start)
    messages, reached = flood_costs(world.overlay, floods)
    return Costs(cycles, upkeep, caused, events.totals, events.flood.notified, messages, reached)


def flood_costs(overlay: Overlay, floods: int) -> tuple[float, float]:
    """Messages of an event that floods the general overlay, and the share of peers it reaches.

    Without any flood, by count: every peer sends to all its neighbours once.
    """
    if floods == 0:
        return float(overlay.rows.counts()[: overlay.peers].sum(dtype=np.int64)), 1.0
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
    return messages / floods, reached / floods / overlay.peers
