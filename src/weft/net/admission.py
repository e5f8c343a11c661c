"""Who may knock: callers that have not proven themselves yet.

An unproven caller costs a socket and, once it speaks, a TLS handshake. Their number is bounded,
in all and per address; when the bound is reached the one that has been dawdling longest makes
room. Honest callers are through within milliseconds, so under a flood of callers that say
nothing it is those that go.
"""

from __future__ import annotations

from collections import Counter

from weft.net.connection import Connection


class Admission:
    """The unproven callers, oldest first."""

    def __init__(self, most: int, most_per_ip: int) -> None:
        self._most = most
        self._most_per_ip = most_per_ip
        self._callers: dict[Connection, str] = {}
        self._per_ip: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._callers)

    def enter(self, caller: Connection) -> Connection | None:
        """A new caller; returns the one that must go for it, if any."""
        victim = None
        if self._per_ip[caller.remote_ip] >= self._most_per_ip:
            victim = next(c for c, ip in self._callers.items() if ip == caller.remote_ip)
        elif len(self._callers) >= self._most:
            victim = next(iter(self._callers))
        if victim is not None:
            self.leave(victim)
        self._callers[caller] = caller.remote_ip
        self._per_ip[caller.remote_ip] += 1
        return victim

    def leave(self, caller: Connection) -> None:
        """The caller has greeted, or is gone."""
        ip = self._callers.pop(caller, None)
        if ip is not None:
            self._per_ip[ip] -= 1
            if not self._per_ip[ip]:
                del self._per_ip[ip]
