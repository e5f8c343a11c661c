"""PolderCast (Setty, van Steen, Vitenberg, Voulgaris 2012): a ring per topic, and random shortcuts.

The subscribers of a topic stand on a ring in the order of their ids. A peer knows its successor and
its predecessor there, found by gossip: each cycle it exchanges, with one of its ring neighbours,
the subscribers that lie closest to the other in each topic that both are in. An event goes round
the ring both ways and takes shortcuts: a peer that got it from one ring neighbour sends it to the
other one and to F − 1 random subscribers, a peer that got it over a shortcut sends it to both
neighbours and to F − 2 random subscribers.

Deviation: Vicinity, which brings peers with common interests, is the table of
`references/profiles.py`. A publisher that is not subscribed hands its event to a subscriber that it
knows; in the paper a publisher subscribes.

Figure to reproduce (Section 5): everything is delivered without churn; only subscribers handle an
event; every peer sends an event on about F times, so a delivery costs about F copies. Chosen on
2026-11-16, before the first run: all delivered, no parasite, copies per delivery within 15 % of F.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from weft.documents.run import Run
from weft.ids import Contact, PeerId, Topic
from weft.protocol.wire import Message
from weft.references.profiles import KNOWN_PER_TOPIC, Profile, Profiled

F = 2
"""guess: the smallest value that the paper's rule allows, and so the cheapest; a ring alone has 1.
An independent replication in PeerSim uses it (liamzebedee/peersim-poldercast, config1.txt), and its
rule of F − 1 and F − 2 is the one above; we did not have the paper's own text."""
NEAR = 4
"""guess: subscribers closest to the other peer that an exchange tells, in each topic."""
TOPICS_AT_ONCE = 8
"""guess: topics that one exchange is about."""
RING_KEPT = 6
"""guess: subscribers on each side that are never forgotten for random ones."""
_SPACE = 1 << 64


class RingExchange(Message, frozen=True):
    """Subscribers close to the receiver; asks for those close to the sender."""

    topics: tuple[Topic, ...]
    profiles: tuple[Profile, ...]


class RingReply(Message, frozen=True):
    topics: tuple[Topic, ...]
    profiles: tuple[Profile, ...]


def place_of(peer: PeerId) -> int:
    """The place of a peer, which is the same on all its rings."""
    return int.from_bytes(blake2b(peer, digest_size=8).digest(), "big")


def ahead(start: int) -> Callable[[Profile], int]:
    """A function: how far a subscriber is from a place, going up the ring."""
    return lambda one: (place_of(one.contact.peer) - start) % _SPACE


class PolderCast(Profiled):
    """A peer on the rings of its topics."""

    def __init__(self, me: Contact, seed: int) -> None:
        super().__init__(me, seed)
        self._place = place_of(me.peer)
        self._waiting: PeerId | None = None

    def ring(self, topic: Topic) -> tuple[Contact, Contact] | None:
        """The predecessor and the successor; the same peer if only one other is known."""
        known = self.members.get(topic)
        if not known:
            return None
        step = ahead(self._place)
        return max(known.values(), key=step).contact, min(known.values(), key=step).contact

    # --- events -----------------------------------------------------------------------------------

    def spread(self, topic: Topic, run: Run, hops: int, source: PeerId | None) -> None:
        neighbours = self.ring(topic) if topic in self.topics else None
        if neighbours is None:
            outside = self.some("enter", self.subscribers(topic), 1) if source is None else []
            self.push(outside, topic, run, hops)
            return
        targets = {one.peer: one for one in neighbours if one.peer != source}
        rest = [
            contact
            for contact in self.subscribers(topic)
            if contact.peer not in targets and contact.peer != source
        ]
        for contact in self.some("shortcut", rest, F - len(targets)):
            targets[contact.peer] = contact
        self.push(targets.values(), topic, run, hops)

    # --- rings ------------------------------------------------------------------------------------

    def beat(self) -> None:
        if self._waiting is not None:  # a neighbour that has not answered for a cycle
            self.forget(self._waiting)
            self._waiting = None
        found: dict[PeerId, Contact] = {}
        for topic in self.topics:
            for contact in self.ring(topic) or ():
                found[contact.peer] = contact
        for peer in [peer for peer in self.links if peer not in found]:
            self.unlink(peer)
        for contact in found.values():
            self.link(contact)
        for contact in self.some("ring", list(found.values()), 1):
            self._waiting = contact.peer
            topics = tuple(self._shared(contact.peer))
            near = (self.profile(), *self._near(contact.peer, topics))
            self.send(contact, RingExchange(topics, near))

    def _shared(self, peer: PeerId) -> list[Topic]:
        topics = [topic for topic in self.topics if peer in self.members.get(topic, {})]
        return self.some("ring.topics", topics, TOPICS_AT_ONCE)

    def _near(self, peer: PeerId, topics: tuple[Topic, ...]) -> list[Profile]:
        """Subscribers close to a peer on both sides, in some topics."""
        near: dict[PeerId, Profile] = {}
        step = ahead(place_of(peer))
        for topic in topics:
            known = [one for at, one in self.members.get(topic, {}).items() if at != peer]
            ordered = sorted(known, key=step)
            for one in (*ordered[: NEAR // 2], *ordered[-NEAR // 2 :]):
                near[one.contact.peer] = one
        return list(near.values())

    def hear(self, sender: Contact, message: Message) -> None:
        if isinstance(message, RingExchange):
            near = (self.profile(), *self._near(sender.peer, message.topics))
            self.send(sender, RingReply(message.topics, near))
            self.admit_all(message.profiles)
        elif isinstance(message, RingReply):
            if self._waiting == sender.peer:
                self._waiting = None
            self.admit_all(message.profiles)
        else:
            super().hear(sender, message)

    def known_most(self, topic: Topic) -> int:
        return KNOWN_PER_TOPIC + 2 * RING_KEPT

    def least(self, topic: Topic, known: dict[PeerId, Profile]) -> PeerId:
        """The subscriber with the oldest profile among those that are not close on the ring."""
        ordered = sorted(known.values(), key=ahead(self._place))
        far = ordered[RING_KEPT:-RING_KEPT]
        return max(far, key=lambda one: one.age).contact.peer
