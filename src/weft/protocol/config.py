"""Settings of a peer's state machines: frozen, nested per layer, checked when created.

Every default says where it comes from: `paper`, `measured` or `guess`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.protocol.seam import Millis, Scheme


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise ValueError(text)


@dataclass(frozen=True)
class Cyclon:
    """View exchange, in the general overlay and in every topic overlay."""

    cycle_ms: Millis = 10_000  # measured: see docs/operating.md, what an idle peer costs
    view_size: int = 20  # paper
    shuffle_length: int = 8  # paper (Cyclon's own experiments)
    reply_timeout_ms: Millis = 5_000  # guess: generous for a handshake over a slow path
    join_walks: int = 6  # guess: of 20 in the paper; see protocol/cyclon.py
    join_walk_steps: int = 5  # paper: about the mean path length
    stable_period_max: int = 4  # guess: a quiet topic exchanges views every so many cycles
    exchanges_per_cycle_max: int = 64  # guess: topics that exchange views in one cycle

    def __post_init__(self) -> None:
        _require(self.cycle_ms >= 1, "cyclon.cycle_ms must be at least 1")
        _require(2 <= self.view_size <= 63, "cyclon.view_size must be 2 to 63")
        _require(
            1 <= self.shuffle_length <= self.view_size,
            "cyclon.shuffle_length must be between 1 and the view size",
        )
        _require(self.reply_timeout_ms >= 1, "cyclon.reply_timeout_ms must be at least 1")
        _require(0 <= self.join_walks <= 63, "cyclon.join_walks must be 0 to 63")
        _require(0 <= self.join_walk_steps <= 64, "cyclon.join_walk_steps must be 0 to 64")
        _require(self.stable_period_max >= 1, "cyclon.stable_period_max must be at least 1")
        _require(self.exchanges_per_cycle_max >= 1, "cyclon.exchanges_per_cycle_max must be >= 1")


@dataclass(frozen=True)
class Size:
    """Sample & Collide."""

    collisions: int = 10  # guess: relative error about 1/sqrt(l)
    walk_steps: int = 8  # measured: enough mixing steps for views of 20
    walks_at_once: int = 8  # guess: keeps a burst small
    fresh_ms: Millis = 300_000  # guess: an estimate is passed on for so long

    def __post_init__(self) -> None:
        _require(self.collisions >= 1, "size.collisions must be at least 1")
        _require(1 <= self.walk_steps <= 64, "size.walk_steps must be 1 to 64")
        _require(self.walks_at_once >= 1, "size.walks_at_once must be at least 1")
        _require(self.fresh_ms >= 1, "size.fresh_ms must be at least 1")


@dataclass(frozen=True)
class Tera:
    """Subscription management, access point table, lookup, event management."""

    advertise_every_cycles: int = 5  # paper (T)
    advertise_to: int = 5  # paper (D)
    advert_page: int = 256  # guess: topics in one advertisement message
    advert_pages_per_cycle: int = 4  # guess: bounds what a peer with very many topics sends
    table_size: int = 400  # paper (largest of Fig. 4a)
    walks: int = 4  # paper (r)
    lookup_success: float = 0.999  # guess: wanted probability, from which K follows
    lookup_visits_max: int = 256  # guess: bound on K
    lookup_visits_unknown: int = 40  # guess: K while the number of topics is unknown
    lookup_timeout_ms: Millis = 5_000  # guess: some ten hops, each with a handshake
    answer_from_subscriptions: bool = True  # off in the paper's experiments
    route_timeout_ms: Millis = 5_000  # guess
    route_attempts: int = 4  # guess: access points tried before giving up
    pending_max: int = 1_024  # guess: publishes in progress or waiting for a network
    pending_ms_max: Millis = 120_000  # guess: how long a queued event is kept

    def __post_init__(self) -> None:
        for name in (
            "advertise_every_cycles",
            "advertise_to",
            "advert_pages_per_cycle",
            "table_size",
            "walks",
            "lookup_visits_max",
            "lookup_visits_unknown",
            "lookup_timeout_ms",
            "route_timeout_ms",
            "route_attempts",
            "pending_max",
            "pending_ms_max",
        ):
            _require(getattr(self, name) >= 1, f"tera.{name} must be at least 1")
        for name in ("lookup_visits_max", "lookup_visits_unknown", "table_size"):
            _require(getattr(self, name) <= 4_096, f"tera.{name} must be at most 4096")
        _require(1 <= self.advert_page <= 512, "tera.advert_page must be 1 to 512")
        _require(0 < self.lookup_success < 1, "tera.lookup_success must lie between 0 and 1")


@dataclass(frozen=True)
class Links:
    """The small stable set of neighbours per topic that carries events."""

    wanted: int = 5  # measured: the smallest degree that kept 10^4 random graphs connected
    most: int = 10  # guess: twice the wanted number, so that requests are rarely refused
    request_timeout_ms: Millis = 5_000  # guess
    ping_after_ms: Millis = 15_000  # guess: a linked peer is probed after so long a silence
    ping_timeout_ms: Millis = 5_000  # guess
    pings_unanswered_max: int = 3  # guess

    def __post_init__(self) -> None:
        _require(1 <= self.wanted <= self.most, "links.wanted must be between 1 and links.most")
        _require(self.most <= 64, "links.most must be at most 64")
        for name in ("request_timeout_ms", "ping_after_ms", "ping_timeout_ms"):
            _require(getattr(self, name) >= 1, f"links.{name} must be at least 1")
        _require(self.pings_unanswered_max >= 1, "links.pings_unanswered_max must be at least 1")


@dataclass(frozen=True)
class Dissemination:
    """How events spread inside a topic, and how losses are repaired."""

    scheme: Scheme = "tree"
    gossip_fanout: int = 6  # guess: ln(n) + 2 for small groups
    lazy_delay_ms: Millis = 50  # guess: announcements gathered for so long
    graft_timeout_ms: Millis = 500  # guess: several round trips; too short costs duplicates
    graft_retry_ms: Millis = 250  # guess: before the next announcer is asked
    shaper_quiet_ms: Millis = 1_000  # guess: longer than an event travels, then another shapes
    settle_ms: Millis = 2_000  # guess: by then an event has reached all, or is missing
    recent_ms: Millis = 120_000  # guess: events are kept for repair for so long
    recent_events_max: int = 4_096  # guess: per topic
    recent_bytes_max: int = 4 << 20  # guess: per topic
    streams_max: int = 4_096  # guess: publishers remembered per topic
    gaps_max: int = 1_024  # guess: events seen out of order, per publisher
    repair_batch: int = 64  # guess: events in one repair message
    repair_bytes_max: int = 256 << 10  # guess: payload bytes in one repair message

    def __post_init__(self) -> None:
        _require(self.scheme in ("tree", "gossip", "flood"), "scheme: tree, gossip or flood")
        for name in (
            "gossip_fanout",
            "lazy_delay_ms",
            "graft_timeout_ms",
            "graft_retry_ms",
            "shaper_quiet_ms",
            "settle_ms",
            "recent_ms",
            "recent_events_max",
            "recent_bytes_max",
            "streams_max",
            "gaps_max",
        ):
            _require(getattr(self, name) >= 1, f"dissemination.{name} must be at least 1")
        _require(
            1 <= self.repair_bytes_max <= 2 << 20,
            "dissemination.repair_bytes_max must be 1 to 2 MiB",
        )
        _require(1 <= self.repair_batch <= 512, "dissemination.repair_batch must be 1 to 512")


@dataclass(frozen=True)
class Config:
    """All settings of one peer's state machines."""

    cyclon: Cyclon = field(default_factory=Cyclon)
    size: Size = field(default_factory=Size)
    tera: Tera = field(default_factory=Tera)
    links: Links = field(default_factory=Links)
    dissemination: Dissemination = field(default_factory=Dissemination)
    trace: bool = False  # produce Trace effects
