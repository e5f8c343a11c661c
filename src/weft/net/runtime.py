"""Drives one state machine on a real network: facts in, effects out.

Everything happens in the event loop's thread and a machine's step is never interrupted: effects
are carried out after it, and none of them calls back into the machine (losses and timers come in
a later turn).

Events published in one topic within one turn of the loop are gathered (`Gathered`) and given to
the machine as one command, which makes one signed run of them. Nothing waits for more to come: a
run goes out in the loop's next turn, or before, if it is full or the machine gets another command.
With `network.linger_ms` a run waits so long for more events, if no caller waits for its outcome.
Only the event that begins a run is checked and waits for room; the events that join it cost neither
a task nor a future, and only a full run gives the loop its turn.

An effect goes to one of four places: a `Send` to the pool of connections, a `SetTimer` to the
loop's timers, a `Deliver` to the subscriptions, a `Store` to the store's own thread. Their results
are facts again: `Received` or `PeerLost`, `TimerFired`, `Stored`.

A handler that raises does not end the peer: it is counted, logged, and the connection that
brought the message is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, get_args
from weakref import ref

from msgspec.structs import replace

from weft.documents.run import RUN_MAX
from weft.ids import Cid, Contact, PeerId, Topic, cid_text
from weft.net.config import Network
from weft.net.congestion import Congestion, Window
from weft.net.connection import Connection
from weft.net.counters import Counters
from weft.net.errors import ClosedError, Fault, HandlerFault, UsageError
from weft.net.life import Life
from weft.net.listener import Acceptor
from weft.net.pool import Pool, Remote
from weft.net.receipt import (
    UNANSWERED,
    Answers,
    Became,
    Receipt,
    Sent,
    give,
)
from weft.net.subscription import Decode, OnLoss, Subscription, Subscriptions
from weft.net.timers import now_ms, shared_timers
from weft.net.tls import Credentials
from weft.protocol import seam
from weft.protocol.delivery import ADD_PEER, REMOVE_PEER
from weft.protocol.wire import Message
from weft.rules.hierarchy import climb
from weft.store.interface import Batch, Outcome, Since, StoreError

if TYPE_CHECKING:  # what only peers with a store need is loaded by them
    from weft.documents.descriptor import SealedEvent
    from weft.net.consumer import Acknowledge, Consumer, Past, Unqueued
    from weft.net.tracer import Tracer
    from weft.store.cursor import After
    from weft.store.durable import Durable

log = logging.getLogger("weft.net")


SendRun: TypeAlias = Callable[
    [Topic, tuple[bytes, ...], Callable[[seam.Answer, int], None], bool], tuple[int, int]
]
"""Gives a run to the machine; see `Runtime._send_run`."""

GATHERED_BYTES_MAX = 256 << 10  # guess: of payloads in a run; a larger event goes alone
SEEK_SECONDS = 30.0  # guess: members that do not answer for so long do not know an event
_CLOCK_MS = 250  # guess: how often the wall clock is compared with the process's clock
_CLOCK_DRIFT_MS = 1_000  # guess: far below every date that peers compare
_BACKLOG = 512  # guess: callers that may wait until this process takes them in
_TICK_MS = 1_000  # guess: how often the trace is flushed
_PUBLISHING = (seam.Publish, seam.PublishTogether, seam.Stored)
"""Facts by which this peer's own events are routed."""
_ANSWERED: tuple[type[seam.Publish | seam.Unsubscribe | seam.Confirm], ...] = (
    *(seam.Publish, seam.Unsubscribe, seam.Confirm),
    *get_args(seam.TopicCommand),
    *get_args(seam.DhtCommand),
)
"""Commands whose callers wait for one answer."""


class _Latest(NamedTuple):
    """The latest consumer of a name, and its parts."""

    consumer: ref[Consumer]
    unqueued: Unqueued
    acknowledge: Acknowledge


class Gathered(Sent):
    """The events published in one topic since the loop's latest turn, which go out as one run."""

    __slots__ = (
        "_answered",
        "_late",
        "_payloads",
        "_room",
        "_send_run",
        "expected",
        "size",
        "topic",
    )

    def __init__(
        self, me: PeerId, topic: Topic, expected: Became | None, send_run: SendRun
    ) -> None:
        super().__init__(me)
        self.topic = topic
        self.expected = expected
        self.size = 0  # in bytes
        # Events whose callers need not wait: for an answer, or for the loop's turn after a full
        # run.
        self._room = RUN_MAX - 1 if expected is not None else 0
        self._send_run: SendRun | None = send_run  # None: sent
        self._payloads: list[bytes] = []
        self._answered: asyncio.Future[None] | None = None  # made if it is waited for
        self._late: asyncio.Future[seam.Answer] | None = None  # the answer that follows "queued"

    @property
    def outcome(self) -> Became:
        if self.expected is not None and self._send_run is not None:
            return self.expected
        return super().outcome

    @property
    def late(self) -> asyncio.Future[seam.Answer] | None:
        if self.expected == "queued":
            self.send()
        return self._late

    @property
    def count(self) -> int:
        return len(self._payloads)

    def add(self, payload: bytes, joins: bool = False) -> Receipt | None:
        """One more event. With `joins` it is added only if there is nothing to check or to wait for
        that was not when the run began; None: it must go through `Runtime.publish`."""
        payloads = self._payloads
        place, size = len(payloads), self.size + len(payload)
        if joins and (place >= self._room or size > GATHERED_BYTES_MAX):
            return None
        payloads.append(payload)
        self.size = size
        return Receipt(self.topic, self, place)

    def _take_off(self) -> tuple[int, int] | None:
        send_run, self._send_run = self._send_run, None
        if send_run is None:
            return None
        payloads, self._payloads = tuple(self._payloads), []
        return send_run(self.topic, payloads, self._told, self.expected == "queued")

    def _told(self, answer: seam.Answer, peers: int) -> None:
        """The machine's answer to the run; after "queued" there is a later one."""
        if not self.on_answer(answer, peers):
            if self._late is not None:
                give(self._late, answer)
            return
        if answer.outcome == "queued":
            self._late = asyncio.get_running_loop().create_future()
        if self._answered is not None:
            give(self._answered, None)

    async def wait(self) -> None:
        """Wait until there is an answer."""
        if self._answer is None:
            if self._answered is None:
                self._answered = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._answered)


class Runtime:
    """One peer's machine, its pool and its subscriptions."""

    def __init__(
        self,
        machine: seam.Machine,
        me: Contact,
        credentials: Credentials,
        settings: Network,
        tracer: Tracer | None = None,
        agent: str = "weft",
        durable: Durable | None = None,
        life: Life | None = None,
    ) -> None:
        self.me = me
        self._life = life or Life(me, lambda: False, lambda topic: None)
        self.counters = Counters()
        self._handle = machine.handle
        self._settings = settings
        self._tracer = tracer
        self._loop = asyncio.get_running_loop()
        self._answers = Answers(self._loop)
        self._durable = durable
        self._timers = shared_timers()
        self._gate = _Gate(self)
        self.pool = Pool(
            me, credentials, settings, self, self._timers, self.counters, tracer, agent
        )
        self._acceptor: Acceptor | None = None
        self.subscriptions = Subscriptions(self.counters, tracer)
        self._routed = 0  # messages with events, by the latest step that a publish took
        self._obstacles: list[Congestion] = []  # met while carrying out the latest effects
        self._full: dict[Congestion, None] = {}  # met by what this peer published lately
        # Levels that events climb to, and queued events: their answers, not there yet.
        self._unanswered: dict[int, asyncio.Future[seam.Answer]] = {}
        self.gathered: dict[str, Gathered] = {}  # by topic
        self._linger_s = settings.linger_ms / 1_000
        self._turn_due = False  # what was gathered goes out in the loop's next turn
        self._window = Window()
        # The latest consumer of each name, and what keeps this peer in its topic: a program that
        # breaks out of its loop has lost the consumer, but misses nothing until it reads on.
        self._consumers: dict[tuple[Topic, str], _Latest] = {}
        self._wall_ahead = 0  # by how much the wall clock was ahead of the process's, as told
        self._clock_due = 0  # when that is looked at again
        self._ending: asyncio.Task[None] | None = None  # since `close` was called first
        self.closed = False

    async def start(
        self, listener: socket.socket, incarnation: int, contacts: tuple[Contact, ...]
    ) -> None:
        """Listen, and tell the machine that it is up."""
        self._acceptor = Acceptor(listener, self.pool.accept)
        self._acceptor.open(_BACKLOG)
        now = now_ms()
        self._wall_ahead, self._clock_due = _wall_ms() - now, now + _CLOCK_MS
        self._life.joining(contacts)
        self.feed(seam.Started(incarnation, contacts, now + self._wall_ahead))
        if self._tracer is not None:
            self._timers.after(_TICK_MS, self._gate.tick, None)

    # --- facts in -------------------------------------------------------------------------------

    def feed(self, fact: seam.Input) -> None:
        """Give the machine a fact and carry out its effects. Full queues are not waited for, since
        no caller could wait."""
        self._send_gathered()
        self._step(fact)
        self._obstacles.clear()

    def on_timer(self, timer: seam.Timer) -> None:
        """As `feed`, but runs that linger go on waiting."""
        self._step(seam.TimerFired(timer))
        self._obstacles.clear()

    def _step(self, fact: seam.Input) -> None:
        """As `feed`, but keeps the full queues that were met in `_obstacles`."""
        try:
            self._attempt(fact)
        except Exception:
            self.counters.handler_errors += 1
            log.exception("handling %s failed", type(fact).__name__)
            self._answer_caller(fact)

    def _attempt(self, fact: seam.Input) -> None:
        now = now_ms()
        if now >= self._clock_due:
            self._look_at_clock(now)
        effects = self._handle(fact, now)
        if isinstance(fact, _PUBLISHING):
            self._routed = sum(
                type(effect) is seam.Send and effect.message.carries for effect in effects
            )
        self._carry_out(effects)
        if self._life.watched:
            self._life.look()

    def _answer_caller(self, fact: seam.Input) -> None:
        """Answer a command that could not be handled, since its caller waits."""
        if isinstance(fact, _ANSWERED):
            self._answers.on_answer(replace(UNANSWERED, token=fact.token))
        elif isinstance(fact, seam.PublishTogether):
            for token in fact.tokens:
                self._answers.on_answer(replace(UNANSWERED, token=token))

    def received(self, connection: Connection, message: Message, size: int) -> None:
        contact = connection.contact
        assert contact is not None
        try:
            now = now_ms()
            if now >= self._clock_due:
                self._look_at_clock(now)
            effects = self._handle(seam.Received(contact, message), now)
            if effects:
                self._carry_out(effects)
            if self._life.watched:
                self._life.look()
        except Exception:
            self.counters.handler_errors += 1
            log.exception("handling a %s failed", type(message).__name__)
            connection.fail(HandlerFault(f"a {type(message).__name__} could not be handled"))
        if self._obstacles:
            self._stop_reading(connection)

    def _look_at_clock(self, now: int) -> None:
        """Tell the state machine, which measures intervals by this process's clock, when the wall
        clock has moved against it: somebody set the wall clock, or the computer slept."""
        self._clock_due = now + _CLOCK_MS
        ahead = _wall_ms() - now
        moved_ms = ahead - self._wall_ahead
        if abs(moved_ms) > _CLOCK_DRIFT_MS:
            self._wall_ahead = ahead
            moved_s = moved_ms / 1_000
            log.warning("the clock moved by %+.0f s: it was set, or this computer slept", moved_s)
            self._carry_out(self._handle(seam.ClockMoved(now + ahead), now))

    def _stop_reading(self, connection: Connection) -> None:
        """Events from this connection go into full queues: let its sender's queue fill instead."""
        obstacles, self._obstacles = self._obstacles, []
        for obstacle in dict.fromkeys(obstacles):
            if obstacle.blocks:
                connection.hold_reading()
                self.counters.reads_held += 1
                obstacle.wait(lambda: self._loop.call_soon(connection.release_reading))

    def lost(self, peer: PeerId) -> None:
        self.feed(seam.PeerLost(peer))

    def stalled(self, peer: PeerId) -> None:
        self.feed(seam.Stalled(peer))

    def resumed(self, peer: PeerId) -> None:
        self.feed(seam.Resumed(peer))

    def connected(self, contact: Contact) -> None:
        if self._tracer is not None:
            self._tracer.about_peer(ADD_PEER, contact.peer)
        self._life.connected(contact)

    def disconnected(self, peer: PeerId) -> None:
        if self._tracer is not None:
            self._tracer.about_peer(REMOVE_PEER, peer)
        self._life.disconnected(peer)

    def unreachable(self, peer: PeerId, fault: Fault | None, reason: str) -> None:
        self._life.unreachable(peer, fault, reason)

    def tick(self) -> None:
        """Every `_TICK_MS`: write the trace records that were gathered to the file."""
        self._timers.after(_TICK_MS, self._gate.tick, None)
        if self._tracer is not None:
            self._tracer.flush()

    # --- effects out ----------------------------------------------------------------------------

    def _carry_out(self, effects: list[seam.Effect]) -> None:
        send = self.pool.send
        for effect in effects:
            if type(effect) is seam.Send:
                full = send(effect.to, effect.message)
                if full is not None:
                    self._meet_obstacle(full, effect.message)
            elif type(effect) is seam.SetTimer:
                self._timers.after(effect.after_ms, self._gate.fire, effect.timer)
            elif type(effect) is seam.Deliver:
                self.subscriptions.deliver(effect, self._obstacles)
            else:
                self._carry_out_rare(effect)

    def _meet_obstacle(self, full: Remote, message: Message) -> None:
        """Only events are worth waiting for: control messages have room of their own."""
        if full.congestion.blocks and message.carries:
            self._obstacles.append(full.congestion)

    def _carry_out_rare(self, effect: seam.Effect) -> None:
        if isinstance(effect, seam.Answer):
            self._answers.on_answer(effect)
        elif isinstance(effect, seam.Store):
            self._store(effect)
        elif isinstance(effect, seam.Prune):
            self._prune(effect)
        elif isinstance(effect, seam.Hold | seam.Release | seam.Disconnect):
            self.pool.carry_out(effect)
        elif isinstance(effect, seam.Warn):
            log.warning("%s", effect.text)
        elif isinstance(effect, seam.Trace):
            if self._tracer is not None:
                self._tracer.write(effect.kind, effect.fields)
        else:
            raise TypeError(f"unknown effect {type(effect).__name__}")

    # --- the store, beside the loop -------------------------------------------------------------

    def _store(self, effect: seam.Store) -> None:
        assert self._durable is not None
        batch = Batch(
            _wall_ms(), effect.events, effect.topics, effect.records, effect.lost, effect.beginnings
        )
        try:
            done = self._durable.submit(batch)
        except StoreError as error:  # told in a later turn, as everything is
            self._loop.call_soon(self._on_stored, seam.Stored(effect.token, str(error)))
            return

        def stored(done: asyncio.Future[list[Outcome]]) -> None:
            error = self._store_failure("storing", done)
            self._on_stored(seam.Stored(effect.token, str(error) if error is not None else ""))
            for version in effect.topics if error is None else ():
                self._life.stored(version)

        done.add_done_callback(stored)

    def _on_stored(self, fact: seam.Stored) -> None:
        if not self.closed:
            self._step(fact)
            self._hold_up_publishers()  # what this peer published goes out only now

    def _prune(self, effect: seam.Prune) -> None:
        assert self._durable is not None

        def pruned(done: asyncio.Future[int]) -> None:
            if self._store_failure("pruning", done) is not None or done.cancelled():
                return
            if done.result() and not self.closed:
                self.feed(seam.Pruned(effect.topic, done.result()))

        done = self._durable.prune(effect.topic, effect.retention, _wall_ms())
        done.add_done_callback(pruned)

    def _store_failure(
        self, what: str, done: asyncio.Future[list[Outcome]] | asyncio.Future[int]
    ) -> BaseException | None:
        error = done.exception() if not done.cancelled() else None
        if error is not None:
            self.counters.store_errors += 1
            log.error("%s failed: %s", what, error)
        return error

    # --- commands -------------------------------------------------------------------------------

    def _command(self, token: int, command: seam.Command) -> seam.Answer | None:
        """Give a command; returns its answer if that comes at once."""
        return self._answers.while_doing(partial(self._step, command), token)

    def check_open(self) -> None:
        """An error if the peer is closed, or used from another event loop than its own."""
        if self._ending is not None:
            raise ClosedError("this peer is closed")
        self._check_loop()

    def _check_loop(self) -> None:
        """Refuse calls from another thread or a second `asyncio.run`: answers would never come."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if not here:
            raise UsageError(
                "this peer lives in another event loop: use it in the one that it was opened in, "
                "or from another thread asyncio.run_coroutine_threadsafe(peer.publish(…), loop)"
            )

    async def publish(
        self, topic: Topic, payload: bytes, expected: Became | None = None
    ) -> Receipt:
        """Publish an event; waits while the queues it goes into are full. `expected`: the outcome,
        if it is known already and need not be waited for."""
        self.check_open()
        if self._full:
            await self._wait_for_room()
        if expected == "queued" and self._is_window_full(topic):
            await self._wait_for_window(topic)
        gathered = self.gathered.get(topic)
        if gathered is None or gathered.size + len(payload) > GATHERED_BYTES_MAX:
            gathered = self._begin_gathering(topic, expected)
        receipt = gathered.add(payload)
        assert receipt is not None
        if gathered.count >= RUN_MAX:
            gathered.send()
            await asyncio.sleep(0)
        if gathered.expected is None:
            await gathered.wait()
            await self._wait_for_room()
        return receipt

    def _begin_gathering(self, topic: Topic, expected: Became | None) -> Gathered:
        """A new run begins; the run before it, if there is one, has no room left and is sent."""
        before = self.gathered.get(topic)
        if before is not None:
            before.send()
        gathered = Gathered(self.me.peer, topic, expected, self._send_run)
        if self._linger_s and expected is not None:
            self._loop.call_later(self._linger_s, gathered.send)
        elif not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._end_turn)
        self.gathered[topic] = gathered
        return gathered

    def _end_turn(self) -> None:
        """Send the events published in the loop's latest turn, in one write per connection."""
        self._turn_due = False
        self.pool.at_once(self._send_gathered)

    def _send_gathered(self) -> None:
        """Send what was gathered so far, in all topics."""
        while self.gathered:
            next(iter(self.gathered.values())).send()

    def _send_run(
        self,
        topic: Topic,
        payloads: tuple[bytes, ...],
        then: Callable[[seam.Answer, int], None],
        goes_on: bool,
    ) -> tuple[int, int]:
        """Give a gathered run to the machine. `then` gets its answers, each with the number of
        peers that the run has been sent to; `goes_on`: the first answer need not be the outcome.
        Returns to how many peers the run was sent at once, and for how many there was no room."""
        self.gathered.pop(topic, None)
        token = self._answers.next_token(lambda late: then(late, self._peers_of(late)))
        self.pool.take_unsent()  # of earlier steps
        answer = self._command(token, seam.Publish(token, topic, payloads, _wall_ms(), goes_on))
        sent, dropped = self._routed, self.pool.take_unsent()
        self._hold_up_publishers()
        if goes_on or answer is None or answer.outcome == "queued":
            then = self._through_window(topic, sum(map(len, payloads)), then)
        if answer is not None:
            then(answer, sent)
        return sent, dropped

    def _peers_of(self, answer: seam.Answer) -> int:
        """How many peers an event was sent to, while its answer is given: an event that is stored
        first is routed in that same step."""
        if answer.contact is None or answer.alone:
            return 0
        return self._routed if answer.contact.peer == self.me.peer else 1

    def _through_window(
        self, topic: Topic, size: int, then: Callable[[seam.Answer, int], None]
    ) -> Callable[[seam.Answer, int], None]:
        """Count a run as on its way until its last answer."""
        self._window.enter(topic, size)

        def on_answer(answer: seam.Answer, peers: int) -> None:
            if answer.outcome != "queued":
                self._window.leave(topic, size)
            then(answer, peers)

        return on_answer

    def _is_window_full(self, topic: Topic) -> bool:
        """Whether there is no room for one more event. Runs that are being gathered will be on
        their way, too, and an event of their topics joins them."""
        begun = 0 if topic in self.gathered else len(self.gathered)
        return self._window.is_full(topic, begun)

    async def _wait_for_window(self, topic: Topic) -> None:
        self.counters.publish_waits_window += 1
        while self._is_window_full(topic) and not self.closed:
            if self.gathered:  # runs that linger get no answer, and may be all that is in the way
                self._send_gathered()
            else:
                await self._window.next_answer()

    async def publish_together(
        self, named: Mapping[Topic, Sequence[Topic]], payload: bytes
    ) -> list[Receipt]:
        """Publish one event in several topics; a receipt for each. `named` has for each topic the
        levels that the event climbs to, itself first; those above are not waited for."""
        self.check_open()
        if self._full:
            await self._wait_for_room()
        self._send_gathered()
        topics = climb(named, lambda topic: named[topic])
        tokens = [self._answers.next_token() for _ in topics]
        peers: dict[Topic, int] = {}

        def note(topic: Topic, answer: seam.Answer) -> None:
            peers[topic] = self._peers_of(answer)

        notes = [partial(note, topic) for topic in topics]
        expected = list(map(self._answers.expect_two, tokens, notes))
        self.pool.take_unsent()  # of earlier steps
        now = _wall_ms()
        command = seam.PublishTogether(tuple(tokens), tuple(topics), payload, now)
        self._step(command)
        dropped = self.pool.take_unsent()
        self._hold_up_publishers()
        await self._wait_for_room()
        await asyncio.sleep(0)
        answers = dict(zip(topics, expected, strict=True))
        token_of = dict(zip(topics, tokens, strict=True))
        for token, topic in zip(tokens, topics, strict=True):
            if topic not in named and not answers[topic][0].done():
                self._unanswered[token] = answers[topic][0]
                answers[topic][0].add_done_callback(partial(self._on_answered, token))

        async def receipt(topic: Topic) -> Receipt:
            first, final = answers[topic]
            answer = await asyncio.shield(first)
            waits = final if answer.outcome == "queued" else None
            if waits is not None and not waits.done():
                token = token_of[topic]
                self._unanswered[token] = waits
                waits.add_done_callback(partial(self._on_answered, token))
            levels = [partial(receipt, level) for level in named.get(topic, ())[1:]]
            sent = Sent(self.me.peer, answer, peers.get(topic, 0), dropped)
            return Receipt(topic, sent, 0, waits, levels)

        return [await receipt(topic) for topic in named]

    def _on_answered(self, token: int, answer: asyncio.Future[seam.Answer]) -> None:
        self._unanswered.pop(token, None)

    async def ask(self, make: Callable[[int], seam.Command]) -> seam.Answer:
        """Give the command that `make` makes for a token, and wait for its one answer."""
        self.check_open()
        self._send_gathered()
        token = self._answers.next_token()
        answer = self._command(token, make(token))
        self._obstacles.clear()
        if answer is not None:
            return answer
        return await self._answers.expect(token)

    def _hold_up_publishers(self) -> None:
        """Note the full queues that this peer's events went into: the next publish waits for
        room."""
        self._full.update(dict.fromkeys(self._obstacles))
        self._obstacles.clear()

    async def _wait_for_room(self) -> None:
        self.counters.publish_waits_queue += any(one.blocks for one in self._full)
        while self._full:
            obstacle = next(iter(self._full))
            if not obstacle.blocks:
                del self._full[obstacle]
                continue
            room: asyncio.Future[None] = self._loop.create_future()
            obstacle.wait(partial(give, room, None))
            await room

    def subscribe(
        self,
        topic: Topic,
        scheme: seam.Scheme | None = None,
        since: Since | None = None,
        on_loss: OnLoss = "log",
        decode: Decode | None = None,
        known: Past | None = None,
        own: bool = True,
    ) -> Subscription:
        """Subscribe to one topic; more can be added. `scheme`, `since` and `known` (how far its
        past has been read from others) are about this one. `own`: with this peer's own events."""
        self.check_open()
        past = None
        if since is not None and self._durable is not None and known is not None:
            seek = partial(self._seek, topic, since, known)
            past = (self._durable.store, since, seek)
        without = None if own else self.me.peer
        subscription = Subscription(
            topic, self._settings, self._timers, self, past, on_loss, decode, without
        )
        subscription.enter(topic, scheme, since)
        return subscription

    async def _seek(
        self, topic: Topic, since: Since, past: Past, subscription: Subscription
    ) -> SealedEvent:
        """Get an event that is not in the store from members, and wait for the past after it."""
        from weft.net.consumer import event_in, past_read  # noqa: PLC0415
        from weft.store.cursor import PositionUnknown  # noqa: PLC0415

        assert isinstance(since, bytes) and self._durable is not None
        cid = Cid(since)
        await subscription
        # Without any other peer, or an address to join by, there is nobody to ask.
        patience_s = 0 if self._life.alone() else SEEK_SECONDS
        try:
            async with asyncio.timeout(patience_s):
                answer = await self.ask(lambda token: seam.FindEvent(token, topic, cid))
        except TimeoutError:
            answer = None
        if answer is None or answer.value is None:
            raise PositionUnknown(
                f"since: neither this peer nor a member of {topic} that it reached knows the event "
                f"{cid_text(cid)}"
            )
        event = event_in(answer.value, topic)
        await past_read(self._durable, past, subscription)
        return event

    def join(self, contact: Contact) -> None:
        """Enter the network through one more peer."""
        self.check_open()
        self._life.joining([contact])
        self.feed(seam.Join((contact,)))

    def enter(
        self,
        subscription: Subscription,
        topic: Topic,
        scheme: seam.Scheme | None,
        since: Since | None,
    ) -> None:
        self.check_open()
        self.subscriptions.add(subscription, topic)
        self._send_gathered()
        try:
            with self._answers.asking(
                lambda answer: subscription.answered(topic, answer.outcome)
            ) as token:
                self._attempt(seam.Subscribe(token, topic, scheme, since))
        except StoreError:  # no event would ever come
            self.subscriptions.remove(subscription, topic)
            raise
        finally:
            self._obstacles.clear()

    def consume(
        self,
        topic: Topic,
        past: Past,
        name: str | None,
        after: After,
        decode: Decode | None = None,
    ) -> Consumer:
        from weft.net.consumer import Consumer, Unqueued  # noqa: PLC0415

        self.check_open()
        assert self._durable is not None
        before = self._ended(topic, name) if name is not None else None
        unqueued = Unqueued(topic, self._settings, self._timers, self)
        consumer = Consumer(unqueued, self._durable, past, name, after, decode, self._life.alone)
        unqueued.enter(topic, None, "beginning" if consumer.wants_past else None)
        keeps = consumer.acknowledge
        if name is not None and keeps is not None:
            self._consumers[topic, name] = _Latest(ref(consumer), unqueued, keeps)
        if before is not None:
            before.acknowledge.on_replaced()
            if not before.unqueued.closed:
                self.subscriptions.remove(before.unqueued, topic)  # the new one keeps this peer in
                before.unqueued.end()
        return consumer

    def _ended(self, topic: Topic, name: str) -> _Latest | None:
        """The latest consumer of a name, which must not be in use any more."""
        before = self._consumers.get((topic, name))
        running = before.consumer() if before is not None else None
        if running is not None and not running.over:
            raise UsageError(f"there is a consumer {name!r} of {topic} already; close it first")
        return before

    async def reset_consumer(self, topic: Topic, name: str, after: After) -> None:
        """Set the place of a name that is not in use, on disk."""
        from weft.store.cursor import NOW, Cursor, PositionUnknown  # noqa: PLC0415

        self.check_open()
        assert self._durable is not None
        before = self._ended(topic, name)
        place = after or ""
        with contextlib.suppress(PositionUnknown):  # other members may have what it names
            if after is not None:
                cursor = Cursor(self._durable.store, topic, after, past_read=False)
                # In a store that has nothing of the topic, the next consumer finds out what now is.
                place = NOW if after == NOW and cursor.wants_past else cursor.position
        if before is not None:
            before.acknowledge.on_replaced()
        await self._durable.put(Batch(_wall_ms(), acks=((topic, name, place),)))

    async def leave(self, subscription: Subscription, topics: Iterable[Topic]) -> None:
        """Remove a subscription from topics; the machine leaves a topic with its last one."""
        self._send_gathered()
        left = []
        for topic in topics:
            last = self.subscriptions.remove(subscription, topic)
            if last and not self.closed:
                token = self._answers.next_token()
                left.append(self._answers.expect(token))
                self.feed(seam.Unsubscribe(token, topic))
        for answer in left:
            await answer

    # --- the end --------------------------------------------------------------------------------

    async def close(self) -> None:
        """Leave: tell the neighbours, flush, close. Events on their way, which no caller waits for,
        have up to `leave_timeout_ms` for their answers; receipts still open then end as dropped."""
        if self._ending is not None and self._ending.done():
            return
        self._check_loop()
        if self._ending is None:
            self._ending = self._loop.create_task(self._end())
        # Closing goes on if its caller is cancelled, and a second caller waits for the same task.
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        self._send_gathered()
        # Without any other peer, or an address to join by, there is nobody to wait for.
        patience_s = 0 if self._life.alone() else self._settings.leave_timeout_ms / 1_000
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                if self._unanswered:
                    await asyncio.wait(list(self._unanswered.values()))
                while self._window.total:
                    await self._window.next_answer()
        if self._unanswered or self._window.total:
            self._tell_of_untaken()
        self.closed = True
        if self._acceptor is not None:
            await self._acceptor.close()
        self.feed(seam.Leave())
        self.subscriptions.close()
        self._life.close()
        await self.pool.close()
        if self._durable is not None:
            await self._durable.close()
            self._durable.store.close()
        self._gate.shut()
        self._answers.close()
        if self._tracer is not None:
            self._tracer.close()

    def _tell_of_untaken(self) -> None:
        """Log that this peer closes before another one has taken its latest events. With a store,
        and nobody to take them, that is no warning: the next life of this peer has them."""
        kept = self._durable is not None
        level = logging.INFO if kept and self._life.alone() else logging.WARNING
        fate = "they stay in the store" if kept else "they are dropped"
        log.log(level, "closing: no peer has taken some of the latest events; %s", fate)


class _Gate:
    """What timers hold in place of the peer: they are never cancelled, and would keep a closed peer
    in memory."""

    __slots__ = ("_runtime",)

    def __init__(self, runtime: Runtime) -> None:
        self._runtime: Runtime | None = runtime

    def shut(self) -> None:
        self._runtime = None

    def fire(self, timer: seam.Timer) -> None:
        if self._runtime is not None:
            self._runtime.on_timer(timer)

    def tick(self, _: None) -> None:
        if self._runtime is not None:
            self._runtime.tick()


def _wall_ms() -> int:
    """The wall clock, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
