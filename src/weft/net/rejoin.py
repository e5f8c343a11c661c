"""Finding back into the network after losing everybody.

The state machine asks the peers it was told to join by, and its last neighbours, again and again.
All of those may be gone while others live: the driver remembers whom it was connected to over a
longer time and, while the machine knows nobody, hands a few of them in with growing pauses.
"""

from __future__ import annotations

import random

from weft.ids import Contact, PeerId

_REMEMBERED_MAX = 64  # guess
_AT_ONCE = 4  # guess: handed in per attempt


class Rejoin:
    """Remembers contacts that worked, and decides when to try them."""

    def __init__(self, first_ms: int, most_ms: int) -> None:
        self._first_ms = first_ms
        self._most_ms = most_ms
        self._pause_ms = first_ms
        self._next_ms = 0  # 0: not isolated
        self._good: dict[PeerId, Contact] = {}

    def worked(self, contact: Contact) -> None:
        """A connection with this contact was made; the latest are kept."""
        if contact.address:
            self._good.pop(contact.peer, None)
            self._good[contact.peer] = contact
            if len(self._good) > _REMEMBERED_MAX:
                del self._good[next(iter(self._good))]

    def attempt(self, isolated: bool, now: int) -> tuple[Contact, ...]:
        """Whom to join by now; nobody most of the time."""
        if not isolated:
            self._next_ms = 0
            self._pause_ms = self._first_ms
            return ()
        if not self._next_ms:
            self._next_ms = now + self._pause_ms
        if now < self._next_ms or not self._good:
            return ()
        self._pause_ms = min(2 * self._pause_ms, self._most_ms)
        self._next_ms = now + self._pause_ms
        known = list(self._good.values())
        return tuple(random.sample(known, min(_AT_ONCE, len(known))))
