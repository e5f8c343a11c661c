"""Durable readers under crashes: every stored event reaches the application, whatever dies when.

One seed is one run. Some peers with stores publish in a topic and crash at times; one peer is the
reader's. Two applications read from its store as `net/consumer.py` does, by a cursor:

- one keeps the position with its results, in one transaction of its own, and must handle every
  event exactly once, after its parents;
- one acknowledges, and must handle every event at least once; what it handles again was not
  acknowledged durably before.

The reader is killed at a drawn step of its work, over and over: before it reads, between reading
and handling, between handling and committing, between committing and acknowledging, before an
acknowledgement is on disk. Its peer dies with it or lives on; at times the peer's disk is lost, and
another one takes its place, which must get the past from others. In the end everything lives, and
both applications read to the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from weft.documents.descriptor import SealedEvent
from weft.ids import Cid
from weft.protocol.config import Config, History
from weft.protocol.peer import Peer
from weft.sim.builder import OneTopic
from weft.sim.network import Conditions, Latency
from weft.sim.node import Node, keyed
from weft.store.cursor import Cursor, PositionUnknown, Read
from weft.store.interface import Batch
from weft.store.memory import MemoryStore
from weft.store.reader import read_all

_READER = 0
_NAME = "reader"
_PAGE = 4
"""Events read at once: few, so that crashes strike within pages and between them."""
_PUBLISH_MS = 12_000
"""How long users publish."""
SETTLE_MS = 120_000
"""By then all peers have everything, or the run says what is lacking."""


@dataclass
class Application:
    """What survives of an application when it is killed."""

    acknowledges: bool
    position: str | None = None  # of the one that keeps it itself
    handled: list[SealedEvent] = field(default_factory=list)
    acked: set[Cid] = field(default_factory=set)  # covered by an acknowledgement on disk
    repeated: int = 0  # events that were handled again though they should not


@dataclass(frozen=True)
class Verdict:
    """What a run showed; all but the first three must be zero."""

    events: int
    kills: int
    disks_lost: int
    lost: int
    repeated: int
    disordered: int

    @property
    def holds(self) -> bool:
        return not (self.lost or self.repeated or self.disordered)


class Readers(OneTopic):
    """One run."""

    def __init__(self, seed: int) -> None:
        super().__init__(
            seed,
            Config(history=History(enabled=True)),
            Conditions(latency=Latency(typical_ms=10), loss_percent=seed % 3),
        )
        self.kills = 0
        self.disks_lost = 0
        self.applications = [Application(False), Application(True)]
        self._lives: list[Iterator[None]] = []
        for _ in range(self.dice.between("readers.peers", 3, 5)):
            self.enter([0])
        self.run(8_000)
        self.subscribe(*range(len(self.nodes)), since="beginning")
        self.run(6_000)

    def play(self) -> Verdict:
        end_ms = self.world.now_ms + _PUBLISH_MS
        self._begin_lives()
        turn = 0
        while self.world.now_ms < end_ms:
            turn += 1
            self._publish(turn)
            self._crash_publisher(turn)
            self._read(turn)
            self.run(self.dice.between("readers.pause", 20, 400, turn))
        self._heal()
        return self._judge()

    # --- publishers -------------------------------------------------------------------------------

    def _publish(self, turn: int) -> None:
        """Some users publish at once, so that the stream forks."""
        publishers = range(1, len(self.nodes))
        for number in publishers:
            if self.dice.percent("readers.publish", 35, turn, number):
                self.world.publish(self.nodes[number], self.topic, b"%d %d" % (turn, number))

    def _crash_publisher(self, turn: int) -> None:
        for number in range(1, len(self.nodes)):
            node = self.nodes[number]
            if node.machine is None:
                if self.dice.percent("readers.back", 30, turn, number):
                    self._start(node)
            elif self.dice.percent("readers.crash", 2, turn, number):
                self.world.crash(node, silent=True)

    def _start(self, node: Node) -> None:
        self.start(node.index, [n for n in self.alive() if n != node.index][:2])
        self.world.subscribe(node, self.topic, None, "beginning")

    # --- the reader -------------------------------------------------------------------------------

    def _begin_lives(self) -> None:
        self._lives = [self._life(application) for application in self.applications]

    def _read(self, turn: int) -> None:
        """Both applications go on by a drawn number of steps, and may be killed there."""
        node = self.nodes[_READER]
        if node.machine is None:
            self._start(node)
            self._begin_lives()
            return
        for place, life in enumerate(self._lives):
            for _ in range(self.dice.below("readers.steps", 12, turn, place)):
                next(life)
        if not self.dice.percent("readers.kill", 40, turn):
            return
        self.kills += 1
        how = self.dice.below("readers.how", 10, turn)
        if how < 4:  # the applications alone
            self._begin_lives()
            return
        self.world.crash(node, silent=True)
        if how == 9 and self.disks_lost < 2:
            self.disks_lost += 1
            self._lose_disk(node)

    def _lose_disk(self, node: Node) -> None:
        """What was acknowledged there is forgotten with it."""
        store = MemoryStore(b"disk %d" % self.disks_lost)
        contact, sign = keyed(self.seed, node.index)
        node.store = store
        node.make = partial(self.make_machine, contact, self.config, store, sign)
        for application in self.applications:
            application.acked.clear()

    def _life(self, application: Application) -> Iterator[None]:
        """One life of an application: each step may be its last."""
        node = self.nodes[_READER]
        store = node.store
        assert store is not None
        after = application.position
        if application.acknowledges:
            after = store.acked(self.topic, _NAME) or None
        cursor, handled = None, list[Cid]()
        while cursor is None:
            yield  # before it reads
            cursor = self._open(node, after)
        while True:
            page = cursor.read(_PAGE)
            yield  # between reading and handling
            for read in page:
                handled.append(read.event.cid)
                yield from self._handle(application, read, handled)

    def _open(self, node: Node, after: str | None) -> Cursor | None:
        """As `Consumer` does: at once where the place is known here, else once the past was read.
        An application that is told that its place is unknown, since the only peer that has what it
        names is down, begins again later."""
        machine = node.machine
        assert node.store is not None
        assert isinstance(machine, Peer) and machine.history is not None
        has_past = machine.history.has_past(self.topic) and not node.storing
        if after is None and not has_past:
            return None
        try:
            return Cursor(node.store, self.topic, after, past_read=has_past)
        except PositionUnknown:
            return None

    def _handle(self, application: Application, read: Read, handled: list[Cid]) -> Iterator[None]:
        """The result of an event, and the place after it; `handled` in this life, in order."""
        node, event = self.nodes[_READER], read.event
        if not application.acknowledges:
            yield  # between handling and committing: nothing of it stays
            self._note(application, event, {one.cid for one in application.handled})
            application.position = read.position
            yield
            return
        self._note(application, event, application.acked)
        yield  # between committing the result and acknowledging
        assert node.store is not None
        ack = Batch(self.world.now_ms, acks=((self.topic, _NAME, read.position),))
        yield  # the acknowledgement is on its way
        node.store.commit([ack])
        application.acked.update(handled)
        yield

    def _note(self, application: Application, event: SealedEvent, before: set[Cid]) -> None:
        application.repeated += event.cid in before
        application.handled.append(event)

    # --- the end ----------------------------------------------------------------------------------

    def _heal(self) -> None:
        """All peers live, and both applications read to the end."""
        for node in self.nodes:
            if node.machine is None:
                self._start(node)
        self._begin_lives()
        self.run_while(self._lacks, 1_000, SETTLE_MS)

    def _lacks(self) -> bool:
        for life in self._lives:
            for _ in range(64):
                next(life)
        wanted = self._stored()
        return any(
            not wanted <= {event.cid for event in application.handled}
            for application in self.applications
        )

    def _stored(self) -> set[Cid]:
        """What any publisher has on disk: each was receipted as stored, or is about to be."""
        publishers = self.nodes[1:]
        return {
            event.cid
            for node in publishers
            for event in (read_all(node.store, self.topic) if node.store is not None else ())
        }

    def _judge(self) -> Verdict:
        wanted = self._stored()
        lost = repeated = disordered = 0
        for application in self.applications:
            handled = [event.cid for event in application.handled]
            lost += len(wanted - set(handled))
            repeated += application.repeated
            disordered += _disorder(application.handled)
        return Verdict(len(wanted), self.kills, self.disks_lost, lost, repeated, disordered)


def _disorder(handled: list[SealedEvent]) -> int:
    """Events that were handled for the first time before a parent of theirs was."""
    first: dict[Cid, int] = {}
    for place, event in enumerate(handled):
        first.setdefault(event.cid, place)
    return sum(
        any(first.get(parent, -1) > first[event.cid] for parent in event.parents)
        for event in handled
    )


def play(seed: int) -> Verdict:
    """One run."""
    return Readers(seed).play()
