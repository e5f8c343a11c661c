"""Scribe (Castro, Druschel, Kermarrec, Rowstron 2002) on Pastry (Rowstron, Druschel 2001).

Peers have 128-bit ids in digits of B bits. A peer knows its leaf set, the L peers with the closest
ids, and a routing table with one peer for each first digit that differs from its own; a message
for a key goes, step by step, to a peer whose id has a longer common prefix with the key, in the end
to the peer whose id is closest to it. That peer is the root of the topic with this key. A
subscriber routes a `TreeJoin` towards the root; each peer on the way takes the one before as its
child and, if it was not in the tree yet, joins in turn. A publisher asks for the root's address
once, sends its events there, and the root sends them down the tree. Parents send heartbeats; a
child that misses them joins again.

Deviation: the tables are filled by a join that asks ever closer peers for their leaf sets and by
exchanges of leaf sets, not by the state that a join message gathers on its way; there is no
proximity, since the simulator has none.

Figure to reproduce (Scribe, Section 2.1; Pastry, Section 3): a route takes less than ⌈log₁₆ N⌉
steps on average, and an event crosses each link of its tree once. Chosen on 2026-11-16, before the
first run: mean steps at most ⌈log₁₆ N⌉, copies per delivery at most 1.05 (not counting copies to
forwarders that are not subscribed), all delivered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import ClassVar

from weft.documents.run import Run
from weft.ids import Contact, PeerId, Topic
from weft.protocol.wire import Message
from weft.references.machine import Key, Reference, key_of_run

B, LEAVES = 4, 16
"""paper (Scribe, Section 4.1)."""
ID_BITS = 128
"""paper (Pastry)."""
SILENT_TICKS = 3
"""guess: heartbeats missed before a child joins again; the paper names no number."""
STEPS_MAX = 32
"""guess: a route that takes longer goes in circles."""
_SPACE = 1 << ID_BITS


class StateAsk(Message, frozen=True):
    """Tell the sender which peers are close to it."""


class State(Message, frozen=True):
    contacts: tuple[Contact, ...]


class TreeJoin(Message, frozen=True):
    """Asks the receiver to take the sender as a child in this topic's tree."""

    topic: Topic
    steps: int


class TreeLeave(Message, frozen=True):
    topic: Topic


class TreeBeat(Message, frozen=True):
    """A parent lives, in these topics."""

    topics: tuple[Topic, ...]


class RootAsk(Message, frozen=True):
    """Asks where the root is; routed towards it."""

    topic: Topic
    asker: Contact
    steps: int


class RootIs(Message, frozen=True):
    """The sender is the root."""

    topic: Topic
    steps: int  # that the question took


def id_of(peer: PeerId) -> int:
    return int.from_bytes(blake2b(peer, digest_size=ID_BITS // 8).digest(), "big")


def key_for(topic: Topic) -> int:
    return int.from_bytes(blake2b(topic.encode(), digest_size=ID_BITS // 8).digest(), "big")


def apart(one: int, other: int) -> int:
    """How far two ids are, around the circle."""
    gap = (one - other) % _SPACE
    return min(gap, _SPACE - gap)


def shared_digits(one: int, other: int) -> int:
    """How many first digits two ids have in common."""
    return (ID_BITS - (one ^ other).bit_length()) // B


class Scribe(Reference):
    """A peer of Pastry with its places in trees."""

    period_ms: ClassVar[int] = 10_000  # as weft's own cycle

    def __init__(self, me: Contact, seed: int) -> None:
        super().__init__(me, seed)
        self._id = id_of(me.peer)
        self._ids: dict[PeerId, int] = {}
        self.known: dict[PeerId, Contact] = {}  # the leaf set and the routing table
        self._asked: dict[PeerId, None] = {}  # peers asked for their leaf sets while joining
        self._waiting: PeerId | None = None
        self.parents: dict[Topic, Contact] = {}
        self._heard: dict[Topic, int] = {}  # beats since the parent's last
        self.children: dict[Topic, dict[PeerId, Contact]] = {}
        self._roots: dict[Topic, Contact] = {}
        self._queued: dict[Topic, list[tuple[Run, int]]] = {}
        self._passed: dict[Key, None] = {}
        self.routes: list[int] = []  # steps that this peer's questions took

    # --- Pastry -----------------------------------------------------------------------------------

    def begin(self, contacts: Sequence[Contact]) -> None:
        self._meet(contacts)
        for contact in contacts[:2]:
            self._ask(contact)

    def _ask(self, contact: Contact) -> None:
        self._asked[contact.peer] = None
        self.send(contact, StateAsk())

    def _meet(self, contacts: Iterable[Contact]) -> None:
        new = [one for one in contacts if one.peer not in self.known and one.peer != self.me.peer]
        if new:
            for contact in new:
                self.known[contact.peer] = contact
                self._ids[contact.peer] = id_of(contact.peer)
            self._keep_best()

    def _leaves(self, around: int, but: PeerId | None = None) -> list[Contact]:
        """The known peers with the closest ids, as many on either side."""
        others = [peer for peer in self.known if peer != but]
        others.sort(key=lambda peer: (self._ids[peer] - around) % _SPACE)
        half = LEAVES // 2
        chosen = others if len(others) <= LEAVES else [*others[:half], *others[-half:]]
        return [self.known[peer] for peer in chosen]

    def _keep_best(self) -> None:
        """Forget all known peers but the leaf set, and one for each row and digit of the routing
        table."""
        kept = {contact.peer: contact for contact in self._leaves(self._id)}
        cells: set[tuple[int, int]] = set()
        for peer, contact in self.known.items():
            row = shared_digits(self._id, self._ids[peer])
            digit = self._ids[peer] >> max(0, ID_BITS - B * (row + 1)) & (1 << B) - 1
            if (row, digit) not in cells:
                cells.add((row, digit))
                kept.setdefault(peer, contact)
        self.known = kept

    def next_step(self, key: int) -> Contact | None:
        """The peer to pass a message for this key to; None: this one is closest."""
        here = apart(self._id, key)
        closer = [peer for peer in self.known if apart(self._ids[peer], key) < here]
        if not closer:
            return None
        leaves = {contact.peer for contact in self._leaves(self._id)}
        best = min(closer, key=lambda peer: apart(self._ids[peer], key))
        if best in leaves and len(self.known) <= LEAVES:
            return self.known[best]
        mine = shared_digits(self._id, key)
        longer = [peer for peer in closer if shared_digits(self._ids[peer], key) > mine]
        if longer and best not in leaves:
            return self.known[max(longer, key=lambda peer: shared_digits(self._ids[peer], key))]
        return self.known[best]

    def tick(self) -> None:
        if self._waiting is not None:
            self._forget(self._waiting)
        self._waiting = None
        for contact in self.some("leaf", self._leaves(self._id), 1):
            self._waiting = contact.peer
            self.send(contact, StateAsk())
        self._beat()

    # --- trees ------------------------------------------------------------------------------------

    def _beat(self) -> None:
        told: dict[PeerId, list[Topic]] = {}
        contacts: dict[PeerId, Contact] = {}
        for topic, children in self.children.items():
            for peer, contact in children.items():
                told.setdefault(peer, []).append(topic)
                contacts[peer] = contact
        for peer, topics in told.items():
            self.send(contacts[peer], TreeBeat(tuple(topics)))
        for topic in list(self._in_trees()):
            self._heard[topic] = self._heard.get(topic, 0) + 1
            if topic not in self.parents or self._heard[topic] > SILENT_TICKS:
                self._join(topic)

    def _in_trees(self) -> dict[Topic, None]:
        return {**self.topics, **dict.fromkeys(t for t, some in self.children.items() if some)}

    def _join(self, topic: Topic) -> None:
        """Take the next peer towards the root as parent, unless this peer is the root."""
        parent = self.next_step(key_for(topic))
        old = self.parents.pop(topic, None)
        if old is not None and (parent is None or old.peer != parent.peer):
            self.send(old, TreeLeave(topic))
        self._heard[topic] = 0
        if parent is not None:
            self.parents[topic] = parent
            self.link(parent)
            self.send(parent, TreeJoin(topic, 1))

    def enter(self, topic: Topic) -> None:
        if topic not in self.parents:
            self._join(topic)

    def quit(self, topic: Topic) -> None:
        if not self.children.get(topic) and topic in self.parents:
            self.send(self.parents.pop(topic), TreeLeave(topic))

    def hear(self, sender: Contact, message: Message) -> None:
        self._meet([sender])
        if isinstance(message, StateAsk):
            near = self._leaves(id_of(sender.peer), but=sender.peer)
            self.send(sender, State(tuple(near)))
        elif isinstance(message, State):
            if self._waiting == sender.peer:
                self._waiting = None
            self._meet(message.contacts)
            for contact in self._leaves(self._id)[: 2 * LEAVES]:
                if contact.peer not in self._asked and len(self._asked) < 2 * LEAVES:
                    self._ask(contact)
        elif isinstance(message, TreeJoin):
            self._adopt(sender, message)
        elif isinstance(message, TreeLeave):
            self.children.get(message.topic, {}).pop(sender.peer, None)
            if message.topic not in self.topics:
                self.quit(message.topic)
        elif isinstance(message, TreeBeat):
            for topic in message.topics:
                if self.parents.get(topic) == sender:
                    self._heard[topic] = 0
        else:
            self._hear_of_roots(sender, message)

    def _adopt(self, child: Contact, message: TreeJoin) -> None:
        topic = message.topic
        children = self.children.setdefault(topic, {})
        children[child.peer] = child
        self.link(child)
        inside = topic in self.parents
        if inside and self.parents[topic].peer == child.peer:  # it is not closer to the root now
            del self.parents[topic]
            inside = False
        if not inside:
            self._join(topic)

    # --- events -----------------------------------------------------------------------------------

    def spread(self, topic: Topic, run: Run, hops: int, source: PeerId | None) -> None:
        if source is not None:
            self._pass(topic, run, hops, source)
            return
        root = self._roots.get(topic)
        if self.next_step(key_for(topic)) is None:
            self._pass(topic, run, hops, None)
        elif root is not None:
            self.push([root], topic, run, hops)
        else:
            self._queued.setdefault(topic, []).append((run, hops))
            self._hear_of_roots(self.me, RootAsk(topic, self.me, 0))

    def again(self, topic: Topic, run: Run, hops: int, source: PeerId) -> None:
        """An event that was seen before has come, such as a publisher's own down the tree: pass it
        on to children that lack it."""
        self._pass(topic, run, hops, source)

    def _pass(self, topic: Topic, run: Run, hops: int, source: PeerId | None) -> None:
        """Pass an event down the tree; or on towards the root, if it did not come from the
        parent."""
        parent = self.parents.get(topic)
        step = self.next_step(key_for(topic))
        if step is not None and source is not None and (parent is None or parent.peer != source):
            if hops < STEPS_MAX and source != step.peer:
                self.push([step], topic, run, hops)
            return
        key = key_of_run(topic, run)
        if key not in self._passed:
            self._passed[key] = None
            # Also to the publisher, if it is a child: it may have children of its own.
            self.push(self.children.get(topic, {}).values(), topic, run, hops)

    def _hear_of_roots(self, sender: Contact, message: Message) -> None:
        if isinstance(message, RootAsk):
            step = self.next_step(key_for(message.topic))
            if step is None:
                self.send(message.asker, RootIs(message.topic, message.steps))
            elif message.steps < STEPS_MAX:
                self.send(step, RootAsk(message.topic, message.asker, message.steps + 1))
        elif isinstance(message, RootIs):
            self.routes.append(message.steps)
            self._roots[message.topic] = sender
            for run, hops in self._queued.pop(message.topic, []):
                self.push([sender], message.topic, run, hops)

    # --- losses -----------------------------------------------------------------------------------

    def lose(self, peer: PeerId) -> None:
        self._forget(peer)

    def _forget(self, peer: PeerId) -> None:
        self.known.pop(peer, None)
        self.unlink(peer)
        self._roots = {topic: one for topic, one in self._roots.items() if one.peer != peer}
        for children in self.children.values():
            children.pop(peer, None)
        for topic in [topic for topic, one in self.parents.items() if one.peer == peer]:
            del self.parents[topic]
            self._join(topic)
