"""Events that spread without structure: flooding, and gossip in groups.

**Event flooding** over the general overlay is TERA's baseline (Baldoni et al. 2007, Section 4.4).
Every peer passes every event on to its whole view, once, whatever its topic; subscribers hand it
out. Views are Cyclon's, with 20 entries.

Figure to reproduce (TERA, Fig. 6): an event costs as many messages as there are view entries in
the network, whatever the number of subscribers. Chosen on 2026-11-16, before the first run: within
2 % of the sum of views, less one for each peer that got the event from another, since no peer sends
it back. It falls short, by 2.7 to 3.3 %: Cyclon's views are not mutual, so the peer that brought an
event is often not in the receiver's view, and then no copy is saved.

**daMulticast** (Baehni, Eugster, Guerraoui 2004) gossips in groups, by the hierarchy of topics.
The subscribers of a topic are a group. A peer keeps a topic table of (B + 1)·ln S members of each
of its groups, and a supertopic table of Z members of the nearest group above. An event is gossiped
once by each member that gets it, to ln S + C members of its topic table; before that the member
elects itself with probability G/S to hand the event to the group above, to each of its Z contacts
there with probability A/Z.

S, the size of a group, is given to the paper's processes; here a member counts the subscribers it
has ever heard of.

Figure to reproduce (Section 6): gossip to ln S + C members reaches all of a group with probability
e^(−e^(−C)), 0.993 for C = 5, at S·(ln S + C) messages, and nobody gets an event of a topic that
lies outside its own. Chosen on 2026-11-16, before the first run: delivery at least 0.993 less 0.01,
messages per delivery within 15 % of ln S + C, no parasite.
"""

from __future__ import annotations

from math import log

from weft.documents.run import Run
from weft.ids import Contact, PeerId, Topic
from weft.references.profiles import Profile, Profiled
from weft.rules.draw import chance

B, C, G, A, Z = 3, 5, 5, 1, 3
"""paper (Section 6.1)."""


class Flooding(Profiled):
    """A peer that passes every event on to its whole view."""

    def spread(self, topic: Topic, run: Run, hops: int, source: PeerId | None) -> None:
        others = [one.contact for peer, one in self.view.items() if peer != source]
        self.push(others, topic, run, hops)


class DaMulticast(Profiled):
    """A peer of the groups of its topics."""

    def __init__(self, me: Contact, seed: int) -> None:
        super().__init__(me, seed)
        self._heard: dict[Topic, dict[PeerId, None]] = {}

    def group_size(self, topic: Topic) -> int:
        """S: the members that this peer has heard of, and itself."""
        return len(self._heard.get(topic, ())) + 1

    def spread(self, topic: Topic, run: Run, hops: int, source: PeerId | None) -> None:
        if topic not in self.topics:
            if source is None:
                self.push(self.some("enter", self.subscribers(topic), 1), topic, run, hops)
            return
        size = self.group_size(topic)
        self._hand_up(topic, run, hops, size)
        fanout = round(log(size) + C)
        self.push(self.some("gossip", self.subscribers(topic), fanout), topic, run, hops)

    def _hand_up(self, topic: Topic, run: Run, hops: int, size: int) -> None:
        """With a probability, hand the event to the nearest group above of which members are
        known."""
        if not chance(self.bits("elect"), min(G, size), size):
            return
        above = topic.rpartition("/")[0]
        while above:
            contacts = self.some("above", self.subscribers(Topic(above)), Z)
            if contacts:
                chosen = [one for one in contacts if chance(self.bits("hand"), A, Z)]
                self.push(chosen, Topic(above), run, hops)  # as an event of that group
                return
            above = above.rpartition("/")[0]

    # --- tables -----------------------------------------------------------------------------------

    def admit(self, one: Profile) -> None:
        peer = one.contact.peer
        for topic in one.topics:
            if topic in self.topics and peer != self.me.peer:
                self._heard.setdefault(topic, {})[peer] = None
        super().admit(one)

    def known_most(self, topic: Topic) -> int:
        return max(C + 1, round((B + 1) * log(max(2, self.group_size(topic)))))

    def quit(self, topic: Topic) -> None:
        self._heard.pop(topic, None)
        super().quit(topic)
