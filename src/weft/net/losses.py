"""Telling that a peer is lost: later than now, and once for several losses.

Never from within the machine's own step (a send that cannot be made is found out there), and not
at all if the peer has called back in the meantime.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from weft.ids import PeerId
from weft.net.timers import Timers


class Losses:
    """Peers whose loss has yet to be told."""

    def __init__(self, timers: Timers, lost: Callable[[PeerId], None]) -> None:
        self._timers = timers
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._pending: set[PeerId] = set()
        self._closed = False

    def tell(self, peer: PeerId, delay_ms: int = 0) -> None:
        if peer in self._pending or self._closed:
            return
        self._pending.add(peer)
        if delay_ms:
            self._timers.after(delay_ms, self._report, peer)
        else:
            self._loop.call_soon(self._report, peer)

    def cancel(self, peer: PeerId) -> None:
        self._pending.discard(peer)

    def close(self) -> None:
        """Nobody is left to be told."""
        self._closed = True
        self._pending.clear()

    def _report(self, peer: PeerId) -> None:
        if peer in self._pending:
            self._pending.discard(peer)
            self._lost(peer)
