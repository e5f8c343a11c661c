"""The systems that are compared: weft's routings with each way to spread events and to share links
that means something, and the references (`weft.references`).

StaN's link sharing ranks the neighbours of TERA's topic overlays and the views that gossip over the
topic-aware DHT goes by, and moves leaves of Pulsarcast's trees to parents that they are linked to
anyway. Trees over the topic-aware DHT share their links as they are, and the flood has none of its
own. History changes nothing of what is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from weft.ids import Contact
from weft.protocol import rooms
from weft.protocol.config import Config, Routing
from weft.protocol.seam import SCHEMES, Machine
from weft.references.epidemic import DaMulticast, Flooding
from weft.references.gossipsub import GossipSub
from weft.references.poldercast import PolderCast
from weft.references.scribe import Scribe
from weft.references.spidercast import SpiderCast

Family: TypeAlias = Literal["weft", "reference"]
MakeReference: TypeAlias = Callable[[Contact, int], Machine]
Settings: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class System:
    """One of the systems by its name."""

    name: str
    title: str
    settings: Settings | None = None  # of weft's protocol, as a config file has them
    reference: MakeReference | None = None

    @property
    def family(self) -> Family:
        return "weft" if self.reference is None else "reference"

    def config(self) -> Config:
        """The settings of weft's peers; a reference has none and takes no notice of them."""
        config = Config(trace=True)
        for name, value in (self.settings or {}).items():
            nested = isinstance(value, Mapping)
            new = replace(getattr(config, name), **value) if nested else value
            config = replace(config, **{name: new})
        return config


def _made(name: str, title: str, settings: Settings, sharing: bool) -> System:
    if not sharing:
        return System(name, title, settings)
    shared = {**settings, "stan": {"enabled": True}}
    return System(f"{name}+stan", f"{title}, links shared by StaN", shared)


def _tera(scheme: str, sharing: bool) -> System:
    settings: Settings = {"routing": "tera", "dissemination": {"scheme": scheme}}
    return _made(f"tera-{scheme}", f"TERA, {scheme}", settings, sharing)


def _topic_dht(scheme: str, sharing: bool) -> System:
    settings: Settings = {"routing": "topic-dht", "topic_dht": {"scheme": scheme}}
    return _made(f"topic-dht-{scheme}", f"topic-aware DHT, {scheme}", settings, sharing)


def _plain(routing: Routing, title: str, sharing: bool = False) -> System:
    return _made(routing, title, {"routing": routing}, sharing)


OURS: tuple[System, ...] = (
    *(_tera(scheme, sharing) for scheme in SCHEMES for sharing in (False, True)),
    *(_topic_dht(scheme, sharing=False) for scheme in rooms.SCHEMES),
    *(_topic_dht(scheme, sharing=True) for scheme in rooms.SCHEMES if "gossip" in scheme),
    _plain("pulsarcast", "Pulsarcast's trees"),
    _plain("pulsarcast", "Pulsarcast's trees", sharing=True),
    _plain("flood", "weft's flood of the whole network"),
)
REFERENCES: tuple[System, ...] = (
    System("ref-flooding", "event flooding", reference=Flooding),
    System("ref-scribe", "Scribe on Pastry", reference=Scribe),
    System("ref-gossipsub", "GossipSub v1.1, D = 8", reference=GossipSub),
    System("ref-poldercast", "PolderCast", reference=PolderCast),
    System("ref-spidercast", "SpiderCast", reference=SpiderCast),
    System("ref-damulticast", "daMulticast", reference=DaMulticast),
)
SYSTEMS: Mapping[str, System] = {each.name: each for each in (*OURS, *REFERENCES)}


def default_system() -> System:
    """The system that a peer runs with default settings."""
    usual = Config()
    for each in OURS:
        config = each.config()
        if (config.routing, config.dissemination.scheme, config.topic_dht.scheme, config.stan) == (
            *(usual.routing, usual.dissemination.scheme, usual.topic_dht.scheme),
            usual.stan,
        ):
            return each
    raise ValueError("the default of a peer is none of the systems compared")
