"""Which topics other peers are in, as far as they said: what a leaning ranking needs to know.

Only peers whose ranking leans tell their topics (in the walks they send), so those of the others
stay unknown; two members of a topic share at least that one.

Invariant: at most `_PEERS_MAX` peers are remembered, those heard of last.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.ids import PeerId, Topic
from weft.protocol.liveness import topic_fingerprint
from weft.protocol.wire import LIST_MAX
from weft.rules.draw import absorb

_PEERS_MAX = 128
"""guess: several views; each takes up to 4 kB."""


class Acquaintances:
    """One per peer, shared by its topics."""

    __slots__ = ("_mine", "_others", "_topics")

    def __init__(self, topics: Iterable[Topic]) -> None:
        self._topics = topics  # of this peer, as they come and go
        self._others: dict[PeerId, frozenset[int]] = {}
        self._mine: tuple[tuple[Topic, ...], list[int]] = ((), [])

    def mine(self) -> list[int]:
        """Fingerprints of this peer's topics; of very many, the same ones as other peers take."""
        topics = tuple(self._topics)
        if topics != self._mine[0]:
            prints = sorted((topic_fingerprint(topic) for topic in topics), key=_order)
            self._mine = topics, prints[:LIST_MAX]
        return self._mine[1]

    def learn(self, peer: PeerId, topics: list[int]) -> None:
        if topics:
            self._others.pop(peer, None)
            self._others[peer] = frozenset(topics)
            if len(self._others) > _PEERS_MAX:
                del self._others[next(iter(self._others))]

    def shared_with_me(self, peer: PeerId) -> int:
        return self.shared(peer, self.mine()) if peer in self._others else 1

    def shared(self, peer: PeerId, topics: list[int]) -> int:
        """In how many of these topics a peer is, at least the one that it is asked about in."""
        known = self._others.get(peer)
        return max(1, sum(topic in known for topic in topics)) if known is not None else 1


def _order(fingerprint: int) -> int:
    return absorb(0, fingerprint)
