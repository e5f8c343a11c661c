"""A small world that routes by the topic-aware DHT, in virtual time."""

from __future__ import annotations

from small_world import SmallWorld, T
from weft.ids import Contact, PeerId, Topic
from weft.protocol.config import Config, Cyclon, HistorySettings
from weft.protocol.publication import RouteEvent
from weft.protocol.recent import Repair
from weft.protocol.rooms import Scheme
from weft.protocol.rooms import TopicDhtSettings as TopicConfig
from weft.protocol.topic_dht.events import Cast
from weft.protocol.topic_dht.topic_dht import TopicRouting
from weft.protocol.wire import Message, Payload
from weft.sim.checkers.dht import check_world
from weft.sim.network import Conditions, Latency
from weft.sim.node import Node
from weft.sim.world import Observer

SCHEMES: tuple[Scheme, ...] = (
    "full-treecast",
    "forward-treecast",
    "full-gossip",
    "forward-gossip",
)
TREES = SCHEMES[:2]


class Casts(Observer):
    """Remembers sender and receiver of each cast."""

    def __init__(self) -> None:
        self.seen: list[tuple[PeerId, PeerId, Cast]] = []

    def sent(
        self, now_ms: int, sender: Node, to: Contact, receiver: Node | None, message: Message
    ) -> None:
        if isinstance(message, Cast):
            self.seen.append((sender.contact.peer, to.peer, message))


class Field(SmallWorld):
    """Some peers that route by the topic-aware DHT."""

    def __init__(
        self,
        peers: int,
        settings: TopicConfig,
        *,
        seed: int = 1,
        loss_percent: int = 0,
        history: bool = False,
    ) -> None:
        config = Config(
            routing="topic-dht",
            topic_dht=settings,
            history=HistorySettings(enabled=history),
            cyclon=Cyclon(cycle_ms=5_000),
        )
        self.latency = Latency(typical_ms=10)
        self.casts = Casts()
        calm = Conditions(latency=self.latency)
        super().__init__(peers, config, calm, seed, observers=[self.casts])
        self.lose(loss_percent)

    def lose(self, percent: int) -> None:
        """From now on so many messages are lost."""
        self.world.network.set_conditions(Conditions(latency=self.latency, loss_percent=percent))

    def routing(self, number: int) -> TopicRouting:
        routing = self.peer(number).routing
        assert isinstance(routing, TopicRouting)
        return routing

    def busy(self) -> None:
        """Everybody forwards a topic of its own, so that a peer is a child in the next one."""
        for node in self.nodes:
            self.world.subscribe(node, Topic(f"/own/{node.index}"))
        self.run(5_000)

    def forwarders(self) -> list[int]:
        return [n for n in self.alive() if self.routing(n).topics.roles.forwarding(T) is not None]

    def children(self) -> list[int]:
        found = []
        for number in self.alive():
            role = self.routing(number).topics.roles.by_topic.get(T)
            if role is not None and role.child is not None:
                found.append(number)
        return found

    def parent(self, number: int) -> int:
        child = self.routing(number).topics.roles.by_topic[T].child
        assert child is not None
        return self.world.record.index_of(child.parent.peer)

    def copies(self) -> int:
        """Payload messages sent: down trees, to children, in gossip, from outside, as repair."""
        sent = self.world.sent
        return sum(sent[kind] for kind in (Cast, Payload, RouteEvent, Repair))

    def right(self) -> list[str]:
        """What is wrong about the roles of live peers."""
        return check_world(self.world, self.config)

    def parasites(self) -> int:
        return len(self.world.record.parasites)
