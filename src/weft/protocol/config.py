"""Settings of a peer's state machines: frozen, nested per layer, checked when created.

Every number among the defaults says where it comes from: `paper`, `measured` or `guess`.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Literal, TypeAlias, get_args

from weft.ids import BadId
from weft.protocol.defence import Config as Defence
from weft.protocol.membership import Config as Cyclon
from weft.protocol.recent import Config as Dissemination
from weft.protocol.rooms import (
    HistorySettings,
    KademliaSettings,
    Keep,
    PulsarSettings,
    TopicDhtSettings,
)
from weft.protocol.settings import Settings, require
from weft.protocol.tera.access_points import Config as Tera
from weft.protocol.tera.links import Config as Links
from weft.protocol.tera.size import Config as Size
from weft.protocol.tera.stan import Config as Stan
from weft.rules.capacity import CAPACITY_LEAST, CAPACITY_MOST
from weft.rules.hierarchy import parse_root

Routing: TypeAlias = Literal["tera", "flood", "pulsarcast", "topic-dht"]
"""How events find their subscribers: topic overlays, the whole network, multicast trees, or a DHT
in which the subscribers of a topic lie side by side."""
__all__ = [
    "Config",
    "Cyclon",
    "Defence",
    "Dissemination",
    "HistorySettings",
    "KademliaSettings",
    "Keep",
    "Links",
    "PulsarSettings",
    "Routing",
    "Size",
    "Stan",
    "Tera",
    "TopicDhtSettings",
]
_ON_THE_DHT = ("pulsarcast", "topic-dht")


class Config(Settings):
    """All settings of one peer's state machines. Two routings need the DHT and switch it on."""

    routing: Routing = "tera"
    capacity: float = 1.0  # of a usual peer; TERA's load follows it (rules/capacity.py)
    cyclon: Cyclon = field(default_factory=Cyclon)
    size: Size = field(default_factory=Size)
    tera: Tera = field(default_factory=Tera)
    links: Links = field(default_factory=Links)
    stan: Stan = field(default_factory=Stan)
    dissemination: Dissemination = field(default_factory=Dissemination)
    dht: KademliaSettings = field(default_factory=KademliaSettings)
    history: HistorySettings = field(default_factory=HistorySettings)
    pulsar: PulsarSettings = field(default_factory=PulsarSettings)
    topic_dht: TopicDhtSettings = field(default_factory=TopicDhtSettings)
    defence: Defence = field(default_factory=Defence)
    hierarchies: tuple[str, ...] = ()  # roots of hierarchies (rules/hierarchy.py); "/": one of all
    trace: bool = False  # produce Trace effects

    def __post_init__(self) -> None:
        known = get_args(Routing)
        require(self.routing in known, f"routing: one of {', '.join(known)}")
        bounds = f"from {CAPACITY_LEAST:g} to {CAPACITY_MOST:g}"
        within = CAPACITY_LEAST <= self.capacity <= CAPACITY_MOST
        require(within, f"capacity: {bounds}, where a usual peer has 1")
        if self.stan.enabled:
            self._check_sharing()
        for root in self.hierarchies:
            try:
                parse_root(root)
            except BadId as error:
                raise ValueError(f"hierarchies: {error}") from error
        if self.routing in _ON_THE_DHT and not self.dht.enabled:
            object.__setattr__(self, "dht", replace(self.dht, enabled=True))

    def _check_sharing(self) -> None:
        """Where a routing leaves nothing to choose by StaN's ranking, switching it on is a mistake
        (docs/protocols/stan.md, Under other routings)."""
        flooded = "stan.enabled: the flood has no links of topics, all events share one overlay"
        require(self.routing != "flood", flooded)
        trees = (
            "stan.enabled: the trees of the topic-aware DHT share links as they are; "
            "it is for the gossip schemes of topic_dht.scheme"
        )
        require(self.routing != "topic-dht" or self.topic_dht.gossips, trees)
        told = "stan.lean: only TERA's walks tell which topics others are in"
        require(self.routing == "tera" or not self.stan.lean, told)
