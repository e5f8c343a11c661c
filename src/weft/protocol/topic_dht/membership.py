"""What a subscriber remembers of a topic's events and of the links they come and go by.

Its role, forwarder or child, is in `state.py`; this is what lies on top of it. It outlives the
subscription until the role is given up: a leaving forwarder still passes on what it gets.
"""

from __future__ import annotations

from weft.ids import Contact, PeerId, Topic
from weft.protocol.recent import Recent
from weft.protocol.wire import Event

EventKey = tuple[PeerId, int, int]
Links = dict[int, dict[int, Contact]]
"""By level, by position of the member it leads to."""

_UNSENT_MAX = 256
"""guess: events kept until there is a role."""


class Membership:
    """One topic."""

    __slots__ = (
        "_served",
        "_served_max",
        "asking",
        "beaten",
        "differs",
        "entering",
        "forwards",
        "links",
        "quiet_cycles",
        "recent",
        "rounds_left",
        "subscribed",
        "tokens",
        "topic",
        "unsent",
        "watched",
    )

    def __init__(self, topic: Topic, recent: Recent, served_max: int) -> None:
        self.topic = topic
        self.recent = recent
        self.subscribed = True
        self.entering = True  # no role yet, or not known what was published before
        self.asking = False  # what was published before
        self.forwards = False  # and has looked for links
        self.tokens: list[int] = []  # of subscriptions to be answered
        self.unsent: list[Event] = []  # own events that wait for a role
        self.links: Links = {}  # of a forwarder
        self.watched: dict[PeerId, None] = {}  # links, parent and children, as upper layers know
        self.beaten = 0  # the fingerprint at the last beat
        self.quiet_cycles = 0  # since something was seen
        self.differs = False  # somebody has seen something else
        self.rounds_left = 0  # calls still to be made after the latest event (push-pull)
        self._served: dict[EventKey, int] = {}  # trees an event was passed on by, as bits
        self._served_max = served_max

    def serve(self, event: Event, tree: int) -> tuple[bool, bool]:
        """Note that an event is passed on by a tree: whether that is new, and whether it is the
        first tree at all."""
        key = (event.publisher, event.incarnation, event.number)
        before = self._served.get(key, 0)
        if before >> tree & 1:
            return False, False
        self._served[key] = before | 1 << tree
        if len(self._served) > self._served_max:
            del self._served[next(iter(self._served))]
        return True, not before

    def wait_with(self, event: Event) -> None:
        if len(self.unsent) < _UNSENT_MAX:
            self.unsent.append(event)

    def linked(self) -> dict[PeerId, Contact]:
        """All that the links lead to."""
        return {one.peer: one for level in self.links.values() for one in level.values()}
