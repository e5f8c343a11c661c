"""TERA networks in columns: general overlay, topic overlays, tables, advertisements.

One `step` is one cycle, with PeerSim's semantics: every peer acts once, and a message sent in a
cycle is handled in a later one, except those of a view exchange. In order: advertisements sent
in the last cycle are handled, peers and subscriptions come and go, the general overlay and then
every topic overlay exchanges views, advertisements are sent, and events under way (`events.py`)
move on.

In a `World` peers and subscriptions are fixed. In a `ChurnWorld` they come and go (named as future
work in TERA): in each cycle a share of the peers crash, saying nothing to anybody, and as many
newcomers with the same interests enter by a random peer; a share of the subscriptions end, and each
topic gets as many new subscribers. So sizes stay as they are while nobody stays. A number is never
given to a second peer or membership: a table or view that still names one that is gone is stale. A
new subscriber looks up access points, from its own table or by walks (which here make all their
steps within the cycle), tries all that the walks found (Algorithms 1 to 3), and joins the topic's
overlay at the first that is there. If it finds none, it starts an overlay of its own, which
advertisements merge with the topic's later.

Deviation (`Rates.mended`): what TERA leaves open, as weft's peers do it. A peer that is found gone
is dropped, from the view of the peer whose walk could not go on, which then takes another
neighbour, and from the table that named it. A newcomer takes over the table of the peer it enters
by: a table fills only by advertisements, which takes N·|APT|/(|T|·D/T) cycles, longer than many
peers stay. Peers answer walks from their subscriptions, too. Advertisements ride on the general
overlay's view exchanges, both ways, in place of messages of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np

from weft.engine.core.arrays import (
    RECEIVED,
    SENT,
    Flags,
    Ids,
    Loads,
    Numbers,
    Octets,
    no_loads,
    offsets_of,
)
from weft.engine.core.draws import base_key, random_peers
from weft.engine.core.layout import Rows, empty_rows, random_rows
from weft.engine.data.memberships import Memberships, topic_name
from weft.engine.tera.access_points import (
    NOT_FOUND,
    Adverts,
    Tables,
    adverts,
    drop_entries,
    empty_tables,
    merge_partitions,
    receive_adverts,
    settled_tables,
)
from weft.engine.tera.cyclon import (
    Cycle,
    Overlay,
    Span,
    cycle_any,
    join_all,
    overlay_keys,
    random_overlay,
)
from weft.engine.tera.lookup import Ground, Lookups
from weft.engine.tera.topics import Topics, random_topics
from weft.rules.draw import stream_of
from weft.rules.tera import steps_of_each

_ATTEMPTS = 4
"""weft's default: access points tried before giving up."""
_DRAWS = 6
"""guess: peers drawn for a new subscription until one does not have it yet."""


@dataclass(frozen=True)
class WorldSettings:
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
class Counts:
    """Messages, by what they are for. One request and its reply are two messages."""

    exchange_general: int = 0  # view exchanges in the general overlay
    exchange_topic: int = 0  # view exchanges in topic overlays
    exchange_forced: int = 0  # view exchanges forced by merging partitions
    advert: int = 0  # advertisements, the whole list in one message
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

    def as_dict(self) -> dict[str, int]:
        return {f.name: int(getattr(self, f.name)) for f in fields(self)}


# --- a world that stays ---------------------------------------------------------------------------


@dataclass
class World:
    """The state of a run."""

    settings: WorldSettings
    memberships: Memberships
    overlay: Overlay
    topics: Topics
    tables: Tables
    adverts: Adverts
    popularity: Ids  # what each membership advertises
    cycle: int = 0
    counts: Counts = field(default_factory=Counts)
    general_load: Loads | None = None  # messages of the general overlay, per peer
    extra_load: Loads | None = None  # more of them, had each advertised topic its own message
    met: Numbers = field(init=False)  # per topic: the cycle in which its parts first met

    def __post_init__(self) -> None:
        self.met = np.zeros(self.memberships.topics, np.int64)
        if self.settings.load:
            self.general_load = no_loads(self.memberships.peers)
            self.extra_load = no_loads(self.memberships.peers)

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
            loads=self.general_load,
        )

    def note_estimates(self, members: Numbers, sizes: Numbers, messages: int) -> None:
        """These memberships have estimated the sizes of their topics, which took so many messages:
        they advertise these from now on."""
        self.popularity[members] = sizes
        self.counts.size += messages

    def note_routed(self, publisher: int, membership: int) -> None:
        """A publisher outside of a topic has handed an event to this membership's peer."""
        if self.general_load is not None:
            self.general_load[publisher, SENT] += 1
            self.general_load[self.memberships.members[membership], RECEIVED] += 1

    def loads_in_topics(self) -> Loads:
        """Messages of topic overlays, per peer, if they are counted."""
        found = no_loads(self.memberships.peers)
        if self.topics.loads is not None:
            np.add.at(found, self.memberships.members, self.topics.loads)
        return found

    def run(self, cycles: int) -> None:
        for _ in range(cycles):
            self.step()

    def step(self) -> None:
        self.cycle += 1
        self._handle_adverts()
        self.counts.exchange_general += self.overlay.run(1, self.general_load)
        if self.settings.exchange_in_topics:
            self.counts.exchange_topic += self.topics.run(1)
        self._send_adverts()

    def _send_adverts(self) -> None:
        held = self.memberships
        self.counts.advert += self.adverts.send(self.overlay.rows, held, held.peers, self.cycle)
        if self.general_load is not None and self.extra_load is not None:
            senders, receivers = self.adverts.sent.T
            extra = held.per_peer()[senders] - 1
            for peers, way in ((senders, SENT), (receivers, RECEIVED)):
                np.add.at(self.general_load, (peers, way), 1)
                np.add.at(self.extra_load, (peers, way), extra)

    def _handle_adverts(self) -> None:
        sent, held, topics = self.adverts.sent, self.memberships, self.topics
        if topics.overlays is not None:
            cycle = topics.cycle_at(self.cycle)
            self.counts.exchange_forced += 2 * merge_partitions(
                sent, held, topics.rows, topics.overlays, cycle, self.met
            )
        receive_adverts(sent, held, self.popularity, self.tables)


def build(
    settings: WorldSettings,
    memberships: Memberships,
    seed: int,
    advertise_to: Ids | None = None,
    popularity: Ids | None = None,
) -> World:
    """A world that starts from random overlays. Unless they are given, every peer advertises to
    as many neighbours as the settings say, and every membership its topic's true popularity."""
    peers, size = memberships.peers, settings.table_size
    settled = settings.settled
    loads = no_loads(memberships.total) if settings.load else None
    if advertise_to is None:
        advertise_to = np.full(peers, settings.advertise_to, np.int32)
    if popularity is None:
        popularity = memberships.sizes()[memberships.topic_of].astype(np.int32)
    return World(
        settings,
        memberships,
        random_overlay(peers, seed, settings.view_size, settings.shuffle_length),
        random_topics(memberships, seed, settings.view_size, settings.shuffle_length, loads),
        settled_tables(memberships, size, seed) if settled else empty_tables(peers, size, seed),
        adverts(settings.advertise_every, advertise_to, seed),
        popularity,
    )


# --- a world that comes and goes ------------------------------------------------------------------


@dataclass(frozen=True)
class Rates:
    """The shares that come and go per cycle, and whether failures are mended."""

    peers: float = 0.0
    subscriptions: float = 0.0
    mended: bool = False  # see `Deviation` above


@dataclass
class ChurnWorld:
    """All peers and memberships there ever were; `peer_there` and `member_there` say which are."""

    settings: WorldSettings
    rates: Rates
    seed: int
    topics: int
    rows: Rows  # views in the general overlay
    peer_there: Octets
    peers: int  # numbers given out so far
    topic_rows: Rows
    member_there: Octets
    member_peer: Ids
    member_topic: Ids
    overlays: Numbers
    memberships_given: int
    tables: Tables
    adverts: Adverts
    cycle: int = 0
    lookups_failed: int = 0
    counts: Counts = field(default_factory=Counts)
    held: Memberships = field(init=False)

    def __post_init__(self) -> None:
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
        shuffle = self.settings.shuffle_length
        pairs = np.empty((self.peers, 2), np.int32)
        done, lost = cycle_any(
            self.rows,
            Span(0, self.peers),
            Cycle(overlay_keys(self.seed), self.cycle, shuffle),
            alive=self.peer_there,
            pairs=pairs,
        )
        if self.rates.mended:
            self.adverts.ride(pairs[:done])
        self.counts.exchange_general += 2 * done + lost
        done, lost = cycle_any(
            self.topic_rows,
            Span(0, self.memberships_given),
            Cycle(overlay_keys(self.seed, topic_name(0)), self.cycle, shuffle),
            alive=self.member_there,
            overlays=self.overlays,
        )
        self.counts.exchange_topic += 2 * done + lost

    def _present(self) -> Memberships:
        """The memberships that are there, by peer; rows keep their numbers."""
        there = np.flatnonzero(self.member_there[: self.memberships_given])
        order = np.lexsort((self.member_topic[there], self.member_peer[there]))
        of_peer = there[order].astype(np.int32)
        counts = np.bincount(self.member_peer[of_peer], minlength=len(self.peer_there))
        sizes = np.bincount(self.member_topic[there], minlength=self.topics)
        return Memberships(
            len(self.peer_there),
            offsets_of(sizes),
            self.member_peer,
            self.member_topic,
            offsets_of(counts),
            of_peer,
        )

    def _send_adverts(self) -> None:
        if not self.rates.mended:
            self.counts.advert += self.adverts.send(
                self.rows, self.held, self.peers, self.cycle, self.peer_there
            )

    def _handle_adverts(self) -> None:
        """What was sent to peers that are gone is lost."""
        sent, held = self.adverts.sent, self.held
        arrived = sent[self.peer_there[sent[:, 1]] != 0]
        keys = np.tile(overlay_keys(self.seed, topic_name(0)), (self.topics, 1))
        cycle = Cycle(keys, self.cycle, self.settings.shuffle_length)
        met = np.zeros(self.topics, np.int64)
        self.counts.exchange_forced += 2 * merge_partitions(
            arrived, held, self.topic_rows, self.overlays, cycle, met
        )
        popularity = held.sizes()[self.member_topic].astype(np.int32)
        receive_adverts(arrived, held, popularity, self.tables)

    # --- coming and going ----------------------------------------------------------------------

    def _share_of(self, there: Numbers, rate: float, purpose: str) -> Numbers:
        """A random part of these numbers: each is in it with this probability."""
        if rate == 0.0 or len(there) == 0:
            return np.empty(0, np.int64)
        dice = random_peers(len(there), 1 << 30, self.seed, purpose, self.cycle)
        return there[dice < rate * (1 << 30)]

    def _some_present(self, count: int, purpose: str) -> Numbers:
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
            self.rows,
            newcomers,
            introducers,
            self.peer_there,
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
        chosen = np.full(len(ended), -1, np.int64)
        for attempt in range(_DRAWS):
            open_ = np.flatnonzero(chosen < 0)
            drawn = self._some_present(len(open_), f"churn.subscribers.{attempt}")
            chosen[open_] = np.where(self._is_new(drawn, topics[open_]), drawn, -1)
            _, first = np.unique(chosen * self.topics + topics, return_index=True)
            repeated = np.setdiff1d(np.arange(len(chosen)), first)
            chosen[repeated] = -1
        self._subscribe(chosen[chosen >= 0], topics[chosen >= 0], 1)

    def _is_new(self, peers: Numbers, topics: Numbers) -> Flags:
        """Whether each peer does not subscribe to the topic beside it."""
        offsets, of_peer = self.held.of_peer_offsets, self.held.of_peer
        return np.array(
            [
                topic not in self.member_topic[of_peer[offsets[peer] : offsets[peer + 1]]]
                for peer, topic in zip(peers, topics, strict=True)
            ],
            bool,
        )

    def _subscribe(self, peers: Numbers, topics: Numbers, kind: int) -> None:
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
            self.topic_rows,
            rows[usable],
            points[usable],
            self.member_there,
            self.settings.shuffle_length,
            base_key(self.seed, stream_of("churn.topic_join")),
        )

    def _find_live_points(self, peers: Numbers, topics: Numbers, kind: int) -> Numbers:
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
            from_subscriptions=self.rates.mended,
            alive=self.peer_there,
            detour=self.rates.mended,
        )

    def find_points(
        self, origins: Numbers, topics: Numbers, batch: int, own: bool = True
    ) -> Numbers:
        """An access point for each, or NOT_FOUND: the own table's, else by walks."""
        settings = self.settings
        found = np.full(len(origins), NOT_FOUND, np.int64)
        if own:
            held = self.tables.topics[origins] == topics[:, None]
            held &= np.arange(self.tables.size) < self.tables.counts[origins][:, None]
            has = held.any(axis=1)
            found[has] = self.tables.points[origins[has], held[has].argmax(axis=1)]
        rest = found == NOT_FOUND
        steps = steps_of_each(settings.visits, settings.walks)
        lookups = Lookups(origins[rest], topics[rest], self.seed, settings.walks, steps, batch)
        while not lookups.is_over:
            lookups.advance(self.ground())
        self.counts.lookup += lookups.messages
        if self.rates.mended:
            stale = ~rest & (self.member_there[found] == 0)
            drop_entries(self.tables, origins[stale], found[stale])
        found[rest] = self._tried(lookups)
        return found

    def _tried(self, lookups: Lookups) -> Numbers:
        """For each lookup the first access point that is there, in the order of its walks; else
        the first that any walk found. If `mended`, tables forget what was tried in vain."""
        listed = lookups.listed
        known = listed != NOT_FOUND
        there = known & (self.member_there[listed] != 0)
        tried = known & ~there & (np.cumsum(there, axis=1) == 0)
        if self.rates.mended:
            drop_entries(self.tables, lookups.listed_by[tried], listed[tried])
        first = listed[np.arange(len(listed)), there.argmax(axis=1)]
        return np.where(there.any(axis=1), first, lookups.found)


def build_churning(
    settings: WorldSettings, rates: Rates, held: Memberships, cycles: int, seed: int
) -> ChurnWorld:
    """A world with room for all newcomers of so many cycles."""
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
        adverts(
            settings.advertise_every,
            np.full(capacity, settings.advertise_to, np.int32),
            seed,
        ),
    )
