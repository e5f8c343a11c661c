"""The systems that are compared: weft's routings with each way to spread events and to share links
that means something, and the references (`weft.references`).

StaN's link sharing ranks the neighbours of TERA's topic overlays, so it goes with TERA's schemes
alone; the other routings have no links to choose. History changes nothing of what is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from weft.ids import Contact
from weft.protocol.config import Config, Routing
from weft.protocol.seam import SCHEMES, Machine
from weft.protocol.topic_dht import roles
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


def _tera(scheme: str, sharing: bool) -> System:
    shared = "+stan" if sharing else ""
    said = ", links shared by StaN" if sharing else ""
    settings: dict[str, Any] = {"routing": "tera", "dissemination": {"scheme": scheme}}
    if sharing:
        settings["stan"] = {"enabled": True}
    return System(f"tera-{scheme}{shared}", f"TERA, {scheme}{said}", settings)


def _topic_dht(scheme: str) -> System:
    settings = {"routing": "topic-dht", "topic_dht": {"scheme": scheme}}
    return System(f"topic-dht-{scheme}", f"topic-aware DHT, {scheme}", settings)


def _plain(routing: Routing, title: str) -> System:
    return System(routing, title, {"routing": routing})


OURS: tuple[System, ...] = (
    *(_tera(scheme, sharing) for scheme in SCHEMES for sharing in (False, True)),
    *(_topic_dht(scheme) for scheme in roles.SCHEMES),
    _plain("pulsarcast", "Pulsarcast's trees"),
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
    """The one that a peer has without further word."""
    usual = Config()
    for each in OURS:
        config = each.config()
        if (config.routing, config.dissemination.scheme, config.topic_dht.scheme, config.stan) == (
            *(usual.routing, usual.dissemination.scheme, usual.topic_dht.scheme),
            usual.stan,
        ):
            return each
    raise ValueError("the default of a peer is none of the systems compared")
