"""Roles in topics: where a peer lies, what it is there, and what it remembers of it.

A peer lies at hash(topic) ∘ hash(peer) in every topic that it forwards (Baehni and others 2004,
Section 4.1). In a topic it is a *forwarder*, with a location, a routing table R_p(v) and children
C_p(v), or a *child* of the forwarder closest to it, with some other forwarders F_p(v) in reserve
(Section 4.2). L_p are the locations of a peer, T_p the topics that it is subscribed to.

`Role` is all that a peer remembers of one topic; `Roles` holds one per topic. Other layers read
them and call their transitions; this module alone writes them:

| transition | called in, and when |
| --- | --- |
| `Roles.want`, `unwant`, `drop` | `operations`: the user subscribes, unsubscribes, the role ends |
| `Role.begin`, `end`, `on_heir_picked` | `operations`: an own one is under way, over, another's |
| `Roles.take_location`, `give_location` | `operations`: the peer starts and stops forwarding |
| `Role.become_child`, `orphan` | `operations`, `upkeep`: it has a parent, or none any more |
| `Role.lock_for`, `unlock` | `operations`: another peer's operation begins, ends |
| `Role.expire` | `upkeep`: the lease of another peer's operation is over |
| `Forwarder.adopt`, `release`, `moved` | `operations`, `upkeep`: children come and go |

Invariants: a peer is never forwarder and child of one topic; `operation` and `lock` belong to at
most one operation each, so at most one of this peer's own and one of another peer's is under way
per topic.

An operation between two peers, op(p, q, t), is a `RoleRequest` of the initiator p, answered by a
`RoleReply`, and closed by a `RoleDone` if it takes several steps. A peer that changes the set of
forwarders tells the forwarders around it (`Appeared`, `Vanished`) and sends its children on
(`Rejoin`).

Deviation: every peer also lies in the *lobby*, the empty topic. From there it routes to topics in
which it has no location yet, and finds neighbours of the general overlay, whose topics it does not
know.

Deviation: children hang on forwarders directly. The trees of children that Section 6 thinks of have
no operations in the paper, and save locations only where a peer has more than some 30 topics
(docs/protocols/topic-dht.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct, field

from weft.bounded import BoundedDict
from weft.ids import GENERAL, Contact, PeerId, Topic, WireTopic
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.kademlia.table import Entry, Place, Space
from weft.protocol.rooms import CONTACTS_MAX, TopicDhtSettings
from weft.protocol.seam import Millis
from weft.protocol.wire import Counter, Message
from weft.rules import prefix
from weft.rules import roles as rules
from weft.rules.stan import gives_way

# --- messages -------------------------------------------------------------------------------------

TOLD_MAX = 64
"""guess: forwarders that a leaving one tells; the others notice when they ask it."""

Contacts: TypeAlias = Annotated[list[Contact], Meta(max_length=CONTACTS_MAX)]
Operation: TypeAlias = Annotated[int, Meta(ge=0, le=5)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 32)]

LOOK = 0
"""How many children, locations and topics have you?"""
JOIN = 1
SPLIT = 2
REPLACE = 3
MAKECHILD = 4
SEAT = 5
"""Which member has seat `seat` with you? The first is your own, the others are your children's."""

Verdict: TypeAlias = Annotated[int, Meta(ge=0, le=3)]
ACCEPTED = 0
ABORTED = 1
"""The operation's assumption does not hold (any more)."""
BUSY = 2
"""Another operation is under way."""
ABSENT = 3
"""The asked peer does not forward this topic."""


class RoleRequest(Message, frozen=True, tag=80):
    """op(p, q, t): the sender is p, the receiver q."""

    request: Counter
    topic: WireTopic
    operation: Operation
    locations: Count = 0  # |L_p| of the sender
    topics: Count = 0  # |T_p| of the sender
    seat: Count = 0  # with SEAT
    work: Count = 0  # subscribers that the sender serves, in all topics


class RoleReply(Message, frozen=True, tag=81):
    """Answers `RoleRequest`; the sender is q."""

    request: Counter
    verdict: Verdict
    forwarders: Contacts = []  # neighbours of the receiver in the topic; aborted: a closer one
    children: Count = 0  # |C_q|
    locations: Count = 0  # |L_q|
    topics: Count = 0  # |T_q|
    member: Contact | None = None  # with SEAT: the member that has it


class RoleDone(Message, frozen=True, tag=82):
    """The initiator is through with the operation, or gives it up."""

    topic: WireTopic
    request: Counter
    done: bool


class Invite(Message, frozen=True, tag=83):
    """The sender, a forwarder, asks for this operation to be initiated with it."""

    topic: WireTopic
    operation: Operation


class Appeared(Message, frozen=True, tag=84):
    """The sender forwards the topic from now on; children closer to it are to be sent to it."""

    request: Counter
    topic: WireTopic


class Vanished(Message, frozen=True, tag=85):
    """The sender does not forward the topic any more."""

    topic: WireTopic


class Rejoin(Message, frozen=True, tag=86):
    """To a child: find your closest forwarder anew; these may be it."""

    request: Counter
    topic: WireTopic
    forwarders: Contacts = []


class Forget(Message, frozen=True, tag=87):
    """The sender is not the receiver's child (any more)."""

    topic: WireTopic


# --- where a peer lies ----------------------------------------------------------------------------

LOBBY = GENERAL
TOPIC_BITS = prefix.BITS
"""Leading bits that the locations of one topic share."""
_REMEMBERED = 16_384
"""guess: locations that need not be hashed again, of peers that a forwarder has met lately."""


@lru_cache(_REMEMBERED)
def location(topic: Topic, peer: PeerId) -> int:
    return prefix.joined(topic.encode(), peer)


def meeting_place(topic: Topic) -> int:
    """The topic's own location: its forwarders that lie closest to it are where all others meet."""
    return prefix.joined(topic.encode(), topic.encode())


def hosts_place(topic: Topic) -> int:
    """A location in the lobby: the peers that lie closest to it show the way into the topic."""
    return prefix.joined(LOBBY.encode(), topic.encode())


def position(location: int) -> int:
    """The place inside a topic of one of its locations: hash(peer)."""
    return location & ((1 << prefix.BITS) - 1)


TOPICS = Space(1, 2 * prefix.BITS, location)


# --- state: what a peer is in a topic -------------------------------------------------------------


class ChildEntry(Struct):
    """A child as its parent knows it."""

    contact: Contact
    heard_ms: Millis


class Forwarder(Struct):
    """The peer has a location in the topic: `place` is R_p(v), `children` C_p(v)."""

    place: Place
    children: dict[PeerId, ChildEntry] = field(default_factory=dict)
    moving: dict[PeerId, None] = field(default_factory=dict)  # children told to go elsewhere

    def adopt(self, child: Contact, now: Millis) -> None:
        self.moving.pop(child.peer, None)
        self.children[child.peer] = ChildEntry(child, now)

    def release(self, peer: PeerId) -> None:
        """A peer is no child any more, if it was one."""
        self.children.pop(peer, None)
        self.moving.pop(peer, None)

    def release_silent(self, since: Millis) -> None:
        """Release the children that were not heard of since then."""
        for peer, child in list(self.children.items()):
            if child.heard_ms < since:
                self.release(peer)

    def send_off(self, peer: PeerId) -> bool:
        """Note that a child is told to go elsewhere; False if it was told already."""
        if peer in self.moving:
            return False
        self.moving[peer] = None
        return True

    def moved(self, peer: PeerId, gone: bool) -> None:
        """A child that was told to go elsewhere has answered. If it has come back meanwhile, or
        left by itself, the answer changes nothing."""
        if peer in self.moving:
            del self.moving[peer]
            if gone:
                self.children.pop(peer, None)

    def neighbours(self) -> list[Entry]:
        """Other forwarders of the topic in the table, closest first; some may be gone."""
        own, topic = self.place.table.own, self.place.role
        found = [one for one in self.place.table if one.role == topic]
        return sorted(found, key=lambda one: one.key ^ own)

    def gates(self, most: int) -> list[Contact]:
        """The closest of the neighbours, for a child's F_p(v)."""
        return [one.contact for one in self.neighbours()[:most]]

    def sound(self) -> list[Entry]:
        """Other forwarders of the topic in the table that answered last."""
        topic = self.place.role
        return [one for one in self.place.table if one.role == topic and not one.failures]

    def fingerprint(self) -> int:
        """Changes with the forwarders in the table."""
        found = 0
        for entry in self.sound():
            found ^= entry.key
        return found

    def size_estimate(self, bucket_size: int) -> int:
        """How many forwarders the topic has: counted where the table has room for all, else from
        how far away the closest ones are."""
        keys = [position(entry.key) for entry in self.sound()]
        if len(keys) < bucket_size:
            return len(keys) + 1
        own = position(self.place.table.own)
        near = sorted(one ^ own for one in keys)[:bucket_size]
        return max(len(keys) + 1, round(len(near) * 2.0**prefix.BITS / near[-1]))

    def closer(self, peer: PeerId) -> Entry | None:
        """A forwarder known to be closer to a peer than this one, that peer itself excepted."""
        table, topic = self.place.table, self.place.role
        target = location(topic, peer)
        for entry in table.closest(target, 2, sound=True):
            closer = rules.is_closer(target, entry.key, table.own)
            if entry.key != target and entry.role == topic and closer:
                return entry
        return None

    def is_among_closest(self, target: int, count: int) -> bool:
        """Whether fewer than `count` forwarders are known that lie closer to a target."""
        own = self.place.table.own
        return sum(rules.is_closer(target, one.key, own) for one in self.sound()) < count

    def pick_child(self, rule: Callable[[int, Sequence[int]], int]) -> ChildEntry:
        """The child that a rule picks by this peer's location and those of all children."""
        spots = {location(self.place.role, peer): peer for peer in self.children}
        return self.children[spots[rule(self.place.table.own, list(spots))]]


class Child(Struct):
    """The peer hangs on `parent`; `alternatives` is F_p(v)."""

    parent: Contact
    alternatives: list[Contact]
    confirmed_ms: Millis
    updated: bool = True  # the paper's recupdate
    sought: PeerId | None = None  # the forwarder that this peer found and spoke to as its parent
    unheard: int = 0  # times that the parent has told of events and brought none of them

    def known(self) -> list[Contact]:
        others = [one for one in self.alternatives if one.peer != self.parent.peer]
        return [self.parent, *others]

    def meet(self, found: Sequence[Contact], most: int) -> None:
        """This peer's own lookup has met forwarders: they become up to half of the alternatives,
        ones not known before first."""
        known = {one.peer: one for one in self.alternatives}
        others = [one for one in found if one.peer != self.parent.peer]
        fresh = [one for one in others if one.peer not in known]
        chosen = {one.peer: one for one in (*fresh[: most // 2], *self.alternatives, *others)}
        self.alternatives = list(chosen.values())[:most]

    def note_parent(self, sender: PeerId, brings: bool) -> None:
        """The parent (if it is the sender) brings what this peer lacks, or only says that it has
        something else."""
        if sender == self.parent.peer:
            self.unheard = 0 if brings else self.unheard + 1

    def next_round(self) -> bool:
        """A round of Algorithm 1 begins: whether the last one brought an answer."""
        updated, self.updated = self.updated, False
        return updated

    def answered(self) -> None:
        """A forwarder has said in this round that it is the parent."""
        self.updated = True

    def choose_parent(self, found: Sequence[Contact]) -> Contact | None:
        """This peer's own lookup has found these forwarders, the closest first: the one to be asked
        to be the parent, from which an answer is expected then."""
        if not found:
            return None
        self.sought = found[0].peer
        return found[0]

    def expects(self, forwarder: PeerId) -> bool:
        """Whether a forwarder is, or was just asked to be, the parent."""
        return forwarder in (self.parent.peer, self.sought)


class Lock(Struct, frozen=True):
    """An operation of another peer that this one accepted and that is not closed yet."""

    peer: PeerId
    request: int
    operation: int
    until_ms: Millis


class Invitation(Struct, frozen=True):
    """An operation that this peer was asked to initiate and could not yet."""

    sender: Contact
    operation: int
    until_ms: Millis


_ANEW_EVERY = 64
"""guess: rounds of gossip after which the size of regions is estimated anew."""


class Regions:
    """The size of the regions of a topic, from which random members are drawn (`upkeep.py`)."""

    __slots__ = ("_estimates", "_rounds", "bits")

    def __init__(self) -> None:
        self.bits: int | None = None  # of a region's prefix inside the topic; None: not settled
        self._estimates: list[float] = []  # of how many forwarders there are
        self._rounds = 0  # of gossip in this topic

    def learn(self, estimate: float, needed: int, most: int) -> None:
        """Settle the size once `needed` estimates of the number of forwarders are there; `most` is
        how many of them a lookup finds."""
        self._estimates.append(estimate)
        if len(self._estimates) >= needed:
            mean = sum(self._estimates) / len(self._estimates)
            self.bits = rules.region_bits(mean, most)
            self._estimates.clear()

    def halve(self) -> None:
        """A region held more forwarders than a lookup finds."""
        if self.bits is not None:
            self.bits += 1

    def next_round(self) -> None:
        """A round of gossip begins in the topic, which may have grown or shrunk by now."""
        self._rounds += 1
        if self._rounds % _ANEW_EVERY == 0:
            self.bits = None


_OWED_MAX = 8
"""guess: peers that wait for the end of an operation; an honest child has one parent, or two."""
_EAGER = 2
"""guess: times that a table is looked after at the usual pace although nothing changes."""
_SLOWEST = 3
"""guess: halvings of that pace."""


class Pace:
    """When a table is looked after: every few periods, and less and less often while nothing
    changes in it."""

    __slots__ = ("_last", "_quiet", "_state")

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self._last = 0
        self._quiet = 0
        self._state = 0

    def is_due(self, period: int, every: int, state: int) -> bool:
        """`state` is a fingerprint of the table; an empty one (0) is looked after at the usual
        pace."""
        if state != self._state or not state:
            self._state, self._quiet = state, 0
        slower = 1 << min(_SLOWEST, max(0, self._quiet - _EAGER))
        if period - self._last < every * slower:
            return False
        self._last = period
        self._quiet += 1
        return True


class Role(Struct):
    """All that a peer remembers of its part in one topic."""

    topic: Topic
    view: BoundedDict[PeerId, Contact]  # Algorithm 2, oldest first
    wanted: bool = True  # subscribed
    forwarder: Forwarder | None = None
    child: Child | None = None
    operation: int = 0  # serial of the own operation under way, 0: none
    since_ms: Millis = 0  # when it began
    retry: int = 0  # serial of the timer that tries again
    tries: int = 0  # how often it was set since something ended well
    lock: Lock | None = None
    invitation: Invitation | None = None
    acks: list[tuple[Contact, int]] = field(default_factory=list)  # requests that wait for its end
    regions: Regions = field(default_factory=Regions)
    pace: Pace = field(default_factory=Pace)  # of looking after the table

    @property
    def is_placed(self) -> bool:
        return self.forwarder is not None or self.child is not None

    def is_busy(self, now: Millis) -> bool:
        """Whether others' operations have to wait."""
        locked = self.lock is not None and self.lock.until_ms > now
        return bool(self.operation) or locked or bool(self.forwarder and self.forwarder.moving)

    def family(self) -> list[Contact]:
        """Parent or children."""
        if self.forwarder is not None:
            return [one.contact for one in self.forwarder.children.values()]
        return [self.child.parent] if self.child is not None else []

    # --- own operations ---------------------------------------------------------------------------

    def begin(self, serial: int, now: Millis) -> int:
        self.operation = serial
        self.since_ms = now
        return serial

    def end(self) -> list[tuple[Contact, int]]:
        """The own operation is over; returns the requests that waited for it."""
        self.operation = 0
        if self.is_placed:
            self.tries = 0
        acks, self.acks = self.acks, []
        return acks

    def on_heir_picked(self) -> None:
        """Another peer's operation is to do now what this peer's own was begun for."""
        self.operation = 0

    def next_try(self, serial: int) -> int:
        """A timer is set for another attempt; returns how many there were since something ended
        well."""
        self.retry = serial
        self.tries += 1
        return self.tries - 1

    def owe(self, asker: Contact, request: int) -> None:
        """Have a request answered when the own operation ends, if few wait already."""
        if (asker, request) not in self.acks and len(self.acks) < _OWED_MAX:
            self.acks.append((asker, request))

    def invite(self, sender: Contact, operation: int, until_ms: Millis) -> bool:
        """This peer is asked to initiate an operation; False if its user does not want the topic
        (any more), so that it need not."""
        if self.wanted:
            self.invitation = Invitation(sender, operation, until_ms)
        return self.wanted

    def take_invitation(self, now: Millis) -> Invitation | None:
        """The invitation, which is spent by this; none while other operations are under way and
        its time is not up."""
        invitation = self.invitation
        if invitation is None or (self.is_busy(now) and now < invitation.until_ms):
            return None
        self.invitation = None
        return invitation

    # --- others' operations -----------------------------------------------------------------------

    def admits(self, peer: PeerId, request: int, now: Millis) -> bool:
        """Whether another peer's operation may begin. One that has the lock may: it is asked for
        again."""
        return self._is_locked_for(peer, request) or not self.is_busy(now)

    def lock_for(
        self, peer: PeerId, request: int, operation: int, now: Millis, lease_ms: Millis
    ) -> bool:
        """Begin another peer's operation, if it may: others wait for its end, or for that of its
        lease."""
        if not self.admits(peer, request, now):
            return False
        self.lock = Lock(peer, request, operation, now + lease_ms)
        return True

    def _is_locked_for(self, peer: PeerId, request: int) -> bool:
        return self.lock is not None and (self.lock.peer, self.lock.request) == (peer, request)

    def unlock(self, peer: PeerId, request: int) -> Lock | None:
        """The initiator closes its operation; returns None if another one has the lock."""
        if not self._is_locked_for(peer, request):
            return None
        lock, self.lock = self.lock, None
        return lock

    def expire(self, now: Millis) -> None:
        """A lock ends with its lease."""
        if self.lock is not None and self.lock.until_ms <= now:
            self.lock = None

    # --- what the peer is -------------------------------------------------------------------------

    def move_in(self, place: Place) -> Child | None:
        """The peer forwards from a place; returns what it was as a child."""
        old, self.child = self.child, None
        self.forwarder = Forwarder(place)
        return old

    def move_out(self) -> Forwarder | None:
        """The peer does not forward any more; returns what it was as a forwarder."""
        forwarder, self.forwarder = self.forwarder, None
        if forwarder is not None:
            self.lock = None
        return forwarder

    def become_child(
        self, parent: Contact, alternatives: Sequence[Contact], most: int, now: Millis
    ) -> Contact | None:
        """The peer hangs on `parent`. Half of its alternatives stay known ones, or more where there
        is room: else the parent alone would choose which peers may be asked beside it. Returns the
        parent that it had, if that was another one."""
        old = self.child
        kept = old.alternatives if old is not None else []
        kept = [one for one in kept if one.peer != parent.peer]
        others = {one.peer: one for one in (*kept[: most // 2], *alternatives, *kept)}
        unheard = old.unheard if old is not None and old.parent.peer == parent.peer else 0
        self.child = Child(parent, list(others.values())[:most], now, unheard=unheard)
        return old.parent if old is not None and old.parent.peer != parent.peer else None

    def orphan(self, child: Child, silent_since: Millis) -> bool:
        """The lookup for the parent that the peer then had, as a `child`, has found no forwarder:
        it has no parent any more if none has confirmed since long ago. Returns whether that is
        so."""
        if self.child is not child or child.confirmed_ms >= silent_since:
            return False
        self.child = None
        return True

    def see(self, member: Contact, place: Callable[[PeerId], int] | None) -> None:
        """A random member was drawn: the view has the latest ones. Where links are shared, members
        are ranked by their `place`, and from a full view the one that ranks last is dropped."""
        is_full = len(self.view) >= self.view.most
        if place is not None and is_full and member.peer not in self.view:
            last = gives_way(self.view, member.peer, place)
            if last == member.peer:
                return
            del self.view[last]
        self.view.renew(member.peer, member)

    def forget_oldest(self) -> None:
        """Drop the member of a full view that was drawn longest ago."""
        if len(self.view) >= self.view.most:
            del self.view[next(iter(self.view))]

    def forget_forwarder(self, peer: PeerId) -> None:
        """A peer has said that it does not forward the topic."""
        self.view.pop(peer, None)
        if self.forwarder is not None:
            self.forwarder.place.table.remove(location(self.topic, peer))
        elif self.child is not None:
            rest = [one for one in self.child.alternatives if one.peer != peer]
            self.child.alternatives = rest

    def lose(self, peer: PeerId) -> None:
        """A peer cannot be reached: it is of no use until it is heard from again."""
        self.view.pop(peer, None)
        if self.forwarder is None:
            if self.child is not None:
                rest = [one for one in self.child.alternatives if one.peer != peer]
                self.child.alternatives = rest
            return
        self.forwarder.release(peer)
        table = self.forwarder.place.table
        entry = table.get(location(self.topic, peer))
        if entry is not None and not entry.failures:
            table.failed(entry.key)


class Roles:
    """All topics of one peer, and where it lies in each."""

    def __init__(self, me: Contact, dht: Kademlia, config: TopicDhtSettings) -> None:
        self.me = me
        self.by_topic: dict[Topic, Role] = {}
        self._dht = dht
        self._config = config

    def want(self, topic: Topic) -> Role | None:
        """The peer is subscribed; returns the role if it is a new one."""
        role = self.by_topic.get(topic)
        if role is not None:
            role.wanted = True
            return None
        role = self.by_topic[topic] = Role(topic, BoundedDict(self._config.view_max))
        return role

    def unwant(self, topic: Topic) -> Role | None:
        """The peer is not subscribed any more; returns the role that is to be given up."""
        role = self.by_topic.get(topic)
        if role is not None:
            role.wanted = False
        return role

    def drop(self, role: Role) -> None:
        self.by_topic.pop(role.topic, None)

    def take_location(self, role: Role) -> tuple[Place, Child | None]:
        """Make this peer a forwarder: where it lies, and what it was as a child."""
        place = self._dht.settle(TOPICS, role.topic, refreshed=False)
        return place, role.move_in(place)

    def give_location(self, role: Role) -> Forwarder | None:
        """Stop forwarding: what this peer was as a forwarder, None if it was none."""
        forwarder = role.move_out()
        if forwarder is not None:
            self._dht.quit(TOPICS, role.topic)
        return forwarder

    def load(self, topic: Topic | None = None) -> rules.Load:
        """|L_p|, |T_p|, |C_p| in a topic, and the subscribers served in all topics."""
        forwarded = [one.forwarder for one in self.by_topic.values() if one.forwarder is not None]
        here = self.forwarding(topic) if topic is not None else None
        return rules.Load(
            len(forwarded),
            sum(one.wanted for one in self.by_topic.values()),
            len(here.children) if here is not None else 0,
            sum(1 + len(one.children) for one in forwarded),
        )

    def forwarding(self, topic: Topic) -> Forwarder | None:
        role = self.by_topic.get(topic)
        return role.forwarder if role is not None else None

    def seat(self, topic: Topic, seat: int) -> Contact | None:
        """The member that has a seat here: this peer the first, its children the others."""
        forwarder = self.forwarding(topic)
        if forwarder is None:
            return None
        members = [self.me, *(one.contact for one in forwarder.children.values())]
        return members[seat] if seat < len(members) else None

    def own(self, topic: Topic) -> int:
        return location(topic, self.me.peer)

    def is_closer(self, topic: Topic, one: PeerId, other: PeerId) -> bool:
        """Whether the first of two peers is closer to this one."""
        return rules.is_closer(self.own(topic), location(topic, one), location(topic, other))
