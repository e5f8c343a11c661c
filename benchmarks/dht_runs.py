"""The DHT in virtual time: peers come up and find each other, store, crash, and look things up.

    run = Run(seed=1, peers=200)
    run.come_up()
    run.look_up()
    assert run.finish().exact == run.lookups

What is found is judged by `Truth`, which knows where all peers are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from weft.ids import PeerId
from weft.protocol import seam
from weft.protocol.config import Config, KademliaSettings
from weft.rules.prefix import as_bytes, block_key, closest, location_of
from weft.sim.builder import SimNet
from weft.sim.network import Conditions

_START_MS = 20_000
"""guess: all peers come up within this."""
_PATIENCE_MS = 120_000
"""guess: far longer than any operation takes."""
_STEP_MS = 500
_BETWEEN_MS = 50
"""guess: operations begin this far apart, so that they overlap."""


class Truth:
    """The peers that are up, by location."""

    def __init__(self, up: Iterable[PeerId]) -> None:
        self._by_location = {location_of(peer): peer for peer in up}
        self._up = frozenset(self._by_location.values())

    def __contains__(self, peer: PeerId) -> bool:
        return peer in self._up

    def closest(self, target: int, count: int) -> list[PeerId]:
        return [self._by_location[key] for key in closest(target, self._by_location, count)]


@dataclass(frozen=True)
class Judged:
    """One lookup compared with the peers that are really closest."""

    wanted: int
    right: int  # found, and among the truly closest
    dead: int  # found, but not up

    @property
    def exact(self) -> bool:
        return self.right == self.wanted and not self.dead


def judge(found: Sequence[PeerId], target: int, count: int, truth: Truth) -> Judged:
    """Compare what a lookup found with the `count` closest of the peers that are up."""
    closest_up = truth.closest(target, count)
    right = len(set(found) & set(closest_up))
    return Judged(len(closest_up), right, sum(peer not in truth for peer in found))


def check_order(found: Sequence[PeerId], target: int) -> list[str]:
    """Closest first, and no peer twice."""
    distances = [location_of(peer) ^ target for peer in found]
    violations = []
    if distances != sorted(distances):
        violations.append("a lookup's result is not ordered by distance")
    if len(set(distances)) != len(distances):
        violations.append("a lookup's result names a peer twice")
    return violations


@dataclass
class Report:
    """What came of it. Requests and hops are means over the judged lookups."""

    peers: int
    alive: int
    lookups: int = 0
    exact: int = 0  # the k closest, all of them and no other
    recall: float = 0.0  # of the k closest, found
    dead: int = 0  # found, but not up
    requests: float = 0.0
    hops: float = 0.0
    hops_most: int = 0
    lookup_ms: float = 0.0
    puts: int = 0
    stored: int = 0
    holders: float = 0.0  # per value, alive at the end
    holders_closest: float = 0.0  # of these, among the k closest alive
    gets: int = 0
    got: int = 0
    providers_sought: int = 0
    providers_found: int = 0
    peers_sought: int = 0
    peers_found: int = 0
    contacts: float = 0.0  # in a table
    messages: int = 0
    violations: list[str] = field(default_factory=list)


class Run(SimNet):
    """One run, step by step; a script calls the steps that it needs, in this order."""

    def __init__(
        self,
        seed: int = 1,
        peers: int = 200,
        lookups: int = 100,
        dht: KademliaSettings | None = None,
    ) -> None:
        """`lookups`: how many operations there are of each kind."""
        self.dht = dht or KademliaSettings(enabled=True)
        super().__init__(seed, Config(dht=self.dht))
        self.lookups = lookups
        for _ in range(peers):
            self.add()
        self.report = Report(peers, peers)
        self.values: list[bytes] = []

    def up(self) -> list[PeerId]:
        return [self.nodes[number].contact.peer for number in self.alive()]

    def come_up(self, settle_ms: int = 120_000) -> None:
        """All come up, each knowing a few that are up already, and find their places."""
        count = len(self.nodes)
        for index in range(count):
            known = [
                self.dice.below("dht.known", index, index, number)
                for number in range(min(3, index))
            ]
            self.world.at(_START_MS * index // count, partial(self.start, index, known))
        self.world.run_until(_START_MS + settle_ms)

    def spoil(self, loss_percent: int, crash_percent: int, rest_ms: int = 0) -> None:
        """Messages get lost from now on, and peers vanish without a word; then it is quiet."""
        self.world.network.set_conditions(Conditions(loss_percent=loss_percent))
        count = len(self.nodes) * crash_percent // 100
        for node in self.dice.some("dht.crash", self.nodes, count):
            self.world.crash(node, silent=True)
        self.report.alive = len(self.alive())
        self.run(rest_ms)

    # --- operations -----------------------------------------------------------------------------

    def ask_all(
        self, purpose: str, count: int, make: Callable[[int], Callable[[int], seam.Command]]
    ) -> list[tuple[int, seam.Answer | None]]:
        """Commands from random peers, overlapping; how long each took and its answer."""
        world, asked, alive = self.world, [], self.alive()
        for number in range(count):
            node = self.nodes[self.dice.pick(f"dht.{purpose}", alive, number)]
            asked.append((world.now_ms, world.ask(node, make(number))))
            self.run(_BETWEEN_MS)
        given = world.record.answers
        self.run_while(
            lambda: any(given[token] is None for _, token in asked), _STEP_MS, _PATIENCE_MS
        )
        answers: list[tuple[int, seam.Answer | None]] = []
        for begun_ms, token in asked:
            answer = given[token]
            if answer is None:
                self.report.violations.append(f"a {purpose} was never answered")
                answers.append((_PATIENCE_MS, None))
            else:
                answers.append((answer[0] - begun_ms, answer[1]))
        return answers

    def look_up(self) -> None:
        """Closest peers to random targets, judged."""
        targets = self.targets()
        self.judge(targets, self.closest_peers(targets))

    def targets(self) -> list[int]:
        return [
            location_of(self.seed.to_bytes(8, "big") + number.to_bytes(8, "big"))
            for number in range(self.lookups)
        ]

    def closest_peers(self, targets: list[int]) -> list[tuple[int, seam.Answer | None]]:
        report = self.report
        before = [self.counted(f"dht_lookup{part}") for part in ("s", "_requests", "_hops")]

        def make(number: int) -> Callable[[int], seam.Command]:
            return lambda token: seam.DhtClosest(token, as_bytes(targets[number]))

        answers = self.ask_all("lookup", len(targets), make)
        after = [self.counted(f"dht_lookup{part}") for part in ("s", "_requests", "_hops")]
        lookups, requests, hops = (new - old for new, old in zip(after, before, strict=True))
        report.requests, report.hops = requests / max(1, lookups), hops / max(1, lookups)
        report.hops_most = max(peer.dht.searches.hops_most for peer in self.peers() if peer.dht)
        return answers

    def judge(self, targets: list[int], answers: list[tuple[int, seam.Answer | None]]) -> None:
        report, k, truth = self.report, self.dht.k, Truth(self.up())
        wanted = right = 0
        for target, (took_ms, answer) in zip(targets, answers, strict=True):
            found = [contact.peer for contact in answer.contacts] if answer is not None else []
            judged = judge(found, target, k, truth)
            wanted, right = wanted + judged.wanted, right + judged.right
            report.exact += judged.exact
            report.dead += judged.dead
            report.lookup_ms += took_ms / len(targets)
            report.violations += check_order(found, target)
        report.lookups = len(targets)
        report.recall = right / max(1, wanted)

    def put(self) -> None:
        values = [f"value {number}".encode() for number in range(self.lookups)]

        def make(number: int) -> Callable[[int], seam.Command]:
            value = values[number]
            return lambda token: seam.DhtPut(token, block_key(value), value)

        answers = self.ask_all("put", len(values), make)
        self.values = values
        self.report.puts = len(values)
        self.report.stored = sum(a is not None and a.outcome == "stored" for _, a in answers)

    def get(self) -> None:
        def make(number: int) -> Callable[[int], seam.Command]:
            return lambda token: seam.DhtGet(token, block_key(self.values[number]))

        answers = self.ask_all("get", len(self.values), make)
        self.report.gets = len(answers)
        self.report.got = sum(
            answer is not None and answer.value == value
            for value, (_, answer) in zip(self.values, answers, strict=True)
        )

    def provide(self) -> dict[int, PeerId]:
        """Some peers provide a key each; the provider of each key."""
        providers: dict[int, PeerId] = {}

        def make(number: int) -> Callable[[int], seam.Command]:
            return lambda token: seam.DhtProvide(token, _provided_key(number))

        for number in range(self.lookups):
            providers[number] = self.dice.pick("dht.provide", self.up(), number)
        self.ask_all("provide", len(providers), make)
        return providers

    def find_providers(self, providers: dict[int, PeerId]) -> None:
        def make(number: int) -> Callable[[int], seam.Command]:
            return lambda token: seam.DhtFindProviders(token, _provided_key(number), 3)

        answers = self.ask_all("find_providers", len(providers), make)
        self.report.providers_sought = len(answers)
        self.report.providers_found = sum(
            answer is not None and peer in [contact.peer for contact in answer.contacts]
            for peer, (_, answer) in zip(providers.values(), answers, strict=True)
        )

    def find_peers(self) -> None:
        up = self.up()
        sought = [self.dice.pick("dht.sought", up, number) for number in range(self.lookups)]

        def make(number: int) -> Callable[[int], seam.Command]:
            return lambda token: seam.DhtFindPeer(token, sought[number])

        answers = self.ask_all("find_peer", len(sought), make)
        self.report.peers_sought = len(answers)
        self.report.peers_found = sum(
            answer is not None and answer.contact is not None and answer.contact.peer == peer
            for peer, (_, answer) in zip(sought, answers, strict=True)
        )

    # --- the end ----------------------------------------------------------------------------------

    def count_holders(self) -> None:
        """How many peers hold each value, and how many of them should."""
        truth, k = Truth(self.up()), self.dht.k
        held = right = 0
        for value in self.values:
            key = block_key(value)
            holders = {
                peer.me.peer
                for peer in self.peers()
                if peer.dht is not None and peer.dht.values.get(key) is not None
            }
            held += len(holders)
            right += len(holders & set(truth.closest(location_of(key), k)))
        self.report.holders = held / max(1, len(self.values))
        self.report.holders_closest = right / max(1, len(self.values))

    def finish(self) -> Report:
        tables = [len(peer.dht.home.table) for peer in self.peers() if peer.dht is not None]
        self.report.contacts = sum(tables) / max(1, len(tables))
        self.report.messages = self.world.handled
        self.count_holders()
        return self.report


def _provided_key(number: int) -> bytes:
    return block_key(b"provided %d" % number)
