"""A network of one reference's peers, for tests."""

from __future__ import annotations

from collections.abc import Callable

from weft.documents.signature import Signer
from weft.ids import Contact, Topic
from weft.protocol import seam
from weft.protocol.config import Config
from weft.sim.builder import OneTopic
from weft.sim.network import Conditions
from weft.store.interface import Store

SETTLE_MS = 150_000


class ReferenceNet(OneTopic):
    """Peers of another system; all but the last few are subscribed to one topic."""

    def __init__(
        self, make: Callable[[Contact, int], seam.Machine], seed: int = 1, loss: int = 0
    ) -> None:
        super().__init__(seed, Config(), Conditions(loss_percent=loss))
        self._make = make

    def make_machine(
        self, contact: Contact, config: Config, store: Store | None, sign: Signer
    ) -> seam.Machine:
        return self._make(contact, self.seed)

    def settle(self, subscribers: int, others: int = 0, topic: Topic | None = None) -> None:
        for number in range(subscribers + others):
            self.enter([self.dice.below("test.known", number, number)] if number else [], 50)
        for number in range(subscribers):
            self.world.subscribe(self.nodes[number], topic or self.topic)
        self.run(SETTLE_MS)

    def reached(self, payload: bytes) -> set[int]:
        """The peers that an event was handed to."""
        found = self.world.record.deliveries
        return {one.peer for one in found if one.event.payload == payload}
