"""A small world that routes by multicast trees (or floods), in virtual time."""

from __future__ import annotations

from weft.ids import Cid, PeerId, Topic
from weft.protocol.config import Config, Cyclon, History, Pulsar, Routing
from weft.protocol.peer import Peer
from weft.protocol.pulsar import pulsar
from weft.protocol.pulsar.branch import Branch
from weft.rules.multicast import tree_location
from weft.rules.prefix import closest, location_of
from weft.sim.identity import keyed
from weft.sim.network import Conditions, Latency, Network
from weft.sim.node import Node
from weft.sim.world import World
from weft.store.memory import MemoryStore
from weft.store.reader import read_all

T = Topic("/t")


class Wood:
    """Some peers that know each other."""

    def __init__(
        self,
        peers: int,
        *,
        seed: int = 1,
        loss_percent: int = 0,
        history: bool = False,
        routing: Routing = "pulsarcast",
        settings: Pulsar | None = None,
        provide_probability: float = 0.1,
    ) -> None:
        config = Config(
            routing=routing,
            pulsar=settings or Pulsar(),
            history=History(enabled=history, provide_probability=provide_probability),
            cyclon=Cyclon(cycle_ms=5_000),
        )
        self.config = config
        conditions = Conditions(latency=Latency(typical_ms=10), loss_percent=loss_percent)
        self.world = World(Network(seed, conditions))
        for index in range(peers):
            contact, sign = keyed(seed, index)
            store = MemoryStore() if history else None

            def make(contact=contact, sign=sign, store=store) -> Peer:  # type: ignore[no-untyped-def]
                return Peer(contact, seed, config, store, sign)

            self.world.add(contact, make, store=store)
        for node in self.nodes:
            self.world.start(node, [self.nodes[0].contact])
        self.run(20_000)

    @property
    def nodes(self) -> list[Node]:
        return self.world.nodes

    def run(self, duration_ms: int) -> None:
        self.world.run_until(self.world.now_ms + duration_ms)

    def machine(self, number: int) -> Peer:
        machine = self.nodes[number].machine
        assert isinstance(machine, Peer)
        return machine

    @property
    def alive(self) -> list[int]:
        return [node.index for node in self.nodes if node.machine is not None]

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

    def branch(self, number: int) -> Branch:
        routing = self.machine(number).routing
        assert isinstance(routing, pulsar.Pulsar)
        return routing.trees[T]

    def branches(self) -> dict[int, Branch]:
        found = {}
        for number in self.alive:
            routing = self.machine(number).routing
            assert isinstance(routing, pulsar.Pulsar)
            if T in routing.trees:
                found[number] = routing.trees[T]
        return found

    def roots(self) -> list[int]:
        return [number for number, branch in self.branches().items() if branch.rendezvous]

    def closest(self, count: int) -> list[int]:
        """Who the rendezvous should be."""
        at = {location_of(self.nodes[n].contact.peer): n for n in self.alive}
        return [at[location] for location in closest(tree_location(T), at, count)]

    def delivered(self, number: int, since_ms: int = 0) -> list[bytes]:
        return [
            one.event.payload
            for one in self.world.record.deliveries
            if one.peer == number and one.at_ms >= since_ms
        ]

    def stream(self, number: int) -> list[Cid]:
        """The stored stream of a peer, in its order."""
        store = self.nodes[number].store
        assert store is not None
        return [event.cid for event in read_all(store, T)]

    def check_tree(self) -> None:
        """Every member reaches a rendezvous by its parents, links are mutual and bounded."""
        by_peer = {self.nodes[n].contact.peer: n for n in self.alive}
        branches = self.branches()
        for number, branch in branches.items():
            me = self.nodes[number].contact.peer
            assert len(branch.children) <= self.config.pulsar.children_max
            for child in branch.children:
                parent = branches[by_peer[child]].parent
                assert parent is not None and parent.peer == me
            if branch.parent is not None:
                assert me in branches[by_peer[branch.parent.peer]].children
            if branch.rendezvous:
                others = [n for n in self.roots() if n != number]
                assert branch.fellows.keys() == {self.nodes[n].contact.peer for n in others}
            self._climb(number, branches, by_peer)

    def _climb(self, number: int, branches: dict[int, Branch], by_peer: dict[PeerId, int]) -> None:
        seen = [number]
        while not branches[number].rendezvous:
            parent = branches[number].parent
            assert parent is not None, f"{number} has no parent"
            number = by_peer[parent.peer]
            assert number not in seen, f"a circle: {seen}"
            seen.append(number)
