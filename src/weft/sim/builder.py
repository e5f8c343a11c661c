"""Builds simulated networks: the peers' identities, stores and machines, their start, their users.

    net = OneTopic(seed=1, config=Config(), conditions=Conditions(loss_percent=5))
    for _ in range(30):
        net.enter([0], then_ms=10)  # each knows the first peer
    net.subscribe(*range(30))
    net.run(60_000)
    net.publish(7, payload=b"hello")

All scenarios, experiments and tests build their networks here. They differ in which peers a
newcomer knows and in what users do, which they draw themselves: a network draws nothing for itself,
so its seed and its script determine a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from weft.documents.descriptor import SealedEvent
from weft.documents.run import RUN_MAX
from weft.documents.signature import Signer
from weft.ids import Cid, Contact, Topic
from weft.protocol import seam
from weft.protocol.config import Config
from weft.protocol.peer import Peer
from weft.rules.hierarchy import above
from weft.sim.attacks import tactic_of
from weft.sim.dice import Dice
from weft.sim.faults import Attack
from weft.sim.hostile import Gang, HostilePeer, identity
from weft.sim.network import Conditions, Network
from weft.sim.node import TRUE_CLOCK, Clock, Node, keyed
from weft.sim.record import Delivery
from weft.sim.workload import Publication
from weft.sim.world import Observer, SizeOf, World
from weft.store.interface import Since, Store
from weft.store.memory import MemoryStore
from weft.store.reader import read_all
from weft.trace import Writer


class SimNet:
    """Peers in one world; each is named by its number, the order in which it was added."""

    def __init__(
        self,
        seed: int,
        config: Config,
        conditions: Conditions | None = None,
        *,
        distance_ms_max: int = 0,
        writer: Writer | None = None,
        observers: Sequence[Observer] = (),
        size_of: SizeOf | None = None,
    ) -> None:
        self.seed = seed
        self.config = config
        self.dice = Dice(seed)
        network = Network(seed, conditions or Conditions(), distance_ms_max)
        self.world = World(network, writer, observers, size_of=size_of)

    # --- peers ------------------------------------------------------------------------------------

    def add(self, config: Config | None = None, clock: Clock = TRUE_CLOCK) -> Node:
        """One more peer, which is down; `config`: its own settings, if they differ."""
        config = config or self.config
        number = len(self.nodes)
        contact, sign = keyed(self.seed, number)
        store = MemoryStore(b"store %d" % number) if config.history.enabled else None
        make = partial(self.make_machine, contact, config, store, sign)
        return self.world.add(contact, make, clock, store)

    def add_hostile(self, gang: Gang, attack: Attack) -> Node:
        """One more peer, which is down; it becomes hostile when its gang strikes."""
        number, config = len(self.nodes), self.config
        contact, sign = identity(self.seed, number, attack, gang.topics)
        gang.enlist(contact)
        store = MemoryStore(b"store %d" % number) if config.history.enabled else None
        tactic = partial(tactic_of, attack, gang, contact, number, config.routing)

        def make() -> seam.Machine:
            honest = self.make_machine(contact, config, store, sign)
            return HostilePeer(honest, contact.peer, gang, tactic)

        return self.world.add(contact, make, store=store)

    def make_machine(
        self, contact: Contact, config: Config, store: Store | None, sign: Signer
    ) -> seam.Machine:
        """The machine of a peer, made anew at each of its starts."""
        return Peer(contact, self.seed, config, store, sign)

    def start(self, number: int, known: Iterable[int] = ()) -> None:
        """The peer comes up (again) and knows some others."""
        self.world.start(self.nodes[number], [self.nodes[one].contact for one in known])

    def enter(self, known: Iterable[int] = (), then_ms: int = 0) -> Node:
        """One more peer comes up; then the run goes on for `then_ms`."""
        node = self.add()
        self.start(node.index, known)
        if then_ms:
            self.run(then_ms)
        return node

    def crash(self, *numbers: int, silent: bool = False) -> None:
        for number in numbers:
            self.world.crash(self.nodes[number], silent)

    @property
    def nodes(self) -> list[Node]:
        return self.world.nodes

    def alive(self, among: Iterable[int] | None = None) -> list[int]:
        """The peers that are up, among some peers or among all."""
        numbers = range(len(self.nodes)) if among is None else among
        return [number for number in numbers if self.nodes[number].machine is not None]

    def peers(self) -> Iterator[Peer]:
        """The machines of all peers that are up."""
        return (node.machine for node in self.nodes if isinstance(node.machine, Peer))

    def counted(self, name: str) -> int:
        """A counter's sum over the peers that are up."""
        return sum(peer.counters.get(name, 0) for peer in self.peers())

    # --- time -------------------------------------------------------------------------------------

    def run(self, duration_ms: int) -> None:
        self.world.run_until(self.world.now_ms + duration_ms)

    @property
    def cycle_ms(self) -> int:
        return self.config.cyclon.cycle_ms

    def run_cycles(self, cycles: int) -> None:
        self.run(cycles * self.cycle_ms)

    def run_while(self, going_on: Callable[[], bool], step_ms: int, most_ms: int) -> bool:
        """Run while `going_on`, asking every `step_ms`; False if it goes on after `most_ms`."""
        end_ms = self.world.now_ms + most_ms
        while going_on():
            if self.world.now_ms >= end_ms:
                return False
            self.run(step_ms)
        return True

    # --- users ------------------------------------------------------------------------------------

    def publish_in(self, number: int, topic: Topic, *payloads: bytes) -> None:
        """Publish in the topic, and in a hierarchy also in the topics above it."""
        levels = above(topic, self.config.hierarchies)
        if len(levels) == 1:
            self.world.publish(self.nodes[number], topic, *payloads)
            return
        for payload in payloads:
            self.world.publish_together(self.nodes[number], levels, payload)

    def schedule(self, publications: Iterable[Publication], from_ms: int) -> None:
        """Let users publish the events of a workload, from `from_ms` on."""
        together: dict[tuple[int, int, Topic], list[bytes]] = {}
        for one in publications:
            together.setdefault((one.at_ms, one.peer, one.topic), []).append(one.payload)
        for (at_ms, peer, topic), payloads in together.items():
            for start in range(0, len(payloads), RUN_MAX):
                some = payloads[start : start + RUN_MAX]
                self.world.at(from_ms + at_ms, partial(self.publish_in, peer, topic, *some))

    def deliveries(self, number: int) -> list[Delivery]:
        return [one for one in self.world.record.deliveries if one.peer == number]


class OneTopic(SimNet):
    """A network whose users are all interested in the same topic."""

    topic = Topic("/t")

    def subscribe(self, *numbers: int, since: Since | None = None) -> None:
        for number in numbers:
            self.world.subscribe(self.nodes[number], self.topic, None, since)

    def publish(self, *numbers: int, payload: bytes, every_ms: int = 0) -> None:
        """One event of each named peer, one after the other."""
        for number in numbers:
            self.world.publish(self.nodes[number], self.topic, payload)
            if every_ms:
                self.run(every_ms)

    def stored(self, number: int) -> list[SealedEvent]:
        """The events of the topic that a peer holds, in the stream's order."""
        store = self.nodes[number].store
        return list(read_all(store, self.topic)) if store is not None else []

    def stream(self, number: int) -> list[Cid]:
        return [event.cid for event in self.stored(number)]
