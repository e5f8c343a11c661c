"""A space: how wide its locations are, and where a peer lies in a role.

The plain space has one role, the empty one, and a peer lies at the hash of its id. The
generalised DHT (Baehni and others, Section 4.1) is another space with the topic as role.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from weft.ids import GENERAL, PeerId, Topic
from weft.rules import prefix

_REMEMBERED = 4_096
"""guess: peers are named again and again; hashing them all costs a tenth of a lookup."""

Locate = Callable[[Topic, PeerId], int | None]


@dataclass(frozen=True)
class Space:
    """`number` names it on the wire. `locate` is None for a role that does not exist in it."""

    number: int
    bits: int
    locate: Locate

    def target(self, data: bytes) -> int | None:
        """A target from the wire, or None if it is none of this space."""
        return int.from_bytes(data, "big") if len(data) * 8 == self.bits else None


@lru_cache(_REMEMBERED)
def _locate_plain(role: Topic, peer: PeerId) -> int | None:
    return prefix.location_of(peer) if role == GENERAL else None


PLAIN = Space(0, prefix.BITS, _locate_plain)
"""Where records, providers and peers are found."""
