"""The topic-aware DHT by itself in virtual time: peers subscribe, unsubscribe, crash.

    run = Run(seed=1, peers=60)
    run.come_up()
    run.subscribe(0, [topic])
    assert run.settle() is not None

`RoleNet` knows the users' subscriptions, and so which roles peers should have; `Run` is a network
of machines that are `Alone`: Kademlia and the topic-aware DHT over it, without the rest of a peer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.documents.signature import Signer
from weft.ids import Contact, PeerId, Topic
from weft.protocol import seam
from weft.protocol.config import Config, KademliaSettings
from weft.protocol.context import Context, Handlers
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.kademlia.rpc import FindRequest
from weft.protocol.rooms import TopicDhtSettings as Settings
from weft.protocol.topic_dht.roles import LOBBY, TOPICS, RoleReply
from weft.protocol.topic_dht.topic_dht import TopicDht
from weft.protocol.wire import Message
from weft.rules.prefix import DIGEST_BYTES, as_bytes, location_of
from weft.sim.builder import SimNet
from weft.sim.checkers.dht import Found, check, topic_dhts
from weft.sim.network import Conditions
from weft.sim.node import Node
from weft.sim.world import Observer
from weft.store.interface import Store

_CONTACTS = 5
"""guess: peers that a newcomer knows."""
_REST_MS = 5_000
"""guess: time in which all peers have joined."""


class Lookups(Observer):
    """Counts the requests for places in topics that stay inside their topic, and those that do not.

    `wanted` has the subscriptions of live peers' users; the network keeps it.
    """

    def __init__(self, wanted: dict[PeerId, dict[Topic, None]]) -> None:
        self._wanted = wanted
        self.inside = 0  # to a forwarder of the topic
        self.outside = 0  # to other peers: by newcomers, and to make a forwarder known
        self.parasites = 0  # requests inside that go to peers that are not subscribed

    def sent(
        self, now_ms: int, sender: Node, to: Contact, receiver: Node | None, message: Message
    ) -> None:
        if not isinstance(message, FindRequest) or message.space != TOPICS.number:
            return
        prefix = message.target[:DIGEST_BYTES]
        if message.role != LOBBY and prefix == as_bytes(location_of(message.role.encode())):
            self.inside += 1
            uninterested = message.role not in self._wanted.get(to.peer, ())
            self.parasites += uninterested and receiver is not None and receiver.machine is not None
        else:
            self.outside += 1


class RoleNet(SimNet):
    """A network in which every peer has a part in the topic-aware DHT."""

    def __init__(
        self,
        seed: int,
        config: Config,
        conditions: Conditions | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.wanted: dict[PeerId, dict[Topic, None]] = {}
        """The subscriptions of live peers' users."""
        self.lookups = Lookups(self.wanted)
        super().__init__(seed, config, conditions, observers=(self.lookups, *observers))

    @property
    def settings(self) -> Settings:
        return self.config.topic_dht

    def note_wanted(self, number: int, topics: Iterable[Topic]) -> None:
        mine = self.wanted.setdefault(self.nodes[number].contact.peer, {})
        mine.update(dict.fromkeys(topics))

    def note_unwanted(self, number: int, topics: Iterable[Topic]) -> None:
        mine = self.wanted.get(self.nodes[number].contact.peer, {})
        for topic in topics:
            mine.pop(topic, None)

    def crash(self, *numbers: int, silent: bool = True) -> None:
        for number in numbers:
            self.wanted.pop(self.nodes[number].contact.peer, None)
        super().crash(*numbers, silent=silent)

    # --- judging ----------------------------------------------------------------------------------

    def machines(self) -> dict[PeerId, TopicDht]:
        """The topic-aware DHTs of all peers that are up."""
        return topic_dhts(self.world)

    def check(self) -> Found:
        """Violations of Lemma 4.2 and of the bound on children."""
        return check(self.machines(), self.wanted, self.settings.k)

    def settle(self, periods_max: int = 20) -> int | None:
        """Run until Lemma 4.2 holds; returns after how many periods, None if it takes longer."""
        for period in range(periods_max + 1):
            if not self.check().all:
                return period
            self.run(self.settings.period_ms)
        return None


class Alone:
    """The state machine of a peer that has only the two DHTs."""

    def __init__(self, me: Contact, seed: int, config: Config) -> None:
        self.ctx = Context(me, seed, config)
        self._contacts: list[Contact] = []
        self.dht = Kademlia(self.ctx, lambda: self._contacts)
        self.topics = TopicDht(self.ctx, self.dht, ended=lambda role: None)
        self._handlers: Handlers = {
            **self.dht.handlers(),
            **self.topics.handlers(),
            RoleReply: self.dht.calls.on_reply,
        }
        self._timers = self.topics.timers()

    def handle(self, fact: seam.Input, now: seam.Millis) -> list[seam.Effect]:
        self.ctx.begin(now)
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
        return self.ctx.take_effects()


class Run(RoleNet):
    """A network of machines with only the DHTs, and the subscriptions of their users."""

    def __init__(
        self,
        seed: int = 1,
        peers: int = 60,
        topics: Settings | None = None,
        conditions: Conditions | None = None,
        dht: KademliaSettings | None = None,
    ) -> None:
        config = Config(dht=dht or KademliaSettings(enabled=True), topic_dht=topics or Settings())
        super().__init__(seed, config, conditions)
        for _ in range(peers):
            self.add()

    def make_machine(
        self, contact: Contact, config: Config, store: Store | None, sign: Signer | None
    ) -> Alone:
        return Alone(contact, self.seed, config)

    def come_up(self) -> None:
        """Start all peers at once, each knowing some others, and wait until they have joined."""
        numbers = range(len(self.nodes))
        for number in numbers:
            others = [one for one in numbers if one != number]
            self.start(number, self.dice.some("topic_dht.known", others, _CONTACTS, number))
        self.run(_REST_MS)

    def machines(self) -> dict[PeerId, TopicDht]:
        return {
            node.contact.peer: node.machine.topics
            for node in self.nodes
            if isinstance(node.machine, Alone)
        }

    def machine(self, number: int) -> Alone | None:
        machine = self.nodes[number].machine
        assert machine is None or isinstance(machine, Alone)
        return machine

    def subscribe(self, number: int, topics: Sequence[Topic]) -> None:
        machine = self.machine(number)
        if machine is not None:
            self.note_wanted(number, topics)
            machine.ctx.begin(self.world.now_ms)
            machine.topics.initiator.subscribe(topics)
            self.flush(number)

    def flush(self, number: int) -> None:
        """Carry out the effects of a machine that was called outside of `handle`."""
        machine = self.machine(number)
        if machine is not None:
            self.world.carry_out(self.nodes[number], machine.flush())
