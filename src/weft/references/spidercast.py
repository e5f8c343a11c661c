"""SpiderCast (Chockler, Melamed, Tock, Vitenberg 2007): few links that cover all topics.

A peer keeps links such that each of its topics has K_GREEDY + K_RANDOM of them: first links chosen
greedily (the candidate that covers most topics which still lack links), then links chosen at
random. A link is mutual and serves every topic that both ends are in; a peer drops a link that none
of its topics needs. An event is flooded over the links whose other end is subscribed.

Candidates are the peers of the membership view and the subscribers heard of
(`references/profiles.py`): the paper shows that knowing a twentieth of all peers is enough.

Figure to reproduce (abstract and Section 5): every topic's overlay is connected, so that all is
delivered through subscribers alone, and the mean degree is at least 45 % below that of overlays
that are built for each topic apart (a ring or a random overlay: two and more links for each topic
of a peer). Chosen on 2026-11-16, before the first run: all delivered, no parasite, and a mean
degree at most 0.55 of K_GREEDY + K_RANDOM links for each topic of a peer.
"""

from __future__ import annotations

from collections import Counter

from weft.documents.run import Run
from weft.ids import Contact, PeerId, Topic
from weft.protocol.wire import Message
from weft.references.profiles import Profile, Profiled

K_GREEDY, K_RANDOM = 3, 1
"""guess: from memory, the setting of most experiments (Section 5); we had only the paper's
abstract."""
SURPLUS = 2
"""guess: a link is dropped once each of its topics has so many links more than it needs."""


class LinkAsk(Message, frozen=True):
    """Asks the receiver for a link with the sender."""

    profile: Profile


class LinkYes(Message, frozen=True):
    profile: Profile


class LinkEnd(Message, frozen=True):
    pass


class SpiderCast(Profiled):
    """A peer whose links cover its topics."""

    def __init__(self, me: Contact, seed: int) -> None:
        super().__init__(me, seed)
        self.ends: dict[PeerId, Profile] = {}  # the profile of the other end of each link

    # --- events -----------------------------------------------------------------------------------

    def spread(self, topic: Topic, run: Run, hops: int, source: PeerId | None) -> None:
        targets = [
            one.contact
            for peer, one in self.ends.items()
            if topic in one.topics and peer != source and peer in self.links
        ]
        if not targets and source is None:  # from outside, or before there are links
            targets = self.some("enter", self.subscribers(topic), 1)
        self.push(targets, topic, run, hops)

    # --- links ------------------------------------------------------------------------------------

    def covered(self) -> Counter[Topic]:
        """How many links each topic of this peer has."""
        return Counter(
            topic for one in self.ends.values() for topic in one.topics if topic in self.topics
        )

    def beat(self) -> None:
        covered = self.covered()
        self._add(covered)
        self._shed(covered)

    def _add(self, covered: Counter[Topic]) -> None:
        known = {one.contact.peer: one for one in self.view.values()}
        for each in self.members.values():
            known |= each
        free = [one for peer, one in known.items() if peer not in self.ends]

        def lacking(one: Profile, wanted: int) -> int:
            return sum(topic in self.topics and covered[topic] < wanted for topic in one.topics)

        while free:
            best = max(free, key=lambda one: (lacking(one, K_GREEDY), one.contact.peer))
            if not lacking(best, K_GREEDY):
                break
            free.remove(best)
            self._ask(best, covered)
        wanted = K_GREEDY + K_RANDOM
        useful = [one for one in free if lacking(one, wanted)]
        for one in self.some("random", useful, len(useful)):
            if lacking(one, wanted):
                self._ask(one, covered)

    def _ask(self, one: Profile, covered: Counter[Topic]) -> None:
        """Ask for a link. It counts at once; if the other peer does not answer, `forget` removes
        it."""
        self._join(one)
        covered.update(topic for topic in one.topics if topic in self.topics)
        self.send(one.contact, LinkAsk(self.profile()))

    def _join(self, one: Profile) -> None:
        self.ends[one.contact.peer] = one
        self.link(one.contact)

    def _shed(self, covered: Counter[Topic]) -> None:
        """Drop at most one link that no topic of this peer needs."""
        enough = K_GREEDY + K_RANDOM + SURPLUS
        for peer, one in self.ends.items():
            shared = [topic for topic in one.topics if topic in self.topics]
            if all(covered[topic] > enough for topic in shared):
                self._end(one.contact)
                del self.ends[peer]
                return

    def _end(self, contact: Contact) -> None:
        self.send(contact, LinkEnd())
        self.unlink(contact.peer)

    def hear(self, sender: Contact, message: Message) -> None:
        if isinstance(message, LinkAsk):
            self._join(message.profile)
            self.send(sender, LinkYes(self.profile()))
        elif isinstance(message, LinkYes):
            self._join(message.profile)
        elif isinstance(message, LinkEnd):
            self.ends.pop(sender.peer, None)
            self.unlink(sender.peer)
        else:
            super().hear(sender, message)

    def admit(self, one: Profile) -> None:
        """Take in a profile, also as that of a link's other end."""
        super().admit(one)
        held = self.ends.get(one.contact.peer)
        if held is not None and one.born > held.born:
            self.ends[one.contact.peer] = one

    def enter(self, topic: Topic) -> None:
        super().enter(topic)
        self._tell()

    def quit(self, topic: Topic) -> None:
        super().quit(topic)
        self._tell()

    def _tell(self) -> None:
        """Tell the other ends of all links what this peer is subscribed to now."""
        for one in self.ends.values():
            self.send(one.contact, LinkYes(self.profile()))

    def forget(self, peer: PeerId) -> None:
        self.ends.pop(peer, None)
        super().forget(peer)
