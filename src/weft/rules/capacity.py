"""What a peer takes on: by its capacity, and for others.

*By its capacity.* TERA leaves peers of different capacity to future work
(Section 6); this is weft's own, and `tera-hetero` measures it over arrays.

A capacity is relative to a usual peer, which has 1: a peer of 2 can do twice as much. No peer
tells another its capacity. What others notice of it is how many copies of an event they get from
the peer, how many links it takes, and how often it advertises, so that it is found as an access
point.

*For others.* A peer carries the walks of others within two bounds, one for each sender's steps and
one for the walks of all. The two are one rule: the larger the part of all that is used up, the
smaller each sender's share. Shared buffers of switches are divided so (Choudhury and Hahne 1998,
dynamic thresholds: a queue may grow to α times what is free; here α is `STEPS_MAX / WALKS_MAX`).
Where little goes on, one peer that looks for a thousand topics has its walks carried. Where n peers
flood with walks of s steps, each gets w walks carried, with w·s = α·(`WALKS_MAX` − n·w). So all
together get n·w = n·α·`WALKS_MAX` / (s + n·α), which is less than `WALKS_MAX` however many they
are: some room is left for a peer that sends a few walks.
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

STEPS_MAX = 8_192
"""measured, 2026-11-19: the most steps that an honest peer had to carry for one sender, less 16 for
each second since: 2,100 (one of 200 peers subscribes to 1,000 topics of its own at once), 190 (200
peers subscribe to five topics each at once), 370 (campaign runs); four times the first, since half
of all is used up when a peer of five does so with 300 topics."""
WALKS_MAX = 4_096
"""measured, likewise: the most walks in all: 1,850 (one of ten peers subscribes to 300 topics of
its own at once, and each walk visits all ten), 720 and 440 (as above, with 200 peers), 50
(campaign runs)."""

# --- by its capacity ------------------------------------------------------------------------------


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


# --- for others -----------------------------------------------------------------------------------


def carries_walk(steps: int, walks: int) -> bool:
    """Whether another peer's walk is carried. `steps`: what its sender has used lately, with the
    steps that are left of this walk; `walks`: how many were carried lately, for all senders."""
    return steps * WALKS_MAX <= STEPS_MAX * (WALKS_MAX - walks)
