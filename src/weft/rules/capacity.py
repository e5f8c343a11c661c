"""What a peer takes on by its capacity. TERA leaves peers of different capacity to future work
(Section 6); this is weft's own, and `tera-hetero` measures it over arrays.

A capacity is relative to a usual peer, which has 1: a peer of 2 can do twice as much. No peer
tells another its capacity. What others notice of it is how many copies of an event they get from
the peer, how many links it takes, and how often it advertises, so that it is found as an access
point.
"""

from __future__ import annotations

CAPACITY_LEAST = 0.1
CAPACITY_MOST = 100.0
"""guess, both: by then a peer is at the bounds of all that is scaled."""
FANOUT_LEAST = 4
"""guess: members that an event is sent on to by the weakest, so that it still spreads."""
LINKS_MOST = 64
"""guess: the most links of a member in a topic, however strong it is."""
EXCHANGES_PER_CYCLE = 2
"""paper (Cyclon): a peer asks for one exchange of views in each cycle, and is asked for one on
average."""


def scaled(usual: int, capacity: float, least: int, most: int) -> int:
    """How much a peer does of something that a usual peer does `usual` of, within bounds; the
    bounds never change what a usual peer does."""
    return max(min(least, usual), min(max(most, usual), round(usual * capacity)))


def links_most(usual: int, wanted: int, capacity: float) -> int:
    """How many links a member has in a topic at the most: in a push tree events go on over some of
    them. However weak it is, it has the links that it wants itself, so that overlays stay
    connected."""
    return scaled(usual, capacity, wanted, LINKS_MOST)


def told_in(capacity: float, parts: int) -> int:
    """In how many of `parts` exchanges of views a peer tells its topics; a strong one in all."""
    return min(parts, round(parts * capacity))


def told_besides(capacity: float, most: int) -> int:
    """To how many peers, in a cycle, a strong peer tells its topics beside its exchanges."""
    return min(most, max(0, round(EXCHANGES_PER_CYCLE * (capacity - 1))))


def popularity_told(popularity: int, capacity: float) -> int:
    """The popularity that a peer of this capacity advertises.

    A table takes a topic in with a chance of one over its popularity, and replaces the access point
    of a topic that it has. A peer that advertises c times as often and tells a popularity c times
    as large brings its topic into tables no more often than a usual one, so that tables stay as
    even, but becomes the access point of those that have it c times as often.
    """
    return max(1, round(popularity * capacity))
