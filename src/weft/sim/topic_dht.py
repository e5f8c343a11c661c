"""The topic-aware DHT by itself in virtual time: peers subscribe, unsubscribe, crash.

    run = Run(Settings(seed=1, peers=60))
    run.start()
    run.subscribe(0, topic)
    run.settle()
    assert not run.check().all

`Alone` is the machine: Kademlia and the topic-aware DHT over it, with nothing else of a peer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from weft.ids import Contact, PeerId, Topic
from weft.protocol import seam
from weft.protocol.config import Config, Dht
from weft.protocol.context import Context
from weft.protocol.kademlia import kademlia
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.kademlia.rpc import FindRequest
from weft.protocol.routing import Handlers
from weft.protocol.topic_dht.roles import LOBBY, TOPICS, RoleReply
from weft.protocol.topic_dht.roles import Config as TopicSettings
from weft.protocol.topic_dht.routing import TopicDht
from weft.protocol.wire import Message
from weft.rules.prefix import DIGEST_BYTES, as_bytes, location_of
from weft.sim.checkers.topic_dht import Found, check
from weft.sim.dice import Dice
from weft.sim.network import Conditions, Network
from weft.sim.node import Node, contact_of
from weft.sim.world import World

_CONTACTS = 5
"""guess: peers that a newcomer knows."""


class Alone:
    """The state machine of a peer that has nothing but the DHT."""

    def __init__(self, me: Contact, seed: int, config: Config, settings: TopicSettings) -> None:
        self.ctx = Context(me, seed, config)
        self._contacts: list[Contact] = []
        self.dht = Kademlia(self.ctx, lambda: self._contacts)
        self.topics = TopicDht(self.ctx, self.dht, settings, ended=lambda role: None)
        self._handlers: Handlers = {
            **kademlia.handlers(self.ctx, self.dht),
            **self.topics.handlers(),
            RoleReply: self.dht.calls.on_reply,
        }
        self._timers = self.topics.timers()

    def handle(self, fact: seam.Input, now: seam.Millis) -> list[seam.Effect]:
        ctx = self.ctx
        ctx.now = now
        if isinstance(fact, seam.Started):
            self._contacts = list(fact.contacts)
            self.topics.start()
        elif isinstance(fact, seam.Received):
            self._handlers[type(fact.message)](fact.sender, fact.message)
        elif isinstance(fact, seam.TimerFired):
            self._timers.get(fact.timer.kind, self.dht.on_timer)(fact.timer)
        elif isinstance(fact, seam.PeerLost):
            self.dht.on_peer_lost(fact.peer)
            self.topics.on_peer_lost(fact.peer)
        return self.flush()

    def flush(self) -> list[seam.Effect]:
        effects, self.ctx.out = self.ctx.out, []
        return effects


@dataclass(frozen=True)
class Settings:
    """What a run is asked for."""

    seed: int = 1
    peers: int = 60
    conditions: Conditions = field(default_factory=Conditions)
    topics: TopicSettings = field(default_factory=TopicSettings)
    dht: Dht = field(default_factory=lambda: Dht(enabled=True))


class Watched(World):
    """A world that sees which requests stay inside a topic and whom they reach."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.wanted: dict[PeerId, dict[Topic, None]] = {}
        self.inside = 0  # requests for a place in a topic to a forwarder of it
        self.outside = 0  # to somebody else: from newcomers, and to be known to the others
        self.parasites = 0  # of those inside: to peers that are not subscribed

    def _send(self, node: Node, to: Contact, message: Message) -> None:
        if isinstance(message, FindRequest) and message.space == TOPICS.number:
            prefix = message.target[:DIGEST_BYTES]
            if message.role != LOBBY and prefix == as_bytes(location_of(message.role.encode())):
                self.inside += 1
                receiver = self._by_peer[to.peer]
                uninterested = message.role not in self.wanted.get(to.peer, ())
                self.parasites += uninterested and receiver.machine is not None
            else:
                self.outside += 1
        super()._send(node, to, message)


class Run:
    """Some peers and what users want of them."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.dice = Dice(settings.seed)
        self.world = Watched(Network(settings.seed, settings.conditions))
        config = Config(dht=settings.dht)
        for index in range(settings.peers):
            contact = contact_of(settings.seed, index)
            make = partial(Alone, contact, settings.seed, config, settings.topics)
            self.world.add(contact, make)

    @property
    def wanted(self) -> dict[PeerId, dict[Topic, None]]:
        """What users of live peers are subscribed to."""
        return self.world.wanted

    def start(self, rest_ms: int = 5_000) -> None:
        for node in self.world.nodes:
            others = [one for one in self.world.nodes if one is not node]
            some = self.dice.some("topic_dht.known", others, _CONTACTS, node.index)
            self.world.start(node, [one.contact for one in some])
        self.run(rest_ms)

    def run(self, duration_ms: int) -> None:
        self.world.run_until(self.world.now_ms + duration_ms)

    # --- users ------------------------------------------------------------------------------------

    def machine(self, index: int) -> Alone | None:
        machine = self.world.nodes[index].machine
        assert machine is None or isinstance(machine, Alone)
        return machine

    def subscribe(self, index: int, topics: Sequence[Topic]) -> None:
        node, machine = self.world.nodes[index], self.machine(index)
        if machine is not None:
            for topic in topics:
                self.wanted.setdefault(node.contact.peer, {})[topic] = None
            machine.ctx.now = self.world.now_ms
            machine.topics.initiator.subscribe(topics)
            self.flush(index)

    def unsubscribe(self, index: int, topics: Sequence[Topic]) -> None:
        node, machine = self.world.nodes[index], self.machine(index)
        if machine is not None:
            for topic in topics:
                self.wanted.get(node.contact.peer, {}).pop(topic, None)
            machine.ctx.now = self.world.now_ms
            machine.topics.initiator.unsubscribe(topics)
            self.flush(index)

    def flush(self, index: int) -> None:
        """Carry out what a machine asked for outside of `handle`."""
        machine = self.machine(index)
        if machine is not None:
            self.world.carry_out(self.world.nodes[index], machine.flush())

    def crash(self, index: int, silent: bool = True) -> None:
        node = self.world.nodes[index]
        self.wanted.pop(node.contact.peer, None)
        self.world.crash(node, silent)

    # --- judging ----------------------------------------------------------------------------------

    def machines(self) -> dict[PeerId, TopicDht]:
        return {
            node.contact.peer: node.machine.topics
            for node in self.world.nodes
            if isinstance(node.machine, Alone)
        }

    def check(self) -> Found:
        return check(self.machines(), self.wanted, self.settings.topics.k)

    def periods_until_right(self, periods_max: int) -> int | None:
        """After how many periods Lemma 4.2 holds; None if it takes longer."""
        for period in range(periods_max + 1):
            if not self.check().all:
                return period
            self.run(self.settings.topics.period_ms)
        return None
