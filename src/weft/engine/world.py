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

from weft.engine.advertise import merge_partitions, phases, receive_adverts, send_adverts
from weft.engine.apt import Tables, empty_tables, settled_tables
from weft.engine.counts import Counts
from weft.engine.cyclon import Overlay, cycle_any, overlay_keys, random_overlay
from weft.engine.draws import base_key
from weft.engine.layout import Array
from weft.engine.lookup import Ground
from weft.engine.topics import Topics, random_topics
from weft.engine.workload import Memberships
from weft.rules.draw import stream_of


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
