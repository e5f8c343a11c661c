"""TERA's closed forms, to size a deployment before it runs (TERA, Sections 4.2.2 to 4.3.2).

Words: a table has `table_size` entries (|APT|), `topics` are active (|T|), a lookup makes
`visits` visits (K) over `walks` walks (r). All forms assume what the experiments verify: tables
hold uniform samples of the active topics, and walks end at uniformly random peers.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

from weft.rules.tera import steps_of_each, visits_needed

ENTRY_ADDRESS_BYTES = 4
"""paper: an access point is named by four bytes (a table of 400 topics of 256 bytes: 104 kB)."""


def holds_topic(table_size: int, topics: int) -> float:
    """The chance that a table holds a given active topic: |APT|/|T|."""
    return min(1.0, table_size / topics) if topics > 0 else 0.0


def lookup_success(table_size: int, topics: int, visits: int) -> float:
    """1 − (1 − |APT|/|T|)^K: the chance that a lookup finds an access point."""
    return 1.0 - (1.0 - holds_topic(table_size, topics)) ** visits


def visits_for(success: float, table_size: int, topics: int) -> int:
    """The least K with `lookup_success` ≥ success: ln(1−P)/ln(1−|APT|/|T|), rounded up."""
    _check_probability(success)
    if table_size < 1:
        raise ValueError("table_size must be at least 1")
    return visits_needed(success, table_size, topics, sys.maxsize)


def table_size_for(success: float, visits: int, topics: int) -> int:
    """The least |APT| with `lookup_success` ≥ success: |T|·(1 − (1−P)^(1/K)), rounded up."""
    _check_probability(success)
    if visits < 1:
        raise ValueError("visits must be at least 1")
    share = -math.expm1(math.log1p(-success) / visits)
    return min(topics, max(1, math.ceil(topics * share - 1e-9)))


def visits_expected(table_size: int, topics: int, visits: int, walks: int) -> float:
    """Messages that carry a lookup's walks: each ends at its own first success or its end.

    Walks do not hear of each other's success, so this is more than one walk of K would make.
    """
    share = holds_topic(table_size, topics)
    if share <= 0.0:
        return float(walks * steps_of_each(visits, walks))
    return walks * lookup_success(table_size, topics, steps_of_each(visits, walks)) / share


def table_bytes(table_size: int, topic_bytes: int) -> int:
    """Memory of a table: each entry names a topic and a peer."""
    return table_size * (topic_bytes + ENTRY_ADDRESS_BYTES)


def refresh_cycles(peers: int, topic_size: float, every: int, to: int) -> float:
    """How long a table's entry keeps naming the same access point: N·T/(P·D).

    Each of the topic's P members advertises to D of N peers every T cycles, and an
    advertisement replaces the topic's access point wherever there is one.
    """
    return peers * every / (topic_size * to)


def stale_share(rate: float, peers: int, topic_size: float, every: int, to: int) -> float:
    """The share of table entries whose access point is gone, if members go at `rate` per cycle."""
    refreshed = 1.0 / refresh_cycles(peers, topic_size, every, to)
    return rate / (rate + refreshed) if rate > 0.0 else 0.0


# --- partition merging (Section 4.2.3) -----------------------------------------------------------


def no_meeting(peers: int, members: int, view_size: int) -> float:
    """The chance that in one cycle no advertisement passes between a topic's `members` and one
    more member in an overlay of its own, when all advertise to their whole view."""
    to_the_one = (1.0 - view_size / (peers - 1)) ** members
    return to_the_one * _no_member_in_view(peers, members, view_size)


def _no_member_in_view(peers: int, members: int, view_size: int) -> float:
    """C(N−1−|G|, view)/C(N−1, view): no member among the one's neighbours."""
    if members + view_size > peers - 1:
        return 0.0
    return math.exp(
        math.fsum(math.log1p(-members / (peers - 1 - neighbour)) for neighbour in range(view_size))
    )


def merged_within(cycles: int, peers: int, members: int, view_size: int) -> float:
    """The chance that the two parts meet within `cycles`, views being fresh in each."""
    return 1.0 - no_meeting(peers, members, view_size) ** cycles


# --- messages per notification (Section 4.3.2) ---------------------------------------------------


@dataclass(frozen=True)
class Deployment:
    """A system whose costs are wanted. Subscriptions are spread evenly over topics and peers."""

    peers: int
    topics: int
    subscriptions: int
    rate: float = 1.0  # events per topic and cycle
    view_size: int = 20
    advertise_every: int = 5
    advertise_to: int = 5
    table_size: int = 10
    visits: int = 66
    walks: int = 4

    @property
    def topic_size(self) -> float:
        return self.subscriptions / self.topics

    @property
    def notifications(self) -> float:
        """Deliveries per cycle."""
        return self.rate * self.subscriptions


@dataclass(frozen=True)
class Costs:
    """Messages per cycle, by kind."""

    exchange_general: float
    exchange_topic: float
    advert: float
    lookup: float
    route: float
    dissemination: float

    def maintenance(self) -> float:
        return self.exchange_general + self.exchange_topic + self.advert

    def total(self) -> float:
        return self.maintenance() + self.lookup + self.route + self.dissemination


def tera_costs(system: Deployment) -> Costs:
    """What TERA sends in a cycle."""
    size, events = system.topic_size, system.rate * system.topics
    alone = size <= 1.0
    advertisers = system.peers * -math.expm1(
        system.topics * math.log1p(-min(size / system.peers, 1 - 1e-12))
    )
    # The publisher does not subscribe (`outside`), and its table lacks the topic (`unknown`).
    outside = 1.0 - size / system.peers
    unknown = outside * (1.0 - holds_topic(system.table_size, system.topics))
    walked = visits_expected(system.table_size, system.topics, system.visits, system.walks)
    per_walk = steps_of_each(system.visits, system.walks)
    answers = system.walks * lookup_success(system.table_size, system.topics, per_walk)
    found = lookup_success(system.table_size, system.topics, system.visits)
    degree = min(float(system.view_size), max(0.0, size - 1.0))
    return Costs(
        exchange_general=2.0 * system.peers,
        exchange_topic=0.0 if alone else 2.0 * system.subscriptions,
        advert=advertisers * system.advertise_to / system.advertise_every,
        lookup=events * unknown * (walked + answers),
        route=events * (outside - unknown * (1.0 - found)),
        dissemination=events * (1.0 - unknown * (1.0 - found)) * size * degree,
    )


def flooding_costs(system: Deployment) -> Costs:
    """The baseline: every event to every neighbour of every peer."""
    degree = min(system.view_size, system.peers - 1)
    events = system.rate * system.topics
    return Costs(2.0 * system.peers, 0.0, 0.0, 0.0, 0.0, events * system.peers * degree)


def per_notification(costs: Costs, system: Deployment) -> float:
    """Messages per notification, the measure of Fig. 6."""
    return costs.total() / system.notifications


def _check_probability(success: float) -> None:
    if not 0.0 < success < 1.0:
        raise ValueError(f"success must lie between 0 and 1, not {success}")
