"""A small world that routes by the topic-aware DHT, in virtual time."""

from __future__ import annotations

from weft.ids import Cid, Contact, PeerId, Topic
from weft.protocol import messages as m
from weft.protocol.config import Config, Cyclon, History
from weft.protocol.messages_topic_dht import Cast
from weft.protocol.peer import Peer
from weft.protocol.topic_dht.membership import Membership
from weft.protocol.topic_dht.routed import TopicRouting
from weft.protocol.topic_dht.settings import Scheme, Settings
from weft.sim.checkers_topic_dht import check_world
from weft.sim.identity import keyed
from weft.sim.network import Conditions, Latency, Network
from weft.sim.node import Node
from weft.sim.world import World
from weft.store.memory import MemoryStore
from weft.store.reader import read_all

T = Topic("/t")
SCHEMES: tuple[Scheme, ...] = (
    "full-treecast",
    "forward-treecast",
    "full-gossip",
    "forward-gossip",
)
TREES = SCHEMES[:2]


class Watched(World):
    """A world that remembers who sent casts to whom."""

    casts: list[tuple[PeerId, PeerId, Cast]]

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.casts = []

    def _send(self, node: Node, to: Contact, message: m.AnyMessage) -> None:
        if isinstance(message, Cast):
            self.casts.append((node.contact.peer, to.peer, message))
        super()._send(node, to, message)


class Field:
    """Some peers that know each other."""

    def __init__(
        self,
        peers: int,
        settings: Settings,
        *,
        seed: int = 1,
        loss_percent: int = 0,
        history: bool = False,
    ) -> None:
        config = Config(
            routing="topic-dht",
            topic_dht=settings,
            history=History(enabled=history),
            cyclon=Cyclon(cycle_ms=5_000),
        )
        self.config = config
        self.latency = Latency(typical_ms=10)
        self.world = Watched(Network(seed, Conditions(latency=self.latency)))
        for index in range(peers):
            contact, sign = keyed(seed, index)
            store = MemoryStore() if history else None

            def make(contact=contact, sign=sign, store=store) -> Peer:  # type: ignore[no-untyped-def]
                return Peer(contact, seed, config, store, sign)

            self.world.add(contact, make, store=store)
        for node in self.nodes:
            self.world.start(node, [self.nodes[0].contact])
        self.run(20_000)
        self.lose(loss_percent)

    @property
    def nodes(self) -> list[Node]:
        return self.world.nodes

    def lose(self, percent: int) -> None:
        """From now on so many messages are lost."""
        self.world.network.set_conditions(Conditions(latency=self.latency, loss_percent=percent))

    def run(self, duration_ms: int) -> None:
        self.world.run_until(self.world.now_ms + duration_ms)

    def machine(self, number: int) -> Peer:
        machine = self.nodes[number].machine
        assert isinstance(machine, Peer)
        return machine

    def routing(self, number: int) -> TopicRouting:
        routing = self.machine(number).routing
        assert isinstance(routing, TopicRouting)
        return routing

    @property
    def alive(self) -> list[int]:
        return [node.index for node in self.nodes if node.machine is not None]

    def busy(self) -> None:
        """Everybody forwards a topic of its own, so that who joins another one is a child."""
        for node in self.nodes:
            self.world.subscribe(node, Topic(f"/own/{node.index}"))
        self.run(5_000)

    def subscribe(self, *numbers: int) -> None:
        for number in numbers:
            self.world.subscribe(self.nodes[number], T)

    def publish(self, *numbers: int, every_ms: int = 50, payload: bytes = b"event") -> None:
        for number in numbers:
            self.world.publish(self.nodes[number], T, payload)
            self.run(every_ms)

    def crash(self, *numbers: int, silent: bool = False) -> None:
        for number in numbers:
            self.world.crash(self.nodes[number], silent)

    def member(self, number: int) -> Membership:
        return self.routing(number)._members[T]

    def forwarders(self) -> list[int]:
        return [n for n in self.alive if self.routing(n).topics.roles.forwarding(T) is not None]

    def children(self) -> list[int]:
        found = []
        for number in self.alive:
            role = self.routing(number).topics.roles.by_topic.get(T)
            if role is not None and role.child is not None:
                found.append(number)
        return found

    def parent(self, number: int) -> int:
        child = self.routing(number).topics.roles.by_topic[T].child
        assert child is not None
        return self.world.record.index_of(child.parent.peer)

    def peer(self, number: int) -> PeerId:
        return self.nodes[number].contact.peer

    def delivered(self, number: int, since_ms: int = 0) -> list[bytes]:
        return [
            one.event.payload
            for one in self.world.record.deliveries
            if one.peer == number and one.at_ms >= since_ms
        ]

    def copies(self) -> int:
        """Payload messages sent: down trees, to children, in gossip, from outside, as repair."""
        sent = self.world.sent
        return sum(sent[kind] for kind in (Cast, m.Payload, m.RouteEvent, m.Repair))

    def stream(self, number: int) -> list[Cid]:
        """The stored stream of a peer, in its order."""
        store = self.nodes[number].store
        assert store is not None
        return [event.cid for event in read_all(store, T)]

    def right(self) -> list[str]:
        """What is wrong about the roles of live peers."""
        return check_world(self.world, self.config)

    def parasites(self) -> int:
        return len(self.world.record.parasites)
