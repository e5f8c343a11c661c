"""What the tests of the topic-aware DHT share: a group in which everybody forwards a topic of its
own already, so that joining `/a` makes children."""

from __future__ import annotations

from weft.ids import Contact, Topic
from weft.protocol import seam
from weft.protocol.rooms import TopicDhtSettings as TopicConfig
from weft.protocol.topic_dht.roles import Role, location
from weft.protocol.topic_dht.topic_dht import TopicDht
from weft.protocol.wire import Message
from weft.sim.topic_dht import Run

A = Topic("/a")
QUIET_MS = 10_000


def unsubscribe(run: Run, number: int, topics: list[Topic]) -> None:
    """A peer's user wants some topics no more."""
    machine = run.machine(number)
    if machine is not None:
        run.note_unwanted(number, topics)
        machine.ctx.begin(run.world.now_ms)
        machine.topics.initiator.unsubscribe(topics)
        run.flush(number)


class Group:
    """Algorithm 1 never runs here: what is right is right by the operations alone."""

    def __init__(self, size: int, k: int = 60, seed: int = 1) -> None:
        never = TopicConfig(children_max=k, period_ms=10**9, view_percent=0)
        self.size = size
        self.run = Run(seed=seed, peers=size, topics=never)
        self.run.come_up()
        for peer in range(size):
            self.run.subscribe(peer, [Topic(f"/own/{peer}")])
        self.rest()
        for peer in range(size):
            self.run.subscribe(peer, [A])
            self.run.run(1_000)
        self.rest()

    def rest(self) -> None:
        self.run.run(QUIET_MS)

    def machine(self, peer: int) -> TopicDht:
        machine = self.run.machine(peer)
        assert machine is not None
        return machine.topics

    def contact(self, peer: int) -> Contact:
        return self.run.world.nodes[peer].contact

    def number(self, contact: Contact) -> int:
        return self.run.world.record.index_of(contact.peer)

    def role(self, peer: int) -> Role:
        return self.machine(peer).roles.by_topic[A]

    def has_role(self, peer: int) -> bool:
        return A in self.machine(peer).roles.by_topic

    def forwarders(self) -> list[int]:
        held = [peer for peer in range(self.size) if self.run.machine(peer) is not None]
        return [peer for peer in held if self.machine(peer).roles.forwarding(A) is not None]

    def children(self) -> list[int]:
        held = [peer for peer in range(self.size) if self.run.machine(peer) is not None]
        return [p for p in held if self.has_role(p) and self.role(p).child is not None]

    def parent(self, peer: int) -> int:
        child = self.role(peer).child
        assert child is not None
        return self.number(child.parent)

    def closest(self, peer: int, among: list[int]) -> int:
        own = location(A, self.contact(peer).peer)
        return min(among, key=lambda one: location(A, self.contact(one).peer) ^ own)

    def do(self, peer: int, operation: str, other: int) -> None:
        """Initiate an operation, without waiting for it."""
        getattr(self.machine(peer).initiator, operation)(self.role(peer), self.contact(other))
        self.run.flush(peer)

    def hear(self, peer: int, sender: int, message: Message) -> None:
        machine, now = self.run.machine(peer), self.run.world.now_ms
        assert machine is not None
        effects = machine.handle(seam.Received(self.contact(sender), message), now)
        self.run.world.carry_out(self.run.world.nodes[peer], effects)

    def done(self, peer: int, operation: str, other: int) -> None:
        self.do(peer, operation, other)
        self.rest()
        self.right()

    def right(self) -> None:
        """Lemma 4.2, and nothing is under way."""
        assert self.run.check().all == []
        for machine in self.run.machines().values():
            for role in machine.roles.by_topic.values():
                assert not role.operation and not role.is_busy(self.run.world.now_ms)

    def counted(self, name: str) -> int:
        machines = (self.run.machine(peer) for peer in range(self.size))
        return sum(one.ctx.counters[name] for one in machines if one is not None)
