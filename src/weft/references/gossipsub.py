"""GossipSub v1.1 (Vyzovitis, Napora, McCormick, Dias, Psaras 2020; libp2p's specification).

Per topic a mesh of degree D over which events are pushed whole; once a second a heartbeat repairs
it: below D_lo peers are grafted, above D_hi pruned down to D. Each heartbeat tells D_lazy peers
outside the mesh, or a quarter of them if that is more, which events of the last three heartbeats
this peer has (IHAVE); they ask for what they miss (IWANT). A publisher sends its own events to
every subscriber it knows (flood publishing). A publisher that is not subscribed keeps a fanout of D
peers for a minute. A pruned peer is not grafted again for a minute (back-off), and a prune names
other members (peer exchange).

Deviation: no scores, no opportunistic grafting and no quota of outbound links (D_out). Weights of
scores are each deployment's own, and the published ones judge by addresses and by applications'
verdicts, and a simulator has neither. So the comparison is of the mesh, its gossip and flood
publishing. A publisher that is not subscribed keeps a fanout, as in v1.0, and does not flood.

Figure to reproduce: with D = 8 a mesh link carries an event at most once each way, so a peer gets
about D − 1 copies of it pushed beyond the first, and no event is lost without faults (evaluation
report, Section 6: the baseline delivers everything). Chosen on 2026-11-16, before the first run:
mean degree of the mesh within D_lo … D_hi, copies per delivery within D_lo − 1 … D_hi, all events
delivered.
"""

from __future__ import annotations

from collections import deque
from typing import ClassVar

from msgspec import Struct

from weft.documents.run import Run
from weft.ids import Contact, PeerId, Topic
from weft.protocol.wire import Message
from weft.references.machine import Key, key_of_run
from weft.references.profiles import Profile, Profiled

D, D_LO, D_HI = 8, 6, 12
"""paper: Ethereum's network specification (p2p-interface, "Gossipsub Parameters"), which the
authors evaluate; libp2p's own defaults are 6, 5 and 12."""
D_LAZY = 6
"""paper (Ethereum's specification): peers outside the mesh that get each `IHave`, at least."""
GOSSIP_PERCENT = 25
"""paper (specification v1.1, "Adaptive Gossip Dissemination")."""
HISTORY, GOSSIPED = 5, 3
"""paper (specification v1.0, "Parameters"): windows of events that are kept, and announced."""
FANOUT_TICKS, BACKOFF_TICKS = 60, 60
"""paper (v1.0, "Parameters"; v1.1, "PRUNE Backoff and Peer Exchange"): a minute each."""
EXCHANGED_MAX = 16
"""paper: peers named in a prune; v1.1 asks for more than D_hi, go-libp2p-pubsub has 16."""


class Name(Struct, frozen=True, array_like=True, gc=False):
    """An event by its publisher and numbers."""

    publisher: PeerId
    incarnation: int
    first: int


class MeshGraft(Message, frozen=True):
    topic: Topic


class MeshPrune(Message, frozen=True):
    topic: Topic
    members: tuple[Profile, ...]


class IHave(Message, frozen=True):
    topic: Topic
    events: tuple[Name, ...]


class IWant(Message, frozen=True):
    topic: Topic
    events: tuple[Name, ...]


class GossipSub(Profiled):
    """A peer with a mesh for each of its topics."""

    period_ms: ClassVar[int] = 1_000  # paper (v1.0, "Parameters"): the heartbeat
    exchange_ticks: ClassVar[int] = 10  # discovery, at the pace of weft's own view exchange

    def __init__(self, me: Contact, seed: int) -> None:
        super().__init__(me, seed)
        self.mesh: dict[Topic, dict[PeerId, Contact]] = {}
        self._fanout: dict[Topic, tuple[int, dict[PeerId, Contact]]] = {}
        self._beats = 0
        self._backoff: dict[tuple[Topic, PeerId], int] = {}
        self._windows: deque[dict[Key, tuple[Run, int]]] = deque([{}], maxlen=HISTORY)
        self._wanted: dict[Key, int] = {}

    # --- events -----------------------------------------------------------------------------------

    def spread(self, topic: Topic, run: Run, hops: int, source: PeerId | None) -> None:
        self._windows[0][key_of_run(topic, run)] = run, hops
        targets = dict(self.mesh.get(topic, {}))
        if source is None:
            for contact in self.subscribers(topic):  # flood publishing
                targets.setdefault(contact.peer, contact)
            if topic not in self.topics:
                targets |= self._fanout_of(topic)
        targets.pop(source or self.me.peer, None)
        targets.pop(PeerId(run.publisher), None)
        self.push(targets.values(), topic, run, hops)

    def _fanout_of(self, topic: Topic) -> dict[PeerId, Contact]:
        until, peers = self._fanout.get(topic, (0, {}))
        if until < self._beats or not peers:
            chosen = self.some("fanout", self.subscribers(topic), D)
            peers = {contact.peer: contact for contact in chosen}
        self._fanout[topic] = self._beats + FANOUT_TICKS, peers
        return peers

    # --- the heartbeat ----------------------------------------------------------------------------

    def beat(self) -> None:
        self._beats += 1
        for topic in self.topics:
            self._balance(topic)
            self._gossip(topic)
        self._windows.appendleft({})
        self._backoff = {key: until for key, until in self._backoff.items() if until > self._beats}
        self._wanted = {key: at for key, at in self._wanted.items() if at > self._beats - HISTORY}

    def _balance(self, topic: Topic) -> None:
        mesh = self.mesh.setdefault(topic, {})
        if len(mesh) < D_LO:
            free = [
                contact
                for contact in self.subscribers(topic)
                if contact.peer not in mesh and (topic, contact.peer) not in self._backoff
            ]
            for contact in self.some("graft", free, D - len(mesh)):
                mesh[contact.peer] = contact
                self.link(contact)
                self.send(contact, MeshGraft(topic))
        elif len(mesh) > D_HI:
            for contact in self.some("prune", list(mesh.values()), len(mesh) - D):
                self._drop(topic, contact)

    def _drop(self, topic: Topic, contact: Contact) -> None:
        self.mesh.get(topic, {}).pop(contact.peer, None)
        self._backoff[topic, contact.peer] = self._beats + BACKOFF_TICKS
        known = list(self.members.get(topic, {}).values())
        others = [one for one in known if one.contact.peer != contact.peer]
        self.send(contact, MeshPrune(topic, tuple(self.some("px", others, EXCHANGED_MAX))))
        self._unlink_unused(contact.peer)

    def _unlink_unused(self, peer: PeerId) -> None:
        if not any(peer in mesh for mesh in self.mesh.values()):
            self.unlink(peer)

    def _gossip(self, topic: Topic) -> None:
        recent = list(self._windows)[:GOSSIPED]
        names = tuple(Name(*key[1:]) for window in recent for key in window if key[0] == topic)
        if not names:
            return
        mesh = self.mesh.get(topic, {})
        lazy = [contact for contact in self.subscribers(topic) if contact.peer not in mesh]
        number = max(D_LAZY, len(lazy) * GOSSIP_PERCENT // 100)
        for contact in self.some("gossip", lazy, number):
            self.send(contact, IHave(topic, names))

    # --- what others say --------------------------------------------------------------------------

    def hear(self, sender: Contact, message: Message) -> None:
        if isinstance(message, MeshGraft):
            self._grafted(sender, message.topic)
        elif isinstance(message, MeshPrune):
            self.mesh.get(message.topic, {}).pop(sender.peer, None)
            self._backoff[message.topic, sender.peer] = self._beats + BACKOFF_TICKS
            self._unlink_unused(sender.peer)
            for one in message.members:
                self.admit(one)
        elif isinstance(message, IHave):
            self._want(sender, message)
        elif isinstance(message, IWant):
            for name in message.events:
                key = message.topic, name.publisher, name.incarnation, name.first
                held = [window[key] for window in self._windows if key in window]
                for run, hops in held[:1]:
                    self.push([sender], message.topic, run, hops)
        else:
            super().hear(sender, message)

    def _grafted(self, sender: Contact, topic: Topic) -> None:
        mesh = self.mesh.setdefault(topic, {}) if topic in self.topics else None
        refused = mesh is None or (topic, sender.peer) in self._backoff or len(mesh) >= D_HI
        if refused or mesh is None:
            self._drop(topic, sender)
        else:
            mesh[sender.peer] = sender
            self.link(sender)

    def _want(self, sender: Contact, message: IHave) -> None:
        missing = []
        for name in message.events:
            key = message.topic, name.publisher, name.incarnation, name.first
            if message.topic in self.topics and not self.has_seen(key) and key not in self._wanted:
                self._wanted[key] = self._beats
                missing.append(name)
        if missing:
            self.send(sender, IWant(message.topic, tuple(missing)))

    def quit(self, topic: Topic) -> None:
        for contact in list(self.mesh.get(topic, {}).values()):
            self._drop(topic, contact)
        self.mesh.pop(topic, None)
        super().quit(topic)

    def forget(self, peer: PeerId) -> None:
        for mesh in self.mesh.values():
            mesh.pop(peer, None)
        super().forget(peer)
