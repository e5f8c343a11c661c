"""A network of peers with one topic, in virtual time, under any routing, with or without history.

Peers come up one after the other, each by some that are there already; subscribers are drawn.
All settings are a peer's defaults, unless an experiment says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.documents.dag import position
from weft.ids import Cid, Topic
from weft.protocol.config import Config
from weft.protocol.peer import Peer
from weft.protocol.pulsar.branch import Branch
from weft.protocol.pulsar.pulsar import Pulsar
from weft.sim.builder import OneTopic
from weft.sim.network import Conditions
from weft.sim.node import Node
from weft.sim.record import Delivery
from weft.sim.world import Observer

TOPIC = Topic("/lab")
PAYLOAD_BYTES = 200
"""The size that benchmarks measure with."""
CONTACTS = 3
"""As in `sim/scenario.py`."""
START_MS = 10
"""guess: between the starts of two peers."""
ENTER_CYCLES = 3
"""measured: by then peers and DHT tables know each other."""
JOIN_CYCLES = 3
"""measured: by then subscribers are in their overlay or tree."""


class Net(OneTopic):
    """Peers with one topic under any routing, with or without history, all up already."""

    topic = TOPIC

    def __init__(
        self,
        seed: int,
        peers: int,
        config: Config,
        conditions: Conditions | None = None,
        observers: Sequence[Observer] = (),
        contacts: int = CONTACTS,
    ) -> None:
        """`contacts`: how many peers one knows when it comes up."""
        super().__init__(seed, config, conditions, keys=True, observers=observers)
        self.contacts = contacts
        for _ in range(peers):
            self.come()
        self.run_cycles(ENTER_CYCLES)

    def come(self) -> Node:
        """One more peer, which knows some of those that are up."""
        known = self.dice.some("lab.join", self.alive(), self.contacts, len(self.nodes))
        return self.enter(known, START_MS)

    def branch(self, number: int) -> Branch | None:
        """A peer's place in the topic's tree."""
        machine = self.nodes[number].machine
        routing = machine.routing if isinstance(machine, Peer) else None
        return routing.trees.get(self.topic) if isinstance(routing, Pulsar) else None

    def draw_subscribers(self, count: int) -> list[int]:
        return self.dice.some("lab.subscribers", range(len(self.nodes)), count)

    def publish_next(self, number: int) -> None:
        """An event with a payload of its own."""
        text = b"event %d " % len(self.world.record.publications)
        self.publish(number, payload=text.ljust(PAYLOAD_BYTES, b"."))

    def publish_all(self, publishers: Sequence[int], count: int, every_ms: int) -> None:
        """So many events, the publishers taking turns."""
        for number in range(count):
            self.publish_next(publishers[number % len(publishers)])
            self.run(every_ms)

    def held(self, numbers: Iterable[int]) -> list[Cid]:
        """All events that any of these peers holds, in the stream's order."""
        found = {event.cid: event for number in numbers for event in self.stored(number)}
        return [event.cid for event in sorted(found.values(), key=position)]

    def sent(self, kinds: Iterable[type]) -> int:
        """Messages of these kinds so far."""
        return sum(self.world.sent[kind] for kind in kinds)


def misplaced(deliveries: Sequence[Delivery]) -> int:
    """How many events one application got twice, or before a parent that it got as well."""
    place: dict[Cid, int] = {}
    wrong = 0
    for number, one in enumerate(deliveries):
        assert one.descriptor is not None
        wrong += one.descriptor.cid in place
        place.setdefault(one.descriptor.cid, number)
    for number, one in enumerate(deliveries):
        assert one.descriptor is not None
        wrong += any(place.get(parent, -1) > number for parent in one.descriptor.parents)
    return wrong
