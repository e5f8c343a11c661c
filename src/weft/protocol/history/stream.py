"""The streams of one peer's topics: events checked, judged, put in their place, stored, delivered
(paper 004, Sections 4.1, 4.4 and 4.5).

Every block that is brought (by routing, by an answer to a request, in a page of a stream) goes
through `Streams.add`. The event is checked first: a block that is not what it says is neither
stored nor passed on. Then it is judged: an event that waits for a parent vouches for it, since it
was judged itself and names the parent by its CID. So an event that fills a gap is judged as
history, any other one by the newest version of its topic as well (`documents/authority.py`). Then
it gets its place in the topic's DAG (`documents/dag.py`); the events that it releases are stored
and delivered. Missing parents are only reported here (`Taken`): `reader.py` gets them.

A subscription begins in one of three ways:

- the store already has the stream: it goes on from there, and what was missed is fetched;
- the past is asked for: the stream is read in its order from a member;
- else a member's heads are the *baseline*: they are delivered, the lowest first and none after what
  lies higher; what came before them is not wanted.

Until a subscription has begun, the events that routing brings wait; where there is no room, the
oldest are dropped, and fetched later as gaps.

An event *before* the beginning is handed out at the beginning or never: once an event is delivered,
none that it follows comes after it. Heights cannot tell what lies before, since a branch
that forked off low may be newer than everything above it. But a publisher's events follow each
other: a peer that has had number 7 of one of a publisher's lives has had, or passed over, what that
event follows. So a member that tells a new subscriber its heads also tells the highest number that
it has had of each publisher (`Seen`), which covers every ancestor of those heads. A covered event
that comes later is not handed out any more; any other one was published after the beginning, or
elsewhere, and is handed out. Only a member that was asked is believed, and its bare word counts
only for events created before the beginning: a number that no publisher signed makes no later event
old. A publisher's clock may be fast, so the member also shows what publishers have signed lately
(`Statement`s): up to these numbers an event's date does not matter. For events that came from its
store, or as blocks, the member has no statement, but such an event is signed itself: the member
names the latest ones (`tips`), and the subscriber fetches them and reads their numbers. The heads
that the subscriber begins with prove their numbers likewise. Events that may lie before the
beginning wait meanwhile. A subscriber that asks for the past gets all of them, even late.

The beginning outlives the peer's life: what the peer was told is stored with the events. A later
life that went on from the stored events alone would take a parent that was passed over for one that
it missed. For the same reason the store is told, with an event whose parent was passed over, that
this parent is not missed.

Deviation: the paper's events have no number beside their parent. Ours carry the number that routing
knows them by in their metadata, signed, so that no peer can pass one event off under two numbers.

Invariants: only this module changes what is known of a stream; each event of a topic is delivered
at most once in a life of this peer, and after its parents; every event was checked before it is
stored or delivered; at most `publishers_max` publishers are remembered per topic, the latest ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Annotated, NamedTuple, TypeAlias

from msgspec import Meta, Struct, msgpack

from weft.bounded import BoundedDict
from weft.documents.dag import Added, Stream
from weft.documents.descriptor import SealedEvent, handed_out, known_event, number_of, verify_event
from weft.documents.position import Position, position
from weft.documents.refusal import Reason, Refused
from weft.documents.run import Event, Run, Statement, verify_statement
from weft.ids import Cid, Contact, PeerId, Topic, WireCid, WirePeerId, WireTopic, cid_of
from weft.protocol.context import Context
from weft.protocol.delivery import DELIVER_MESSAGE, trace_rejected, trace_run
from weft.protocol.history.fetch import Fetch, Providers
from weft.protocol.history.storage import Storage
from weft.protocol.history.versions import Versions, Waiting
from weft.protocol.seam import Deliver, Millis
from weft.protocol.wire import Counter, Message
from weft.rules.hierarchy import claimed_origin
from weft.store.interface import Since, Store
from weft.store.reader import stream_of

HEADS_MAX = 64
"""guess: heads told in one message; a stream has one per publisher at most, and mostly one."""
SEEN_MAX = 256
"""guess: publishers whose highest numbers a new subscriber is told."""
TIPS_MAX = 64
"""guess: events that a new subscriber gets only to see their numbers; blocks of some 300 bytes."""
_EVIDENCE_BYTES = 4_096
"""guess: a larger event is not kept only to show its number; so at most 256 KiB a topic."""


class Head(Struct, frozen=True, array_like=True, gc=False):
    """An event that no other one follows yet, or any place in the order of a stream."""

    cid: WireCid
    height: Counter


class Had(Struct, frozen=True, array_like=True, gc=False):
    """The highest number that the sender has had of one life of a publisher."""

    publisher: WirePeerId
    incarnation: Counter
    number: Counter


class Heads(Message, frozen=True, tag=60):
    """Where the sender's copy of a stream ends, and which topic record it holds."""

    topic: WireTopic
    heads: Annotated[list[Head], Meta(max_length=HEADS_MAX)]
    answer: bool  # the sender asks for the receiver's heads
    sequence: Counter = 0  # of the record; 0: none
    version: WireCid | None = None  # what the record points at
    seen: Annotated[list[Had], Meta(max_length=SEEN_MAX)] | None = None  # to a new subscriber
    kept: bool = True  # False: the sender keeps no history, so it has no word to begin with
    # With `seen`: what publishers have signed lately.
    proofs: Annotated[list[Statement], Meta(max_length=SEEN_MAX)] = []
    # … and the latest events of other publishers, which are signed themselves.
    tips: Annotated[list[WireCid], Meta(max_length=TIPS_MAX)] = []


_PROOF_MS = 10_000
"""guess: how long proof of a beginning is awaited; with messages lost, a block is asked for some
times in it."""
_LEFT_MAX = 256
"""guess: ended subscriptions of which this peer remembers what it has had."""
_RECALLED_MAX = 1_024
"""guess: stored events read to recall the numbers that a former life has had; some 10 ms."""
_UNSTORED_MAX = 65_536
"""guess: events remembered that were delivered but could not be stored."""

Early: TypeAlias = Waiting
"""An event that came before the subscription had begun, the peer that brought it, its hops."""


NoteRefused: TypeAlias = Callable[[Topic, Run, str], None]

_WHY = {
    # Events that name no version of an owner's are refused even where anyone may publish.
    Reason.NOT_ALLOWED: "the topic's owners do not let its publisher publish there, or it does not "
    "follow them",
    Reason.UNKNOWN_TOPIC: "the version of the topic that it names is not to be had",
    Reason.WRONG_TOPIC: "the version that it names is one of another topic",
    Reason.NOT_OWNER: "the version of the topic that it names is by a peer that does not own it",
    Reason.OUTSIDE_HIERARCHY: "it comes from a sub-topic, and the topic is in no hierarchy there "
    "(hierarchies are the same at all peers of a network)",
    Reason.OVER_QUOTA: "its publisher has as much stored in the topic as one may",
}
"""What publishers are told that others refuse, in the words that all peers use."""


class Seen:
    """Which events a member has had: the highest number of each life of each publisher."""

    __slots__ = ("_highest", "_tips")

    def __init__(self, publishers_max: int, told: Iterable[Had] = ()) -> None:
        self._highest: BoundedDict[tuple[PeerId, int], int] = BoundedDict(publishers_max)
        self._tips: BoundedDict[tuple[PeerId, int], Cid] = BoundedDict(TIPS_MAX)  # with these
        for had in told:
            self.add(had)

    def add(self, had: Had) -> None:
        self._note((had.publisher, had.incarnation), had.number)

    def note(self, event: SealedEvent) -> None:
        named = number_of(event)
        if named is not None:
            if named[2] >= self._highest.get(named[:2], 0):
                self._tips.renew(named[:2], event.cid)
            self._note(named[:2], named[2])

    def tips(self, signed: Iterable[Statement]) -> list[Cid]:
        """The latest events of publishers whose statements do not reach as far."""
        proven = {(one.publisher, one.incarnation): one.last for one in signed}
        return [
            cid for key, cid in self._tips.items() if self._highest.get(key, 0) > proven.get(key, 0)
        ]

    def _note(self, key: tuple[PeerId, int], number: int) -> None:
        self._highest.renew(key, max(number, self._highest.get(key, 0)))

    def covers(self, event: SealedEvent) -> bool:
        named = number_of(event)
        return named is not None and named[2] <= self._highest.get(named[:2], 0)

    def all(self) -> list[Had]:
        """The numbers, those noted last at the end."""
        return [Had(*key, number) for key, number in self._highest.items()]


class Beginning(Struct, frozen=True):
    """Where a subscription began: what the member that it began with has had."""

    until_ms: Counter  # by the wall clock: `recent_ms` after the beginning
    told: list[Had]  # on the member's word alone: for what was created before the beginning
    proven: list[Had] = []  # of these, what publishers have signed: whatever the date

    def encode(self) -> bytes:
        return msgpack.encode(self)


_NOTHING_TOLD = Beginning(0, [])


class Left(NamedTuple):
    """What is remembered of a subscription that has ended."""

    seen: Seen
    beginning: Beginning
    shown: list[Statement]  # by the member that it began with
    evidence: BoundedDict[Cid, SealedEvent]  # that proved where it began


def _stored_beginning(library: Store, topic: Topic) -> Beginning:
    """Where the subscription that the stored events came from began."""
    kept = library.beginning(topic)
    return msgpack.decode(kept, type=Beginning) if kept else _NOTHING_TOLD


class TopicStream:
    """What one peer knows of the stream of a topic that it is subscribed to."""

    __slots__ = (
        "_asked_later",
        "_beginning",
        "_covered",
        "_ctx",
        "_early",
        "_early_bytes",
        "_evidence",
        "_former",
        "_gaps",
        "_handed_height",
        "_proven",
        "_proven_by",
        "_shown",
        "baseline",
        "begun",
        "dag",
        "seen",
        "tips",
        "topic",
        "wants_past",
    )

    def __init__(
        self,
        ctx: Context,
        topic: Topic,
        since: Since | None,
        library: Store,
        under_way: Sequence[SealedEvent],
        left: Left | None,
        outside: Stream | None,
    ) -> None:
        """`under_way`: received by an earlier subscription, and not stored yet. `left`: what that
        one has had. `outside`: the stream that the peer published to without a subscription; what
        is in it may not be stored yet."""
        self._ctx = ctx
        self.topic = topic
        stored = _go_on(library, topic, under_way)
        self.dag = outside if outside is not None else stored
        self.dag.go_on_from(under_way)
        self.wants_past = since is not None
        self._asked_later = self.wants_past and bool(stored.heads)
        self.begun = bool(stored.heads) or since is not None
        self.baseline: dict[Cid, None] = {}
        self.tips: dict[Cid, None] = {}  # that show how far what lies before the beginning goes
        self._shown: list[Statement] = []  # by the member that this peer began with
        # The events that proved where this peer began, be it that they were passed over.
        self._evidence: BoundedDict[Cid, SealedEvent] = BoundedDict(TIPS_MAX)
        self._proven_by: Millis = 0  # what may lie before the beginning waits for tips until then
        self.seen = left.seen if left is not None else self._recall(library, stored.heads)
        self._gaps = dict.fromkeys(library.missing(topic))
        self._former: Seen | None = None  # what was had before this subscription
        self._begin_after(_NOTHING_TOLD)
        if stored.heads:
            kept = left.beginning if left is not None else _stored_beginning(library, topic)
            self._begin_after(kept)
            if left is not None:
                self._shown, self._evidence = left.shown, left.evidence
            if not self.wants_past:
                self._former = Seen(ctx.config.history.publishers_max, self.seen.all())
        self._early: deque[Early] = deque()
        self._early_bytes = 0
        self._handed_height = 0

    def _recall(self, library: Store, heads: dict[Cid, int]) -> Seen:
        """The numbers that a former life has had, by the latest events that it stored."""
        found: list[SealedEvent] = []
        top = max(((height, cid) for cid, height in heads.items()), default=None)
        if top is not None:
            for cid, _ in islice(library.downwards(self.topic, Position(*top)), _RECALLED_MAX):
                block = library.get(cid)
                if block is not None:
                    found.append(known_event(block, cid))
        seen = Seen(self._ctx.config.history.publishers_max)
        for event in reversed(found):
            seen.note(event)
        return seen

    # --- the beginning ----------------------------------------------------------------------------

    def begin(self, word: Heads | None = None) -> list[Cid]:
        """Begin where a member stands, by its word, or with whatever comes if there is no member;
        returns what to fetch."""
        self.begun = True
        ctx = self._ctx
        until_ms = max(0, ctx.wall_ms + ctx.config.dissemination.recent_ms)
        # What this life of the peer publishes while it waits for the word is not before it.
        own = (ctx.me.peer, ctx.incarnation)
        seen = (word.seen or ()) if word is not None else ()
        told = [had for had in seen if (had.publisher, had.incarnation) != own]
        proven = self._proven_of(told, word.proofs) if word is not None else []
        self._begin_after(Beginning(until_ms, told, proven))
        heads = sorted(word.heads, key=lambda head: head.height) if word is not None else []
        # The lowest first, which is how they are asked for and should come.
        self.baseline = {head.cid: None for head in heads if not self.dag.knows(head.cid)}
        tips = word.tips if word is not None else []
        unknown = [cid for cid in tips if not self.dag.knows(cid)]
        self.tips = dict.fromkeys(cid for cid in unknown if cid not in self.baseline)
        self._proven_by = ctx.now + _PROOF_MS
        return [*self.baseline, *self.tips]

    def _proven_of(self, told: Iterable[Had], proofs: Iterable[Statement]) -> list[Had]:
        """The part of a member's word that publishers have signed."""
        claimed = {(had.publisher, had.incarnation): had.number for had in told}
        proven = []
        for statement in proofs:
            number = claimed.get((statement.publisher, statement.incarnation))
            if number is None:
                continue
            if verify_statement(self.topic, statement) is None:
                self._ctx.counters["forged"] += 1
                break  # a member that shows a forgery is not worth further verifications
            last = min(number, statement.last)
            proven.append(Had(statement.publisher, statement.incarnation, last))
            self._shown.append(statement)
        return proven

    def proofs_told(self, signed: Iterable[Statement]) -> list[Statement]:
        """What publishers have signed of the numbers that a member which begins here is told: of
        what came here (`signed`), and what this peer was shown itself when it began."""
        latest: dict[tuple[PeerId, int], Statement] = {}
        for one in (*self._shown, *signed):
            before = latest.get((one.publisher, one.incarnation))
            if before is None or before.last <= one.last:
                latest[one.publisher, one.incarnation] = one
        return list(latest.values())[-SEEN_MAX:]

    def prove(self, event: SealedEvent) -> bool:
        """An event that the member's word named has come, and proves its publisher's number;
        returns whether it is such an event."""
        named = number_of(event)
        if named is None or (event.cid not in self.tips and event.cid not in self.baseline):
            return False
        self.tips.pop(event.cid, None)
        if len(event.block) <= _EVIDENCE_BYTES:
            self._evidence[event.cid] = event
        began = self._beginning
        proven = [*began.proven, Had(*named)]
        self._begin_after(Beginning(began.until_ms, began.told, proven))
        return True

    def on_given_up(self, cid: Cid, hearsay: bool) -> None:
        """A block that would show where the beginning lies was sought in vain. The member that
        named it may just be gone: if others bring it in time, it still proves its number."""
        named = cid in self.baseline or cid in self.tips
        self.baseline.pop(cid, None)
        self.tips.pop(cid, None)
        if named and hearsay and self._ctx.now < self._proven_by:
            self.tips[cid] = None

    def tips_told(self, signed: Sequence[Statement]) -> list[Cid]:
        """The events by which a member that begins here can have the word on its beginning proven:
        the latest ones here, those that proved this peer's own, and those that may prove it yet."""
        awaits = self._ctx.now < self._proven_by
        awaited = [*self.baseline, *self.tips] if awaits else []
        shown = Seen(SEEN_MAX, (Had(one.publisher, one.incarnation, one.last) for one in signed))
        kept = [
            event.cid
            for event in self._evidence.values()
            if not shown.covers(event) and not self.seen.covers(event)
        ]
        return list(dict.fromkeys((*self.seen.tips(signed), *kept, *awaited)))[:TIPS_MAX]

    def evidence(self, cid: Cid) -> bytes | None:
        """The block of an event that proved where this peer began. One that was passed over is not
        stored, but those that begin here have to see it."""
        event = self._evidence.get(cid)
        return event.block if event is not None else None

    def awaits_proof(self, event: SealedEvent) -> bool:
        """Whether an event lies before the beginning by a bare word that may still be proven."""
        if not self.proving or self.wants_past or event.cid in self.baseline:
            return False
        return self._covered.covers(event) and not self.is_before(event)

    @property
    def proving(self) -> bool:
        """Whether proof of where the beginning lies is awaited. That ends after `_PROOF_MS`, since
        a member may name events that it does not have."""
        return bool(self.tips) and self._ctx.now < self._proven_by

    def on_subscriber(self, since: Since | None) -> None:
        """One more subscriber, which may ask for the past after others that did not."""
        if since is not None:
            self._asked_later = self._asked_later or not self.wants_past
            self.wants_past = True
            self._former = None

    @property
    def hands_out_late(self) -> bool:
        """Whether what others follow that were handed out is handed out, too: the past was asked
        for when the stream had begun without it."""
        return self._asked_later

    @property
    def beginning(self) -> Beginning:
        return self._beginning

    def left(self) -> Left:
        """What is remembered once the subscription has ended."""
        return Left(self.seen, self._beginning, self._shown, self._evidence)

    def _begin_after(self, beginning: Beginning) -> None:
        self._beginning = beginning
        most = self._ctx.config.history.publishers_max
        self._covered = Seen(most, beginning.told)
        self._proven = Seen(most, beginning.proven)

    def is_before(self, event: SealedEvent) -> bool:
        """Whether an event lies before the beginning, and is not wanted. (A parent that the store
        misses is wanted: a former life stored its child and did not get it.)"""
        if self.wants_past or event.cid in self._gaps:
            return False
        if self._former is not None and self._former.covers(event):
            return True
        return self.lies_before(event)

    def passes(self, event: SealedEvent) -> bool:
        """Whether an event that comes after the beginning is passed over. The heads that this peer
        begins with are not, unless something higher was handed out already: it may follow them, by
        events that are missing at the member that named them as heads."""
        if event.cid not in self.baseline or self.wants_past:
            return self.is_before(event)
        return event.height < self._handed_height

    def note(self, event: SealedEvent) -> None:
        """An event is handed out, now or in an earlier subscription."""
        self.seen.note(event)
        self._handed_height = max(self._handed_height, event.height)

    def lies_before(self, event: SealedEvent) -> bool:
        """Whether an event lies before the beginning, wanted or not."""
        if self._proven.covers(event):
            return True
        began_ms = self._beginning.until_ms - self._ctx.config.dissemination.recent_ms
        return event.created_ms < began_ms and self._covered.covers(event)

    def misses(self, cid: Cid) -> bool:
        """Whether the store misses this parent of a stored event."""
        return cid in self._gaps

    def told(self) -> list[Had]:
        """The numbers that a member which begins here has to know: those had here, and those that
        lay before this peer's own beginning."""
        covered = Seen(self._ctx.config.history.publishers_max, self._beginning.told)
        for had in self.seen.all():
            covered.add(had)
        return covered.all()[-SEEN_MAX:]

    def note_missing(self, event: SealedEvent, missing: Iterable[Cid]) -> bool:
        """An event got its place, and these parents are not there. Returns whether the past before
        it is not wanted. Where the store missed the event itself, it misses its parents too."""
        if event.cid in self._gaps:
            self._gaps.update(dict.fromkeys(missing))
        begins = event.cid in self.baseline
        self.baseline.pop(event.cid, None)
        return begins or self.is_before(event)

    # --- events that wait for the beginning -------------------------------------------------------

    @property
    def early(self) -> Sequence[Early]:
        return self._early

    def wait(self, event: SealedEvent, source: Contact | None, hops: int) -> None:
        """Keep an event until the subscription has begun."""
        limits = self._ctx.config.history
        self._early.append((event, source, hops))
        self._early_bytes += len(event.block)
        while len(self._early) > limits.early_max or self._early_bytes > limits.waiting_bytes_max:
            self._early_bytes -= len(self._early.popleft()[0].block)

    def take_early(self) -> list[Early]:
        """The events that waited, parents before children."""
        early = sorted(self._early, key=lambda waiting: position(waiting[0]))
        self._early.clear()
        self._early_bytes = 0
        return early

    # --- where it stands --------------------------------------------------------------------------

    def heads(self, unsettled: Mapping[Cid, SealedEvent] | None = None) -> list[Head]:
        """The heads to tell others, the highest where there are too many. In place of those that no
        peer may know of yet (`unsettled`) stand the latest before them: to name none would say that
        nothing was ever published."""
        known = self.dag.heads
        if unsettled and not unsettled.keys().isdisjoint(known):
            known = self._settled_heads(unsettled)
        order = sorted(known, key=lambda cid: (known[cid], cid), reverse=True)
        return [Head(cid, known[cid]) for cid in order[:HEADS_MAX]]

    def _settled_heads(self, unsettled: Mapping[Cid, SealedEvent]) -> dict[Cid, int]:
        found: dict[Cid, int] = {}
        ways = list(self.dag.heads)
        passed = dict.fromkeys(ways)
        for cid in ways:  # which grows
            event = unsettled.get(cid)
            if event is not None:
                fresh = [parent for parent in event.parents if parent not in passed]
                passed.update(dict.fromkeys(fresh))
                ways += fresh
            elif (height := self.dag.height(cid)) is not None:
                found[cid] = height
        return found

    def top(self) -> int:
        """How high the stream is."""
        return max(self.dag.heads.values(), default=self.dag.floor.height)

    def restart(self, library: Store, under_way: Sequence[SealedEvent]) -> None:
        """Go on from the stored events and those that may still be stored, since the store failed
        to take the others."""
        self.dag = _go_on(library, self.topic, under_way)


def _go_on(library: Store, topic: Topic, under_way: Sequence[SealedEvent]) -> Stream:
    """The stream as stored, with what is on its way there. Without that, events that name it would
    wait for a parent that comes into the store behind the stream's back, for good."""
    stream = stream_of(library, topic)
    stream.go_on_from(under_way)
    return stream


class Taken(NamedTuple):
    """What came of an event that was brought."""

    belongs: bool  # it has, or may still get, its place in the stream
    no_room: bool = False  # too many others wait for parents
    placed: bool = False  # it got its place by this call
    missing: Sequence[Cid] = ()  # its parents that are not there and were not missed before
    vouched: bool = False  # another event had waited for it
    past_unwanted: bool = False  # what came before it is not wanted


class Streams:
    """All streams of one peer."""

    def __init__(
        self,
        ctx: Context,
        library: Store,
        versions: Versions,
        fetch: Fetch,
        storage: Storage,
        providers: Providers,
        note_refused: NoteRefused,
    ) -> None:
        """`note_refused` remembers a run that was refused, for its publisher."""
        self._ctx = ctx
        self._note_refused = note_refused
        self._library = library
        self._versions = versions
        self._fetch = fetch
        self._storage = storage
        self._providers = providers
        self.topics: dict[Topic, TopicStream] = {}
        self.outside: BoundedDict[Topic, Stream] = BoundedDict(ctx.config.history.outside_max)
        """Streams published to without a subscription."""
        self.unsettled: dict[Cid, SealedEvent] = {}  # own events that are not durable yet
        self._orphans: dict[Cid, bool] = {}  # of these, those that follow one that failed
        self._left: BoundedDict[Topic, Left] = BoundedDict(_LEFT_MAX)
        # Delivered, and not stored: the store could not take them.
        self._unstored: BoundedDict[Cid, None] = BoundedDict(_UNSTORED_MAX)

    def subscribe(self, topic: Topic, since: Since | None) -> TopicStream:
        known = self.topics.get(topic)
        if known is not None:
            known.on_subscriber(since)
            return known
        left, outside = self._left.pop(topic, None), self.outside.pop(topic, None)
        under_way = self._under_way(topic)
        state = TopicStream(self._ctx, topic, since, self._library, under_way, left, outside)
        self.topics[topic] = state
        return state

    def unsubscribe(self, topic: Topic) -> None:
        state = self.topics.pop(topic)
        self._left[topic] = state.left()

    def evidence(self, topic: Topic, cid: Cid) -> bytes | None:
        """See `TopicStream.evidence`."""
        state = self.topics.get(topic)
        return state.evidence(cid) if state is not None else None

    def begin(self, state: TopicStream, word: Heads | None = None) -> list[Cid]:
        """See `TopicStream.begin`; a later life goes on from there, too."""
        missing = state.begin(word)
        self._storage.begin(state.topic, state.beginning.encode())
        return missing

    # --- own events -------------------------------------------------------------------------------

    def parents(self, topic: Topic) -> dict[Cid, int]:
        """The parents of an event published now."""
        return self._dag(topic).parents()

    def append(self, event: SealedEvent) -> None:
        """An event of this peer's own, which is on its way to the store."""
        self._dag(event.topic).add(event, new=True)
        self.unsettled[event.cid] = event

    def settle(self, event: SealedEvent, error: str) -> str:
        """An event of this peer's own is durable, or could not be made so; returns why not. One
        that follows an event which failed must not go out, though it is stored: nobody could ever
        have all that comes before it."""
        self.unsettled.pop(event.cid, None)
        if self._orphans.pop(event.cid, False) and not error:
            error = "an event that it follows could not be stored"
        state = self.topics.get(event.topic)
        if not error and state is not None:
            state.note(event)
            self._deliver(event, 0)
        return error

    def _dag(self, topic: Topic) -> Stream:
        state = self.topics.get(topic)
        if state is not None:
            return state.dag
        found = self.outside.get(topic)
        if found is None:
            under_way = self._under_way(topic)
            found = self.outside[topic] = _go_on(self._library, topic, under_way)
        return found

    def _under_way(self, topic: Topic) -> list[SealedEvent]:
        """What is on its way to the store. What this peer publishes next follows its own events,
        too, or subscribers could have a later one of them first."""
        own = [event for event in self.unsettled.values() if event.topic == topic]
        return [*self._storage.under_way(topic), *own]

    # --- what the store says ----------------------------------------------------------------------

    def on_store_failed(self, events: Sequence[SealedEvent]) -> None:
        """No event may follow one that no peer has, so begin again from the stored events. An
        event that was delivered already is only stored when it comes again."""
        failed = dict.fromkeys(event.cid for event in events)
        for cid, own in self.unsettled.items():  # each behind those that it follows
            if cid not in failed and any(parent in failed for parent in own.parents):
                failed[cid] = None
                self._orphans[cid] = True
        for event in events:
            if event.cid not in self.unsettled:
                self._unstored[event.cid] = None
        for topic in dict.fromkeys(event.topic for event in events):
            self.outside.pop(topic, None)
            state = self.topics.get(topic)
            if state is not None:
                under_way = [one for one in self._under_way(topic) if one.cid not in failed]
                state.restart(self._library, under_way)

    def on_pruned(self, topic: Topic) -> None:
        """The store has dropped the oldest events; they are not taken in again."""
        state = self.topics.get(topic)
        dag = state.dag if state is not None else self.outside.get(topic)
        if dag is not None:
            dag.prune(self._library.summary(topic).floor)

    # --- checking ---------------------------------------------------------------------------------

    def open(self, topic: Topic, run: Run, source: PeerId | None) -> list[SealedEvent] | None:
        """The events in a run that routing brought; None, and counted, if one of them is not what
        it says or its publisher may not publish here, so that the run goes no further. An event
        that is known already is not verified again. (The signature of the run is not enough: blocks
        are stored and sent on one by one, so each needs its own.)

        A run that finds no room here is passed on all the same: else routing would not know it and
        bring it again and again, and other peers may have room.
        """
        state = self.topics.get(topic)
        try:
            return [self._open(topic, state, event) for event in run.events()]
        except Refused as refused:
            self.refuse(topic, refused.reason, source, run, str(refused))
            return None

    def _open(self, topic: Topic, state: TopicStream | None, event: Event) -> SealedEvent:
        opened = _read(topic, event.payload, cid_of(event.payload))
        if not _same_event(event, opened):
            raise Refused(Reason.BAD_SHAPE, "routed under another number or publisher")
        if state is None or not state.dag.knows(opened.cid, opened.height):
            verify_event(opened)
            self._check_publisher(state, opened)
        return opened

    def _check_publisher(self, state: TopicStream | None, event: SealedEvent) -> None:
        """Refuse an event whose publisher may not publish here, or has enough stored. A version
        that the event links to and that is not at hand is fetched later; until then the event is
        passed on only if the versions at hand let its publisher publish (`is_undecided`)."""
        vouched = state is not None and state.dag.awaits(event.cid)
        if self._versions.needed(event) is None:
            reason = self._versions.judge(event, vouched)
            if reason is not None:
                raise Refused(reason, "its publisher may not")
        if self._storage.over_quota(event, vouched):
            raise Refused(Reason.OVER_QUOTA, "its publisher has enough stored in the topic")

    def is_undecided(self, event: SealedEvent) -> bool:
        """Whether an event that was let in must not be passed on before the version that it links
        to is at hand, since no other version lets its publisher publish. (A peer that is not
        subscribed fetches no versions: it passes events on, and members judge them.)"""
        state = self.topics.get(event.topic)
        if state is None or self._versions.needed(event) is None:
            return False
        return not self._versions.lets(event, state.dag.awaits(event.cid))

    def open_block(self, state: TopicStream, cid: Cid, block: bytes) -> SealedEvent | None:
        """The event in a block that another peer sent; None, and counted, if it is not what it
        says. `cid` is the block's."""
        try:
            event = _read(state.topic, block, cid)
            return event if state.dag.knows(cid, event.height) else verify_event(event)
        except Refused as refused:
            self.refuse(state.topic, refused.reason)
            return None

    def open_page(self, state: TopicStream, blocks: Iterable[bytes]) -> list[SealedEvent]:
        """The events of a page, as `open_block` has them. It begins with what lies lowest, so what
        released events follow shows only further up: it is noted before anything is taken in."""
        opened = [self.open_block(state, cid_of(block), block) for block in blocks]
        events = [event for event in opened if event is not None]
        for event in reversed(events):
            state.dag.note_past(event)
        return events

    def refuse(
        self,
        topic: Topic,
        reason: Reason,
        source: PeerId | None = None,
        run: Run | None = None,
        why: str = "",
    ) -> None:
        """Count an event that is not taken; a whole run is traced, too. `why` is told to its
        publisher where `_WHY` has no words for the reason."""
        self._ctx.counters[f"history_refused_{reason}"] += 1
        if run is not None:
            trace_rejected(self._ctx, topic, run, source, str(reason))
            self._note_refused(topic, run, _WHY.get(reason, why))

    # --- into the stream --------------------------------------------------------------------------

    def add(
        self,
        state: TopicStream,
        event: SealedEvent,
        source: Contact | None,
        hops: int,
        early: bool = False,
    ) -> Taken:
        """Find an event's place, and deliver what that releases. `early`: it waited for the
        beginning, before which nothing was delivered, so even what lies before the beginning comes
        in order."""
        dag = state.dag
        if dag.knows(event.cid, event.height):
            self._fetch.forget(event.cid)
            return Taken(True)
        if state.prove(event):
            self._storage.begin(state.topic, state.beginning.encode())
        if not early and state.awaits_proof(event):
            state.wait(event, source, hops)
            return Taken(True)
        if not early and state.passes(event):
            self._pass_over(state, event)
            return Taken(True)
        needed = self._versions.needed(event)
        if needed is not None:
            return self._wait_for_version(state, needed, event, source, hops)
        vouched = dag.awaits(event.cid)
        reason = self._versions.judge(event, vouched)
        if reason is None and self._storage.over_quota(event, vouched):
            reason = Reason.OVER_QUOTA
        if reason is not None:
            self._fetch.forget(event.cid)
            self.refuse(event.topic, reason, None, handed_out(event, b""))
            if reason is Reason.OVER_QUOTA and vouched:
                self.give_up(state, (event.cid,))  # no event of others waits for it any longer
            return Taken(False)
        version = self._versions.take_proven(event.link)
        if version is not None:
            self._storage.add_version(version)
        added = dag.add(event, new=True)
        for cid in (event.cid, *added.displaced):
            self._fetch.forget(cid)
        self._release(state, added, hops)
        if added.refused is Reason.NO_ROOM:
            self._ctx.counters["history_no_room"] += 1
            return Taken(False, no_room=True)
        if added.refused is not None:
            self.refuse(event.topic, added.refused)
            return Taken(False)
        past_unwanted = state.note_missing(event, added.missing)
        return Taken(True, False, True, added.missing, vouched, past_unwanted)

    def _wait_for_version(
        self,
        state: TopicStream,
        needed: Cid,
        event: SealedEvent,
        source: Contact | None,
        hops: int,
    ) -> Taken:
        """Keep an event until the version that it links to is at hand. If the event is all that
        speaks for that version, only the peer that brought the event is asked for it."""
        hearsay = not self._versions.lets(event, state.dag.awaits(event.cid))
        self._versions.hold(needed, event, source, hops)
        self._fetch.want(state.topic, [needed], source, hearsay=hearsay)
        return Taken(True)

    def give_up(self, state: TopicStream, cids: Iterable[Cid]) -> None:
        """These parents will not come: release the events that wait for them."""
        for cid in cids:
            if state.dag.awaits(cid):
                self._storage.lose(state.topic, cid)
                self._release(state, state.dag.give_up(cid), 0)

    def on_given_up(self, topic: Topic, cid: Cid, hearsay: bool) -> None:
        """No peer has a block, or (`hearsay`) the peer that spoke of it does not."""
        for event, _, _ in self._versions.released(cid):
            self.refuse(event.topic, Reason.UNKNOWN_TOPIC)
        state = self.topics.get(topic)
        if state is None:
            return
        state.on_given_up(cid, hearsay)
        if state.dag.awaits(cid):
            self.give_up(state, (cid,))
        elif not hearsay:  # the parent of an event that was stored in an earlier life
            self._storage.lose(topic, cid)

    def _pass_over(self, state: TopicStream, event: SealedEvent) -> None:
        """An event lies before the beginning: no other one waits for it any longer."""
        state.baseline.pop(event.cid, None)
        self._fetch.forget(event.cid)
        self._ctx.counters["history_before"] += 1
        self._storage.lose(state.topic, event.cid)
        self._release(state, state.dag.pass_over(event.cid), 0)

    def _release(self, state: TopicStream, added: Added, hops: int) -> None:
        for event in added.released:
            self._storage.add(event)
            for parent in event.parents:
                # The store has been told of a parent only if it already missed that.
                if state.dag.has_given_up(parent) and not state.misses(parent):
                    self._storage.lose(state.topic, parent)
            # A publisher's events follow each other, so what comes behind a later one is late too.
            late = event.cid in added.late or state.seen.covers(event)
            state.note(event)
            if event.cid in self._unstored:
                del self._unstored[event.cid]  # it was handed out, and could not be stored
            elif late and not state.hands_out_late:
                self._ctx.counters["history_late"] += 1
            else:
                self._deliver(event, hops)
            self._providers.perhaps(event)
        for event in added.dropped:
            self._fetch.forget(event.cid)
            self.refuse(event.topic, Reason.WRONG_HEIGHT)

    def _deliver(self, event: SealedEvent, hops: int) -> None:
        """Hand an event to the application."""
        ctx, topic = self._ctx, event.topic
        note = handed_out(event, event.payload)
        origin = claimed_origin(topic, event.metadata)
        climbed = origin if origin != topic else None
        ctx.out.append(Deliver(topic, note, hops, event, climbed))
        trace_run(ctx, DELIVER_MESSAGE, topic, note, None, hops)


def _read(topic: Topic, block: bytes, cid: Cid) -> SealedEvent:
    """The event that a block describes, not verified yet."""
    event = known_event(block, cid)
    if event.topic != topic:
        raise Refused(Reason.WRONG_TOPIC, "belongs to another topic")
    return event


def _same_event(event: Event, opened: SealedEvent) -> bool:
    """Whether routing names the event as its publisher signed it."""
    return (event.publisher, event.incarnation, event.number) == number_of(opened)
