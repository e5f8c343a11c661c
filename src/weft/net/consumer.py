"""Durable consumers: programs that neither lose nor repeat an event when they are killed.

    async for note in peer.consume("/orders", name="billing"):
        handle(note.payload)
        await note.ack()                     # at least once: the peer's store keeps the place

    async for note in peer.consume("/orders", after=last_position):
        with database:                       # exactly once: the place is kept with the result
            handle(database, note.payload, note.position)

A consumer reads the peer's own store (`store/cursor.py`), so it gets only what is on disk, at its
own pace, and nothing is dropped when it is slow. New events wake it. The peer fetches events that
other members have and its store lacks, as for any subscriber; a consumer that begins waits until
this past has been read, so that parents come before their children. A consumer that begins at
"now" waits until another member has told its heads: events up to these heads are not new.

Events of publishers without a store are stored nowhere, so that only subscriptions get them.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple
from weakref import finalize

from weft.documents.descriptor import SealedEvent, handed_out, open_event
from weft.documents.refusal import Refused
from weft.ids import Cid, Topic
from weft.net.config import Network
from weft.net.errors import ClosedError, UsageError
from weft.net.subscription import Decode, Decoded, Door, Subscription
from weft.net.timers import Timers, Turns
from weft.protocol.seam import Deliver
from weft.rules.hierarchy import claimed_origin
from weft.store.cursor import NOW, After, Before, Cursor, PositionError, PositionUnknown, Read
from weft.store.durable import Durable
from weft.store.interface import Batch, Outcome, StoreError

if TYPE_CHECKING:
    from weft.protocol.history.stream import Head

PAGE = 256
"""guess: events read from the store at once, some 10 ms."""
_FIRST_PAGE = 16
"""guess: events read at once before the size of the topic's events is known; at most 16 MiB."""
_PAGE_BYTES = 4 << 20
"""guess: bytes of a page; of large events fewer are read at once."""
_PAST_SECONDS = 30.0
"""guess: after this time without an answer, a consumer takes it that no member has a past, or knows
the event that is looked for."""
_ASK_SECONDS = 1.0
"""guess: how often a member is asked for its heads, as long as none has told them."""
_LOOK_SECONDS = 0.1
"""guess: how often a consumer that waits for the past looks whether it has been read."""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Past(NamedTuple):
    """What this peer knows of a topic's past, and of what other members have of it."""

    is_read: Callable[[], bool]  # the past is stored or on its way there, as far as can be told
    is_coming: Callable[[], bool]  # a member is being read from
    ask: Callable[[], None] = lambda: None  # ask a member for its heads
    told: Callable[[], Sequence[Head] | None] = lambda: None  # the heads that a member has told
    is_getting: Callable[[Cid], bool] = lambda _: False  # whether such a head may still come
    is_before: Before = lambda _: False  # whether an event lies before this peer's beginning
    is_own: Before = lambda _: False  # whether this life of this peer has published an event


async def past_read(
    durable: Durable, past: Past, subscription: Subscription, patience_s: float = _PAST_SECONDS
) -> None:
    """Wait until the past that other members have is in the store, or they do not answer for
    `patience_s`. As long as parts of a long past come in, the wait goes on."""
    loop = asyncio.get_running_loop()
    patience = loop.time() + patience_s

    def is_over() -> bool:
        nonlocal patience
        if past.is_read() or subscription.closed:
            return True
        if past.is_coming():
            patience = loop.time() + patience_s
            return False
        return loop.time() >= patience

    await _looking(durable, is_over)
    await _settled(durable)


async def _settled(durable: Durable) -> None:
    """Wait until all events on their way to the store are there."""
    with suppress(StoreError):  # a full disk, or the end, shows elsewhere
        await durable.put(Batch(_now_ms()))


async def _looking(durable: Durable, is_over: Callable[[], bool]) -> None:
    """Wait until `is_over`, which is asked after every write to the store and now and then."""
    more = asyncio.Event()
    unwatch = durable.watch(more.set)
    try:
        while not is_over():
            more.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(more.wait(), _LOOK_SECONDS)
    finally:
        unwatch()


class Consumed(Decoded, frozen=True, eq=False, gc=False):
    """An event that a consumer got, and where it stands after it."""

    position: str  # give it to `Peer.consume(after=…)`
    _acknowledge: Acknowledge | None

    @classmethod
    def of(
        cls,
        topic: Topic,
        event: SealedEvent,
        position: str,
        acknowledge: Acknowledge | None,
        decode: Decode | None,
    ) -> Consumed:
        origin = claimed_origin(topic, event.metadata)
        deliver = Deliver(topic, handed_out(event, event.payload), 0, event, origin)
        return cls(deliver, 0, event.payload, decode, position, acknowledge)

    async def ack(self) -> None:
        """Say that this event and all handed out before it are done. Returns once that is on
        disk."""
        if self._acknowledge is None:
            raise UsageError("a consumer without a name keeps no place: consume(…, name=…)")
        await self._acknowledge(self.position)


class Acknowledge:
    """Keeps the place of one named consumer. Acknowledgements may come in any order."""

    def __init__(self, durable: Durable, topic: Topic, name: str) -> None:
        self._durable = durable
        self._topic = topic
        self._name = name
        self._order: dict[str, int] = {}  # positions handed out that are not on disk yet
        self._handed = 0
        self._writing: asyncio.Future[list[Outcome]] | None = None  # of the newest position
        self._written = 0  # the number of that position
        self._replaced = False
        self._began: str | None = None  # the first place, as long as it is not on disk

    def begin(self, position: str) -> None:
        """Keep a name's first place, before anything is handed out."""
        self._began = position
        self._writing = self._write(position)
        self._writing.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def begun(self) -> None:
        """Returns once the first place is on disk. If that failed, it is tried again."""
        if self._began is None:
            return
        if self._writing is None:
            self._writing = self._write(self._began)
        await self._on_disk(self._writing)
        self._began = None

    def hand_out(self, position: str) -> None:
        self._handed += 1
        self._order[position] = self._handed

    def on_replaced(self) -> None:
        """Another consumer of the name goes on from the place as it is now. It hands out again what
        this one's user has not acknowledged; an acknowledgement here would move its place back."""
        self._replaced = True

    async def __call__(self, position: str) -> None:
        number = self._order.get(position)
        if number is None:  # this one or a later one is on disk
            return
        if self._replaced:
            raise ClosedError(
                f"another consumer {self._name!r} of {self._topic} has begun before this event was "
                "acknowledged: it comes again there"
            )
        if self._writing is None or number > self._written:
            self._writing, self._written = self._write(position), number
        written = self._written
        await self._on_disk(self._writing)
        for earlier in list(takewhile(lambda one: self._order[one] <= written, self._order)):
            del self._order[earlier]

    def _write(self, position: str) -> asyncio.Future[list[Outcome]]:
        batch = Batch(_now_ms(), acks=((self._topic, self._name, position),))
        return self._durable.submit(batch)

    async def _on_disk(self, writing: asyncio.Future[list[Outcome]]) -> None:
        try:
            await asyncio.shield(writing)
        except StoreError:
            if self._writing is writing:
                self._writing = None  # so that the next acknowledgement is written in any case
            raise

    @property
    def place(self) -> str | None:
        """The last place that is on disk."""
        return self._durable.store.acked(self._topic, self._name) or None


class Unqueued(Subscription):
    """A subscription that keeps its peer in a topic, and takes no events: a consumer reads them
    from the store."""

    def __init__(self, topic: Topic, settings: Network, timers: Timers, door: Door) -> None:
        super().__init__(topic, settings, timers, door)
        self.more = asyncio.Event()  # there may be more in the store, or it is over

    def end(self) -> None:
        super().end()
        self.more.set()

    def hold_back(self, cid: Cid, _: object) -> bool:
        return True

    def put(self, _: object, size: int) -> None:
        return None


class Consumer:
    """One topic, read from the store. Made by `Peer.consume`; an async iterator, and a context
    manager that ends the subscription."""

    def __init__(
        self,
        subscription: Unqueued,
        durable: Durable,
        past: Past,
        name: str | None,
        after: After,
        decode: Decode | None = None,
        alone: Callable[[], bool] = lambda: True,
    ) -> None:
        """`alone`: whether there is no other peer to hear from, nor an address to join by."""
        self.topic = subscription.topic
        self.name = name
        self._subscription = subscription
        self._durable = durable
        self._past = past
        self._alone = alone
        self._decode = decode
        self.acknowledge = Acknowledge(durable, self.topic, name) if name is not None else None
        place = self.acknowledge.place if self.acknowledge is not None else None
        self._after = place or after
        # From a place that this store knows reading goes on at once; a wrong place is an error now.
        self._cursor = None if self._after is None else self._known()
        if self._cursor is not None and self._cursor.lacks_past:
            self._cursor = None  # older events that come in later would be taken for new ones
        self._begins_now = self._after == NOW
        self._told = past.told() if self._begins_now else None
        if self._begins_now and self._cursor is not None and not self._cursor.wants_past:
            self._keep_first(self._cursor)
        self._reads: deque[Read] = deque()
        self._at_once = _FIRST_PAGE
        self._reading = False
        self._turns = Turns()
        self._failed = False  # its place cannot be read on from
        self._more = subscription.more
        self._unwatch = durable.watch(self._more.set)
        finalize(self, self._unwatch).atexit = False

    def _keep_first(self, cursor: Cursor) -> None:
        """Keep the place where reading began at "now" on disk: "now" is later in the next life of
        this program, which would miss what this one got and did not acknowledge."""
        if self.acknowledge is not None:
            self.acknowledge.begin(cursor.position)

    def _known(self, past_read: bool = False) -> Cursor | None:
        try:
            return self._from(past_read)
        except PositionUnknown:
            return None  # other members may have the events that the position names

    def _from(self, past_read: bool) -> Cursor:
        store, before = self._durable.store, self._past.is_before
        return Cursor(store, self.topic, self._after, past_read, before)

    @property
    def wants_past(self) -> bool:
        """Whether the peer is to fetch the past that other members have."""
        return self._cursor is None or (self._cursor.wants_past and not self._begins_now)

    def __repr__(self) -> str:
        named = f" {self.name!r}" if self.name is not None else ""
        state = "closed" if self._subscription.closed else self._subscription.outcome or "joining"
        return f"Consumer{named}({self.topic!r}, {state})"

    @property
    def position(self) -> str:
        """The position before the next event, for a program that begins; see `Consumed.position`.
        Where reading begins at "now", await the consumer first: that decides when "now" is."""
        return self._begun().position

    def _begun(self) -> Cursor:
        if self._cursor is None:
            self._cursor = self._from(past_read=True)
        return self._cursor

    # --- for the application ----------------------------------------------------------------------

    def __await__(self) -> Generator[object, object, Consumer]:
        """Returns once the topic has been joined. If reading begins at "now", that is "now"."""
        return self._joined().__await__()

    async def _joined(self) -> Consumer:
        await self._subscription
        with self._alone_reading():
            await self._begin()
        return self

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> Consumed:
        with self._alone_reading():
            if self._turns.due:
                await self._turns.give()
            while not self._reads:
                if self._subscription.closed:
                    raise StopAsyncIteration
                await self._fill()
        event, place = self._reads.popleft()
        if self.acknowledge is not None:
            self.acknowledge.hand_out(place)
        return Consumed.of(self.topic, event, place, self.acknowledge, self._decode)

    @contextmanager
    def _alone_reading(self) -> Iterator[None]:
        if self._reading:
            raise UsageError("two tasks read from one consumer; make one for each")
        self._reading = True
        try:
            yield
        finally:
            self._reading = False

    async def _fill(self) -> None:
        """Read a page, or wait until there may be more."""
        try:
            if self._cursor is None:
                await self._wait_for_past()
            await self._begin()
            if self.closed:
                return
            self._more.clear()
            cursor = self._begun()
            self._reads.extend(cursor.read(self._at_once, past_read=False))
            if cursor.waits and not self._reads:
                await past_read(self._durable, self._past, self._subscription)
                self._reads.extend(cursor.read(self._at_once))
            self._failed = False
        except PositionError:
            self._failed = True
            raise
        if self._reads:
            size = sum(len(read.event.block) for read in self._reads)
            self._at_once = max(1, min(PAGE, _PAGE_BYTES * len(self._reads) // size))
        elif cursor.passed:
            await self._turns.give()
        else:
            await self._more.wait()

    async def _begin(self) -> None:
        """If reading begins at "now", find out which events are older. A name's first place is on
        disk before anything is handed out."""
        if self._begins_now:
            await self._wait_for_word()
        if self.acknowledge is not None and not self.closed:
            await self.acknowledge.begun()

    async def _wait_for_word(self) -> None:
        """Events that another member has when this peer joins are older than "now". Wait until the
        member has told its heads, and then for those events; a head that does not come is passed
        over."""
        try:
            await self._subscription
        except ClosedError:
            return
        if self._told is None and self._subscription.outcome != "instantiated":
            await self._ask_members()
        await self._wait_for_told()
        if not self.closed:
            cursor = self._begun()
            told = [(head.cid, head.height) for head in self._told or ()]
            cursor.begin_after(told, self._past.is_own)
            self._begins_now = False
            self._keep_first(cursor)

    async def _ask_members(self) -> None:
        loop = asyncio.get_running_loop()
        ask_at, patience = loop.time(), loop.time() + _PAST_SECONDS

        def is_over() -> bool:
            nonlocal ask_at
            self._told = self._past.told()
            vain = self.closed or self._alone() or loop.time() >= patience
            if self._told is not None or vain:
                return True
            if loop.time() >= ask_at:
                ask_at = loop.time() + _ASK_SECONDS
                self._past.ask()
            return False

        await _looking(self._durable, is_over)

    async def _wait_for_told(self) -> None:
        loop = asyncio.get_running_loop()
        patience = loop.time() + _PAST_SECONDS

        def is_over() -> bool:
            nonlocal patience
            if self._past.is_coming():
                patience = loop.time() + _PAST_SECONDS
            getting = any(self._past.is_getting(head.cid) for head in self._told or ())
            return not getting or self.closed or loop.time() >= patience

        await _looking(self._durable, is_over)
        await _settled(self._durable)

    async def _wait_for_past(self) -> None:
        try:
            await self._subscription
        except ClosedError:
            return
        known = self._known()
        if known is None or known.lacks_past:  # members, if there are any, may have it
            await self._ask_members()
        await past_read(self._durable, self._past, self._subscription)
        loop = asyncio.get_running_loop()
        patience = loop.time() + _PAST_SECONDS

        def is_over() -> bool:
            """The position may become known later: members that start again may not be met yet, or
            may still be reading from each other."""
            known = self._known(past_read=True) is not None
            return known or self._alone() or self.closed or loop.time() > patience

        await _looking(self._durable, is_over)

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Unsubscribe; the iteration ends. What was not acknowledged comes again."""
        self._unwatch()
        await self._subscription.close()

    @property
    def closed(self) -> bool:
        return self._subscription.closed

    @property
    def over(self) -> bool:
        """Whether another consumer may take this one's name: this one is closed, or has failed."""
        return self.closed or self._failed


def event_in(block: bytes, topic: Topic) -> SealedEvent:
    """The event in a block that a user named by its CID to read on from; `PositionError` if that
    is no event of the topic."""
    try:
        event = open_event(block)
    except Refused as refused:
        raise PositionError(f"since: that CID is no event's: {refused}") from refused
    if event.topic != topic:
        raise PositionError(f"since: that event is one of {event.topic}, not of {topic}")
    return event
