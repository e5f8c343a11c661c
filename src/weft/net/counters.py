"""What the driver counts. Hot ones are plain attributes, rare ones live in a dictionary."""

from __future__ import annotations

from weft.net.errors import FAULTS, Fault
from weft.protocol.messages import PAYLOAD_KINDS
from weft.protocol.wire import Message

_HOT = (
    "accepts",
    "bytes_received",
    "bytes_sent",
    "delivered",
    "dials",
    "events_dropped",
    "evictions",
    "frames_received",
    "frames_sent",
    "handler_errors",
    "idle_closes",
    "notifications_dropped",
    "opened",
    "rejoins",
    "store_errors",
    "writes",
)
_DROPS = ("queue full", "peer lost", "disconnected", "too large", "unreachable")


class Counters:
    """All monotone. `drops` counts messages that did not leave, by why and what they carried."""

    __slots__ = (*_HOT, "_faults", "drops")

    def __init__(self) -> None:
        self.accepts = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.delivered = 0
        self.dials = 0
        self.events_dropped = 0  # event-carrying messages that did not leave
        self.evictions = 0
        self.frames_received = 0
        self.frames_sent = 0
        self.handler_errors = 0
        self.idle_closes = 0
        self.notifications_dropped = 0
        self.opened = 0
        self.rejoins = 0
        self.store_errors = 0  # batches of events that could not be made durable
        self.writes = 0
        self._faults = dict.fromkeys((kind.counter for kind in FAULTS), 0)
        self.drops = {(kind, reason): 0 for kind in ("event", "control") for reason in _DROPS}

    def fault(self, fault: Fault) -> None:
        self._faults[fault.counter] += 1

    def dropped(self, message: Message, reason: str) -> None:
        carries_event = isinstance(message, PAYLOAD_KINDS)
        self.events_dropped += carries_event
        self.drops["event" if carries_event else "control", reason] += 1

    def as_dict(self) -> dict[str, int]:
        counts = {name: int(getattr(self, name)) for name in _HOT}
        counts.update(self._faults)
        for (kind, reason), count in self.drops.items():
            counts[f"dropped_{kind}_{reason.replace(' ', '_')}"] = count
        return counts
