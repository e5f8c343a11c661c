"""When a swarm of real peers has settled, and what that took.

A swarm is settled when all its peers are up, each has a general view of the usual size, and each
has its links in every topic. A view lacks the neighbour that is being asked for an exchange, and
may lack another one whose answer is on its way, so two less than all is usual; of links, one less
than wanted, since they move.

`Look` is one peer at a glance, `Census` all of them at one moment; `Sight` is one peer with the
peers that it knows and is linked with, for a picture of the overlays. A census is cheap on purpose:
it runs on the machine of the swarm and must not keep the swarm from settling.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

import weft
from weft.net.control_client import Fields
from weft.protocol import config as protocol

_ON_ITS_WAY = 2
"""Neighbours that a full view may lack for a moment."""
_CAUSE = "net_dials_for_"
"""The names of the counters that say which message a connection was made for begin so."""


@dataclass(frozen=True, slots=True)
class Look:
    """One peer at a glance; notifications and opened connections count from its start."""

    isolated: bool
    view: int
    linked: int  # peers with a link in any topic
    links_least: int  # in the topic with the fewest
    connections: int
    topics: int
    notifications: int
    opened: int  # connections, from either side

    @classmethod
    def at(cls, peer: weft.Peer) -> Look:
        gauges = peer.gauges
        counters = peer.counters
        return cls(
            isolated=peer.isolated,
            view=int(gauges["view_size"]),
            linked=int(gauges["links_physical"]),
            links_least=int(gauges["links_least"]),
            connections=int(gauges["net_connections"]),
            topics=int(gauges["subscriptions"]),
            notifications=counters["net_delivered"],
            opened=counters["net_opened"],
        )


@dataclass(frozen=True)
class Census:
    """All peers of a swarm that are up, at one moment."""

    looks: Mapping[int, Look]
    cpu_seconds: float  # of all processes, since they began
    causes: Mapping[str, int]  # connections dialled so far, by the message they were made for

    @property
    def connections_made(self) -> float:
        """Connections opened so far. Both ends count each connection, so half of the sum."""
        return sum(look.opened for look in self.looks.values()) / 2

    def settled(self, peers: int, topics: int, config: protocol.Config) -> int:
        """How many of the peers that there shall be have settled."""
        view_least = min(config.cyclon.view_size - _ON_ITS_WAY, peers - 1)
        # Only TERA's overlays want the same number of links at every peer.
        links_least = min(config.links.wanted - 1, peers - 1) if config.routing == "tera" else 0
        return sum(
            not look.isolated
            and look.view >= view_least
            and look.topics >= topics
            and (not topics or look.links_least >= links_least)
            for look in self.looks.values()
        )


def causes_of(peers: Mapping[int, weft.Peer]) -> dict[str, int]:
    """What these peers dialled others for, most frequent first."""
    total: Counter[str] = Counter()
    for peer in peers.values():
        for name, count in peer.counters.items():
            if name.startswith(_CAUSE):
                total[name.removeprefix(_CAUSE).replace("_", " ")] += count
    return dict(total.most_common())


class Sight(TypedDict):
    """One peer and its place in the overlays."""

    peer: str
    isolated: bool
    connections: int
    view: list[str]  # peers that it knows in the general overlay
    links: dict[str, list[str]]  # by topic that it is subscribed to
    delivered: int
    frames: int  # sent, of all kinds
    bytes: int  # sent
    dropped: int  # events that it could not send on, or its application did not take


def sight_of(peer: weft.Peer) -> Sight:
    """What there is to draw of a peer."""
    status: Fields = peer.status()
    counters = peer.counters
    return {
        "peer": status["peer"],
        "isolated": status["isolated"],
        "connections": len(status["connections"]),
        "view": [address.rpartition("/p2p/")[2] for address in status["view"]],
        "links": {topic: _linked(state) for topic, state in status["topics"].items()},
        "delivered": counters["net_delivered"],
        "frames": counters["net_frames_sent"],
        "bytes": counters["net_bytes_sent"],
        "dropped": counters["net_events_dropped"] + counters["net_notifications_dropped"],
    }


def _linked(state: Fields) -> list[str]:
    """The peers that events of a topic are passed on to: linked ones, or neighbours in a tree."""
    if "links" in state:
        return list(state["links"])
    return [peer for peer in (state.get("parent", ""), *state.get("children", ())) if peer]
