"""Where a peer lies in the topic-aware DHT: hash(topic) ∘ hash(peer), once per topic it forwards.

Deviation: every peer also lies in the *lobby*, the empty topic. From there it routes to topics in
which it has no location yet, and neighbours of the general overlay, whose topics nobody knows, are
found there.
"""

from __future__ import annotations

from functools import lru_cache

from weft.ids import GENERAL, PeerId, Topic
from weft.protocol.kademlia.table import Space
from weft.rules import prefix

LOBBY = GENERAL
TOPIC_BITS = prefix.BITS
"""Locations that share so many leading bits are of one topic."""
_REMEMBERED = 16_384
"""guess"""


@lru_cache(_REMEMBERED)
def location(topic: Topic, peer: PeerId) -> int:
    return prefix.joined(topic.encode(), peer)


def position(location: int) -> int:
    """The place inside a topic of one of its locations: hash(peer)."""
    return location & ((1 << prefix.BITS) - 1)


TOPICS = Space(1, 2 * prefix.BITS, location)
