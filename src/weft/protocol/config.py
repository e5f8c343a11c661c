"""Settings of a peer's state machines: frozen, nested per layer, checked when created.

Every default says where it comes from: `paper`, `measured` or `guess`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, get_args

from weft.ids import BadId
from weft.protocol.seam import SCHEMES, Millis, Scheme
from weft.protocol.topic_dht.settings import Settings as TopicDht
from weft.rules.hierarchy import parse_root
from weft.store.interface import Retention


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
class Stan:
    """Which members a peer ranks first, alike in all its topics (protocol/tera/stan.py)."""

    enabled: bool = False  # measured: see docs/protocols/stan.md, what speaks against it so far
    view_size: int = 0  # paper: 0 stands for ln n + 4.6, by the estimate of the topic's size
    walk_steps: int = 6  # measured: about the diameter (rules/stan.py)
    period_ms: Millis = 10_000  # guess: a cycle; 0: no walk but on `Collect`
    period_max: int = 32  # guess: periods between walks that bring nothing; 1: no back-off
    overhear: bool = True  # named by the paper: walks that pass are read
    sample: bool = True  # ours: what view exchanges bring is ranked too
    adopt: bool = True  # ours: members that no walk passes ask to be adopted
    lean: bool = False  # ours, opt-in: prefers shared topics, and tells walks one's own
    confirm_ms: Millis = 300_000  # guess: a neighbour not heard of for so long is asked

    def __post_init__(self) -> None:
        _require(0 <= self.view_size <= 64, "stan.view_size must be 0 to 64")
        _require(0 <= self.walk_steps <= 64, "stan.walk_steps must be 0 to 64")
        _require(self.period_ms >= 0, "stan.period_ms must not be negative")
        _require(1 <= self.period_max <= 1_024, "stan.period_max must be 1 to 1024")
        _require(self.confirm_ms >= 1, "stan.confirm_ms must be at least 1")


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
        _require(self.scheme in SCHEMES, f"scheme: one of {', '.join(SCHEMES)}")
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
class Dht:
    """Kademlia: tables, lookups, records held for others."""

    enabled: bool = False
    k: int = 20  # paper: bucket size, replicas, and how many a lookup finds
    alpha: int = 3  # paper: requests of one lookup at once
    spare: int = 20  # guess: newcomers remembered per full bucket
    failures_max: int = 3  # guess: requests unanswered in a row (5 in Kademlia's Section 4.1)
    fresh_ms: Millis = 60_000  # guess: seen so lately, a peer is not probed
    slow_ms: Millis = 1_000  # guess: then a request no longer counts towards alpha, and is repeated
    timeout_ms: Millis = 4_000  # guess: then it has failed
    requests_max: int = 128  # guess: of one lookup; about 30 are usual
    lookups_max: int = 64  # guess: lookups at once; others wait their turn
    background_max: int = 2  # guess: of these, refreshes and republishes
    waiting_max: int = 4_096  # guess: operations that wait
    refresh_first_ms: Millis = 5_000  # guess: the table is looked after first, doubling up to …
    refresh_ms: Millis = 600_000  # guess: … this, as in libp2p
    bucket_refresh_ms: Millis = 3_600_000  # paper: a range nobody looked into for so long
    quorum: int = 4  # guess: valid answers for a value that may change
    value_life_ms: Millis = 86_400_000  # paper: 24 hours
    republish_ms: Millis = 3_600_000  # paper: holders republish every hour
    values_max: int = 4_096  # guess: held for others
    values_bytes_max: int = 64 << 20  # guess: in total
    values_per_sender_max: int = 1_024  # guess: held on behalf of one peer
    value_bytes_max: int = (1 << 20) + (64 << 10)  # guess: an event of the largest size, described
    provider_life_ms: Millis = 172_800_000  # guess: 48 hours, as libp2p measured
    provide_again_ms: Millis = 79_200_000  # guess: 22 hours, as libp2p measured
    providers_max: int = 16_384  # guess: provider records held for others
    providers_per_key_max: int = 32  # guess
    providers_per_sender_max: int = 2_048  # guess
    provided_max: int = 16_384  # guess: keys this peer provides

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            _require(name == "enabled" or value >= 1, f"dht.{name} must be at least 1")
        _require(self.k <= 64, "dht.k must be at most 64")
        _require(self.providers_per_key_max <= 64, "dht.providers_per_key_max must be at most 64")
        _require(self.alpha <= self.k, "dht.alpha must be at most dht.k")
        _require(self.slow_ms < self.timeout_ms, "dht.slow_ms must be less than dht.timeout_ms")
        _require(self.value_bytes_max <= 2 << 20, "dht.value_bytes_max must be at most 2 MiB")


@dataclass(frozen=True)
class Keep:
    """How much of a topic's stream is kept; 0: without limit."""

    age_ms: Millis = 0  # guess: all of it, until somebody says otherwise
    events: int = 0  # guess
    bytes: int = 0  # guess

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            _require(value >= 0, f"keep.{name} must not be negative")

    def retention(self) -> Retention:
        return Retention(self.age_ms or None, self.events or None, self.bytes or None)


@dataclass(frozen=True)
class History:
    """Events that stay (protocol/history)."""

    enabled: bool = False
    provide_probability: float = 0.1  # guess: how likely a peer on the way provides an event
    request_timeout_ms: Millis = 3_000  # guess
    patience_ms: Millis = 500  # guess: a parent that routing has not brought yet may still come
    retry_ms: Millis = 5_000  # guess: after everybody was asked for a block in vain
    give_up_ms: Millis = 600_000  # guess: then the stream goes on without it
    requests_max: int = 8  # guess: requests for blocks at once
    blocks_per_request: int = 64  # guess
    page_bytes_max: int = 256 << 10  # guess: of blocks in one message
    serve_bytes_per_s: int = 16 << 20  # guess: of blocks, to each peer that asks for the past
    walk_back_max: int = 16  # measured: walking back 16 takes 1.2 s and 32 messages, a page 2
    early_max: int = 1_024  # guess: events that wait until a subscription has begun
    held_max: int = 1_024  # guess: events that wait for their topic's version
    publishers_max: int = 1_024  # guess: of whom a topic's members know what they have had
    outside_max: int = 1_024  # guess: topics published to without a subscription
    waiting_bytes_max: int = 8 << 20  # guess: per topic, of early and of held events
    wants_max: int = 4_096  # guess: missing blocks that are looked for at once
    wants_per_source_max: int = 1_024  # guess: of these on the word of one peer
    accept_sub_topics: bool = False  # whoever may publish gets the sub-topics it asks for, at once
    topics_every_ms: Millis = 600_000  # guess: how often records are looked at for renewal
    prune_every_ms: Millis = 60_000  # guess
    keep: Keep = field(default_factory=Keep)
    keep_topics: dict[str, Keep] = field(default_factory=dict)  # guess: for some topics, by name

    def __post_init__(self) -> None:
        _require(0 <= self.provide_probability <= 1, "history.provide_probability must be 0 to 1")
        for name, value in vars(self).items():
            if isinstance(value, int) and not isinstance(value, bool):
                _require(value >= 1, f"history.{name} must be at least 1")
        _require(self.blocks_per_request <= 256, "history.blocks_per_request must be at most 256")
        _require(self.page_bytes_max <= 1 << 20, "history.page_bytes_max must be at most 1 MiB")

    def retention(self, topic: str) -> Retention:
        """How much of a topic is kept."""
        return self.keep_topics.get(topic, self.keep).retention()


Routing: TypeAlias = Literal["tera", "flood", "pulsarcast", "topic-dht"]
"""How events find their subscribers: topic overlays, the whole network, multicast trees, or a DHT
in which the subscribers of a topic lie side by side."""
_ON_THE_DHT = ("pulsarcast", "topic-dht")


@dataclass(frozen=True)
class Pulsar:
    """Multicast trees (protocol/pulsar)."""

    rendezvous: int = 3  # guess: roots per tree (the paper leaves k open); all but one may be lost
    children_max: int = 8  # guess: about the links of a peer in a topic overlay
    reply_timeout_ms: Millis = 3_000  # guess: a round trip with a handshake
    patience_cycles: int = 3  # guess: beats missed before the way up counts as broken
    check_every_cycles: int = 6  # guess: how often the closest peers are looked up again
    trees_max: int = 4_096  # guess: at which others' trees are not served any more

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            _require(value >= 1, f"pulsar.{name} must be at least 1")
        _require(self.rendezvous <= 8, "pulsar.rendezvous must be at most 8")
        _require(2 <= self.children_max <= 64, "pulsar.children_max must be 2 to 64")


@dataclass(frozen=True)
class Config:
    """All settings of one peer's state machines. Two routings need the DHT and switch it on."""

    routing: Routing = "tera"
    cyclon: Cyclon = field(default_factory=Cyclon)
    size: Size = field(default_factory=Size)
    tera: Tera = field(default_factory=Tera)
    links: Links = field(default_factory=Links)
    stan: Stan = field(default_factory=Stan)
    dissemination: Dissemination = field(default_factory=Dissemination)
    dht: Dht = field(default_factory=Dht)
    history: History = field(default_factory=History)
    pulsar: Pulsar = field(default_factory=Pulsar)
    topic_dht: TopicDht = field(default_factory=TopicDht)
    hierarchies: tuple[str, ...] = ()  # roots of hierarchies (rules/hierarchy.py), "/": of all
    trace: bool = False  # produce Trace effects

    def __post_init__(self) -> None:
        known = get_args(Routing)
        _require(self.routing in known, f"routing: one of {', '.join(known)}")
        for root in self.hierarchies:
            try:
                parse_root(root)
            except BadId as error:
                raise ValueError(f"hierarchies: {error}") from error
        if self.routing in _ON_THE_DHT and not self.dht.enabled:
            object.__setattr__(self, "dht", replace(self.dht, enabled=True))
