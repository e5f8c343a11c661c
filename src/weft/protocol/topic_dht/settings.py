"""Settings of the topic-aware DHT."""

from __future__ import annotations

from dataclasses import dataclass

from weft.protocol.messages_topic_dht import CHILDREN_MAX, CONTACTS_MAX
from weft.protocol.seam import Millis


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

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < (name != "view_percent"):
                raise ValueError(f"topic_dht.{name} must be at least 1")
        if self.children_max >= CHILDREN_MAX:
            raise ValueError(f"topic_dht.children_max must be less than {CHILDREN_MAX}")
        if self.alternatives_max > CONTACTS_MAX:
            raise ValueError(f"topic_dht.alternatives_max must be at most {CONTACTS_MAX}")
        if self.view_percent > 100:
            raise ValueError("topic_dht.view_percent must be at most 100")
