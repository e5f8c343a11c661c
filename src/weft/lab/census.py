"""When a swarm of real peers has settled, and what that took.

A swarm is settled when all its peers are up, each has a general view of the usual size, and each
has its links in every topic. A view lacks the neighbour that is being asked for an exchange, and
may lack another one whose answer is on its way, so two less than all is usual; of links, one less
than wanted, since they move.

`Look` is one peer at a glance, `Census` all of them at one moment. Looking is cheap on purpose:
what watches a swarm on the same machine must not be what keeps it from settling.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import weft
from weft.protocol import config as protocol

_ON_ITS_WAY = 2
"""Neighbours that a full view may lack for a moment."""
_CAUSE = "net_dials_for_"
"""How the counters are called that say which message a connection was made for."""


@dataclass(frozen=True, slots=True)
class Look:
    """One peer at a glance; the last two have grown since it was started."""

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
        """So far; both ends count each."""
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
