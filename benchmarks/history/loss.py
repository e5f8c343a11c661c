"""Lost messages: a share of what a peer sends never leaves it.

TCP loses nothing, so for a benchmark of repair the loss is made where a message is handed to the
connections (`Pool.send`): requests, answers, announcements and events alike.
"""

from __future__ import annotations

from random import Random
from typing import Any

import weft
from weft.ids import Contact
from weft.protocol.messages import AnyMessage


class Loss:
    """Drops a share of the messages of one peer."""

    def __init__(self, peer: weft.Peer, percent: float, seed: int) -> None:
        pool: Any = peer._runtime.pool
        self._send = pool.send
        self._share = percent / 100
        self._random = Random(seed).random
        self.dropped = self.sent = 0
        pool.send = self._send_or_not

    def _send_or_not(self, contact: Contact, message: AnyMessage) -> Any:
        self.sent += 1
        if self._random() < self._share:
            self.dropped += 1
            return None
        return self._send(contact, message)

    def stop(self) -> None:
        self._share = 0.0
