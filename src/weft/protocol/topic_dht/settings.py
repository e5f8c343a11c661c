"""Settings of the topic-aware DHT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from weft.protocol.messages_topic_dht import CHILDREN_MAX, CONTACTS_MAX
from weft.protocol.seam import Millis
from weft.rules.treecast import ROOTS_MAX, Mode

Scheme: TypeAlias = Literal["full-gossip", "forward-gossip", "full-treecast", "forward-treecast"]
"""How events spread in a topic, the same at all peers of a network: in the full ones every
subscriber has a location and takes part, in the others only forwarders do, each for its children.
"""
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
_SWITCHES = ("scheme", "gossip_mode", "view_percent")


@dataclass(frozen=True)
class Settings:
    """The paper names k, l, K and f and gives no values."""

    children_max: int = 8  # guess: k, per topic
    alternatives_max: int = 4  # guess: l of Algorithm 1, forwarders known to a child
    period_ms: Millis = 10_000  # guess: of Algorithms 1 and 2
    silent_periods: int = 3  # guess: then a parent takes a child for gone
    refresh_periods: int = 3  # guess: from one refresh of a forwarder's table to the next
    lease_ms: Millis = 15_000  # guess: an operation not closed by then is taken for given up
    retry_ms: Millis = 500  # guess: an aborted operation is tried again after about so long
    view_max: int = 20  # guess: l of Algorithm 2
    view_fanout: int = 4  # guess: K
    view_percent: int = 25  # guess: f; 0: no views are kept
    draws_max: int = 128  # guess: seats drawn for one random member; about ten are usual
    scheme: Scheme = "forward-treecast"  # guess: the fewest messages and the least state
    links_per_level: int = 4  # measured: see rules/treecast.py; 1 in the paper
    roots: int = 1  # paper: f + 1 trees, of which f may be lost with their roots
    gossip_mode: Mode = "push"  # paper names both
    gossip_round_ms: Millis = 1_000  # guess: push-pull calls somebody so often after an event

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name not in _SWITCHES and value < 1:
                raise ValueError(f"topic_dht.{name} must be at least 1")
        for name, known in (("scheme", SCHEMES), ("gossip_mode", get_args(Mode))):
            if getattr(self, name) not in known:
                raise ValueError(f"topic_dht.{name}: one of {', '.join(known)}")
        if self.roots > ROOTS_MAX:
            raise ValueError(f"topic_dht.roots must be at most {ROOTS_MAX}")
        if self.links_per_level > CONTACTS_MAX:
            raise ValueError(f"topic_dht.links_per_level must be at most {CONTACTS_MAX}")
        if self.children_max >= CHILDREN_MAX:
            raise ValueError(f"topic_dht.children_max must be less than {CHILDREN_MAX}")
        if self.alternatives_max > CONTACTS_MAX:
            raise ValueError(f"topic_dht.alternatives_max must be at most {CONTACTS_MAX}")
        if not 0 <= self.view_percent <= 100:
            raise ValueError("topic_dht.view_percent must be 0 to 100")

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
