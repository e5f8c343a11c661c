"""One subscribed topic's history at one peer: where its stream stands and how it began.

A subscription begins in one of three ways:

- the store already has the stream: it goes on from there, and what was missed is fetched;
- the past is asked for (`since`): the stream is read in its order from a member;
- else a member's heads are the *baseline*: they are delivered, what came before them is not wanted.

Until it has begun, events that routing brings wait; the oldest give way, and come back as gaps.

What lies *before* the beginning (`seen.py`) is handed out at the beginning or never: once an event
is delivered, none that it follows comes after it. A member's word on this is believed for
`recent_ms` only: for so long routing may still bring what is older, and no longer can anybody keep
a publisher's events from a subscriber by lying. Whoever asks for the past wants all of that, and
gets it even late.

Walking back from a branch that came from below the beginning (`wanted_above`) ends after some
steps: the past was not asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice

from weft.documents.dag import Position, position
from weft.documents.descriptor import Event, known_event
from weft.ids import Cid, Contact, Topic
from weft.protocol.context import Context
from weft.protocol.history.catchup import CatchUp, bottom_of
from weft.protocol.history.seen import Seen
from weft.protocol.messages_history import HEADS_MAX, Had, Head
from weft.store.interface import Store
from weft.store.reader import Since, stream_of

_RECALLED_MAX = 1_024
"""guess: stored events looked through for what a former life has had; some 10 ms."""
_STEPS_MAX = 24
"""guess: events named below the heads, each twice as far below as the one before; enough for any
stream, and some 2 ms."""
_FIRST_STEP = 8
"""guess: how far below the heads the first of them lies."""

Early = tuple[Event, Contact | None, int]
"""An event that came before the subscription had begun, who brought it, and its hops."""


class TopicHistory:
    """See the module's text."""

    __slots__ = (
        "_before",
        "_before_until",
        "_ctx",
        "_early_bytes",
        "_early_bytes_max",
        "_early_max",
        "_gaps",
        "_library",
        "baseline",
        "begun",
        "catch_up",
        "climbed",
        "early",
        "seen",
        "since",
        "stream",
        "topic",
        "walked",
        "wanted_above",
        "wants_past",
    )

    def __init__(
        self,
        ctx: Context,
        topic: Topic,
        since: Since | None,
        library: Store,
        members: Callable[[Topic], list[Contact]],
        seen: Seen | None = None,
    ) -> None:
        """`seen`: of an earlier subscription in this life of the peer."""
        self._ctx = ctx
        self._library = library
        self.topic = topic
        self.since = since  # still to be read from a member
        self.wants_past = since is not None
        self.stream = stream_of(library, topic)
        self.begun = bool(self.stream.heads) or since is not None
        self.baseline: dict[Cid, None] = {}
        self.climbed = self.top()  # the highest event taken in, released or not
        self.walked = 0  # steps back along one branch, without reaching anything known
        self.wanted_above = 0
        lowest = library.events(topic, limit=1)
        if lowest and lowest[0].height > 1:
            self.wanted_above = lowest[0].height
        self.seen = seen if seen is not None else self._recall(library)
        self._gaps = dict.fromkeys(library.missing(topic))
        self._before: Seen | None = None
        if self.stream.heads and not self.wants_past:
            self._begin_after(self.seen.told())
        self.early: deque[Early] = deque()
        self._early_bytes = 0
        self._early_max = ctx.config.history.early_max
        self._early_bytes_max = ctx.config.history.waiting_bytes_max
        self.catch_up = CatchUp(ctx, topic, members)

    def begin_alone(self) -> None:
        """Nobody else is there: the stream begins with whatever comes."""
        self.begun = True

    def _recall(self, library: Store) -> Seen:
        """What a former life has had, from the end of what it stored."""
        found: list[Event] = []
        top = max(((height, cid) for cid, height in self.stream.heads.items()), default=None)
        if top is not None:
            for cid, _ in islice(library.downwards(self.topic, Position(*top)), _RECALLED_MAX):
                block = library.get(cid)
                if block is not None:
                    found.append(known_event(block, cid))
        seen = Seen(self._ctx.config.history.publishers_max)
        for event in reversed(found):
            seen.note(event)
        return seen

    def _begin_after(self, told: Iterable[Had]) -> None:
        """What is covered by this lies before the beginning."""
        self._before = Seen(self._ctx.config.history.publishers_max, told)
        self._before_until = self._ctx.now + self._ctx.config.dissemination.recent_ms

    def is_before(self, event: Event) -> bool:
        """Whether an event lies before the beginning, and is not wanted. (What the store misses is
        no beginning: a former life got only half of something.)"""
        if self._before is not None and self._ctx.now >= self._before_until:
            self._before = None
        covered = self._before is not None and self._before.covers(event)
        return covered and event.cid not in self._gaps

    def widen_gap(self, event: Event, missing: Iterable[Cid]) -> None:
        """What the store misses has come, and misses something itself."""
        if event.cid in self._gaps:
            self._gaps.update(dict.fromkeys(missing))

    def want_past(self, since: Since) -> None:
        """A subscriber asks for the past, perhaps after others that did not."""
        self.since = since
        self.wants_past = True
        self._before = None

    def begin_with(self, heads: Iterable[Head], told: Iterable[Had]) -> list[Cid]:
        """Begin where another member stands, who has had what is `told`; returns what to fetch."""
        self.begun = True
        self._begin_after(told)
        for had in told:
            self.seen.add(had)
        self.wanted_above = min((head.height for head in heads), default=0)
        self.baseline = {head.cid: None for head in heads if not self.stream.knows(head.cid)}
        return list(self.baseline)

    def wait(self, event: Event, source: Contact | None, hops: int) -> None:
        """Keep an event until the subscription has begun."""
        self.early.append((event, source, hops))
        self._early_bytes += len(event.block)
        while len(self.early) > self._early_max or self._early_bytes > self._early_bytes_max:
            self._early_bytes -= len(self.early.popleft()[0].block)

    def take_early(self) -> list[Early]:
        """What waited, parents before children."""
        early = sorted(self.early, key=lambda waiting: position(waiting[0]))
        self.early.clear()
        self._early_bytes = 0
        return early

    def highest(self, without: dict[Cid, None]) -> list[Head]:
        """The heads to tell others, the highest where there are too many; `without` those that
        nobody may know of yet."""
        known = self.stream.heads
        order = sorted(known, key=lambda cid: (known[cid], cid), reverse=True)
        told = [cid for cid in order if cid not in without]
        return [Head(cid, known[cid]) for cid in told[:HEADS_MAX]]

    def top(self) -> int:
        """How high the stream is."""
        return max(self.stream.heads.values(), default=self.stream.floor.height)

    def behind(self) -> Since:
        """From where to read what others have and this peer does not: after its heads. For whoever
        does not have these, as they are new or on a branch of its own, some of the events below
        them are named, too, so that only what lies above the highest one that both have is read."""
        heads = self.highest({})[: HEADS_MAX - _STEPS_MAX]
        named = {head.cid: None for head in heads}
        step = _FIRST_STEP
        for _ in range(_STEPS_MAX):
            if not heads or step >= heads[0].height:
                break
            below = bottom_of(heads[0].height - step)
            named.update((e.cid, None) for e in self._library.events(self.topic, below, limit=1))
            step *= 2
        return tuple(named) or "beginning"
