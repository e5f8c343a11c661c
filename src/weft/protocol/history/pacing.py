"""How fast others are served from the store: so many bytes a second for each of them.

Whoever reads a long past, or asks for blocks without end, must not keep a peer from its own work
nor take its uplink from others. A peer that has had its share waits a little for the next answer;
it is not refused, since it would only go and ask the next one.

Invariant: at most `_WAITING_MAX` questions wait, `_WAITING_EACH_MAX` of one peer; what finds no
room is counted and not answered, and is asked again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from weft.ids import Contact, PeerId, Topic
from weft.protocol.context import Context
from weft.protocol.seam import Millis

TIMER = "history.pace"
_WAITING_MAX = 256
_WAITING_EACH_MAX = 8
_PEERS_MAX = 1_024
"""guess, all three: each is a few hundred bytes."""

Serve = Callable[[], int]
"""Answers, and says how many bytes that took."""


class Pacing:
    """What one peer has served to whom."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._owed: OrderedDict[PeerId, tuple[Millis, int]] = OrderedDict()  # when, bytes served
        self._waiting: dict[int, tuple[PeerId, Serve]] = {}

    def serve(self, sender: Contact, topic: Topic, answer: Serve) -> None:
        """Answer at once, or as soon as the sender's share allows."""
        peer = sender.peer
        wait_ms = self._wait_ms(peer)
        if wait_ms == 0:
            self._charge(peer, answer())
            return
        mine = sum(one == peer for one, _ in self._waiting.values())
        if len(self._waiting) >= _WAITING_MAX or mine >= _WAITING_EACH_MAX:
            self._ctx.counters["history_not_served"] += 1
            return
        self._ctx.counters["history_paced"] += 1
        number = self._ctx.next_serial()
        self._waiting[number] = peer, answer
        self._ctx.set_timer(wait_ms, TIMER, topic, number)

    def on_timer(self, number: int) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            self._charge(waiting[0], waiting[1]())

    def forget(self, peer: PeerId) -> None:
        """The peer is gone, and with it what it asked."""
        for number in [n for n, (one, _) in self._waiting.items() if one == peer]:
            del self._waiting[number]

    def _left(self, peer: PeerId) -> int:
        """What has been served beyond the share so far, in bytes."""
        since, served = self._owed.get(peer, (self._ctx.now, 0))
        return max(0, served - (self._ctx.now - since) * self._rate // 1_000)

    @property
    def _rate(self) -> int:
        return self._ctx.config.history.serve_bytes_per_s

    def _wait_ms(self, peer: PeerId) -> Millis:
        """Until no more than a second's share is owed."""
        over = self._left(peer) - self._rate
        return -(-over * 1_000 // self._rate) if over > 0 else 0

    def _charge(self, peer: PeerId, size: int) -> None:
        self._owed[peer] = self._ctx.now, self._left(peer) + size
        self._owed.move_to_end(peer)
        if len(self._owed) > _PEERS_MAX:
            self._owed.popitem(last=False)
