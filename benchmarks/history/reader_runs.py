"""Durable readers under crashes: every stored event reaches the application, whatever dies when.

One seed is one run. Some peers with stores publish in a topic and crash at times; one peer is the
reader's. Four applications read from its store as `net/consumer.py` does, by a cursor:

- one keeps the position with its results, in one transaction of its own, and must handle every
  event exactly once, after its parents;
- one acknowledges, and must handle every event at least once; what it handles again was not
  acknowledged durably before;
- one of each kind begins at "now", and must handle every event that is not in the past of where
  the stream stood then, and none that is.

In half of the runs the reader's peer is a member from the start. In the others it enters when the
first application begins at "now", in an empty store, and reads the past when one begins that wants
it, later or never.

The reader is killed at a drawn step of its work, over and over: before it reads, between reading
and handling, between handling and committing, between committing and acknowledging, before an
acknowledgement is on disk. Its peer dies with it or lives on; at times the peer's disk is lost, and
another one takes its place, which must get the past from others. (An application that acknowledges
begins anew then, for its place is lost with the disk.) In the end everything lives, and all
applications read to the end.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from weft.documents.descriptor import SealedEvent
from weft.documents.position import position
from weft.ids import Cid
from weft.protocol import seam
from weft.protocol.config import Config, HistorySettings
from weft.protocol.history.history import History as Machinery
from weft.protocol.history.stream import Head
from weft.protocol.peer import Peer
from weft.sim.builder import OneTopic
from weft.sim.network import Conditions, Latency
from weft.sim.node import Node, keyed
from weft.store.cursor import NOW, Cursor, PositionUnknown, Read
from weft.store.interface import Batch, Store
from weft.store.memory import MemoryStore
from weft.store.reader import read_all

_READER = 0
_PAGE = 4
"""Events read at once: few, so that crashes strike within pages and between them."""
_ASK_MS = 1_000
"""As `net/consumer.py` asks."""
_PUBLISH_MS = 12_000
"""How long users publish."""
SETTLE_MS = 120_000
"""By then all peers have everything, or the run says what is lacking."""


@dataclass
class Application:
    """What survives of an application when it is killed."""

    acknowledges: bool
    name: str
    now: bool  # begins at "now"
    begins: int | None  # in which turn; None: never
    position: str | None = None  # of the one that keeps it itself
    handled: list[SealedEvent] = field(default_factory=list)
    acked: set[Cid] = field(default_factory=set)  # covered by an acknowledgement on disk
    repeated: int = 0  # events that were handled again though they should not
    stood: tuple[Cid, ...] | None = None  # where the stream ended when it began at "now"
    known: frozenset[Cid] = frozenset()  # to any peer when it did


@dataclass(frozen=True)
class Verdict:
    """What a run showed; all but the first three must be zero."""

    events: int
    kills: int
    disks_lost: int
    lost: int
    repeated: int
    disordered: int
    old: int  # handled by one that began later

    @property
    def holds(self) -> bool:
        return not (self.lost or self.repeated or self.disordered or self.old)


class Readers(OneTopic):
    """One run."""

    def __init__(self, seed: int) -> None:
        super().__init__(
            seed,
            Config(history=HistorySettings(enabled=True)),
            Conditions(latency=Latency(typical_ms=10), loss_percent=seed % 3),
        )
        self.kills = 0
        self.disks_lost = 0
        self._enters_late = self.dice.percent("readers.late", 50)
        self._reader_publishes = self.dice.percent("readers.publishes", 30)
        kinds = [(acks, now) for now in (False, True) for acks in (False, True)]
        self.applications = [self._made(*kind) for kind in kinds]
        self._lives: list[Iterator[None]] = []
        self._turn = 0
        self._ask_at = 0
        for _ in range(self.dice.between("readers.peers", 3, 5)):
            self.enter([0])
        self.run(8_000)
        members = range(1 if self._enters_late else 0, len(self.nodes))
        self.subscribe(*members, since="beginning")
        self.run(6_000)

    def _made(self, acks: bool, now: bool) -> Application:
        begins: int | None = self.dice.below("readers.begins", 30, acks, now)
        if not now:
            begins = (begins or 0) + 10 if self._enters_late else 0
            if self._enters_late and self.dice.percent("readers.never", 30, acks):
                begins = None
        return Application(acks, f"reader {now:d}", now, begins)

    def play(self) -> Verdict:
        end_ms = self.world.now_ms + _PUBLISH_MS
        self._begin_lives()
        turn = 0
        while self.world.now_ms < end_ms:
            turn = self._turn = turn + 1
            self._publish(turn)
            self._crash_publisher(turn)
            self._read(turn)
            self.run(self.dice.between("readers.pause", 20, 400, turn))
        self._heal()
        return self._judge()

    # --- publishers -------------------------------------------------------------------------------

    def _publish(self, turn: int) -> None:
        """Some users publish at once, so that the stream forks."""
        first = 0 if self._reader_publishes and self.nodes[_READER].machine is not None else 1
        for number in range(first, len(self.nodes)):
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
        if node.index != _READER:
            self.world.subscribe(node, self.topic, None, "beginning")

    # --- the reader -------------------------------------------------------------------------------

    def _begin_lives(self) -> None:
        self._lives = [self._life(application) for application in self.applications]

    def _read(self, turn: int) -> None:
        """The applications go on by a drawn number of steps, and may be killed there."""
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
        if how == 9 and self.disks_lost < 2 and not self._reader_publishes:
            self.disks_lost += 1
            self._lose_disk(node)

    def _lose_disk(self, node: Node) -> None:
        """What was acknowledged there is forgotten with it."""
        store = MemoryStore(b"disk %d" % self.disks_lost)
        contact, sign = keyed(self.seed, node.index)
        node.store = store
        node.make = partial(self.make_machine, contact, self.config, store, sign)
        for number, application in enumerate(self.applications):
            application.acked.clear()
            if application.now and application.acknowledges:
                self.applications[number] = self._made(acks=True, now=True)

    def _life(self, application: Application) -> Iterator[None]:
        """One life of an application: each step may be its last."""
        node = self.nodes[_READER]
        store = node.store
        assert store is not None
        while application.begins is None or application.begins > self._turn:
            yield
        after = application.position
        if application.acknowledges:
            after = store.acked(self.topic, application.name) or None
        cursor, handled = None, list[Cid]()
        if after is None and application.now:
            cursor = yield from self._begin_now(application, node, store)
        else:
            self._enter(node, after)
        while cursor is None:
            yield  # before it reads
            cursor = self._open(node, after)
        while True:
            page = cursor.read(_PAGE, past_read=self._has_past(node))
            yield  # between reading and handling
            for read in page:
                handled.append(read.event.cid)
                yield from self._handle(application, read, handled)

    def _begin_now(
        self, application: Application, node: Node, store: Store
    ) -> Generator[None, None, Cursor]:
        """As `Consumer` does: now is where this peer stands, and where another member says that it
        does."""
        history = _history(node)
        known = frozenset(event.cid for event in self._everything())
        ends = list(store.heads(self.topic))
        cursor = Cursor(store, self.topic, NOW, before=history.lies_before)
        self.world.subscribe(node, self.topic)
        while (told := self._word(node)) is None:
            yield
        while node.storing or any(history.is_getting(self.topic, head.cid) for head in told):
            yield
        cursor.begin_after([(head.cid, head.height) for head in told], history.is_own)
        yield
        application.stood = (*ends, *(head.cid for head in told if store.has(head.cid)))
        application.known = known
        if application.acknowledges:
            acks = ((self.topic, application.name, cursor.position),)
            store.commit([Batch(self.world.now_ms, acks=acks)])
        else:
            application.position = cursor.position
        return cursor

    def _word(self, node: Node) -> Sequence[Head] | None:
        """Where another member stands; one is asked now and then until it has said so."""
        told = _history(node).told(self.topic)
        if told is None and self.world.now_ms >= self._ask_at:
            self._ask_at = self.world.now_ms + _ASK_MS
            self.world.ask(node, lambda _: seam.AskHeads(self.topic))
        return told

    def _enter(self, node: Node, after: str | None) -> None:
        """Subscribe; what other members have of the past is asked for where it is wanted."""
        known = self._known(node, after, False) if after is not None else None
        wants_past = known is None or known.wants_past
        self.world.subscribe(node, self.topic, None, "beginning" if wants_past else None)

    def _has_past(self, node: Node) -> bool:
        return _history(node).has_past(self.topic) and not node.storing

    def _open(self, node: Node, after: str | None) -> Cursor | None:
        """As `Consumer` does: at once where the place is known here, else once the past was read.
        An application that is told that its place is unknown, since the only peer that has what it
        names is down, begins again later."""
        known, has_past = self._known(node, after, False), self._has_past(node)
        if known is None or known.lacks_past:
            may_be_read = self._word(node) is not None and has_past
            return self._known(node, after, True) if may_be_read else None
        return known if has_past or after is not None else None

    def _known(self, node: Node, after: str | None, past_read: bool) -> Cursor | None:
        assert node.store is not None
        before = _history(node).lies_before
        try:
            return Cursor(node.store, self.topic, after, past_read, before)
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
        ack = Batch(self.world.now_ms, acks=((self.topic, application.name, read.position),))
        yield  # the acknowledgement is on its way
        node.store.commit([ack])
        application.acked.update(handled)
        yield

    def _note(self, application: Application, event: SealedEvent, before: set[Cid]) -> None:
        application.repeated += event.cid in before
        application.handled.append(event)

    # --- the end ----------------------------------------------------------------------------------

    def _heal(self) -> None:
        """All peers live, and all applications read to the end."""
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
            not wanted - self._old(application) <= {event.cid for event in application.handled}
            for application in self._begun()
        )

    def _begun(self) -> list[Application]:
        return [one for one in self.applications if one.begins is not None]

    def _stored(self) -> set[Cid]:
        """What any publisher has on disk: each was receipted as stored, or is about to be."""
        return {event.cid for event in self._everything(1)}

    def _everything(self, first: int = 0) -> list[SealedEvent]:
        stores = [node.store for node in self.nodes[first:]]
        return [e for one in stores if one is not None for e in read_all(one, self.topic)]

    def _old(self, application: Application) -> set[Cid]:
        """What lies in the past of where the stream stood when an application began at "now"; but
        for what the reader's peer published since, and what follows that."""
        if application.stood is None:
            return set()
        events = {event.cid: event for event in self._everything()}
        own = self.nodes[_READER].contact.peer
        new: set[Cid] = set()
        for event in sorted(events.values(), key=position):
            is_own = event.publisher == own and event.cid not in application.known
            if is_own or not new.isdisjoint(event.parents):
                new.add(event.cid)
        past: set[Cid] = set()
        named = list(application.stood)
        while named:
            cid = named.pop()
            if cid in events and cid not in past:
                past.add(cid)
                named.extend(events[cid].parents)
        return past - new

    def _judge(self) -> Verdict:
        wanted = self._stored()
        lost = repeated = disordered = old = 0
        for application in self._begun():
            handled = {event.cid for event in application.handled}
            before = self._old(application)
            lost += len(wanted - before - handled)
            old += len(before & handled)
            repeated += application.repeated
            disordered += _disorder(application.handled)
        return Verdict(len(wanted), self.kills, self.disks_lost, lost, repeated, disordered, old)


def _history(node: Node) -> Machinery:
    machine = node.machine
    assert isinstance(machine, Peer) and machine.history is not None
    return machine.history


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
