"""Small machines whose behaviour a test writes down, to try the world without the protocol."""

from __future__ import annotations

from collections.abc import Callable

from nameless import contact_of
from weft.ids import Contact
from weft.protocol import seam
from weft.protocol.liveness import Ping
from weft.sim.network import Conditions, Latency, Network
from weft.sim.node import TRUE_CLOCK, Clock, Node
from weft.sim.world import World

Rule = Callable[[seam.Input, int], "list[seam.Effect]"]


class Scripted:
    """Notes every fact with its time, and answers by a rule."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self.log: list[tuple[int, seam.Input]] = []

    def handle(self, fact: seam.Input, now: int) -> list[seam.Effect]:
        self.log.append((now, fact))
        return self._rule(fact, now)

    def heard(self) -> list[tuple[int, int]]:
        """When pings came, and their nonces."""
        return [
            (now, fact.message.nonce)
            for now, fact in self.log
            if isinstance(fact, seam.Received) and isinstance(fact.message, Ping)
        ]

    def lost(self) -> list[int]:
        return [now for now, fact in self.log if isinstance(fact, seam.PeerLost)]


def silent(fact: seam.Input, now: int) -> list[seam.Effect]:
    return []


def ping(contact: Contact, nonce: int) -> seam.Send:
    return seam.Send(contact, Ping(nonce, 0))


class Stage:
    """A world of scripted machines, of which the tests see the latest of each peer."""

    def __init__(self, conditions: Conditions | None = None, seed: int = 1) -> None:
        calm = Conditions(latency=Latency("constant", 10))
        self.network = Network(seed, conditions or calm)
        self.world = World(self.network)
        self.machines: dict[int, Scripted] = {}

    def add(self, rule: Rule = silent, clock: Clock = TRUE_CLOCK) -> Node:
        index = len(self.world.nodes)

        def make() -> Scripted:
            self.machines[index] = Scripted(rule)
            return self.machines[index]

        node = self.world.add(contact_of(1, index), make, clock)
        self.world.start(node)
        return node

    def send(self, node: Node, to: Node, nonce: int) -> None:
        """As if the node's machine had wished to send a ping."""
        self.world.carry_out(node, [ping(to.contact, nonce)])
