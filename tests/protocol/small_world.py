"""Some whole peers that know each other, in virtual time, for the tests of one routing."""

from __future__ import annotations

from functools import partial

from weft.ids import Cid, Topic
from weft.protocol.config import Config
from weft.protocol.peer import Peer
from weft.sim.node import Node, keyed
from weft.sim.world import World
from weft.store.memory import MemoryStore
from weft.store.reader import read_all

T = Topic("/t")


class SmallWorld:
    """Peers by number; whatever they do, they do in the topic `T`."""

    def __init__(self, world: World, peers: int, config: Config, seed: int) -> None:
        self.world = world
        self.config = config
        for index in range(peers):
            contact, sign = keyed(seed, index)
            store = MemoryStore() if config.history.enabled else None
            make = partial(Peer, contact, seed, config, store, sign)
            world.add(contact, make, store=store)
        for node in self.nodes:
            world.start(node, [self.nodes[0].contact])
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
