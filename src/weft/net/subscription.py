"""Subscriptions: what an application holds, and how events get into it.

    sub = peer.subscribe("/sports/football")
    await sub                     # joined (or started) the topic's overlay
    async for note in sub: ...

One subscription can be to several topics, which are added and removed while it is read, so that a
program with a thousand topics has one queue and one task.

The driver hands every run of a topic's events to all subscriptions to it (`Subscriptions.deliver`);
a `Notification` is made of an event when the application takes it. Each subscription has a queue of
its own, bounded in number and bytes. When it is full, the connection that brought
the event is not read from (and a local publisher is suspended) until the application has taken
half of what waits, but no longer than `subscription_patience_ms`; after that what does not fit is
dropped: `dropped` says how many, the peer counts them, the trace has a REJECT_MESSAGE for each
(see `congestion` for why this cannot lock up). Every loss is in the log, and the subscriber chooses
(`on_loss`) whether it is also an exception, or a `Gap` where the events would have come.

A subscription that asked for the past is not live at once. It first reads the store, a page at a
time, and live events wait meanwhile; those that the reader meets, too, are taken out. At the end of
the store, the live events that are left follow in the order they came, and from then on the
subscription is live. So each event comes once, parents first. The number of waiting events is
bounded: an application that reads slowly gets the others from the store.

If the event to read on from is not in the store, other members are asked for it, and reading begins
once their past of the topic is in the store. If it is of another topic, or nobody knows it, the
subscription ends with an error.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from functools import lru_cache
from inspect import isawaitable
from itertools import repeat
from operator import length_hint
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, get_args

from msgspec import Struct

from weft.documents.headers import in_metadata, payloads_in, unwrap
from weft.documents.run import Run
from weft.errors import WeftError
from weft.ids import Cid, PeerId, Topic, cid_text, parse_plain_topic, peer_text
from weft.net.arguments import Topics, check_callable, topics_in
from weft.net.config import Network
from weft.net.congestion import Congestion, Seat
from weft.net.counters import Counters
from weft.net.errors import ClosedError, LossError, UsageError, usable
from weft.net.timers import Timers, Turns, now_ms
from weft.protocol import seam
from weft.protocol.delivery import REJECT_MESSAGE, message_id
from weft.store.interface import Since, Store

if TYPE_CHECKING:
    from weft.documents.descriptor import SealedEvent
    from weft.net.replay import Replay
    from weft.net.tracer import Tracer

log = logging.getLogger("weft.net")

OnLoss: TypeAlias = Literal["log", "raise", "mark"]
"""How a subscriber learns of events that were dropped, besides the line in the log."""
ON_LOSS: tuple[OnLoss, ...] = get_args(OnLoss)

Decode: TypeAlias = Callable[[bytes], object]
"""Reads a payload."""
Seek: TypeAlias = Callable[["Subscription"], Awaitable["SealedEvent"]]
"""Gets the event that a subscription reads on from, once the past after it is in the store."""
Callback: TypeAlias = Callable[["Notification"], object]
"""Called with each notification; an awaitable that it returns is awaited."""

Passed: TypeAlias = tuple[Topic, str, bytes, int]
"""An event that was delivered: topic, id, publisher, hops."""

PASSED_MAX = 2_000
"""guess: deliveries remembered for a picture, which asks several times a second."""
_LOSS_MS = 1_000  # guess: between two lines in the log about the losses of one subscription
_NOTE_BYTES = 400  # measured: what a notification weighs besides its payload

_publisher_text: Callable[[bytes], str] = lru_cache(maxsize=4_096)(
    lambda publisher: peer_text(PeerId(publisher))
)


class Notification(Struct, frozen=True, eq=False, gc=False):
    """One event, handed to a subscriber."""

    _deliver: seam.Deliver
    _place: int  # of the event in the run that was delivered
    payload: bytes

    @property
    def topic(self) -> Topic:
        """The topic of the subscription that got it."""
        return self._deliver.topic

    @property
    def published_in(self) -> Topic:
        """The topic that it was published in; in a hierarchy perhaps a sub-topic of `topic`."""
        return self._deliver.published_in or self._deliver.topic

    @property
    def hops(self) -> int:
        """How many connections it crossed; 0 if it was read from a store."""
        return self._deliver.hops

    @property
    def descriptor(self) -> SealedEvent | None:
        """With history: the signed event as it is stored; else None."""
        return self._deliver.descriptor

    @property
    def headers(self) -> dict[str, str]:
        """The headers that its publisher gave the event; often none."""
        described = self._deliver.descriptor
        if described is not None:
            return in_metadata(described.metadata)
        return dict(unwrap(self._deliver.run.payloads[self._place])[0])

    @property
    def value(self) -> object:
        """The payload as the peer's decoder reads it (`Peer.open(decode=…)`), whose errors are
        raised here; without one, the payload."""
        return self.payload

    @property
    def publisher(self) -> str:
        """The publisher's peer id."""
        return _publisher_text(self._deliver.run.publisher)

    @property
    def event_id(self) -> str:
        """The same for this event everywhere, and in the trace."""
        return message_id(self.topic, self._deliver.run.event(self._place))

    @property
    def cid(self) -> str:
        """With history: the event's content identifier; else empty."""
        return cid_text(self.descriptor.cid) if self.descriptor is not None else ""

    @property
    def number(self) -> int:
        """The event's number: a publisher numbers its events in a topic 1, 2, 3, …"""
        return self._deliver.run.first + self._place

    @property
    def published_at(self) -> float:
        """Seconds since 1970, by the publisher's clock."""
        return self._deliver.run.published_ms / 1_000

    def __repr__(self) -> str:
        size = len(self.payload)
        return f"Notification({self.event_id!r}, {size} bytes, hops={self.hops})"


class Decoded(Notification, frozen=True, eq=False, gc=False):
    """A notification of a peer that was given a decoder."""

    _decode: Decode | None

    @property
    def value(self) -> object:
        return self.payload if self._decode is None else self._decode(self.payload)


class Gap(Notification, frozen=True, eq=False, gc=False):
    """Stands in a subscription where events were dropped (`on_loss="mark"`): the last of them, with
    an empty payload."""

    lost: int  # how many events

    @classmethod
    def of(cls, deliver: seam.Deliver, before: int = 0) -> Gap:
        """A gap in place of a run and of `before` events that were lost before it."""
        count = len(deliver.run.payloads)
        return cls(deliver, count - 1, b"", before + count)

    @property
    def headers(self) -> dict[str, str]:
        return {}

    def __repr__(self) -> str:
        return f"Gap({self.topic!r}, lost={self.lost})"


class Door(Protocol):
    """How a subscription enters topics and leaves them."""

    def enter(
        self,
        subscription: Subscription,
        topic: Topic,
        scheme: seam.Scheme | None,
        since: Since | None,
    ) -> None:
        """Enter a topic; `Subscription.answered` is called once it has been joined."""

    async def leave(self, subscription: Subscription, topics: Iterable[Topic]) -> None: ...


class Subscription:
    """Notifications of one topic or of several, in a bounded queue. Made by `Peer.subscribe`;
    `past` says from where on, and out of which store, earlier events of the first topic come
    first."""

    def __init__(
        self,
        topic: Topic,
        settings: Network,
        timers: Timers,
        door: Door,
        past: tuple[Store, Since, Seek] | None = None,
        on_loss: OnLoss = "log",
        decode: Decode | None = None,
        without: PeerId | None = None,
    ) -> None:
        """`without`: events of this publisher are left out."""
        self.topic = topic  # the first, if there are several
        self.outcomes: dict[Topic, seam.Outcome] = {}  # "joined" or "instantiated", once known
        self._entering: set[Topic] = set()
        self._topics: dict[Topic, None] = {}
        self._door = door
        self._decode = decode
        self._without = without
        self._caller: asyncio.Task[None] | None = None
        self.dropped = 0  # notifications that found no room
        self._on_loss = on_loss
        self._gaps: deque[tuple[int, Gap]] = deque()  # and how many events went in before each
        self._put = 0  # events that went in so far
        self._logged = 0  # how many of `dropped` the log has told
        self._log_due = 0
        self._settings = settings
        self._runs: deque[tuple[seam.Deliver, int]] = deque()  # and what each weighs
        # The application reads the first of them: its events but the last, made as they are taken.
        self._notes: Iterator[Notification] = iter(())
        self._places: Iterator[int] = iter(())  # in that run, of those not taken yet
        self._reading = False
        self._events = 0  # in all of them, without those of `_places`
        self._bytes = 0
        self._congestion = Congestion(timers, settings.subscription_patience_ms)
        self._seat = Seat()
        self._turns = Turns()
        self._joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closed = False
        self._failure: WeftError | None = None  # to be raised where the past would have come
        self._past = _replay(self, *past) if past is not None else None  # None: live

    def __repr__(self) -> str:
        first = next(iter(self._topics), None)  # `topic` may have been removed
        named = "no topics" if first is None else repr(first)
        more = f" and {len(self._topics) - 1} more" if len(self._topics) > 1 else ""
        joined = "" if first is None else f", {self.outcomes.get(first) or 'joining'}"
        state = ", closed" if self._closed else joined
        return f"Subscription({named}{more}{state}, {len(self)} waiting)"

    @property
    def outcome(self) -> seam.Outcome | None:
        """How the (first) topic was entered: "joined", or "instantiated" if this peer is its first
        member; None until it is known."""
        return self.outcomes.get(self.topic)

    @property
    def topics(self) -> tuple[Topic, ...]:
        return tuple(self._topics)

    # --- for the application --------------------------------------------------------------------

    def __await__(self) -> Generator[None, None, Subscription]:
        return self._wait_joined().__await__()

    async def _wait_joined(self) -> Subscription:
        await asyncio.shield(self._joined)
        if self._failure is not None:
            raise self._failure
        return self

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Notification:
        for note in self._notes:
            return note
        if self._runs and self._turns.due:  # else waiting gives the loop its turns
            await self._turns.give()
        if not self._runs:
            await self._wait_for_more()
        return self._take()

    async def _wait_for_more(self) -> None:
        while not self._runs and not self._gaps:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if self._closed:
                raise StopAsyncIteration
            if self._caller is not None and self._caller is not asyncio.current_task():
                raise UsageError("a callback reads this subscription; subscribe twice")
            await self._seat.wait("two tasks read from one subscription; subscribe twice")

    def get_nowait(self) -> Notification | None:
        """The next notification if there is one."""
        note = next(self._notes, None)
        if note is not None:
            return note
        return self._take() if self._runs or self._gaps else None

    def __len__(self) -> int:
        """Notifications that wait to be read."""
        return self._events + length_hint(self._places)

    async def __aenter__(self) -> Subscription:
        try:
            return await self
        except BaseException:  # cancelled, or the past cannot be had: the block is not entered
            await self.close()
            raise

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def add(self, topic: str | Topics) -> None:
        """Subscribe to one more topic, or to several; returns once they have been joined."""
        self._check_open()
        for name in [usable(parse_plain_topic, one) for one in topics_in(topic)]:
            if name not in self._topics:
                self.enter(name)
        await self._wait_joined()

    async def remove(self, topic: str | Topics) -> None:
        """Unsubscribe from one of the topics, or from several. Their events that wait can still be
        read."""
        self._check_open()
        names = [Topic(one) for one in topics_in(topic)]
        for name in names:
            if name not in self._topics:
                raise UsageError(f"this subscription has no topic {name!r}")
        for name in names:
            del self._topics[name]
            self.outcomes.pop(name, None)
        await self._door.leave(self, names)
        for name in names:
            self._entered(name)

    def each(self, callback: Callback) -> Subscription:
        """Call `callback` for each notification, one after the other, in place of iterating. An
        awaitable that it returns is awaited; its exceptions are logged, and the next one comes."""
        self._check_open()
        check_callable("callback", callback)
        if self._caller is not None:
            raise UsageError("this subscription has a callback already; subscribe twice")
        self._caller = asyncio.get_running_loop().create_task(self._call(callback))
        return self

    async def _call(self, callback: Callback) -> None:
        while True:
            try:
                note = await anext(self)
            except StopAsyncIteration:
                return
            except WeftError as error:  # a loss, or the end
                log.error("%s", error)
                continue
            try:
                result = callback(note)
                if isawaitable(result):
                    await result
            except Exception:
                log.exception("a callback of the subscription to %s failed", self.topic)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                # A task that the callback waited for was cancelled, not this one.
                log.exception("a callback of the subscription to %s was cancelled", self.topic)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the subscription to {self.topic} is closed")

    async def close(self) -> None:
        """Unsubscribe. Events that wait can still be read; then the iteration ends."""
        if not self._closed:
            await self._door.leave(self, self._topics)
            self.end()

    @property
    def closed(self) -> bool:
        return self._closed

    def _take(self) -> Notification:
        """The first or the last event of a run; what is between them is in `_notes`."""
        if not self._reading:
            if self._gaps and self._put - len(self) >= self._gaps[0][0]:
                return self._take_gap()
            self._begin_run()
            for note in self._notes:
                return note
        return self._end_run()

    def _begin_run(self) -> None:
        """The application comes to the first event of a run."""
        deliver, _ = self._runs[0]
        payloads = deliver.run.payloads
        last = len(payloads) - 1
        self._reading = True
        if last:
            self._events -= last
            self._places = iter(range(last))
            self._notes = self._made(deliver, self._places, payloads[:last])

    def _end_run(self) -> Notification:
        """The application takes the last event of a run: the queue has room for others."""
        deliver, weight = self._runs.popleft()
        payloads = deliver.run.payloads
        last = len(payloads) - 1
        (note,) = self._made(deliver, (last,), payloads[last:])
        self._reading = False
        self._events -= 1
        self._bytes -= weight
        if not self._over(2):
            if self._congestion.since:
                self._congestion.clear()
                self._log_losses()
            if self._past is not None:
                self._past.go_on()
        return note

    def _made(
        self, deliver: seam.Deliver, places: Iterable[int], wrapped: Sequence[bytes]
    ) -> Iterator[Notification]:
        """Notifications of some of a run's events, each made when it is taken."""
        payloads = wrapped if deliver.descriptor is not None else payloads_in(wrapped)
        if self._decode is None:
            return map(Notification, repeat(deliver), places, payloads)
        return map(Decoded, repeat(deliver), places, payloads, repeat(self._decode))

    def _take_gap(self) -> Gap:
        _, gap = self._gaps.popleft()
        if self._on_loss == "raise":
            text = f"{gap.lost} events of {gap.topic} were dropped: they were not read in time"
            raise LossError(text, gap.lost)
        return gap

    # --- for the driver -------------------------------------------------------------------------

    def lose(self, deliver: seam.Deliver) -> None:
        """Count, and tell the reader of, events that find no room behind those that wait now."""
        self.dropped += len(deliver.run.payloads)
        if now_ms() >= self._log_due:
            self._log_losses()
        if self._on_loss == "log":
            return
        if self._gaps and self._gaps[-1][0] == self._put:
            self._gaps[-1] = (self._put, Gap.of(deliver, self._gaps[-1][1].lost))
        else:
            self._gaps.append((self._put, Gap.of(deliver)))
        self._seat.wake()

    def _log_losses(self) -> None:
        """At most one line a second while it goes on, and one when it is over."""
        lost, self._logged = self.dropped - self._logged, self.dropped
        if lost:
            self._log_due = now_ms() + _LOSS_MS
            log.warning(
                "a subscription to %s dropped %d events (%d in all): the application does not read "
                "them in time",
                self.topic,
                lost,
                self.dropped,
            )

    def hold_back(self, cid: Cid, deliver: seam.Deliver) -> bool:
        """Whether the past is still being read, and the event waits for its end."""
        if self._past is None or deliver.topic != self.topic:
            return False
        self._past.hold(cid, deliver)
        return True

    async def fail(self, error: WeftError) -> None:
        """End with an error for the reader: the past cannot be read."""
        self._failure = error
        await self.close()

    def replayed(self) -> None:
        """The past has been read."""
        self._past = None

    def leaves_out(self, run: Run) -> bool:
        """Whether the application does not want the events of this run's publisher."""
        return run.publisher == self._without

    def put(self, deliver: seam.Deliver, size: int) -> Congestion | None:
        """Take in the events of a run, whose payloads have `size` bytes together; returns the
        congestion to wait for if the queue is full now."""
        count = len(deliver.run.payloads)
        weight = size + _NOTE_BYTES * count
        self._runs.append((deliver, weight))
        self._events += count
        self._put += count
        self._bytes += weight
        self._seat.wake()
        if not self._over(1):
            return None
        self._congestion.begin()
        return self._congestion

    def has_room(self) -> bool:
        """False once the queue is full and has been waited for in vain."""
        return not (self._congestion.given_up and self._over(1))

    def _over(self, divisor: int) -> bool:
        """Whether the queue holds more than its bounds divided by `divisor`."""
        settings = self._settings
        return (
            len(self) * divisor > settings.subscription_events_max
            or self._bytes * divisor > settings.subscription_bytes_max
        )

    def enter(
        self, topic: Topic, scheme: seam.Scheme | None = None, since: Since | None = None
    ) -> None:
        """Enter one more topic; the driver calls `answered` when it has been joined."""
        self._topics[topic] = None
        self._entering.add(topic)
        if self._joined.done():
            self._joined = asyncio.get_running_loop().create_future()
        try:
            self._door.enter(self, topic, scheme, since)
        except WeftError:
            del self._topics[topic]
            self._entered(topic)
            raise

    def answered(self, topic: Topic, outcome: seam.Outcome) -> None:
        if topic in self._topics:
            self.outcomes[topic] = outcome
        self._entered(topic)

    def _entered(self, topic: Topic) -> None:
        """The topic has been joined, or left."""
        self._entering.discard(topic)
        if not self._entering and not self._joined.done():
            self._joined.set_result(None)

    def end(self) -> None:
        """No more notifications will come."""
        self._closed = True
        self._congestion.clear()
        self._log_losses()
        if not self._joined.done():
            self._joined.set_exception(ClosedError(f"closed before {self.topic} was joined"))
            self._joined.exception()  # there may be no task that waits for it
        self._seat.wake()


def _replay(subscription: Subscription, store: Store, since: Since, seek: Seek) -> Replay:
    from weft.net.replay import Replay  # noqa: PLC0415  (only peers with a store read it)

    return Replay(subscription, store, since, seek)


class Subscriptions:
    """The open subscriptions of one peer, by topic."""

    def __init__(self, counters: Counters, tracer: Tracer | None) -> None:
        self._counters = counters
        self._tracer = tracer
        self._by_topic: dict[Topic, list[Subscription]] = {}
        self._passed: list[Passed] | None = None  # None until `passed` is called first

    def passed(self) -> list[Passed]:
        """The events delivered since the last call, at most the first `PASSED_MAX`: the bound keeps
        memory and work small once nobody calls this any more."""
        passed, self._passed = self._passed or [], []
        return passed

    def add(self, subscription: Subscription, topic: Topic) -> None:
        self._by_topic.setdefault(topic, []).append(subscription)

    def remove(self, subscription: Subscription, topic: Topic) -> bool:
        """Remove it from a topic; returns whether it was the last one there."""
        others = self._by_topic.get(topic, [])
        if subscription in others:
            others.remove(subscription)
        if not others:
            self._by_topic.pop(topic, None)
        return not others

    def deliver(self, effect: seam.Deliver, obstacles: list[Congestion]) -> None:
        """Hand the events of a run to all subscriptions to its topic that want them. A queue that
        was given up gets no more; one that is full now is added to `obstacles`."""
        described, count = effect.descriptor, len(effect.run.payloads)
        subscriptions = self._by_topic.get(effect.topic, ())
        wanting = [one for one in subscriptions if not one.leaves_out(effect.run)]
        if not wanting:
            return
        seconds = time.time() - effect.run.published_ms / 1_000
        sizes = list(map(len, effect.run.payloads))
        self._counters.observe(seconds, sizes)
        if self._passed is not None and len(self._passed) < PASSED_MAX:
            self._passed += [
                (effect.topic, message_id(effect.topic, event), effect.run.publisher, effect.hops)
                for event in effect.run.events()
            ]
        size = sum(sizes)
        for subscription in wanting:
            if described is not None and subscription.hold_back(described.cid, effect):
                continue
            if subscription.has_room():
                self._counters.delivered += count
                full = subscription.put(effect, size)
                if full is not None and full.blocks:
                    obstacles.append(full)
            else:
                subscription.lose(effect)
                self._counters.notifications_dropped += count
                self._trace_rejected(effect)

    def _trace_rejected(self, effect: seam.Deliver) -> None:
        if self._tracer is None:
            return
        for event in effect.run.events():
            fields = {
                "messageID": message_id(effect.topic, event),
                "topic": effect.topic,
                "reason": "subscription queue full",
            }
            self._tracer.write(REJECT_MESSAGE, fields)

    def counts(self) -> dict[str, dict[str, int]]:
        """Per topic, how many events wait for the application and how many were dropped; the
        numbers of a subscription to several topics count in each of them."""
        return {
            topic: {
                "waiting": sum(len(one) for one in subscriptions),
                "dropped": sum(one.dropped for one in subscriptions),
            }
            for topic, subscriptions in self._by_topic.items()
        }

    def close(self) -> None:
        for subscriptions in self._by_topic.values():
            for subscription in subscriptions:
                subscription.end()
        self._by_topic.clear()
