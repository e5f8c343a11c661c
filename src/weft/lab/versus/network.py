"""One run: a system's peers with the subscriptions of a universe, calm or under one fault.

Peers come up within START_MS, subscribe as they do, and have SETTLE_MS. Some events warm up what is
built by events (push trees); then the window begins, the fault strikes, and events are published
over WINDOW_MS; DRAIN_MS later the run ends. What is traced and measured is the window and what
follows it: before it only subscriptions are.

The faults, all from the beginning of the window:

    calm        none
    crash       so many percent of all peers die at one instant, and their connections break
    silent      the same, and nobody is told
    loss        so many percent of all messages are lost
    churn       every ten seconds so many percent of the peers crash, each back twenty later
    partition   two halves for so many seconds
    kept        the same where every peer keeps history; afterwards they have MEET_MS
    crowd       so many percent of the peers come up and subscribe within a second
    hostile     so many percent pass no event on, and else behave as they should
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias

from weft.documents.signature import Signer
from weft.ids import Contact, PeerId, Topic
from weft.lab.traced import WindowWriter
from weft.lab.versus.crowd import Publications, Universe
from weft.lab.versus.systems import System
from weft.net.codec import Encoder
from weft.protocol import messages as m
from weft.protocol import seam
from weft.protocol.config import Config, HistorySettings
from weft.sim.builder import SimNet
from weft.sim.dice import Dice
from weft.sim.network import Conditions, Partition
from weft.store.interface import Store
from weft.trace import Writer

FaultKind: TypeAlias = Literal[
    "calm", "crash", "silent", "loss", "churn", "partition", "kept", "crowd", "hostile"
]
START_MS = 20_000
SETTLE_MS = 150_000
"""guess: fifteen cycles of ten seconds, from the first start on."""
WARM_EVENTS_MS = 500
"""guess: between two of the events before the window …"""
WARM_EVENTS = 40
"""guess: … of which the larger topics get several."""
WINDOW_MS = 60_000
DRAIN_MS = 60_000
"""guess: a fault strikes at the beginning of the window, so repair has two minutes; what comes
later counts as missed."""
MEET_MS = 600_000
"""The time that scenarios give a network to converge after all faults (`sim/faults.py`). Halves
that were apart for long have forgotten most of each other, and must first find each other by the
few peers that they remember."""
CHURN_MS, AWAY_MS = 10_000, 20_000
CROWD_MS = 1_000
KNOWN = 3
"""guess: others that a newcomer knows; the first peer is one of them."""


@dataclass(frozen=True)
class Fault:
    """What goes wrong in a run, and how much of it."""

    kind: FaultKind = "calm"
    level: int = 0


class BlackHole:
    """A peer that passes on no event of others once the window begins. It writes no trace, so that
    no delivery is owed to it."""

    def __init__(self, honest: seam.Machine, me: PeerId, from_ms: int) -> None:
        self._honest, self._me, self._from_ms = honest, me, from_ms

    def handle(self, fact: seam.Input, now: seam.Millis) -> list[seam.Effect]:
        effects = self._honest.handle(fact, now)
        return [each for each in effects if not self._withheld(each, now)]

    def _withheld(self, effect: seam.Effect, now: seam.Millis) -> bool:
        if isinstance(effect, seam.Trace):
            return True
        if not isinstance(effect, seam.Send) or now < self._from_ms:
            return False
        return any(run.publisher != self._me for run in m.runs_in(effect.message))


class VersusNet(SimNet):
    """The peers of one system."""

    def __init__(
        self,
        seed: int,
        system: System,
        writer: Writer,
        hostile: Sequence[int],
        from_ms: int,
        history: bool = False,
    ) -> None:
        encoder = Encoder()
        config = replace(system.config(), history=HistorySettings(enabled=history))
        super().__init__(
            *(seed, config, Conditions()),
            writer=writer,
            size_of=lambda message: len(encoder.frame(message)),
        )
        self._system = system
        self._hostile = frozenset(hostile)
        self._from_ms = from_ms

    def make_machine(
        self, contact: Contact, config: Config, store: Store | None, sign: Signer
    ) -> seam.Machine:
        machine: seam.Machine
        if self._system.reference is not None:
            machine = self._system.reference(contact, self.seed)
        else:
            machine = super().make_machine(contact, config, store, sign)
        if self.world.record.peers[contact.peer] in self._hostile:
            machine = BlackHole(machine, contact.peer, self._from_ms)
        return machine


class VersusRun:
    """A network with its universe, its users and its fault, to be played."""

    def __init__(
        self,
        seed: int,
        system: System,
        universe: Universe,
        publications: Publications,
        fault: Fault,
        writer: WindowWriter,
    ) -> None:
        self.universe = universe
        self.fault = fault
        self.from_ms = SETTLE_MS + WARM_EVENTS * WARM_EVENTS_MS
        self._publications = publications
        self._writer = writer
        peers = range(universe.peers)
        self._chosen = (
            self._some(seed, peers, fault.level) if fault.kind in ("crowd", "hostile") else []
        )
        hostile = self._chosen if fault.kind == "hostile" else []
        kept = fault.kind == "kept"
        self.net = VersusNet(seed, system, writer, hostile, self.from_ms, kept)
        for _ in peers:
            self.net.add()

    @staticmethod
    def _some(seed: int, peers: range, percent: int) -> list[int]:
        count = round(len(peers) * percent / 100)
        return Dice(seed).some("versus.chosen", peers[1:], min(count, len(peers) - 2))

    def play(self) -> None:
        """From the first start to the end. What is due in one millisecond happens in the order of
        its scheduling: a fault strikes before what is published then. An event whose publisher and
        first receivers all die in that millisecond is nowhere any more."""
        self.net.world.at(self.from_ms, self._writer.begin)
        self._schedule_start()
        self._schedule_fault()
        self._schedule_events()
        kept = self.fault.kind == "kept"
        lasts_ms = self.fault.level * 1_000 + MEET_MS if kept else WINDOW_MS + DRAIN_MS
        self.net.world.run_until(self.from_ms + lasts_ms)

    # --- users ------------------------------------------------------------------------------------

    def _schedule_start(self) -> None:
        late = self._chosen if self.fault.kind == "crowd" else []
        for peer in range(self.universe.peers):
            at_ms = self.net.dice.below("versus.start", START_MS, peer) if peer else 0
            if peer in late:
                at_ms = self.from_ms + self.net.dice.below("versus.crowd", CROWD_MS, peer)
            self.net.world.at(at_ms, partial(self._start, peer))

    def _start(self, peer: int) -> None:
        others = self.net.dice.some("versus.known", range(self.universe.peers), KNOWN - 1, peer)
        known = [one for one in dict.fromkeys([0, *others]) if one != peer]
        self.net.start(peer, known)
        for topic in self.universe.topics_of(peer):
            self.net.world.subscribe(self.net.nodes[peer], topic)

    def _schedule_events(self) -> None:
        for number in range(WARM_EVENTS):
            at_ms = SETTLE_MS + number * WARM_EVENTS_MS - 10_000
            publisher, topic = self._publications.warm(number)
            self.net.world.at(at_ms, partial(self._publish, publisher, topic, b"warm %d" % number))
        for number, (at_ms, publisher, topic, payload) in enumerate(self._publications.events()):
            due_ms = self.from_ms + at_ms
            self.net.world.at(due_ms, partial(self._publish, publisher, topic, payload, number))

    def _publish(self, peer: int, topic: Topic, payload: bytes, number: int = 0) -> None:
        """Have a peer publish; in place of one that is down or hostile, another subscriber of the
        topic does."""
        hostile = self._chosen if self.fault.kind == "hostile" else ()
        if not self._is_up(peer) or peer in hostile:
            able = [p for p in self.universe.members(topic) if self._is_up(p) and p not in hostile]
            if not able:
                return
            peer = self.net.dice.pick("versus.instead", able, number)
        self.net.world.publish(self.net.nodes[peer], topic, payload)

    def _is_up(self, peer: int) -> bool:
        return self.net.nodes[peer].machine is not None

    # --- faults -----------------------------------------------------------------------------------

    def _schedule_fault(self) -> None:
        kind, level, world = self.fault.kind, self.fault.level, self.net.world
        if kind in ("crash", "silent"):
            world.at(self.from_ms, self._crash)
        elif kind == "loss":
            lossy = Conditions(loss_percent=level)
            world.at(self.from_ms, partial(world.network.set_conditions, lossy))
        elif kind in ("partition", "kept"):
            groups = tuple(
                self.net.dice.below("versus.side", 2, peer) for peer in range(self.universe.peers)
            )
            world.at(self.from_ms, partial(world.set_partition, Partition(groups)))
            world.at(self.from_ms + level * 1_000, partial(world.set_partition, None))
        elif kind == "churn":
            for round_ in range(WINDOW_MS // CHURN_MS):
                world.at(self.from_ms + round_ * CHURN_MS, partial(self._churn, round_))

    def _crash(self) -> None:
        peers = range(self.universe.peers)
        dying = min(round(len(peers) * self.fault.level / 100), len(peers) - 2)
        victims = self.net.dice.some("versus.crash", peers, dying)
        self.net.crash(*victims, silent=self.fault.kind == "silent")

    def _churn(self, round_: int) -> None:
        count = max(1, round(self.universe.peers * self.fault.level / 100))
        peers = range(1, self.universe.peers)
        for peer in self.net.dice.some("versus.churn", peers, count, round_):
            self.net.crash(peer)
            back_ms = self.net.world.now_ms + AWAY_MS
            self.net.world.at(back_ms, partial(self._start, peer))
