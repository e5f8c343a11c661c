"""A network of peers with one topic, in virtual time, under any routing, with or without history.

Peers come up one after the other, each by some that are there already; who subscribes is drawn.
All settings are a peer's defaults, unless an experiment says otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from weft.documents.dag import position
from weft.documents.descriptor import Event
from weft.documents.signing import Signer
from weft.ids import Cid, Contact, Topic
from weft.net import codec
from weft.protocol.config import Config
from weft.protocol.peer import Peer
from weft.protocol.pulsar.branch import Branch
from weft.protocol.pulsar.pulsar import Pulsar
from weft.protocol.wire import Message
from weft.sim.dice import Dice
from weft.sim.network import Conditions, Network
from weft.sim.node import Node, keyed
from weft.sim.record import Delivery
from weft.sim.world import World
from weft.store.memory import MemoryStore
from weft.store.reader import Since, read_all

TOPIC = Topic("/lab")
PAYLOAD_BYTES = 200
"""The size that benchmarks measure with."""
CONTACTS = 3
"""As in `sim/scenario.py`: how many peers one knows when it comes up."""
START_MS = 10
"""guess: between the starts of two peers."""
ENTER_CYCLES = 3
"""measured: by then peers and DHT tables know each other."""
JOIN_CYCLES = 3
"""measured: by then subscribers are in their overlay or tree."""


class Weighing(World):
    """Counts the bytes of what is sent, by kind, as they would lie on the wire."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.bytes_sent: Counter[type] = Counter()

    def _send(self, node: Node, to: Contact, message: Message) -> None:
        self.bytes_sent[type(message)] += len(codec.encode(message))
        super()._send(node, to, message)


class Watching(World):
    """Counts what one peer sends and is sent, by kind."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.watched: Contact | None = None
        self.said: Counter[type] = Counter()
        self.heard: Counter[type] = Counter()

    def _send(self, node: Node, to: Contact, message: Message) -> None:
        if self.watched == node.contact:
            self.said[type(message)] += 1
        elif self.watched == to:
            self.heard[type(message)] += 1
        super()._send(node, to, message)


class Net:
    """See the module's text."""

    def __init__(
        self,
        seed: int,
        peers: int,
        config: Config,
        conditions: Conditions | None = None,
        world: World | None = None,
        contacts: int = CONTACTS,
    ) -> None:
        """`world`: one of another kind, with a network of its own."""
        self.seed = seed
        self.config = config
        self.contacts = contacts
        self.dice = Dice(seed)
        self.world = world or World(Network(seed, conditions or Conditions()))
        for _ in range(peers):
            self.enter()
        self.run_cycles(ENTER_CYCLES)

    # --- peers ------------------------------------------------------------------------------------

    @property
    def nodes(self) -> list[Node]:
        return self.world.nodes

    @property
    def cycle_ms(self) -> int:
        return self.config.cyclon.cycle_ms

    def enter(self) -> Node:
        """One more peer, which knows some of those that are up."""
        index, up = len(self.nodes), self.alive(range(len(self.nodes)))
        contact, sign = keyed(self.seed, index)
        store = MemoryStore() if self.config.history.enabled else None
        make = partial(_machine, contact, self.seed, self.config, store, sign)
        node = self.world.add(contact, make, store=store)
        known = self.dice.some("lab.join", up, self.contacts, index)
        self.world.start(node, [self.nodes[number].contact for number in known])
        self.run(START_MS)
        return node

    def alive(self, numbers: Iterable[int]) -> list[int]:
        return [number for number in numbers if self.nodes[number].machine is not None]

    def crash(self, numbers: Iterable[int], silent: bool) -> None:
        for number in numbers:
            self.world.crash(self.nodes[number], silent)

    def branch(self, number: int) -> Branch | None:
        """A peer's place in the topic's tree."""
        machine = self.nodes[number].machine
        routing = machine.routing if isinstance(machine, Peer) else None
        return routing.trees.get(TOPIC) if isinstance(routing, Pulsar) else None

    # --- time -------------------------------------------------------------------------------------

    def run(self, duration_ms: int) -> None:
        self.world.run_until(self.world.now_ms + duration_ms)

    def run_cycles(self, cycles: int) -> None:
        self.run(cycles * self.cycle_ms)

    def run_while(self, going_on: Callable[[], bool], step_ms: int, most_ms: int) -> bool:
        """Until it is over, looking every `step_ms`; False if it is not over within `most_ms`."""
        end_ms = self.world.now_ms + most_ms
        while going_on():
            if self.world.now_ms >= end_ms:
                return False
            self.run(step_ms)
        return True

    # --- events -----------------------------------------------------------------------------------

    def draw_subscribers(self, count: int) -> list[int]:
        return self.dice.some("lab.subscribers", range(len(self.nodes)), count)

    def subscribe(self, numbers: Iterable[int], since: Since | None = None) -> None:
        for number in numbers:
            self.world.subscribe(self.nodes[number], TOPIC, None, since)

    def publish(self, number: int) -> None:
        """An event with a payload of its own."""
        text = b"event %d " % len(self.world.record.publications)
        self.world.publish(self.nodes[number], TOPIC, text.ljust(PAYLOAD_BYTES, b"."))

    def publish_all(self, publishers: Sequence[int], count: int, every_ms: int) -> None:
        """So many events, the publishers taking turns."""
        for number in range(count):
            self.publish(publishers[number % len(publishers)])
            self.run(every_ms)

    def deliveries(self, number: int) -> list[Delivery]:
        return [one for one in self.world.record.deliveries if one.peer == number]

    # --- history ----------------------------------------------------------------------------------

    def stored(self, number: int) -> list[Event]:
        """What a peer holds, in the stream's order."""
        store = self.nodes[number].store
        return list(read_all(store, TOPIC)) if store is not None else []

    def stream(self, number: int) -> list[Cid]:
        return [event.cid for event in self.stored(number)]

    def held(self, numbers: Iterable[int]) -> list[Cid]:
        """All events that any of these peers holds, in the stream's order."""
        found = {event.cid: event for number in numbers for event in self.stored(number)}
        return [event.cid for event in sorted(found.values(), key=position)]

    # --- messages ---------------------------------------------------------------------------------

    def sent(self, kinds: Iterable[type]) -> int:
        return sum(self.world.sent[kind] for kind in kinds)


def _machine(
    contact: Contact, seed: int, config: Config, store: MemoryStore | None, sign: Signer
) -> Peer:
    return Peer(contact, seed, config, store, sign)


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
