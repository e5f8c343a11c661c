"""The DHT in virtual time: peers come up and find each other, store, crash, and look things up.

    report = run(Settings(seed=1, peers=200))
    assert report.exact == report.lookups

What is found is judged by `checkers_dht`, which knows where everybody is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from weft.ids import PeerId
from weft.protocol import seam
from weft.protocol.config import Config, Dht
from weft.protocol.peer import Peer
from weft.rules.prefix import as_bytes, block_key, location_of
from weft.sim.checkers.dht import Truth, check_order, judge
from weft.sim.dice import Dice
from weft.sim.network import Conditions, Network
from weft.sim.node import Node, contact_of
from weft.sim.world import World

_START_MS = 20_000
"""guess: all peers come up within this."""
_PATIENCE_MS = 120_000
"""guess: far longer than any operation takes."""
_STEP_MS = 500
_BETWEEN_MS = 50
"""guess: operations begin this far apart, so that they overlap."""


@dataclass(frozen=True)
class Settings:
    """What a run is asked for."""

    seed: int = 1
    peers: int = 200
    lookups: int = 100  # of each kind
    loss_percent: int = 0  # from when all are up
    crash_percent: int = 0  # peers that vanish without a word, after values were put
    settle_ms: int = 120_000  # from the last start to the first operation
    rest_ms: int = 0  # from the crash to the lookups
    dht: Dht = field(default_factory=lambda: Dht(enabled=True))


@dataclass
class Report:
    """What came of it. Requests and hops are means over the judged lookups."""

    peers: int
    alive: int
    lookups: int = 0
    exact: int = 0  # the k closest, all of them and nobody else
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


class Run:
    """One run, step by step; `run` does all."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.dice = Dice(settings.seed)
        self.world = World(Network(settings.seed, Conditions()))
        config = Config(dht=settings.dht)
        for index in range(settings.peers):
            contact = contact_of(settings.seed, index)
            self.world.add(contact, partial(Peer, contact, settings.seed, config))
        self.report = Report(settings.peers, settings.peers)
        self.values: list[bytes] = []
        self._tokens: list[int] = []

    # --- who is there -------------------------------------------------------------------------

    def alive(self) -> list[Node]:
        return [node for node in self.world.nodes if node.machine is not None]

    def up(self) -> list[PeerId]:
        return [node.contact.peer for node in self.alive()]

    def machines(self) -> list[Peer]:
        return [node.machine for node in self.world.nodes if isinstance(node.machine, Peer)]

    def counted(self, name: str) -> int:
        return sum(peer.counters.get(name, 0) for peer in self.machines())

    def start(self) -> None:
        """All come up, each knowing a few that are up already, and find their places."""
        world = self.world
        for node in world.nodes:
            known = [
                world.nodes[self.dice.below("dht.known", node.index, node.index, number)].contact
                for number in range(min(3, node.index))
            ]
            when = _START_MS * node.index // len(world.nodes)
            world.at(when, partial(world.start, node, known))
        world.run_until(_START_MS + self.settings.settle_ms)

    def spoil(self) -> None:
        """Messages get lost from now on, and peers vanish."""
        settings, world = self.settings, self.world
        world.network.set_conditions(Conditions(loss_percent=settings.loss_percent))
        count = len(world.nodes) * settings.crash_percent // 100
        for node in self.dice.some("dht.crash", world.nodes, count):
            world.crash(node, silent=True)
        self.report.alive = len(self.alive())
        world.run_until(world.now_ms + settings.rest_ms)

    # --- operations -----------------------------------------------------------------------------

    def ask_all(
        self, purpose: str, count: int, make: Callable[[int], Callable[[int], seam.Command]]
    ) -> list[tuple[int, seam.Answer | None]]:
        """Commands from random peers, overlapping; how long each took and its answer."""
        world, asked, alive = self.world, [], self.alive()
        for number in range(count):
            node = self.dice.pick(f"dht.{purpose}", alive, number)
            asked.append((world.now_ms, world.ask(node, make(number))))
            world.run_until(world.now_ms + _BETWEEN_MS)
        ends_ms = world.now_ms + _PATIENCE_MS
        while world.now_ms < ends_ms and any(
            world.record.answers[token] is None for _, token in asked
        ):
            world.run_until(world.now_ms + _STEP_MS)
        answers: list[tuple[int, seam.Answer | None]] = []
        for begun_ms, token in asked:
            answer = world.record.answers[token]
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
            location_of(self.settings.seed.to_bytes(8, "big") + number.to_bytes(8, "big"))
            for number in range(self.settings.lookups)
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
        report.hops_most = max(peer.dht.searches.hops_most for peer in self.machines() if peer.dht)
        return answers

    def judge(self, targets: list[int], answers: list[tuple[int, seam.Answer | None]]) -> None:
        report, k, truth = self.report, self.settings.dht.k, Truth(self.up())
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
        values = [f"value {number}".encode() for number in range(self.settings.lookups)]

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
        """Some peers provide a key each; who provides which."""
        providers: dict[int, PeerId] = {}

        def make(number: int) -> Callable[[int], seam.Command]:
            return lambda token: seam.DhtProvide(token, _provided_key(number))

        for number in range(self.settings.lookups):
            node = self.dice.pick("dht.provide", self.alive(), number)
            providers[number] = node.contact.peer
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
        sought = [
            self.dice.pick("dht.sought", up, number) for number in range(self.settings.lookups)
        ]

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
        """Who holds each value, and whether those are the right ones."""
        truth, k = Truth(self.up()), self.settings.dht.k
        held = right = 0
        for value in self.values:
            key = block_key(value)
            holders = {
                peer.me.peer
                for peer in self.machines()
                if peer.dht is not None and peer.dht.values.get(key) is not None
            }
            held += len(holders)
            right += len(holders & set(truth.closest(location_of(key), k)))
        self.report.holders = held / max(1, len(self.values))
        self.report.holders_closest = right / max(1, len(self.values))

    def finish(self) -> Report:
        tables = [len(peer.dht.home.table) for peer in self.machines() if peer.dht is not None]
        self.report.contacts = sum(tables) / max(1, len(tables))
        self.report.messages = self.world.handled
        self.count_holders()
        return self.report


def _provided_key(number: int) -> bytes:
    return block_key(b"provided %d" % number)


def run(settings: Settings) -> Report:
    """Come up, put and provide, let faults strike, look everything up."""
    one = Run(settings)
    one.start()
    one.put()
    providers = one.provide()
    one.spoil()
    one.look_up()
    one.get()
    one.find_providers(providers)
    one.find_peers()
    return one.finish()
