"""How events find their subscribers: what a peer asks of a routing other than TERA's.

TERA is composed in `peer.py` itself (its layers serve the general overlay as well); the others,
Pulsarcast's trees (`pulsar/`) and the flood (`flooding.py`), stand behind this interface, and
TERA's layers lie idle then.
"""

from __future__ import annotations

from typing import Protocol

from weft.ids import Contact, PeerId, Topic
from weft.protocol.messages import Event
from weft.protocol.seam import Timer


class Routing(Protocol):
    """One peer's part in a routing."""

    @property
    def subscribed(self) -> list[Topic]: ...

    def subscribe(self, token: int, topic: Topic, hopeful: bool) -> None: ...

    def unsubscribe(self, token: int, topic: Topic) -> None: ...

    def publish(self, topic: Topic, event: Event, delivered: bool) -> bool:
        """Spread an event; False if it must be handed to somebody who can (`publishing.py`)."""
        ...

    def on_entered(self) -> None: ...

    def on_peer_lost(self, peer: PeerId) -> None: ...

    def on_timer(self, timer: Timer) -> None: ...

    def run_cycle(self, cycle: int) -> None: ...

    def members(self, topic: Topic) -> list[Contact]:
        """Other subscribers that this peer knows."""
        ...

    def alone(self, topic: Topic) -> bool:
        """Whether there seems to be no other subscriber."""
        ...

    def links(self) -> dict[Topic, list[PeerId]]:
        """Peers whose liveness is watched for a topic's sake."""
        ...

    def status(self) -> dict[str, object]: ...

    def close(self) -> None: ...
