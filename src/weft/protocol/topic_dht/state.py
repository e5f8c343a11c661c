"""What a peer remembers of one topic: its role there, and what is under way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from weft.ids import Contact, PeerId, Topic
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.kademlia.table import Entry, Place
from weft.protocol.seam import Millis
from weft.protocol.topic_dht.space import location
from weft.rules import roles as rules

_EAGER = 2
"""guess: times that a table is looked after at the usual pace although nothing changes."""
_SLOWEST = 3
"""guess: halvings of that pace."""


@dataclass
class ChildEntry:
    """A child as its parent knows it."""

    contact: Contact
    heard_ms: Millis


@dataclass
class Forwarder:
    """The peer has a location in the topic: `place` is R_p(v), `children` C_p(v)."""

    place: Place
    children: dict[PeerId, ChildEntry] = field(default_factory=dict)
    moving: dict[PeerId, None] = field(default_factory=dict)  # children told to go elsewhere

    def neighbours(self) -> list[Entry]:
        """Other forwarders of the topic in the table, closest first; some may be gone."""
        table = self.place.table
        topic = self.place.role
        return [one for one in table.closest(table.own, len(table)) if one.role == topic]

    def fingerprint(self) -> int:
        """Changes with the forwarders in the table."""
        topic, found = self.place.role, 0
        for entry in self.place.table:
            if entry.role == topic and not entry.failures:
                found ^= entry.key
        return found

    def closer(self, peer: PeerId) -> Entry | None:
        """A forwarder known to be closer to a peer than this one, that peer itself excepted."""
        table, topic = self.place.table, self.place.role
        target = location(topic, peer)
        for entry in table.closest(target, 2, sound=True):
            closer = rules.is_closer(target, entry.key, table.own)
            if entry.key != target and entry.role == topic and closer:
                return entry
        return None

    def pick_child(self, rule: Callable[[int, Sequence[int]], int]) -> ChildEntry:
        """The child that a rule picks from the own location and those of all children."""
        spots = {location(self.place.role, peer): peer for peer in self.children}
        return self.children[spots[rule(self.place.table.own, list(spots))]]


@dataclass
class Child:
    """The peer hangs on `parent`; `alternatives` is F_p(v)."""

    parent: Contact
    alternatives: list[Contact]
    confirmed_ms: Millis
    updated: bool = True  # the paper's recupdate

    def known(self) -> list[Contact]:
        others = [one for one in self.alternatives if one.peer != self.parent.peer]
        return [self.parent, *others]


@dataclass(frozen=True)
class Lock:
    """An operation of somebody else that this peer accepted and that is not closed yet."""

    peer: PeerId
    request: int
    operation: int
    until_ms: Millis


@dataclass(frozen=True)
class Invitation:
    """An operation that this peer was asked to initiate and could not yet."""

    sender: Contact
    operation: int
    until_ms: Millis


class Pace:
    """When a table is looked after: every so many periods, and less and less often while nothing
    changes in it."""

    __slots__ = ("_last", "_quiet", "_state")

    def __init__(self) -> None:
        self._last = 0
        self._quiet = 0
        self._state = 0

    def is_due(self, period: int, every: int, state: int) -> bool:
        """`state` is a fingerprint of what the table holds; 0, of nobody, is not to be left so."""
        if state != self._state or not state:
            self._state, self._quiet = state, 0
        slower = 1 << min(_SLOWEST, max(0, self._quiet - _EAGER))
        if period - self._last < every * slower:
            return False
        self._last = period
        self._quiet += 1
        return True


@dataclass
class Role:
    """One topic."""

    topic: Topic
    wanted: bool = True  # subscribed
    forwarder: Forwarder | None = None
    child: Child | None = None
    operation: int = 0  # serial of the own operation under way, 0: none
    since_ms: Millis = 0  # when it began
    retry: int = 0  # serial of the timer that tries again
    tries: int = 0  # how often it was set since something ended well
    lock: Lock | None = None
    invitation: Invitation | None = None
    acks: list[tuple[Contact, int]] = field(default_factory=list)  # who waits for this one's join
    region_bits: int | None = None  # see `sampling`
    estimates: list[float] = field(default_factory=list)  # of how many forwarders there are
    view: dict[PeerId, Contact] = field(default_factory=dict)  # Algorithm 2, oldest first
    pace: Pace = field(default_factory=Pace)  # of looking after the table

    def is_busy(self, now: Millis) -> bool:
        """Whether others' operations have to wait."""
        locked = self.lock is not None and self.lock.until_ms > now
        return bool(self.operation) or locked or bool(self.forwarder and self.forwarder.moving)


class Roles:
    """All topics of one peer, and where it lies in each."""

    def __init__(self, me: Contact, dht: Kademlia) -> None:
        self.me = me
        self.dht = dht
        self.by_topic: dict[Topic, Role] = {}

    def load(self, topic: Topic | None = None) -> rules.Load:
        """|L_p|, |T_p|, |C_p| in a topic, and what all of it amounts to."""
        forwarded = [one.forwarder for one in self.by_topic.values() if one.forwarder is not None]
        here = self.forwarding(topic) if topic is not None else None
        return rules.Load(
            len(forwarded),
            self.topics(),
            len(here.children) if here is not None else 0,
            sum(1 + len(one.children) for one in forwarded),
        )

    def topics(self) -> int:
        return sum(one.wanted for one in self.by_topic.values())

    def forwarding(self, topic: Topic) -> Forwarder | None:
        role = self.by_topic.get(topic)
        return role.forwarder if role is not None else None

    def own(self, topic: Topic) -> int:
        return location(topic, self.me.peer)
