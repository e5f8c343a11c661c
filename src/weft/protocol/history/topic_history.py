"""One subscribed topic's history at one peer: where its stream stands and how it began.

A subscription begins in one of three ways:

- the store already has the stream: it goes on from there, and what was missed is fetched;
- the past is asked for (`since`): the stream is read in its order from a member;
- else a member's heads are the *baseline*: they are delivered, what came before them is not wanted.

Until it has begun, events that routing brings wait; the oldest give way, and come back as gaps.

What was not asked for is not fetched either: parents of events up to height `wanted_above` are
given up. That height comes from others' words, so it never refuses an event, and one that comes
from further down lowers it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from weft.ids import Cid, Contact, Topic
from weft.protocol.context import Context
from weft.protocol.history.catchup import CatchUp
from weft.protocol.messages_history import HEADS_MAX, Head
from weft.rules.descriptor import Event
from weft.store.interface import Store
from weft.store.reader import Since, stream_of

Early = tuple[Event, Contact | None, int]
"""An event that came before the subscription had begun, who brought it, and its hops."""


class TopicHistory:
    """See the module's text."""

    __slots__ = (
        "_early_bytes",
        "_early_bytes_max",
        "_early_max",
        "baseline",
        "begun",
        "catch_up",
        "climbed",
        "early",
        "since",
        "stream",
        "topic",
        "walked",
        "wanted_above",
    )

    def __init__(
        self,
        ctx: Context,
        topic: Topic,
        since: Since | None,
        library: Store,
        members: Callable[[Topic], list[Contact]],
    ) -> None:
        self.topic = topic
        self.since = since  # still to be read from a member
        self.stream = stream_of(library, topic)
        self.begun = bool(self.stream.heads) or since is not None
        self.baseline: dict[Cid, None] = {}
        self.climbed = self.top()  # the highest event taken in, released or not
        self.walked = 0  # steps back along one branch, without reaching anything known
        self.wanted_above = 0
        lowest = library.events(topic, limit=1)
        if lowest and lowest[0].height > 1:
            self.wanted_above = lowest[0].height
        self.early: deque[Early] = deque()
        self._early_bytes = 0
        self._early_max = ctx.config.history.early_max
        self._early_bytes_max = ctx.config.history.waiting_bytes_max
        self.catch_up = CatchUp(ctx, topic, members)

    def begin_alone(self) -> None:
        """Nobody else is there: the stream begins with whatever comes."""
        self.begun = True

    def begin_with(self, heads: Iterable[Head]) -> list[Cid]:
        """Begin where another member stands; returns what to fetch."""
        self.begun = True
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
        early = list(self.early)
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
        """From where to read what others have and this peer does not."""
        heads = self.highest({})
        return tuple(head.cid for head in heads) if heads else "beginning"
