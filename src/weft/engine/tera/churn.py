"""A world in which peers and subscriptions come and go (named as future work in TERA).

In each cycle a share of the peers crash, saying nothing to anybody, and as many newcomers with
the same interests enter by a random peer; a share of the subscriptions end, and each topic gets
as many new subscribers. So sizes stay as they are while nobody stays. A number is never given
to a second peer or membership: whatever still names one that is gone is stale.

A new subscriber looks up an access point, from its own table or by walks (which here make all
their steps within the cycle), and joins the topic's overlay there. If it finds none that is
there, it starts an overlay of its own, which advertisements merge with the topic's later.

Deviation (`Rates.mended`): what TERA leaves open. Whoever is found gone is dropped, from the view
of the peer whose walk could not go on, which then takes another neighbour, and from the table
that named it. And a newcomer takes over the table of the peer it enters by: a table fills only
by advertisements, which takes N·|APT|/(|T|·D/T) cycles, longer than many peers stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from weft.engine.core.draws import base_key
from weft.engine.core.layout import Array, Rows, empty_rows, random_rows
from weft.engine.data.workload import Memberships, topic_name
from weft.engine.tera.adverts import merge_partitions, phases, receive_adverts, send_adverts
from weft.engine.tera.costs import Counts
from weft.engine.tera.cyclon import cycle_any, overlay_keys
from weft.engine.tera.events import random_peers
from weft.engine.tera.exchange import join_all
from weft.engine.tera.lookup import Ground, Lookups
from weft.engine.tera.tables import NOT_FOUND, Tables, drop_entries, empty_tables, settled_tables
from weft.engine.tera.topics import random_topics
from weft.engine.tera.world import Settings
from weft.rules.draw import stream_of
from weft.rules.tera import steps_of_each

_ATTEMPTS = 4
"""weft's default: access points tried before giving up."""
_DRAWS = 6
"""guess: peers drawn for a new subscription until one does not have it yet."""


@dataclass(frozen=True)
class Rates:
    """What comes and goes, per cycle, and what is done about it."""

    peers: float = 0.0
    subscriptions: float = 0.0
    mended: bool = False  # see `Deviation` below


@dataclass
class ChurnWorld:
    """All peers and memberships there ever were; `peer_there` and `member_there` say which are."""

    settings: Settings
    rates: Rates
    seed: int
    topics: int
    rows: Rows  # views in the general overlay
    peer_there: npt.NDArray[np.uint8]
    peers: int  # numbers given out so far
    topic_rows: Rows
    member_there: npt.NDArray[np.uint8]
    member_peer: npt.NDArray[np.int32]
    member_topic: npt.NDArray[np.int32]
    overlays: npt.NDArray[np.int64]
    memberships_given: int
    tables: Tables
    phase: Array
    cycle: int = 0
    lookups_failed: int = 0
    counts: Counts = field(default_factory=Counts)
    sent: Array = field(init=False)
    sent_total: int = 0
    held: Memberships = field(init=False)

    def __post_init__(self) -> None:
        self.sent = np.empty((len(self.peer_there) * 5 + 1, 2), np.int32)
        self.held = self._present()

    # --- a cycle -----------------------------------------------------------------------------

    def step(self) -> None:
        self.cycle += 1
        self._handle_adverts()
        self._peers_come_and_go()
        self._subscriptions_come_and_go()
        self.held = self._present()
        self._exchange_views()
        self._send_adverts()

    def _exchange_views(self) -> None:
        general, general_lost = self._run(
            self.rows, self.peers, self.peer_there, None, overlay_keys(self.seed)
        )
        inside, inside_lost = self._run(
            self.topic_rows,
            self.memberships_given,
            self.member_there,
            self.overlays,
            overlay_keys(self.seed, topic_name(0)),
        )
        self.counts.exchange_general += 2 * general + general_lost
        self.counts.exchange_topic += 2 * inside + inside_lost

    def _run(
        self, rows: Rows, given: int, there: Array, overlays: Array | None, keys: Array
    ) -> tuple[int, int]:
        return cycle_any(
            rows.words,
            rows.octets,
            0,
            given,
            None,
            there,
            None,
            overlays,
            keys,
            self.cycle,
            self.settings.view_size,
            self.settings.shuffle_length,
        )

    def _present(self) -> Memberships:
        """The memberships that are there, by peer; rows keep their numbers."""
        there = np.flatnonzero(self.member_there[: self.memberships_given])
        order = np.lexsort((self.member_topic[there], self.member_peer[there]))
        of_peer = there[order].astype(np.int32)
        counts = np.bincount(self.member_peer[of_peer], minlength=len(self.peer_there))
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        sizes = np.bincount(self.member_topic[there], minlength=self.topics)
        return Memberships(
            len(self.peer_there),
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            self.member_peer,
            self.member_topic,
            offsets,
            of_peer,
        )

    # --- advertisements ----------------------------------------------------------------------

    def _send_adverts(self) -> None:
        settings = self.settings
        self.sent_total = send_adverts(
            self.rows.words,
            self.rows.octets,
            self.peers,
            self.held.of_peer_offsets,
            self.phase,
            self.peer_there,
            self.cycle,
            settings.advertise_every,
            np.full(self.peers, settings.advertise_to, np.int32),
            base_key(self.seed, stream_of("cyclon.sample")),
            base_key(self.seed, stream_of("engine.advert_order")),
            self.sent,
        )
        self.counts.advert += self.sent_total

    def _handle_adverts(self) -> None:
        """What was sent to peers that are gone is lost."""
        arrived = self.sent[: self.sent_total]
        arrived = arrived[self.peer_there[arrived[:, 1]] != 0]
        held, topics = self.held, np.zeros(self.topics, np.int64)
        keys = np.tile(overlay_keys(self.seed, topic_name(0)), (self.topics, 1))
        self.counts.exchange_forced += 2 * merge_partitions(
            arrived,
            len(arrived),
            held.of_peer_offsets,
            held.of_peer,
            held.topic_of,
            self.overlays,
            self.topic_rows.words,
            self.topic_rows.octets,
            held.members,
            keys,
            self.cycle,
            self.settings.view_size,
            self.settings.shuffle_length,
            topics,
        )
        popularity = held.sizes()[self.member_topic].astype(np.int32)
        self.counts.advert_entries += receive_adverts(
            arrived,
            len(arrived),
            held.of_peer_offsets,
            held.of_peer,
            held.topic_of,
            popularity,
            self.tables.topics,
            self.tables.points,
            self.tables.counts,
            self.tables.ticks,
            self.tables.keys,
        )

    # --- coming and going ----------------------------------------------------------------------

    def _share_of(self, there: Array, rate: float, purpose: str) -> Array:
        """Each of those that are there, with this probability."""
        if rate == 0.0 or len(there) == 0:
            return np.empty(0, np.int64)
        dice = random_peers(len(there), 1 << 30, self.seed, purpose, self.cycle)
        return there[dice < rate * (1 << 30)]

    def _some_present(self, count: int, purpose: str) -> Array:
        there = np.flatnonzero(self.peer_there[: self.peers])
        return there[random_peers(count, len(there), self.seed, purpose, self.cycle)]

    def _peers_come_and_go(self) -> None:
        there = np.flatnonzero(self.peer_there[: self.peers])
        gone = self._share_of(there, self.rates.peers, "churn.peers")
        gone = gone[: len(self.peer_there) - self.peers]
        if len(gone) == 0:
            return
        self.peer_there[gone] = 0
        lost = np.flatnonzero(
            self.member_there[: self.memberships_given]
            & np.isin(self.member_peer[: self.memberships_given], gone)
        )
        self.member_there[lost] = 0
        newcomers = np.arange(self.peers, self.peers + len(gone))
        introducers = self._some_present(len(gone), "churn.introducer")
        self.peer_there[newcomers] = 1
        self.peers += len(gone)
        self.counts.join += join_all(
            self.rows.words,
            self.rows.octets,
            newcomers,
            introducers,
            self.peer_there,
            self.settings.view_size,
            self.settings.shuffle_length,
            base_key(self.seed, stream_of("churn.join")),
        )
        if self.rates.mended:
            for column in (self.tables.topics, self.tables.points, self.tables.counts):
                column[newcomers] = column[introducers]
        heir = dict(zip(gone.tolist(), newcomers.tolist(), strict=True))
        heirs = np.array([heir[int(peer)] for peer in self.member_peer[lost]], np.int64)
        self._subscribe(heirs, self.member_topic[lost].astype(np.int64), 0)

    def _subscriptions_come_and_go(self) -> None:
        there = np.flatnonzero(self.member_there[: self.memberships_given])
        ended = self._share_of(there, self.rates.subscriptions, "churn.subscriptions")
        if len(ended) == 0:
            return
        self.member_there[ended] = 0
        self.held = self._present()
        topics = self.member_topic[ended].astype(np.int64)
        who = np.full(len(ended), -1, np.int64)
        for attempt in range(_DRAWS):
            open_ = np.flatnonzero(who < 0)
            drawn = self._some_present(len(open_), f"churn.subscribers.{attempt}")
            who[open_] = np.where(self._is_new(drawn, topics[open_]), drawn, -1)
            _, first = np.unique(who * self.topics + topics, return_index=True)
            repeated = np.setdiff1d(np.arange(len(who)), first)
            who[repeated] = -1
        self._subscribe(who[who >= 0], topics[who >= 0], 1)

    def _is_new(self, peers: Array, topics: Array) -> Array:
        """Whether each peer does not subscribe to the topic beside it."""
        offsets, of_peer = self.held.of_peer_offsets, self.held.of_peer
        return np.array(
            [
                topic not in self.member_topic[of_peer[offsets[peer] : offsets[peer + 1]]]
                for peer, topic in zip(peers, topics, strict=True)
            ],
            bool,
        )

    def _subscribe(self, peers: Array, topics: Array, kind: int) -> None:
        """New memberships: look up an access point, join there or start an overlay."""
        room = len(self.member_there) - self.memberships_given
        peers, topics = peers[:room], topics[:room]
        if len(peers) == 0:
            return
        points = self._find_live_points(peers, topics, kind)
        rows = np.arange(self.memberships_given, self.memberships_given + len(peers))
        self.member_peer[rows] = peers
        self.member_topic[rows] = topics
        self.member_there[rows] = 1
        self.overlays[rows] = rows + (1 << 40)  # an id that survives no merge
        self.memberships_given += len(peers)
        usable = points != NOT_FOUND
        self.lookups_failed += int((~usable).sum())
        self.overlays[rows[usable]] = self.overlays[points[usable]]
        self.counts.join += join_all(
            self.topic_rows.words,
            self.topic_rows.octets,
            rows[usable],
            points[usable],
            self.member_there,
            self.settings.view_size,
            self.settings.shuffle_length,
            base_key(self.seed, stream_of("churn.topic_join")),
        )

    def _find_live_points(self, peers: Array, topics: Array, kind: int) -> Array:
        """Access points that are there; `mended` tries again where they are not."""
        found = np.full(len(peers), NOT_FOUND, np.int64)
        for attempt in range(_ATTEMPTS if self.rates.mended else 1):
            open_ = np.flatnonzero(found == NOT_FOUND)
            batch = (2 * self.cycle + kind) * _ATTEMPTS + attempt
            points = self.find_points(peers[open_], topics[open_], batch)
            there = (points != NOT_FOUND) & (self.member_there[points] != 0)
            found[open_[there]] = points[there]
        return found

    # --- lookups -------------------------------------------------------------------------------

    def ground(self) -> Ground:
        return Ground(
            self.rows,
            self.held,
            self.tables,
            alive=self.peer_there,
            detour=self.rates.mended,
        )

    def find_points(self, origins: Array, topics: Array, batch: int, own: bool = True) -> Array:
        """An access point for each, or NOT_FOUND: the own table's, else by walks."""
        settings = self.settings
        found = np.full(len(origins), NOT_FOUND, np.int64)
        if own:
            held = self.tables.topics[origins] == topics[:, None]
            held &= np.arange(self.tables.size) < self.tables.counts[origins][:, None]
            has = held.any(axis=1)
            found[has] = self.tables.points[origins[has], held[has].argmax(axis=1)]
        answered_by = np.where(found == NOT_FOUND, NOT_FOUND, origins)
        rest = found == NOT_FOUND
        steps = steps_of_each(settings.visits, settings.walks)
        lookups = Lookups(origins[rest], topics[rest], self.seed, settings.walks, steps, batch)
        while not lookups.is_over:
            lookups.advance(self.ground())
        self.counts.lookup += lookups.messages
        found[rest] = lookups.found
        answered_by[rest] = lookups.answered_by
        if self.rates.mended:
            stale = (found != NOT_FOUND) & (self.member_there[found] == 0)
            held_at = answered_by[stale]
            drop_entries(
                self.tables.topics, self.tables.points, self.tables.counts, held_at, found[stale]
            )
        return found


def build(
    settings: Settings, rates: Rates, held: Memberships, cycles: int, seed: int
) -> ChurnWorld:
    """A world that has room for all who come within so many cycles."""
    coming = round(held.peers * rates.peers * cycles * 1.2) + 64
    renewed = rates.peers + rates.subscriptions
    new_members = round(held.total * renewed * cycles * 1.2) + 64
    capacity, member_capacity = held.peers + coming, held.total + new_members
    rows, topic_rows = (
        empty_rows(capacity, settings.view_size),
        empty_rows(member_capacity, settings.view_size),
    )
    first = random_rows(held.peers, settings.view_size, seed)
    rows.octets[: len(first.octets)] = first.octets
    first_topics = random_topics(held, seed, settings.view_size, settings.shuffle_length)
    topic_rows.octets[: len(first_topics.rows.octets)] = first_topics.rows.octets
    tables = empty_tables(capacity, settings.table_size, seed)
    settled = settled_tables(held, settings.table_size, seed)
    tables.topics[: held.peers] = settled.topics
    tables.points[: held.peers] = settled.points
    tables.counts[: held.peers] = settled.counts
    there = np.zeros(capacity, np.uint8)
    there[: held.peers] = 1
    member_there = np.zeros(member_capacity, np.uint8)
    member_there[: held.total] = 1
    member_peer = np.zeros(member_capacity, np.int32)
    member_peer[: held.total] = held.members
    member_topic = np.zeros(member_capacity, np.int32)
    member_topic[: held.total] = held.topic_of
    overlays = np.zeros(member_capacity, np.int64)
    overlays[: held.total] = held.topic_of
    return ChurnWorld(
        settings,
        rates,
        seed,
        held.topics,
        rows,
        there,
        held.peers,
        topic_rows,
        member_there,
        member_peer,
        member_topic,
        overlays,
        held.total,
        tables,
        phases(capacity, settings.advertise_every, seed),
    )
