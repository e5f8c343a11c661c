"""Peer sampling with profiles: which peers there are, and what each is subscribed to.

Cyclon (Voulgaris, Gavidia, van Steen 2005): a view of 20 descriptors; each cycle the oldest is
asked for an exchange of 8, which always carries a fresh descriptor of the asking peer. Descriptors
carry their peer's topics, as PolderCast's node profiles and SpiderCast's interest-aware membership
do. GossipSub takes its connections from here, which its authors leave to a discovery service.

Beside the view a peer keeps, for each of its topics, the other subscribers that it has heard of
most recently (PolderCast's Vicinity layer, which prefers peers with common interests): exchanges
carry random descriptors and subscribers of the other peer's topics. A publisher that is not
subscribed looks into the view, so an event is lost if the view has no subscriber of its topic.

Deviation: one table does the work of Vicinity, SpiderCast's membership service and libp2p's
discovery; the systems differ in how they use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct

from weft.ids import Contact, PeerId, Topic
from weft.protocol.wire import Message
from weft.references.machine import Reference

VIEW = 20
"""paper (Cyclon; PolderCast, Section 5; TERA 4.1)."""
EXCHANGED = 8
"""paper (Cyclon's own experiments); a replication of PolderCast has 10."""
KNOWN_PER_TOPIC = 20
"""paper (PolderCast): a Vicinity view of 20, here for each topic, as rings need."""
AGE_MAX = 40
"""guess: cycles after which a subscriber without news is forgotten."""


class Profile(Struct, frozen=True, array_like=True, gc=False):
    """A peer's contact and topics, as other peers know them."""

    contact: Contact
    topics: tuple[Topic, ...]
    born: int  # counts up at the peer itself, so that the newer of two profiles is known
    age: int  # cycles since it was made


class Exchange(Message, frozen=True):
    """Some profiles of a view; the receiver answers with as many."""

    profiles: tuple[Profile, ...]


class ExchangeReply(Message, frozen=True):
    profiles: tuple[Profile, ...]


class Farewell(Message, frozen=True):
    """The sender has left these topics."""

    topics: tuple[Topic, ...]


class Profiled(Reference):
    """A reference whose peers know each other's subscriptions by gossip."""

    period_ms: ClassVar[int] = 10_000  # as weft's own cycle: the papers count cycles, not seconds
    exchange_ticks: ClassVar[int] = 1  # a view exchange every so many periods

    def __init__(self, me: Contact, seed: int) -> None:
        super().__init__(me, seed)
        self.view: dict[PeerId, Profile] = {}
        self.members: dict[Topic, dict[PeerId, Profile]] = {}
        self._born = 0
        self._asked: PeerId | None = None
        self._ticks = 0

    # --- what a reference overrides ---------------------------------------------------------------

    def beat(self) -> None:
        """A period is over; a view exchange that was due has been sent."""

    # --- membership -------------------------------------------------------------------------------

    def begin(self, contacts: Sequence[Contact]) -> None:
        for contact in contacts:
            self.admit(Profile(contact, (), 0, 0))
        for contact in contacts[:2]:
            self.send(contact, Exchange((self.profile(),)))

    def tick(self) -> None:
        self._ticks += 1
        if self._ticks % self.exchange_ticks == 0:
            self._exchange()
        self.beat()

    def _exchange(self) -> None:
        self._born += 1
        if self._asked is not None:  # it has not answered for a cycle
            self.forget(self._asked)
            self._asked = None
        self.view = {peer: _older(one) for peer, one in self.view.items()}
        for topic, known in self.members.items():
            kept = {peer: _older(one) for peer, one in known.items() if one.age < AGE_MAX}
            self.members[topic] = kept
        if self.view:
            oldest = max(self.view.values(), key=lambda one: one.age)
            self._asked = oldest.contact.peer
            self.send(oldest.contact, Exchange(self._chosen(oldest)))

    def profile(self) -> Profile:
        """This peer's own profile, as of now."""
        return Profile(self.me, tuple(self.topics), self._born, 0)

    def _chosen(self, other: Profile) -> tuple[Profile, ...]:
        """The profiles for an exchange: this peer's, subscribers of the other's topics, and random
        ones."""
        wanted = EXCHANGED - 1
        shared: dict[PeerId, Profile] = {}
        for topic in self.some("exchange.topics", other.topics, 4):
            near = list(self.members.get(topic, {}).values())
            for one in self.some("exchange.near", near, 2):
                shared.setdefault(one.contact.peer, one)
        rest = [one for peer, one in self.view.items() if peer not in shared]
        random = self.some("exchange.random", rest, max(wanted // 2, wanted - len(shared)))
        listed = [*list(shared.values())[: wanted // 2 + 1], *random]
        return (self.profile(), *(one for one in listed if one.contact.peer != other.contact.peer))

    def hear(self, sender: Contact, message: Message) -> None:
        if isinstance(message, Exchange):
            mine = message.profiles[0] if message.profiles else Profile(sender, (), 0, 0)
            self.send(sender, ExchangeReply(self._chosen(mine)))
            self.admit_all(message.profiles)
        elif isinstance(message, ExchangeReply):
            if self._asked == sender.peer:
                self._asked = None
            self.admit_all(message.profiles)
        elif isinstance(message, Farewell):
            for topic in message.topics:
                self.members.get(topic, {}).pop(sender.peer, None)

    def admit_all(self, profiles: Sequence[Profile]) -> None:
        for one in profiles:
            self.admit(one)

    def admit(self, one: Profile) -> None:
        """A profile has come in."""
        peer = one.contact.peer
        if peer == self.me.peer:
            return
        if _is_newer(one, self.view.get(peer)):
            self.view[peer] = one
        if len(self.view) > VIEW:
            oldest = max(self.view.values(), key=lambda each: each.age)
            del self.view[oldest.contact.peer]
        for topic in one.topics:
            if topic in self.topics or topic in self.members:
                self._note(topic, one)
        for topic, known in self.members.items():
            if peer in known and topic not in one.topics and one.born > known[peer].born:
                del known[peer]

    def _note(self, topic: Topic, one: Profile) -> None:
        known = self.members.setdefault(topic, {})
        if _is_newer(one, known.get(one.contact.peer)):
            known[one.contact.peer] = one
        if len(known) > self.known_most(topic):
            del known[self.least(topic, known)]

    def known_most(self, topic: Topic) -> int:
        """How many other subscribers of a topic are remembered."""
        return KNOWN_PER_TOPIC

    def least(self, topic: Topic, known: dict[PeerId, Profile]) -> PeerId:
        """The subscriber that is forgotten if too many are known."""
        return max(known.values(), key=lambda one: one.age).contact.peer

    def enter(self, topic: Topic) -> None:
        self._born += 1
        self.members.setdefault(topic, {})
        for one in list(self.view.values()):
            if topic in one.topics:
                self._note(topic, one)
        for one in self.some("enter", list(self.view.values()), 2):
            self.send(one.contact, Exchange(self._chosen(one)))

    def quit(self, topic: Topic) -> None:
        self._born += 1
        for one in self.members.pop(topic, {}).values():
            self.send(one.contact, Farewell((topic,)))

    def lose(self, peer: PeerId) -> None:
        self.forget(peer)

    def forget(self, peer: PeerId) -> None:
        """The peer does not answer."""
        self.view.pop(peer, None)
        for known in self.members.values():
            known.pop(peer, None)
        self.unlink(peer)

    def subscribers(self, topic: Topic) -> list[Contact]:
        """Other subscribers of a topic that this peer knows: its own topic, or by its view."""
        if topic in self.members:
            return [one.contact for one in self.members[topic].values()]
        return [one.contact for one in self.view.values() if topic in one.topics]


def _older(one: Profile) -> Profile:
    return Profile(one.contact, one.topics, one.born, one.age + 1)


def _is_newer(one: Profile, held: Profile | None) -> bool:
    return held is None or (one.born, -one.age) > (held.born, -held.age)
