"""A TERA network in columns: general overlay, topic overlays, tables, advertisements, events.

One `step` is one cycle, with PeerSim's semantics: every peer acts once, and a message sent in a
cycle is handled in a later one, except those of a view exchange. In order: advertisements sent
in the last cycle are handled, the general overlay and then every topic overlay exchanges views,
advertisements are sent, and events under way (`events.py`) move on.

Subscriptions and peers are fixed here; `churn.py` has the world in which they come and go.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from weft.engine.core.draws import base_key
from weft.engine.core.layout import Array
from weft.engine.data.workload import Memberships, Sizes, memberships, spread
from weft.engine.tera.adverts import merge_partitions, phases, receive_adverts, send_adverts
from weft.engine.tera.costs import Costs, Counts, flood_costs
from weft.engine.tera.cyclon import Overlay, cycle_any, overlay_keys, random_overlay
from weft.engine.tera.events import Totals, random_peers
from weft.engine.tera.flood import Flood
from weft.engine.tera.lookup import Ground, Lookups
from weft.engine.tera.tables import NOT_FOUND, Tables, empty_tables, settled_tables
from weft.engine.tera.topics import Topics, random_topics
from weft.rules.draw import stream_of
from weft.rules.tera import steps_of_each


@dataclass(frozen=True)
class Settings:
    """TERA's parameters in an experiment."""

    view_size: int = 20  # paper
    shuffle_length: int = 8  # paper (Cyclon's own experiments)
    advertise_every: int = 5  # paper (T)
    advertise_to: int = 5  # paper (D)
    table_size: int = 10  # paper (Fig. 3)
    walks: int = 4  # paper (r)
    visits: int = 40  # K, set by each experiment
    answer_from_subscriptions: bool = False  # paper: off
    settled: bool = False  # whether tables start as they are in the long run
    exchange_in_topics: bool = True  # off where nothing depends on topic overlays
    load: bool = False  # whether messages are counted per peer


@dataclass
class World:
    """The state of a run."""

    settings: Settings
    memberships: Memberships
    overlay: Overlay
    topics: Topics
    tables: Tables
    popularity: npt.NDArray[np.int32]  # what each membership advertises
    phase: Array
    advertise_to: Array  # D of each peer
    cycle: int = 0
    counts: Counts = field(default_factory=Counts)
    general_load: Array | None = None  # messages handled in the general overlay, per peer
    extra_load: Array | None = None  # more of them, had each advertised topic its own message
    sent: Array = field(init=False)
    sent_total: int = 0
    met: Array = field(init=False)  # per topic: the cycle in which its parts first met

    def __post_init__(self) -> None:
        most = int(self.advertise_to.sum(dtype=np.int64)) + 1
        self.sent = np.empty((most, 2), np.int32)
        self.met = np.zeros(self.memberships.topics, np.int64)
        if self.settings.load:
            self.general_load = np.zeros(self.memberships.peers, np.int64)
            self.extra_load = np.zeros(self.memberships.peers, np.int64)
            self.topics.handled = np.zeros(self.memberships.total, np.int64)

    @property
    def seed(self) -> int:
        return self.overlay.seed

    def ground(self) -> Ground:
        """What lookups walk over."""
        return Ground(
            self.overlay.rows,
            self.memberships,
            self.tables,
            from_subscriptions=self.settings.answer_from_subscriptions,
            handled=self.general_load,
        )

    def run(self, cycles: int) -> None:
        for _ in range(cycles):
            self.step()

    def step(self) -> None:
        self.cycle += 1
        self._handle_adverts()
        self._exchange_views()
        self._send_adverts()

    def _exchange_views(self) -> None:
        self.counts.exchange_general += self._exchange_general()
        if self.settings.exchange_in_topics:
            self.counts.exchange_topic += self.topics.run(1)

    def _exchange_general(self) -> int:
        if self.general_load is None:
            return self.overlay.run(1)
        self.overlay.cycle += 1
        done, _ = cycle_any(
            self.overlay.rows.words,
            self.overlay.rows.octets,
            0,
            self.memberships.peers,
            None,
            None,
            self.general_load,
            None,
            overlay_keys(self.seed),
            self.overlay.cycle,
            self.settings.view_size,
            self.settings.shuffle_length,
        )
        return 2 * int(done)

    def _send_adverts(self) -> None:
        self.sent_total = send_adverts(
            self.overlay.rows.words,
            self.overlay.rows.octets,
            self.memberships.peers,
            self.memberships.of_peer_offsets,
            self.phase,
            None,
            self.cycle,
            self.settings.advertise_every,
            self.advertise_to,
            base_key(self.seed, stream_of("cyclon.sample")),
            base_key(self.seed, stream_of("engine.advert_order")),
            self.sent,
        )
        self.counts.advert += self.sent_total
        if self.general_load is not None and self.extra_load is not None:
            sent = self.sent[: self.sent_total]
            extra = self.memberships.per_peer()[sent[:, 0]] - 1
            for handler in (sent[:, 0], sent[:, 1]):
                np.add.at(self.general_load, handler, 1)
                np.add.at(self.extra_load, handler, extra)

    def _handle_adverts(self) -> None:
        if self.topics.overlays is not None:
            self.counts.exchange_forced += 2 * self._merge_partitions()
        self.counts.advert_entries += receive_adverts(
            self.sent,
            self.sent_total,
            self.memberships.of_peer_offsets,
            self.memberships.of_peer,
            self.memberships.topic_of,
            self.popularity,
            self.tables.topics,
            self.tables.points,
            self.tables.counts,
            self.tables.ticks,
            self.tables.keys,
        )
        self.sent_total = 0

    def _merge_partitions(self) -> int:
        assert self.topics.overlays is not None
        return merge_partitions(
            self.sent,
            self.sent_total,
            self.memberships.of_peer_offsets,
            self.memberships.of_peer,
            self.memberships.topic_of,
            self.topics.overlays,
            self.topics.rows.words,
            self.topics.rows.octets,
            self.memberships.members,
            self.topics.keys,
            self.cycle,
            self.settings.view_size,
            self.settings.shuffle_length,
            self.met,
        )


def build(settings: Settings, memberships: Memberships, seed: int) -> World:
    """A world that starts from random overlays, with true popularity advertised."""
    peers, size = memberships.peers, settings.table_size
    tables = (
        settled_tables(memberships, size, seed)
        if settings.settled
        else empty_tables(peers, size, seed)
    )
    return World(
        settings,
        memberships,
        random_overlay(peers, seed, settings.view_size, settings.shuffle_length),
        random_topics(memberships, seed, settings.view_size, settings.shuffle_length),
        tables,
        memberships.sizes()[memberships.topic_of].astype(np.int32),
        phases(peers, settings.advertise_every, seed),
        np.full(peers, settings.advertise_to, np.int32),
    )


# --- large -------------------------------------------------------------------------------------
#
# The general overlay at 10⁷ and 10⁸ peers, with few subscribers among them.
#
# At this size only the views fit into memory (128 bytes a peer). The rest is kept for those peers
# that have it: topic overlays for the subscribers, under numbers of their own. A table belongs to
# every peer; what it holds in the long run is drawn when a walk asks for it
# (`apt.settled_point`), and is the same whenever it is asked. Walks make all their steps within
# one cycle.


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
