"""Some whole peers that know each other, in virtual time, for the tests of one routing."""

from __future__ import annotations

from collections.abc import Sequence

from weft.ids import Topic
from weft.protocol.config import Config
from weft.protocol.peer import Peer
from weft.sim.builder import OneTopic
from weft.sim.network import Conditions
from weft.sim.world import Observer

T = Topic("/t")


class SmallWorld(OneTopic):
    """Peers by number; whatever they do, they do in the topic `T`."""

    topic = T

    def __init__(
        self,
        peers: int,
        config: Config,
        conditions: Conditions,
        seed: int = 1,
        *,
        settle_ms: int = 20_000,
        observers: Sequence[Observer] = (),
    ) -> None:
        super().__init__(seed, config, conditions, observers=observers)
        for _ in range(peers):
            self.enter([0])
        self.run(settle_ms)

    def peer(self, number: int) -> Peer:
        """The machine of a peer that is up."""
        machine = self.nodes[number].machine
        assert isinstance(machine, Peer)
        return machine

    def publish(self, *numbers: int, payload: bytes = b"event", every_ms: int = 50) -> None:
        super().publish(*numbers, payload=payload, every_ms=every_ms)

    def delivered(self, number: int, since_ms: int = 0) -> list[bytes]:
        return [one.event.payload for one in self.deliveries(number) if one.at_ms >= since_ms]
