"""Settings of the rooms of the protocol that a peer may be without: Kademlia's DHT, history, the
trees of Pulsarcast, the topic-aware DHT.

The settings stand apart from what acts on them, so that reading settings does not load the rooms:
most peers have none of the four, which are 2 MB of a process (measured). `peer.py` loads a room
that the settings ask for, or that another peer speaks of.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal, TypeAlias, get_args

from weft.protocol.seam import Millis
from weft.protocol.settings import Settings, require
from weft.rules.treecast import ROOTS_MAX, Mode
from weft.store.interface import Retention


class KademliaSettings(Settings):
    """Kademlia: tables, lookups, records held for others."""

    enabled: bool = False
    k: int = 20  # paper: bucket size, replicas, and how many a lookup finds
    alpha: int = 3  # paper: requests of one lookup at once
    spare: int = 20  # guess: newcomers remembered per full bucket
    failures_max: int = 3  # guess: requests unanswered in a row (5 in Kademlia's Section 4.1)
    fresh_ms: Millis = 60_000  # guess: seen so lately, a peer is not probed
    slow_ms: Millis = 1_000  # guess: a slower request no longer counts towards alpha; repeated
    timeout_ms: Millis = 4_000  # guess: a request without an answer has failed by then
    requests_max: int = 128  # guess: of one lookup; about 30 are usual
    lookups_max: int = 64  # guess: lookups at once; others wait their turn
    background_max: int = 2  # guess: of these, refreshes and republishes
    waiting_max: int = 4_096  # guess: operations that wait
    refresh_first_ms: Millis = 5_000  # guess: first pause between refreshes, doubling up to …
    refresh_ms: Millis = 600_000  # guess: … this, as in libp2p
    bucket_refresh_ms: Millis = 3_600_000  # paper: a range that no lookup went into for so long
    quorum: int = 4  # guess: valid answers for a value that may change
    value_life_ms: Millis = 86_400_000  # paper: 24 hours
    republish_ms: Millis = 3_600_000  # paper: holders republish every hour
    values_max: int = 4_096  # guess: held for others
    values_bytes_max: int = 64 << 20  # guess: in total
    values_per_sender_max: int = 1_024  # guess: held on behalf of one peer
    value_bytes_max: int = (1 << 20) + (64 << 10)  # guess: an event of the largest size, described
    provider_life_ms: Millis = 172_800_000  # guess: 48 hours, as libp2p measured
    provide_again_ms: Millis = 79_200_000  # guess: 22 hours, as libp2p measured
    provide_retry_ms: Millis = 600_000  # guess: after no peer took it
    providers_max: int = 16_384  # guess: provider records held for others
    providers_per_key_max: int = 32  # guess
    providers_per_sender_max: int = 2_048  # guess: then its oldest makes room
    provided_max: int = 16_384  # guess: keys this peer renews for its user; and for its layers

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            require(name == "enabled" or value >= 1, f"dht.{name} must be at least 1")
        require(self.k <= 64, "dht.k must be at most 64")
        require(self.providers_per_key_max <= 64, "dht.providers_per_key_max must be at most 64")
        require(self.alpha <= self.k, "dht.alpha must be at most dht.k")
        require(self.slow_ms < self.timeout_ms, "dht.slow_ms must be less than dht.timeout_ms")
        require(self.value_bytes_max <= 2 << 20, "dht.value_bytes_max must be at most 2 MiB")


class Keep(Settings):
    """How much of a topic's stream is kept; 0: without limit."""

    age_ms: Millis = 0  # guess: all of it, until the user says otherwise
    events: int = 0  # guess
    bytes: int = 0  # guess
    publisher_bytes: int = 1 << 30  # guess: of one publisher; its own disk is as large

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            require(value >= 0, f"keep.{name} must not be negative")

    def retention(self) -> Retention:
        return Retention(self.age_ms or None, self.events or None, self.bytes or None)


class HistorySettings(Settings):
    """Events that stay (protocol/history)."""

    enabled: bool = False
    provide_probability: float = 0.1  # guess: how likely a peer on the way provides an event
    segment_heights: int = 256  # guess: of a stream under one key in the DHT; alike at all peers
    put_bytes_max: int = 0  # guess: publishers put blocks so large into the DHT; at all peers alike
    request_timeout_ms: Millis = 3_000  # guess
    patience_ms: Millis = 500  # guess: a parent that routing has not brought yet may still come
    retry_ms: Millis = 5_000  # guess: after all were asked for a block in vain
    give_up_ms: Millis = 900_000  # guess: then the stream goes on without it
    requests_max: int = 8  # guess: requests for blocks at once
    blocks_per_request: int = 64  # guess
    page_bytes_max: int = 256 << 10  # guess: of blocks in one message
    serve_bytes_per_s: int = 16 << 20  # guess: of blocks, to each peer that asks for the past
    walk_back_max: int = 16  # measured: walking back 16 takes 1.2 s and 32 messages, a page 2
    early_max: int = 1_024  # guess: events that wait until a subscription has begun
    held_max: int = 1_024  # guess: events that wait for their topic's version
    publishers_max: int = 1_024  # guess: that a member remembers per topic
    outside_max: int = 1_024  # guess: topics published to without a subscription
    waiting_bytes_max: int = 8 << 20  # guess: per topic, of early and of held events
    wants_max: int = 4_096  # guess: missing blocks that are looked for at once
    wants_per_source_max: int = 1_024  # guess: of these on the word of one peer
    accept_sub_topics: bool = False  # a publisher gets the sub-topics it asks for, at once
    topics_every_ms: Millis = 600_000  # guess: how often records are looked at for renewal
    prune_every_ms: Millis = 60_000  # guess
    keep: Keep = field(default_factory=Keep)
    keep_topics: dict[str, Keep] = field(default_factory=dict)  # guess: for some topics, by name

    def __post_init__(self) -> None:
        require(0 <= self.provide_probability <= 1, "history.provide_probability must be 0 to 1")
        for name, value in vars(self).items():
            if isinstance(value, int) and not isinstance(value, bool):
                least = 0 if name == "put_bytes_max" else 1
                require(value >= least, f"history.{name} must be at least {least}")
        require(self.blocks_per_request <= 256, "history.blocks_per_request must be at most 256")
        require(self.page_bytes_max <= 1 << 20, "history.page_bytes_max must be at most 1 MiB")

    def retention(self, topic: str) -> Retention:
        """How much of a topic is kept."""
        return self.keep_topics.get(topic, self.keep).retention()


class PulsarSettings(Settings):
    """Multicast trees (protocol/pulsar)."""

    rendezvous: int = 3  # guess: roots per tree (the paper leaves k open); all but one may be lost
    children_max: int = 8  # guess: about the links of a peer in a topic overlay
    reply_timeout_ms: Millis = 500  # guess: several round trips; then others are asked as well
    patience_cycles: int = 3  # guess: beats missed before the way up counts as broken
    check_every_cycles: int = 6  # guess: how often the closest peers are looked up again
    trees_max: int = 4_096  # guess: trees of one peer; with more it serves none for others

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            require(value >= 1, f"pulsar.{name} must be at least 1")
        require(self.rendezvous <= 8, "pulsar.rendezvous must be at most 8")
        require(2 <= self.children_max <= 64, "pulsar.children_max must be 2 to 64")


CONTACTS_MAX = 32
"""guess: forwarders named in one message."""
CHILDREN_MAX = 64
"""guess: bound on k, the children of a forwarder."""
Scheme: TypeAlias = Literal["full-gossip", "forward-gossip", "full-treecast", "forward-treecast"]
"""How events spread in a topic, the same at all peers of a network: in the full ones every
subscriber has a location and takes part, in the others only forwarders do, each for its children.
"""
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
_SWITCHES = ("scheme", "gossip_mode", "packs", "view_percent")


class TopicDhtSettings(Settings):
    """Settings of the topic-aware DHT. The paper names k, l, K and f and gives no values."""

    children_max: int = 8  # guess: k, per topic
    alternatives_max: int = 4  # guess: l of Algorithm 1, forwarders known to a child
    period_ms: Millis = 10_000  # guess: of Algorithms 1 and 2
    silent_periods: int = 3  # guess: after so many a parent takes a silent child for gone
    refresh_periods: int = 3  # guess: from one refresh of a forwarder's table to the next
    lease_ms: Millis = 15_000  # guess: an operation not closed by then is taken for given up
    retry_ms: Millis = 500  # guess: an aborted operation is tried again after about so long
    view_max: int = 20  # guess: l of Algorithm 2
    view_fanout: int = 4  # guess: K
    view_percent: int = 25  # guess: f; 0: no views are kept
    draws_max: int = 128  # guess: seats drawn for one random member; about ten are usual
    scheme: Scheme = "forward-treecast"  # guess: the fewest messages and the least state
    links_per_level: int = 4  # measured: see rules/treecast.py; 1 in the paper
    packs: bool = False  # forwarders stop where those around them have room (makechild)
    roots: int = 1  # paper: f + 1 trees, of which f may be lost with their roots
    gossip_mode: Mode = "push"  # paper names both
    gossip_round_ms: Millis = 1_000  # guess: push-pull calls a member so often after an event

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            require(name in _SWITCHES or value >= 1, f"topic_dht.{name} must be at least 1")
        for name, known in (("scheme", SCHEMES), ("gossip_mode", get_args(Mode))):
            named = getattr(self, name) in known
            require(named, f"topic_dht.{name}: one of {', '.join(known)}")
        require(self.roots <= ROOTS_MAX, f"topic_dht.roots must be at most {ROOTS_MAX}")
        for name in ("links_per_level", "alternatives_max"):
            few = getattr(self, name) <= CONTACTS_MAX
            require(few, f"topic_dht.{name} must be at most {CONTACTS_MAX}")
        few = self.children_max < CHILDREN_MAX
        require(few, f"topic_dht.children_max must be less than {CHILDREN_MAX}")
        require(0 <= self.view_percent <= 100, "topic_dht.view_percent must be 0 to 100")

    @property
    def everybody_forwards(self) -> bool:
        return self.scheme.startswith("full-")

    @property
    def gossips(self) -> bool:
        return self.scheme.endswith("-gossip")

    @property
    def k(self) -> int:
        """The most children of a forwarder."""
        return 0 if self.everybody_forwards else self.children_max

    @property
    def silence_ms(self) -> Millis:
        """How long a parent or a child may be silent before it is taken for gone."""
        return self.silent_periods * self.period_ms
