"""How a peer gets what it lacks of a topic's stream: it walks back block by block, or reads the
stream in its order, in pages, from another member (paper 004, Section 4.5).

A short gap is *walked back*: the missing parent is fetched, then its parent, and so on
(`fetch.py`). That takes a question per event. So a peer that wants the past, or is more than
`walk_back_max` events behind, *reads*: pages come in the stream's order, parents before children,
so each event can be delivered as it comes. A member that falls silent or lacks the event to read
on from is replaced by another; reading goes on where the last page ended.

Words: the *fork* of a branch is the event where it left the rest of the stream. An event is
*vouched* for if an accepted one names it as its parent, and *early* if it came before this peer
knew where to begin (`stream.py`). A topic's *turn* (`History.run_topic`) comes once a cycle, or
more seldom while the routing finds it quiet.

What a gap means depends on what is being read, so that is an explicit state:

    state       what the peer does                            a gap that shows meanwhile
    IDLE        reads nothing                                 is walked back, or begins a reading
    READING     reads all that comes after what it has        is left: reading brings the parents
    SEARCHING   reads from below a branch; the next page      in the page: it began too high, and
                shows whether below the fork                  begins further down; else it is left
    PARTIAL     reads a part: what came before was not        is left; parents of a page's events
                asked for, or no member has it any more       are given up
    FAILED      found no member to ask, and begins anew       is walked back, or begins a reading
                at one of the topic's next turns
    LOST        found no member to ask during a search        is walked back, or begins a reading

`_NEXT` has the transitions. A reading that is wanted, but has no member to ask yet, does not keep
gaps open: the peer that brought the event, such as a publisher from outside, may be the only one
that has its parents, so they are walked back.

**Searching for a fork.** Publishers that were cut off from each other make a long branch, whose
fork lies far below. It is read from `REACH` below its lowest known event. If an event of the first
page lacks a parent, that was too high: reading begins anew from twice as far below, and so on. A
first page without gaps proves nothing of other branches: one may have ended below that place, and
be joined only further up, by an event that lacks a parent then. So if on the way up more events
lack parents than may wait, reading begins further down again; from the bottom it goes to the end.

**Which member is believed.** A member may say that it has pruned what was asked for. Then others
are asked first whether they have more, and only if none has, that member's part is read. Each page
must lie above the one before and hold an event that belongs to the stream; a member whose page does
not is left for another, so that no member can keep this peer reading for ever.

**Pages on their way.** A question asks for `_PAGES` pages, and the next question is sent as soon as
the last of them has come, before that page is verified: a page is verified in a step of its own,
since messages leave only at the end of a step. So neither peer is idle while pages travel. Pages
come in their order (`part`); a lost page is asked for again, with those after it.

Each page says how high its sender's stream is. While that is more than `FAR` above, new events
come in pages sooner than they could be handed out. The routing hears so (`FarBehind`) and need not
bring them, until the reading is within `NEAR` of the end: from then on new events wait here for it.

Invariants: at most `_PAGES` pages are asked for at a time, from one member; at most `_SOURCES_MAX`
members that keep history are tried for one reading. Walking back from a branch that came from below
the beginning of the subscription ends after `walk_back_max` steps: the past was not asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Annotated, NamedTuple

from msgspec import Meta

from weft.bounded import BoundedDict
from weft.documents.descriptor import SealedEvent
from weft.documents.position import START, Position
from weft.ids import CID_BYTES, Cid, Contact, PeerId, WireCid, WireTopic
from weft.protocol.context import Context, FarBehind
from weft.protocol.history.blocks import Blocks
from weft.protocol.history.fetch import Fetch, Losses, Pause, RoundTrip
from weft.protocol.history.ownership import Members
from weft.protocol.history.stream import HEADS_MAX, Head, Heads, Streams, Taken, TopicStream
from weft.protocol.seam import Millis
from weft.protocol.wire import Counter, Message
from weft.store.interface import Since, Store

PAGES_MAX = 8
"""guess: pages that one question may ask for."""


class PageRequest(Message, frozen=True, tag=63):
    """A stretch of a stream in its order: from the beginning, after an event, since a time, or
    what a peer with these heads lacks; and then on from where the last page ended."""

    topic: WireTopic
    request: Counter
    since_event: WireCid | None = None
    since_ms: Counter | None = None
    heads: Annotated[list[WireCid], Meta(max_length=HEADS_MAX)] = []
    after: Head | None = None
    pages: Annotated[int, Meta(ge=1, le=PAGES_MAX)] = 1  # one after the other, as far as there are


class PageReply(Message, frozen=True, tag=64):
    """Answers `PageRequest`, a message for each page; or says why there is none."""

    topic: WireTopic
    request: Counter
    blocks: Blocks
    next: Head | None = None  # ask on after this; None: that was all
    pruned: bool = False  # older events that belong here are gone at the sender
    held: bool = True  # False: the sender does not have the event to read on from
    part: Annotated[int, Meta(ge=0, lt=PAGES_MAX)] = 0  # of the pages that were asked for
    more: Annotated[int, Meta(ge=0, lt=PAGES_MAX)] = 0  # of these follow by themselves
    top: Counter = 0  # how high the sender's stream is, where this was not all


TIMEOUT = "history.page"
TAKE = "history.take"
"""A page that has come is taken in."""
BEGIN = "history.begin"
"""The time to ask another member where to begin."""

REACH = 256
"""guess: how far below a branch's lowest known event the search for its fork begins."""
_PAGES = 4
"""guess: 1,024 events, some 100 ms of verifying, on their way at once."""
NEAR = 1_024
"""guess: events above the stream's end that are taken in while it is read, so that they are there
when the reading comes to its end; as many as may wait for their parents."""
FAR = 4 * NEAR
"""guess: a reading that is so far below the end of the stream leaves new events to pages."""
_STEPS_MAX = 24
"""guess: events named below the heads, each twice as far below as the one before; enough for any
stream, and some 2 ms."""
_FIRST_STEP = 8
"""guess: how far below the heads the first of them lies."""
_ASKED_AGAIN_MAX = 2
"""guess: times that a silent source is asked again before another one is tried."""
_SILENT_MAX = 64
"""guess: members remembered that did not answer; more than readings try in some minutes."""
_SOURCES_MAX = 8
"""guess: members that are tried for one reading before it fails."""
_BEGIN_ASKS_MAX = 8
"""guess: times a member that does not answer is asked where its stream stands, one every
`request_timeout_ms`, besides each one that is met; later the topic's turns do so."""
_ASKED_MEMBERS_MAX = 64
"""guess: members remembered as asked where to begin; three full views."""
_GAPS_LEFT_MAX = 64
"""guess: gaps left to a reading, each remembered with the peer that may close it."""
_LOWEST = Cid(bytes(CID_BYTES))
"""Sorts before every CID: the beginning of a height."""


class State(Enum):
    """What a peer reads of a stream; see the table above."""

    IDLE = auto()
    READING = auto()
    SEARCHING = auto()
    PARTIAL = auto()
    FAILED = auto()
    LOST = auto()


class Step(Enum):
    """What makes a reader change its state."""

    READ = auto()  # begins to read all that comes after what it has
    READ_PART = auto()  # begins to read since an event or a time
    SEARCH = auto()  # begins below a branch, or begins anew further down
    GAP = auto()  # an event lacks parents
    PAGE = auto()  # a page was taken in, and is low enough
    END = auto()  # and it was the last one
    PRUNED = auto()  # only a member is left that has pruned what was asked for
    NOBODY = auto()  # no member is left to ask
    NOBODY_BELOW = auto()  # the same in a reading from below a branch, which will show again
    TURN = auto()  # the topic's turn in its cycle


_BEGIN = {
    Step.READ: State.READING,
    Step.READ_PART: State.PARTIAL,
    Step.SEARCH: State.SEARCHING,
}
_NEXT: dict[State, dict[Step, State]] = {
    State.IDLE: _BEGIN,
    State.READING: {
        Step.PAGE: State.READING,
        Step.END: State.IDLE,
        Step.SEARCH: State.SEARCHING,
        Step.PRUNED: State.PARTIAL,
        Step.NOBODY: State.FAILED,
        Step.NOBODY_BELOW: State.IDLE,
    },
    State.SEARCHING: {
        Step.GAP: State.READING,
        Step.PAGE: State.READING,
        Step.SEARCH: State.SEARCHING,
        Step.PRUNED: State.PARTIAL,
        Step.NOBODY_BELOW: State.LOST,
    },
    State.PARTIAL: {
        Step.PAGE: State.PARTIAL,
        Step.END: State.IDLE,
        Step.NOBODY: State.FAILED,
        Step.NOBODY_BELOW: State.IDLE,
    },
    State.FAILED: {**_BEGIN, Step.TURN: State.IDLE},
    State.LOST: {**_BEGIN, Step.GAP: State.IDLE},
}
_ASKING = (State.READING, State.SEARCHING, State.PARTIAL)
"""The states in which a page was asked for."""


class Result(Enum):
    """What came of an event, as far as a page is concerned."""

    REFUSED = auto()  # it does not belong to the stream, at least not by itself
    PLACED = auto()  # it belongs to the stream
    TOO_HIGH = auto()  # it does, and a search should have begun below its parents
    NO_ROOM = auto()  # more lacks parents than may wait


class _Page(NamedTuple):
    """A page that has come, and the place that it was read from."""

    source: Contact
    message: PageReply
    after: Position | None


class Reader:
    """How far one peer has got in one topic's stream, and what it asks for next."""

    __slots__ = (
        "_after",
        "_asked_again",
        "_asked_at",
        "_asked_members",
        "_begin_asks",
        "_ctx",
        "_failed_pause",
        "_far",
        "_fetch",
        "_first_heads",
        "_gaps_left",
        "_highest",
        "_inbox",
        "_keep_none",
        "_library",
        "_losses",
        "_lowest_wanted",
        "_members",
        "_part",
        "_past_to_read",
        "_pruned",
        "_reach",
        "_reading_from",
        "_request",
        "_round_trip",
        "_silent",
        "_since",
        "_source",
        "_state",
        "_steps_back",
        "_streams",
        "_told_heads",
        "_topic",
        "_tried",
        "begin_serial",
        "stream",
    )

    def __init__(
        self,
        ctx: Context,
        stream: TopicStream,
        since: Since | None,
        streams: Streams,
        fetch: Fetch,
        library: Store,
        members: Members,
    ) -> None:
        """`since`: the past that the subscriber asks for."""
        self._ctx = ctx
        self._topic = topic = stream.topic
        self.stream = stream
        self._streams = streams
        self._fetch = fetch
        self._library = library
        self._members = members
        self._state = State.IDLE
        self._past_to_read = since  # None once a reading has begun
        # --- a member's word to begin with
        self.begin_serial = ctx.next_serial()  # of the timer that asks for it again
        self._begin_asks = 0
        self._asked_members: BoundedDict[PeerId, None] = BoundedDict(_ASKED_MEMBERS_MAX)
        self._keep_none: dict[PeerId, None] = {}  # members that keep no history
        self._first_heads: Sequence[Head] = ()  # the heads of the member that this peer began with
        self._told_heads: Sequence[Head] | None = None  # the heads that a member told last
        # --- walking back
        floor = library.summary(topic).floor
        self._highest = max(library.heads(topic).values(), default=floor.height)
        """The height of the highest event that was taken in, released or not."""
        self._steps_back = 0  # steps back along one branch, without reaching anything known
        self._lowest_wanted = self._stored_from()
        """The past below this height was not asked for."""
        # --- the reading under way
        self._gaps_left: BoundedDict[Cid, Contact] = BoundedDict(_GAPS_LEFT_MAX)
        """Gaps that were left to the reading, and which peer brought what lies above them."""
        self._failed_pause = Pause()  # until a reading that failed is begun anew
        self._losses = Losses(topic, stream.dag, library, fetch, members)
        self._since: Since = "beginning"
        self._after: Position | None = None
        self._source: Contact | None = None
        self._request = 0
        self._part = 0  # of the pages asked for, the one to come next
        self._inbox: deque[_Page] = deque()  # what has come, and is not taken in yet
        self._far = False  # so far behind that pages bring what is new
        self._tried: dict[PeerId, None] = {}
        self._silent: BoundedDict[PeerId, None] = BoundedDict(_SILENT_MAX)  # they come last
        self._asked_at: Millis = 0
        self._asked_again = 0
        self._round_trip = RoundTrip()
        self._pruned: Contact | None = None  # the first that has pruned what is asked for
        self._reading_from: int | None = None  # the height that this reading began at, if known
        self._reach = 0  # how far below the lowest waiting event it began, if it did

    def _stored_from(self) -> int:
        """The height at which the stored stream begins; 0: at its bottom. A stream that began where
        another member stood may have low events, too: this peer's own, or those of a branch that
        forked off far below."""
        lowest = self._library.events(self._topic, limit=1)
        if not lowest or lowest[0].height > 1:
            return lowest[0].height if lowest else 0
        began_later = self._library.beginning(self._topic) and self._library.lost(self._topic, 1)
        return 1 if began_later else 0

    @property
    def reading(self) -> bool:
        return self._state in _ASKING

    @property
    def has_past(self) -> bool:
        """Whether the past that was asked for has been read, as far as there is a member to ask
        that keeps one."""
        if not self.stream.begun or self.reading:
            return False
        if self.nobody_keeps:
            return True
        settled = self._state is not State.FAILED and not self._losses.are_sought
        return settled and (self._past_to_read is None or not self._members(self._topic))

    def brings(self, height: int) -> bool:
        """Whether an event so high comes in a page sooner than it can be handed out."""
        return self.reading and height > self.stream.top() + NEAR

    def _go(self, step: Step) -> None:
        self._state = _NEXT[self._state][step]

    # --- what happens to a subscription -----------------------------------------------------------

    def on_subscriber(self, since: Since | None) -> None:
        """One more subscriber, which may ask for the past after others that did not."""
        if since is not None:
            self._past_to_read = since

    def seek_beginning(self) -> None:
        """Have a member asked where to begin, unless one has told meanwhile."""
        if not self.stream.begun:
            timeout_ms = self._ctx.config.history.request_timeout_ms
            self._ctx.set_timer(timeout_ms, BEGIN, self._topic, self.begin_serial)

    def waits_in_vain(self) -> bool:
        """No member has told in time where to begin. Returns whether that was once too often."""
        self._begin_asks += 1
        return self._begin_asks > _BEGIN_ASKS_MAX

    def note_kept(self, member: Contact, kept: bool) -> None:
        """A member says whether it keeps history. One that keeps none can neither tell where to
        begin nor be read from."""
        if kept:
            self._keep_none.pop(member.peer, None)
            return
        members = {one.peer for one in self._members(self._topic)}
        known = [one for one in (*self._keep_none, member.peer) if one in members]
        self._keep_none = dict.fromkeys(known)
        if self._source is not None and self._source.peer == member.peer:
            if self._pruned is not None and self._pruned.peer == member.peer:
                self._pruned = None
            self._ask_another()

    def note_told(self, member: PeerId, word: Heads) -> None:
        """A peer tells where its stream ends. The word of peers from outside does not count, nor
        does that of a member whose own stream has not begun."""
        counts = self.is_member(member) or self.may_begin_with(member)
        has_begun = word.heads or word.seen is not None
        if counts and has_begun and self.stream.begun:
            self._told_heads = word.heads

    @property
    def told(self) -> Sequence[Head] | None:
        """Where other members stand, as they said; None as long as there was no word."""
        return None if self._told_heads is None else (*self._first_heads, *self._told_heads)

    def is_member(self, peer: PeerId) -> bool:
        """Whether the routing knows a peer as a member."""
        return any(one.peer == peer for one in self._members(self._topic))

    def to_begin_with(self) -> list[Contact]:
        """Members that may tell where to begin."""
        return [one for one in self._members(self._topic) if one.peer not in self._keep_none]

    @property
    def nobody_keeps(self) -> bool:
        """Whether all members that are known have said that they keep no history."""
        return bool(self._keep_none) and not self.to_begin_with()

    def begin_alone(self) -> None:
        """No other member is there: the stream begins with whatever comes."""
        self._streams.begin(self.stream)
        self.take_early()

    def note_asked(self, member: PeerId) -> None:
        """A member is asked where its stream stands."""
        if not self.stream.begun:
            self._asked_members.renew(member, None)

    def may_begin_with(self, member: PeerId) -> bool:
        """Whether a peer was asked where to begin: what others say, unasked, is no beginning."""
        return member in self._asked_members

    def begin_with(self, member: Contact, word: Heads) -> None:
        """Begin where another member stands."""
        self._lowest_wanted = min((head.height for head in word.heads), default=0)
        self._first_heads = word.heads
        missing = self._streams.begin(self.stream, word)
        self._fetch.want(self._topic, missing, member, hearsay=True)
        self.take_early()

    def on_member(self, member: Contact | None) -> None:
        """Read the past that is wanted, as soon as there is a member to ask. A peer that has the
        stream from its beginning lacks only what follows."""
        if self._past_to_read is None or self.reading:
            return
        if member is None and not self._members(self._topic):
            return
        since, self._past_to_read = self._past_to_read, None
        floor = self._library.summary(self._topic).floor
        if self.stream.dag.heads and not self._lowest_wanted and floor == START:
            since = self._behind()
        elif since == "beginning":
            self._lowest_wanted = 0
        self._read(member, since)

    def on_heads(self, member: Contact, heads: Sequence[Head]) -> None:
        """A member tells where its stream ends: get what this peer has not seen."""
        unknown = [head for head in heads if not self.stream.dag.knows(head.cid)]
        far = max((head.height for head in unknown), default=0) - self._highest
        if far > self._ctx.config.history.walk_back_max:
            self._read(member, self._behind())
        elif unknown and not self.reading and self._past_to_read is None:
            cids = [head.cid for head in unknown]
            self._fetch.want(self._topic, cids, member, hearsay=True)
        elif not unknown and self._wants_whole:
            self._losses.on_heads(member, {head.cid for head in heads})

    def on_turn(self, members: bool) -> None:
        """The topic's turn: with `members` to ask, begin anew what failed; go through what is
        missing, for which peers that are no members may be asked, too."""
        if self._state is State.FAILED and members and self._may_read_again():
            self._go(Step.TURN)
            if self._past_to_read is None:
                self._past_to_read = self._since
        self.on_member(None)
        self._take_proven()
        if not self.reading:
            self._fetch.want(self._topic, self.stream.dag.missing(), None)
            if self._wants_whole:
                self._losses.on_turn()

    def _may_read_again(self) -> bool:
        """Whether to begin a failed reading anew. Members that never answer would have this peer
        read for ever, and leave all gaps to that."""
        is_over = self._failed_pause.is_over()
        return is_over or any(one.peer not in self._tried for one in self.to_begin_with())

    @property
    def _wants_whole(self) -> bool:
        """Whether the whole past was asked for, and has been read."""
        was_read = self._past_to_read is None and not self.reading
        return was_read and self.stream.wants_past and not self._lowest_wanted

    # --- events -----------------------------------------------------------------------------------

    def on_event(self, event: SealedEvent, source: Contact | None, hops: int) -> None:
        """An event that routing brought, and that was found whole."""
        if self.stream.begun:
            self.take(event, source, hops)
        else:
            self.stream.wait(event, source, hops)

    def take_early(self) -> None:
        """The subscription has begun: the events that waited for that."""
        for event, source, hops in self.stream.take_early():
            self.take(event, source, hops, early=True)

    def _take_proven(self) -> None:
        """Take in the events that waited for proof of where the beginning lies, once that has come
        or its time is over."""
        if self.stream.begun and self.stream.early and not self.stream.proving:
            for event, source, hops in self.stream.take_early():
                self.take(event, source, hops)

    def take(
        self,
        event: SealedEvent,
        source: Contact | None,
        hops: int,
        early: bool = False,
        paged: bool = False,
    ) -> Result:
        """Put an event in its place, and get the parents that it lacks. `paged`: it came in a
        page."""
        taken = self._streams.add(self.stream, event, source, hops, early)
        self._take_proven()
        if taken.no_room:
            self._on_no_room(source)
            return Result.NO_ROOM
        if not taken.belongs:
            return Result.REFUSED
        too_high = taken.placed and self._on_placed(event, taken, source, paged)
        return Result.TOO_HIGH if too_high else Result.PLACED

    def _on_no_room(self, source: Contact | None) -> None:
        """Too much waits for what is missing: a peer that is so far behind reads on from where its
        own stream ends, or, if what waits is close to that, from where its branch forked off."""
        if self.reading:
            return
        lowest = self.stream.dag.lowest_waiting()
        if lowest > self.stream.top() + self._ctx.config.history.walk_back_max:
            self._read(source, self._behind())
        else:
            self._search(source, lowest)

    def _on_placed(
        self, event: SealedEvent, taken: Taken, source: Contact | None, paged: bool
    ) -> bool:
        """An event got its place. Parents that are not there are given up where the past is not
        wanted, else fetched. Returns whether they show that a search began too high."""
        missing = taken.missing
        if not missing:
            self._highest = max(self._highest, event.height)
        if taken.vouched:
            self._steps_back = self._steps_back + 1 if missing else 0
        if taken.past_unwanted:
            self._lowest_wanted = min(self._lowest_wanted, event.height)
            self._streams.give_up(self.stream, missing)
            return False
        if missing:
            return self._on_gap(event, taken, source, paged)
        if source is not None and not self.reading:
            # The peer that brought it has what keeps it waiting, and maybe no other peer has.
            below = self.stream.dag.missing_below(event.cid)
            if below:
                self._fetch.want(self._topic, below, source, patient=True)
        return False

    def _on_gap(
        self, event: SealedEvent, taken: Taken, source: Contact | None, paged: bool
    ) -> bool:
        """Walk back from the event where the gap is short; read the stream where it is long. (What
        waits above an older gap does not make a new one longer.) While the stream is being read
        already, gaps are left to that: the end of the reading shows which are left. Returns
        whether a search began too high."""
        below, self._highest = self._highest, max(self._highest, event.height)
        if self._past_to_read is not None:
            if self._members(self._topic):
                self._leave_to_reading(taken.missing, source)
            else:
                self._fetch.want(self._topic, taken.missing, source, patient=not taken.vouched)
            return False
        if self._state is State.SEARCHING and paged:
            self._go(Step.GAP)
            self._steps_back = 0
            return True
        if self.reading:
            if not paged:
                self._leave_to_reading(taken.missing, source)
            return False
        if self._state is State.LOST:
            self._go(Step.GAP)
            self._steps_back = 0
        walk_back_max = self._ctx.config.history.walk_back_max
        if self._steps_back > walk_back_max:
            self._steps_back = 0
            if event.height <= self._lowest_wanted:
                self._streams.give_up(self.stream, taken.missing)
            else:
                self._search(source, event.height)
        elif event.height - below <= walk_back_max:
            patient = not taken.vouched
            self._fetch.want(self._topic, taken.missing, source, patient)
        else:
            self._leave_to_reading(taken.missing, source)
            self._read(source, self._behind())
        return False

    def _leave_to_reading(self, missing: Iterable[Cid], source: Contact | None) -> None:
        """Note that `source` is asked after the reading for parents that are still missing."""
        if source is not None:
            for cid in missing:
                self._gaps_left[cid] = source

    # --- pages ------------------------------------------------------------------------------------

    def on_page_reply(self, sender: Contact, message: PageReply) -> None:
        source = self._source
        asked = source is not None and source.peer == sender.peer
        if source is None or not asked or message.request != self._request:
            self._ctx.counters["history_unasked"] += 1
            return
        if message.part != self._part:  # one before it got lost, or came twice
            self._ctx.counters["history_pages_astray"] += 1
            return
        self._silent.pop(sender.peer, None)
        if not message.part:
            self._round_trip.note(self._ctx.now - self._asked_at)
        if not self._believes(message):
            self._leave(source)
            return
        self._inbox.append(_Page(source, message, self._after))
        asked_on = False
        if message.next is not None and message.blocks:
            self._after = Position(message.next.height, message.next.cid)
            asked_on = not message.more
            if asked_on:
                self._ask(source)
            else:
                self._await_part()
        if len(self._inbox) == 1:
            if asked_on:
                self._ctx.set_timer(0, TAKE, self._topic)
            else:
                self.on_take()

    def on_take(self) -> None:
        """Take in the page that came first, and have the next one taken in."""
        if not self.reading:
            self._inbox.clear()
        if not self._inbox:
            return
        page = self._inbox.popleft()
        self._take_in(page)
        if self._inbox:
            self._ctx.set_timer(0, TAKE, self._topic)

    def _take_in(self, page: _Page) -> None:
        message = page.message
        results = self._take_page(message.blocks, page.source)
        # A branch that forked off below where this reading began shows by more events without
        # parents than may wait; during a search, by a single one.
        if results & {Result.NO_ROOM, Result.TOO_HIGH} and self._search_lower(page.source):
            return
        self._go(Step.PAGE)
        if message.next is None:
            self._end(page.source)
        elif not results - {Result.REFUSED}:
            self._inbox.clear()
            self._after = page.after  # nothing of the page counts
            self._leave(page.source)
        else:
            left = message.top - message.next.height
            self._note_far(left > (NEAR if self._far else FAR))

    def _note_far(self, far: bool) -> None:
        """Tell the routing whether this reading is far behind; again with each page, since the
        topic's links change."""
        if far or self._far:
            self._ctx.tell(FarBehind(self._topic, far))
        self._far = far

    def _believes(self, message: PageReply) -> bool:
        """Whether a page may be taken in."""
        if not message.held:
            return False
        if message.pruned and self._state is not State.PARTIAL and self._after is None:
            if self._pruned is None:
                self._pruned = self._source
            return False
        following = message.next
        if following is None or self._after is None:
            return True
        return Position(following.height, following.cid) > self._after  # above the page before

    def _take_page(self, blocks: list[bytes], sender: Contact) -> set[Result]:
        """Take a page's events in. An event that may not be in the stream by itself may still be
        there by the word of one that follows."""
        results: set[Result] = set()
        suspects: dict[Cid, SealedEvent] = {}
        for event in self._streams.open_page(self.stream, blocks):
            if not self.stream.dag.heads and self._state is State.PARTIAL:
                self._lowest_wanted = event.height
            result = self.take(event, sender, 0, paged=True)
            results.add(result)
            if result in (Result.REFUSED, Result.NO_ROOM):
                suspects[event.cid] = event
                continue
            results |= self._take_vouched(event, suspects, sender)
            if self._state is State.PARTIAL:
                self._streams.give_up(self.stream, event.parents)
        return results

    def _take_vouched(
        self, event: SealedEvent, suspects: dict[Cid, SealedEvent], sender: Contact
    ) -> set[Result]:
        """Take in what an accepted event names as its parents, and so on down."""
        results: set[Result] = set()
        named = list(event.parents)
        while named and suspects:
            suspect = suspects.pop(named.pop(), None)
            if suspect is not None:
                result = self.take(suspect, sender, 0, paged=True)
                results.add(result)
                if result not in (Result.REFUSED, Result.NO_ROOM):
                    named += suspect.parents
        return results

    def _end(self, sender: Contact) -> None:
        """Read to the end: what waits for parents still has gaps, which are fetched."""
        self._go(Step.END)
        self._source = None
        self._note_far(False)
        self._fetch.want(self._topic, self.stream.dag.missing(), sender)
        self._want_gaps_left()
        if self.stream.wants_past:
            self._losses.on_read()
        self._take_proven()
        self._failed_pause.end()
        self._ctx.counters["history_caught_up"] += 1

    def _want_gaps_left(self) -> None:
        """The reading is over: of the gaps that were left to it, those that stayed open are asked
        of the peers that brought what lies above them."""
        left = list(self._gaps_left.items())
        self._gaps_left.clear()
        for cid, source in left:
            if self.stream.dag.awaits(cid):
                self._fetch.want(self._topic, [cid], source)

    def on_timeout(self, serial: int) -> None:
        """Question or answer may have got lost: ask once or twice more, then another member. If
        others may answer, a member that was silent before, or has sent no page yet, is left at
        once."""
        source = self._source
        if source is None or serial != self._request:
            return
        if self._ctx.now < self._asked_at + self._patience():
            return  # the timer of an earlier attempt
        known = self._after is not None and source.peer not in self._silent
        self._silent.renew(source.peer, None)
        others = any(
            one.peer not in self._tried and one.peer not in self._silent
            for one in self.to_begin_with()
        )
        if self._asked_again < _ASKED_AGAIN_MAX and (known or not others):
            self._ask(source, self._asked_again + 1)
        else:
            self._leave(source)

    def on_peer_lost(self, peer: PeerId) -> None:
        if self._source is not None and self._source.peer == peer:
            self._leave(self._source)

    # --- beginning to read ------------------------------------------------------------------------

    def _read(self, source: Contact | None, since: Since) -> None:
        """Read from `source`, or from any member; no effect while reading already."""
        if self.reading:
            return
        whole = since == "beginning" or isinstance(since, tuple)
        self._reading_from = 0 if since == "beginning" else None
        self._reach = 0
        self._since, self._after = since, None
        self._go(Step.READ if whole else Step.READ_PART)
        self._ask_first(source)

    def _search(self, source: Contact | None, height: int) -> None:
        """Look for where a branch forked off, below this height, and read from there on; no effect
        while reading already."""
        if self.reading:
            return
        self._reach = REACH
        self._begin_below(height)
        self._ask_first(source)

    def _search_lower(self, source: Contact) -> bool:
        """Too much lacks parents: begin further down, below the lowest event that waits; False
        where nothing is further down, or what comes before was not asked for."""
        if self._state is State.PARTIAL or self._reading_from == 0:
            return False
        lowest = self.stream.dag.lowest_waiting()
        read = lowest - self._reading_from if self._reading_from is not None else 0
        self._reach = max(REACH, 2 * self._reach, 2 * read)
        self._inbox.clear()
        self._begin_below(lowest)
        self._ask(source)
        return True

    def _begin_below(self, height: int) -> None:
        self._since, self._after = "beginning", _bottom_of(height - self._reach)
        self._reading_from = self._after.height
        self._go(Step.SEARCH)

    def _behind(self) -> Since:
        """From where to read what others have and this peer does not: after its heads. For a
        member that does not have these, as they are new or on a branch of their own, some of the
        events below them are named, too, so that only what lies above the highest one that both
        have is read."""
        heads = self.stream.heads()[: HEADS_MAX - _STEPS_MAX]
        named = {head.cid: None for head in heads}
        step = _FIRST_STEP
        for _ in range(_STEPS_MAX):
            if not heads or step >= heads[0].height:
                break
            below = _bottom_of(heads[0].height - step)
            named.update((e.cid, None) for e in self._library.events(self._topic, below, limit=1))
            step *= 2
        return tuple(named) or "beginning"

    # --- asking -----------------------------------------------------------------------------------

    def _ask_first(self, source: Contact | None) -> None:
        self._tried.clear()
        self._pruned = None
        if source is not None:
            self._source = source
            self._ask(source)
        else:
            self._ask_another()

    def _leave(self, source: Contact) -> None:
        """A member does not answer, or lacks what was asked for: ask another one."""
        self._tried[source.peer] = None
        if self._state is State.PARTIAL and self._pruned == source:
            self._pruned = None
        self._ctx.counters["history_sources_failed"] += 1
        self._ask_another()

    def _ask_another(self) -> None:
        """Ask a member that has not failed; if none is left, the one that has pruned a part. A
        member that keeps no history does not count as tried."""
        left = [c for c in self.to_begin_with() if c.peer not in self._tried]
        left.sort(key=lambda one: one.peer in self._silent)
        source = left[0] if left and len(self._tried) < _SOURCES_MAX else None
        if source is None and self._pruned is not None:
            source = self._pruned
            self._go(Step.PRUNED)
        self._source = source
        if source is not None:
            self._ask(source)
        else:
            while self._inbox:  # what has come counts
                page = self._inbox.popleft()
                self._take_page(page.message.blocks, page.source)
            self._go(Step.NOBODY if self._reach == 0 else Step.NOBODY_BELOW)
            self._failed_pause.lengthen()
            self._note_far(False)
            self._want_gaps_left()

    def _ask(self, source: Contact, asked_again: int = 0) -> None:
        """Ask for the next page. A member that is asked again gets the same number: an answer that
        was only slow still counts."""
        ctx, since, after = self._ctx, self._since, self._after
        if not asked_again:
            self._request = ctx.next_serial()
        request = PageRequest(
            self._topic,
            self._request,
            Cid(since) if isinstance(since, bytes) else None,
            since if isinstance(since, int) else None,
            list(since) if isinstance(since, tuple) else [],
            Head(after.cid, after.height) if after is not None else None,
            _PAGES,
        )
        ctx.send(source, request)
        self._part = 0
        self._asked_at = ctx.now
        self._asked_again = asked_again
        ctx.set_timer(self._patience() << asked_again, TIMEOUT, self._topic, self._request)

    def _await_part(self) -> None:
        """The member sends the next page by itself: wait for it as long as for an answer."""
        self._part += 1
        self._asked_at = self._ctx.now
        self._asked_again = 0
        self._ctx.set_timer(self._patience(), TIMEOUT, self._topic, self._request)

    def _patience(self) -> Millis:
        return self._round_trip.patience(self._ctx.config.history.request_timeout_ms)


def _bottom_of(height: int) -> Position:
    """Before all events of this height."""
    return Position(max(0, height), _LOWEST)
