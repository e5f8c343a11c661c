"""A small world that routes by multicast trees (or floods), in virtual time."""

from __future__ import annotations

from small_world import SmallWorld, T
from weft.ids import PeerId
from weft.protocol.config import Config, Cyclon, HistorySettings, PulsarSettings, Routing
from weft.protocol.pulsar import pulsar
from weft.protocol.pulsar.branch import Branch
from weft.rules.multicast import tree_location
from weft.rules.prefix import closest, location_of
from weft.sim.network import Conditions, Latency


class Wood(SmallWorld):
    """Some peers that route by trees, or otherwise."""

    def __init__(
        self,
        peers: int,
        *,
        seed: int = 1,
        loss_percent: int = 0,
        history: bool = False,
        routing: Routing = "pulsarcast",
        settings: PulsarSettings | None = None,
        provide_probability: float = 0.1,
    ) -> None:
        config = Config(
            routing=routing,
            pulsar=settings or PulsarSettings(),
            history=HistorySettings(enabled=history, provide_probability=provide_probability),
            cyclon=Cyclon(cycle_ms=5_000),
        )
        conditions = Conditions(latency=Latency(typical_ms=10), loss_percent=loss_percent)
        super().__init__(peers, config, conditions, seed)

    def branch(self, number: int) -> Branch:
        routing = self.peer(number).routing
        assert isinstance(routing, pulsar.Pulsar)
        return routing.trees.by_topic[T]

    def branches(self) -> dict[int, Branch]:
        found = {}
        for number in self.alive():
            routing = self.peer(number).routing
            assert isinstance(routing, pulsar.Pulsar)
            if T in routing.trees.by_topic:
                found[number] = routing.trees.by_topic[T]
        return found

    def roots(self) -> list[int]:
        return [number for number, branch in self.branches().items() if branch.rendezvous]

    def closest(self, count: int) -> list[int]:
        """The peers that should be the rendezvous."""
        at = {location_of(self.nodes[n].contact.peer): n for n in self.alive()}
        return [at[location] for location in closest(tree_location(T), at, count)]

    def check_tree(self) -> None:
        """Every member reaches a rendezvous by its parents, links are mutual and bounded."""
        by_peer = {self.nodes[n].contact.peer: n for n in self.alive()}
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
