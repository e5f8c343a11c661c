"""All connections of one peer: one per other peer, whatever the number of topics.

- A message to a peer that is not connected waits in that peer's queue while it is dialled.
- All messages queued during one turn of the event loop leave in one write per connection.
- If two peers dial each other at once, the connection dialled by the smaller peer id stays. Its
  dialler lets the other one wait until its own dial has succeeded or failed; the larger id gives
  up its dial as soon as the other's arrives (and so does the smaller one if its dial has not even
  begun, so that no two wait for each other). No message was sent yet on a connection that goes.
- A held connection stays, and breaks soon after the other machine has vanished. Any other is closed
  once nothing has crossed it for a while, and the one idle longest goes first when there are too
  many.
- Queues are bounded; messages that find no room are dropped, counted and traced. A peer that stays
  over the hard limit is disconnected. The queues to peers without a link are bounded together as
  well (fifty callers that asked much and read nothing made a peer hold 410 MB): when they hold
  more, the peer that has been behind longest is disconnected.
- `lost` is called when a connection broke, ended while it was held, or could not be made; never for
  a connection closed for idleness. It is called after the machine's current step (a send may fail
  within it), once for several losses, and not at all if the peer has called back meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Container, Iterable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from weft.ids import BadId, Contact, PeerId, peer_short, split_address
from weft.net import codec
from weft.net.codec import Encoder, Hello
from weft.net.config import Network
from weft.net.congestion import Congestion
from weft.net.connection import Connection, State
from weft.net.counters import Counters
from weft.net.dialer import Backoff, Dialer
from weft.net.errors import (
    BrokenFault,
    DialFault,
    DoubleFault,
    DuplicateFault,
    Fault,
    GreetingFault,
    OverloadFault,
    RefusedFault,
    TimeoutFault,
)
from weft.net.listener import Admission, Notices, Unfinished
from weft.net.timers import Timers, now_ms
from weft.net.tls import Credentials
from weft.protocol import seam
from weft.protocol.wire import Message
from weft.terminal import printable

if TYPE_CHECKING:
    from weft.net.tracer import Tracer

log = logging.getLogger("weft.net")

IDLE, CROWDED_OUT, REPLACED, LEAVING = "idle", "too many connections", "replaced", "leaving"
_HARMLESS = (IDLE, CROWDED_OUT, REPLACED)  # goodbyes after which the peer is still there
CALLERS, CROWDED = "too many callers at once", "too many connections are in use"
TWICE, OTHER_STAYS = "called twice", "the other connection stays"
_SLOW = ("took too long", "it closed the connection")
_ROUTINE = (CALLERS, CROWDED, TWICE, OTHER_STAYS, LEAVING, *_SLOW)  # usual refusals: no notice
ELSEWHERE = f"{REPLACED} by the same key at "  # and the address: two processes have one key
BATCH_BYTES = 64 << 10  # guess: four TLS records; how much is encrypted in one go
_CLOSING_STEP_S = 0.005
_LOST_DELAY_MS = 100  # guess: before the loss of a peer known to be unreachable is told


class Remote(Struct, eq=False):
    """Another peer, as long as there is a connection, a dial in progress or a caller in waiting."""

    peer: PeerId
    address: str
    congestion: Congestion
    connection: Connection | None = None  # open, and used for sending
    dial: Connection | None = None  # being made by this peer
    waiting: Connection | None = None  # made by the other, and used if this peer's dial fails
    frames: deque[bytes] = field(default_factory=deque)
    queued: int = 0  # bytes in `frames`
    dirty: bool = False  # has frames for the next flush
    overloaded_since: int = 0  # when the hard limit was hit; 0: has drained since
    dropped: int = 0  # messages that found no room

    @property
    def contact(self) -> Contact:
        return Contact(self.peer, self.address)

    @property
    def called_from(self) -> str:
        """The IP address that the other peer called from; empty if this peer dialled it."""
        connection = self.connection
        return "" if connection is None or connection.dialled else connection.remote_ip

    def take_batch(self) -> tuple[bytes, int]:
        """Frames to send now, joined, and how many they are."""
        frames = self.frames
        if self.queued <= BATCH_BYTES:
            count = len(frames)
            batch = frames[0] if count == 1 else b"".join(frames)
            frames.clear()
            self.queued = 0
            return batch, count
        parts, size = [], 0
        while frames and size < BATCH_BYTES:
            frame = frames.popleft()
            size += len(frame)
            parts.append(frame)
        self.queued -= size
        return b"".join(parts), len(parts)


class Outbox:
    """The queues to all peers. Above the soft limit publishers wait (see `congestion`), above the
    hard limit messages that carry events are dropped, above that and some headroom everything."""

    def __init__(
        self,
        settings: Network,
        counters: Counters,
        tracer: Tracer | None,
        held: Container[PeerId],
    ) -> None:
        """`held`: the peers that this one is linked to."""
        self._settings = settings
        self._held = held
        self.bytes = 0  # in all queues
        self._soft = settings.queue_soft_bytes
        self._counters = counters
        self._tracer = tracer
        self._loop = asyncio.get_running_loop()
        self._encoder = Encoder()
        self._dirty: list[Remote] = []
        self._flush_due = False  # in the loop's next turn, or by the caller of `gather`
        self._overloaded: dict[PeerId, Remote] = {}
        self._unsent = 0  # messages with events, since they were last asked for

    def enqueue(self, remote: Remote, message: Message) -> Remote | None:
        """Queue a message. Returns the receiver if its queue is full (or was, and the message
        dropped), None in the usual case."""
        frame = self._encoder.frame(message)
        queued = remote.queued + len(frame)
        crowded = queued > self._soft
        if crowded and not self._has_room(remote, message, len(frame)):
            return remote
        remote.frames.append(frame)
        remote.queued = queued
        self.bytes += len(frame)
        if self._tracer is not None:
            self._tracer.sent(remote.peer, message, len(frame))
        if not remote.dirty and remote.connection is not None:
            remote.dirty = True
            self._dirty.append(remote)
            if not self._flush_due:
                self._flush_due = True
                self._loop.call_soon(self.flush)
        return remote if crowded else None

    def gather(self) -> None:
        """The caller will flush by itself: do not ask the loop for a flush."""
        self._flush_due = True

    def _has_room(self, remote: Remote, message: Message, size: int) -> bool:
        """Whether a queue over the soft limit takes this message; if not, it is dropped."""
        settings = self._settings
        if size > settings.frame_bytes_max + codec.HEADER_BYTES:
            self.drop(remote.peer, message, "too large")
            return False
        remote.congestion.begin()
        limit = settings.queue_hard_bytes
        if remote.peer not in self._held:
            limit = min(limit, settings.queue_stranger_bytes)
        if not message.carries:
            limit += settings.queue_control_bytes
        if remote.queued + size <= limit:
            return True
        if not remote.overloaded_since:
            remote.overloaded_since = now_ms()
            self._overloaded[remote.peer] = remote
        remote.dropped += 1
        self.drop(remote.peer, message, "queue full")
        return False

    def flush(self) -> None:
        """Write all queued frames, with one write to each connection."""
        self._flush_due = False
        dirty, self._dirty = self._dirty, []
        for remote in dirty:
            remote.dirty = False
            self.pump(remote)

    def pump(self, remote: Remote) -> None:
        """Hand frames to the peer's connection as long as it takes them."""
        counters = self._counters
        while remote.frames:
            connection = remote.connection
            if connection is None or not connection.writable:
                break
            before = remote.queued
            batch, count = remote.take_batch()
            self.bytes -= before - remote.queued
            counters.frames_sent += count
            counters.writes += 1
            connection.write(batch)
        if remote.congestion.since and remote.queued <= self._soft // 2:
            self._relieve(remote)

    def _relieve(self, remote: Remote) -> None:
        remote.overloaded_since = 0
        self._overloaded.pop(remote.peer, None)
        remote.congestion.clear()

    # --- dropping -----------------------------------------------------------------------------

    def drop(self, peer: PeerId, message: Message, reason: str) -> None:
        """Count and trace a message that is dropped."""
        self._unsent += message.carries
        self._counters.dropped(message, reason)
        if self._tracer is not None:
            self._tracer.dropped(peer, message, reason)

    def take_unsent(self) -> int:
        """How many messages with events were dropped since this was last asked."""
        unsent, self._unsent = self._unsent, 0
        return unsent

    def drop_queue(self, remote: Remote, reason: str) -> None:
        """Drop all frames queued for this peer."""
        for frame in remote.frames:
            message = codec.decode(frame[codec.HEADER_BYTES :])
            if not isinstance(message, codec.Goodbye):
                self.drop(remote.peer, message, reason)
        remote.frames.clear()
        self.bytes -= remote.queued
        remote.queued = 0
        self._relieve(remote)

    def stuck(self, now: int) -> list[Remote]:
        """Peers that hit the hard limit and have not drained for too long."""
        limit = now - self._settings.overload_ms
        return [remote for remote in self._overloaded.values() if remote.overloaded_since <= limit]

    def forget_message(self) -> None:
        """Let go of the message encoded last, which may be large."""
        self._encoder.on_sent()


class Handler(Protocol):
    """The object that the pool reports to."""

    def received(self, connection: Connection, message: Message, size: int) -> None: ...

    def lost(self, peer: PeerId) -> None: ...

    def stalled(self, peer: PeerId) -> None: ...

    def resumed(self, peer: PeerId) -> None: ...

    def connected(self, contact: Contact) -> None: ...

    def disconnected(self, peer: PeerId) -> None: ...

    def unreachable(self, peer: PeerId, fault: Fault | None, reason: str) -> None: ...


class Pool:
    """The connections of one peer; their `Owner`."""

    def __init__(
        self,
        me: Contact,
        credentials: Credentials,
        settings: Network,
        handler: Handler,
        timers: Timers,
        counters: Counters,
        tracer: Tracer | None,
        agent: str,
    ) -> None:
        self._me = me.peer
        self._hello = Hello(codec.WIRE_VERSION, settings.name, me.address, agent)
        self._credentials = credentials
        self._settings = settings
        self._handler = handler
        self._timers = timers
        self._counters = counters
        self._tracer = tracer
        self._loop = asyncio.get_running_loop()
        self._admission = Admission(settings.handshakes_max, settings.handshakes_per_ip_max)
        self._unfinished = Unfinished(settings.unfinished_bytes_max)
        self._notices = Notices()
        self._dialer = Dialer(settings.dials_max, self._dial_begun, self._dial_failed)
        self._backoff = Backoff(settings.dial_backoff_ms, settings.dial_backoff_ms_max)
        self._remotes: dict[PeerId, Remote] = {}
        self._connections: dict[Connection, None] = {}  # every one that is not gone yet
        self._held: set[PeerId] = set()
        self._outbox = Outbox(settings, counters, tracer, self._held)
        self._losses: set[PeerId] = set()  # yet to be told
        self._stalled: set[PeerId] = set()  # told, or about to be: their dials wait for a turn
        self._closed = False
        self._sweep_due = now_ms() + settings.sweep_ms
        timers.after(settings.sweep_ms, self._sweep, None)

    # --- sending ------------------------------------------------------------------------------

    def send(self, contact: Contact, message: Message) -> Remote | None:
        """Queue a message, dialling if need be. Returns the receiver if its queue is full (or
        was, and the message dropped), None in the usual case."""
        remote = self._remotes.get(contact.peer)
        if remote is None:
            remote = self._meet(contact, message)
            if remote is None:
                self._outbox.drop(contact.peer, message, "unreachable")
                return None
        full = self._outbox.enqueue(remote, message)
        if self._outbox.bytes > self._settings.queue_strangers_bytes and (
            contact.peer not in self._held
        ):
            self._shed()
        return full

    def at_once(self, act: Callable[[], None]) -> None:
        """Run `act`, and write all that it sends right after it, not a turn of the loop later."""
        self._outbox.gather()
        try:
            act()
        finally:
            self._outbox.flush()

    def _shed(self) -> None:
        """If too much is queued for peers without a link, disconnect the one of them that has been
        behind longest, and drop its queue."""
        strangers = [
            one for one in self._remotes.values() if one.frames and one.peer not in self._held
        ]
        if sum(one.queued for one in strangers) <= self._settings.queue_strangers_bytes:
            return
        slowest = min(strangers, key=_behind_since)
        self._outbox.drop_queue(slowest, "queue full")
        if slowest.connection is not None:
            fault = OverloadFault("too much waits for peers that do not read")
            self._loop.call_soon(slowest.connection.fail, fault)

    def take_unsent(self) -> int:
        """How many messages with events were dropped since this was last asked."""
        return self._outbox.take_unsent()

    # --- meeting peers --------------------------------------------------------------------------

    def _meet(self, contact: Contact, message: Message) -> Remote | None:
        """Start dialling an unconnected peer, because of this message."""
        if self._closed or contact.peer == self._me:
            return None
        if self._backoff.blocks(contact):
            self._tell_loss(contact.peer, _LOST_DELAY_MS)
            return None
        if message.reports and self._dialer.second >= self._settings.connections_max // 4:
            return None
        remote = self._new_remote(contact)
        self._counters.dial(message)
        self._dial(remote, message.reports)
        return self._remotes.get(contact.peer)

    def _new_remote(self, contact: Contact) -> Remote:
        congestion = Congestion(self._timers, self._settings.queue_patience_ms)
        remote = self._remotes[contact.peer] = Remote(contact.peer, contact.address, congestion)
        return remote

    def _dial(self, remote: Remote, second: bool = False) -> None:
        connection = self._new_connection(remote.peer)
        remote.dial = connection
        try:
            host, port = split_address(remote.address)
        except BadId as error:
            self._dial_failed(connection, DialFault(str(error)))
            return
        everybody = self._remotes.values()
        if len(everybody) > self._settings.connections_max and not self._evict(everybody):
            self._dial_failed(connection, OverloadFault(CROWDED))
            return
        self._dialer.start(connection, host, port, second)
        if not self._dialer.has_begun(connection) and remote.peer not in self._stalled:
            self._stalled.add(remote.peer)
            self._loop.call_soon(self._report_stall, remote.peer)

    def _new_connection(self, expected: PeerId | None) -> Connection:
        connection = Connection(self, self._credentials, self._hello, self._settings, expected)
        self._connections[connection] = None
        return connection

    def accept(self) -> Connection:
        """The protocol factory of the listening socket. A caller that the system accepted just
        before the socket was closed is turned away."""
        connection = self._new_connection(None)
        if self._closed:
            connection.abort()
        return connection

    def _dial_begun(self, connection: Connection) -> None:
        assert connection.expected is not None
        self._resume(connection.expected)

    def _dial_failed(self, connection: Connection, fault: Fault) -> None:
        """A dial failed before there was a TCP connection; later failures come by `ended`."""
        connection.abort()
        self.gone(connection)
        self.ended(connection, fault, str(fault))

    def _evict(self, remotes: Iterable[Remote]) -> bool:
        """Close the connection that has been idle longest, if one of these can be spared."""
        spare = [
            remote
            for remote in remotes
            if remote.connection is not None and remote.peer not in self._held and not remote.frames
        ]
        if not spare:
            return False
        oldest = min(spare, key=_last_used)
        self._counters.evictions += 1
        self._end(oldest, CROWDED_OUT)
        return True

    def _has_room_for(self, caller: Connection) -> bool:
        """Whether there is room for one more caller, from its address and in all; an idle
        connection is closed for it if need be."""
        settings, everybody = self._settings, self._remotes.values()
        alike = [remote for remote in everybody if remote.called_from == caller.remote_ip]
        if len(alike) >= settings.connections_per_ip_max:
            return self._evict(alike)
        return len(everybody) < settings.connections_max or self._evict(everybody)

    # --- what connections tell ------------------------------------------------------------------

    def accepted(self, connection: Connection) -> None:
        self._counters.accepts += 1
        victim = self._admission.enter(connection)
        if victim is not None:
            victim.fail(OverloadFault(CALLERS))

    def greeted(self, connection: Connection) -> None:
        contact = connection.contact
        assert contact is not None
        self._admission.leave(connection)
        remote = self._remotes.get(contact.peer)
        if contact.peer == self._me:
            self._meet_double(contact.address)
            connection.fail(DoubleFault("this is the caller's own identity"))
        elif self._closed:
            connection.fail(OverloadFault(LEAVING))
        elif connection.dialled:
            assert remote is not None and remote.dial is connection
            self._adopt(remote, connection)
        elif remote is None:
            if not self._has_room_for(connection):
                connection.fail(OverloadFault(CROWDED))
                return
            self._adopt(self._new_remote(contact), connection)
        else:
            self._greeted_again(remote, connection)

    def _greeted_again(self, remote: Remote, connection: Connection) -> None:
        """Decide between a caller and the connection, or the dial, that there is already."""
        assert connection.contact is not None
        connection_address = connection.contact.address
        if remote.connection is not None:
            # A peer does not dial one that it is connected to, so its end of the old one is gone.
            old, remote.connection = remote.connection, None
            moved = old.contact is not None and old.contact.address != connection_address
            old.finish(f"{ELSEWHERE}{connection_address}" if moved else REPLACED)
            self._handler.disconnected(remote.peer)
            self._adopt(remote, connection)
            self._tell_loss(remote.peer)
        elif self._insist(remote):
            if remote.waiting is not None:
                remote.waiting.fail(DuplicateFault(TWICE))
            remote.waiting = connection
            connection.stop_clock()  # it waits as long as the dial, which has a deadline
        else:
            if remote.dial is not None:
                self._counters.fault(DuplicateFault())
                self._abandon(remote)
            self._adopt(remote, connection)

    def _meet_double(self, address: str) -> None:
        """Another process uses this peer's key: it has called this peer, or a peer that both of
        them have called says so."""
        self._counters.key_clashes += 1
        self._notices.say(
            address,
            "key",
            f"another process, at {printable(address) or 'an unknown address'}, uses this peer's "
            "key: one key is one peer, and each gets only a part of what is sent to it; stop one "
            "of the two, or give it a key of its own",
        )

    def _abandon(self, remote: Remote) -> None:
        """Give up a dial."""
        dial, remote.dial = remote.dial, None
        if dial is not None:
            self._dialer.done(dial)
            dial.abort()
            if not dial.connected:
                self.gone(dial)

    def _insist(self, remote: Remote) -> bool:
        """Whether this peer's dial is preferred to the call that came in meanwhile."""
        dial = remote.dial
        return dial is not None and self._me < remote.peer and self._dialer.has_begun(dial)

    def _adopt(self, remote: Remote, connection: Connection) -> None:
        """Use this connection from now on."""
        assert connection.contact is not None
        if connection.dialled:
            self._dialer.done(connection)
        remote.dial = None
        remote.connection = connection
        remote.address = connection.contact.address
        waiting, remote.waiting = remote.waiting, None
        if waiting is not None and waiting is not connection:
            waiting.fail(DuplicateFault(OTHER_STAYS))
        self._backoff.note(remote.contact, reached=True)
        self._resume(remote.peer)
        self._losses.discard(remote.peer)
        self._counters.opened += 1
        connection.open()
        if remote.peer in self._held:
            connection.carry_link(True)
        self._handler.connected(connection.contact)
        self._outbox.pump(remote)

    def received(self, connection: Connection, message: Message, size: int) -> None:
        self._counters.frames_received += 1
        if self._tracer is not None and connection.peer is not None:
            self._tracer.received(connection.peer, message, size)
        self._handler.received(connection, message, size)

    def unfinished(self, connection: Connection, size: int) -> None:
        victim = self._unfinished.note(connection, size, self._is_linked)
        if victim is not None:
            victim.fail(OverloadFault("too much is held of frames that have not come whole"))

    def _is_linked(self, connection: Connection) -> bool:
        return connection.peer in self._held

    def writable(self, connection: Connection) -> None:
        remote = self._remotes.get(connection.peer) if connection.peer is not None else None
        if remote is not None and remote.connection is connection:
            self._outbox.pump(remote)

    def ended(self, connection: Connection, fault: Fault | None, reason: str) -> None:
        if fault is not None:
            self._counters.fault(fault)
        peer = connection.peer
        other = peer_short(peer) if peer is not None else connection.remote_ip
        log.debug("connection with %s ended: %s", other, reason)
        if isinstance(fault, GreetingFault):
            self._notices.say(other, "greeting", str(fault))
        elif isinstance(fault, RefusedFault) and not reason.endswith(_ROUTINE):
            # This is how a peer of version 1 says that it does not speak this peer's version.
            self._notices.say(other, "refused", f"peer {other} {reason}")
        elif reason.startswith(ELSEWHERE):
            self._meet_double(reason.removeprefix(ELSEWHERE))
            reason = REPLACED
        self._admission.leave(connection)
        self._dialer.done(connection)
        remote = self._remotes.get(peer) if peer is not None else None
        if remote is None:
            return
        if remote.dial is connection:
            remote.dial = None
            if remote.waiting is not None:
                self._adopt(remote, remote.waiting)
            else:
                self._backoff.note(remote.contact, reached=False)
                self._handler.unreachable(remote.peer, fault, reason)
                self._lose(remote)
        elif remote.waiting is connection:
            remote.waiting = None
        elif remote.connection is connection:
            remote.connection = None
            self._handler.disconnected(remote.peer)
            if fault is not None or reason not in _HARMLESS or remote.peer in self._held:
                self._lose(remote)
            elif remote.frames and not self._closed:
                self._counters.dial(codec.decode(remote.frames[0][codec.HEADER_BYTES :]))
                self._dial(remote)
            else:
                self._forget(remote)

    def gone(self, connection: Connection) -> None:
        self._counters.bytes_received += connection.bytes_received
        self._counters.bytes_sent += connection.bytes_sent
        self._connections.pop(connection, None)

    # --- losing peers ---------------------------------------------------------------------------

    def _lose(self, remote: Remote) -> None:
        """The peer cannot be reached (any more): drop its queue."""
        self._outbox.drop_queue(remote, "peer lost")
        self._forget(remote)
        self._tell_loss(remote.peer)

    def _tell_loss(self, peer: PeerId, delay_ms: int = 0) -> None:
        if peer in self._losses or self._closed:
            return
        self._losses.add(peer)
        if delay_ms:
            self._timers.after(delay_ms, self._report_loss, peer)
        else:
            self._loop.call_soon(self._report_loss, peer)

    def _report_loss(self, peer: PeerId) -> None:
        if peer in self._losses:
            self._losses.discard(peer)
            self._handler.lost(peer)

    def _report_stall(self, peer: PeerId) -> None:
        if peer in self._stalled:
            self._handler.stalled(peer)

    def _resume(self, peer: PeerId) -> None:
        """The peer's dial has its turn, or is not needed any more."""
        if peer in self._stalled:
            self._stalled.discard(peer)
            self._loop.call_soon(self._report_resumed, peer)

    def _report_resumed(self, peer: PeerId) -> None:
        if peer not in self._stalled:
            self._handler.resumed(peer)

    def _forget(self, remote: Remote) -> None:
        self._remotes.pop(remote.peer, None)
        self._resume(remote.peer)
        self._outbox.drop_queue(remote, "disconnected")

    # --- effects --------------------------------------------------------------------------------

    def carry_out(self, effect: seam.Hold | seam.Release | seam.Disconnect) -> None:
        """Do what the machine wants done with a connection. Where it wants the connection closed,
        it is not told of the loss."""
        if isinstance(effect, seam.Hold):
            self._held.add(effect.contact.peer)
            self._tell_link(effect.contact.peer, linked=True)
        elif isinstance(effect, seam.Release):
            self._held.discard(effect.peer)
            self._tell_link(effect.peer, linked=False)
        else:
            remote = self._remotes.get(effect.peer)
            if remote is not None:
                self._end(remote, effect.reason)

    def _tell_link(self, peer: PeerId, linked: bool) -> None:
        remote = self._remotes.get(peer)
        if remote is not None and remote.connection is not None:
            remote.connection.carry_link(linked)

    def _end(self, remote: Remote, reason: str) -> None:
        self._outbox.pump(remote)
        connection, remote.connection = remote.connection, None
        waiting, remote.waiting = remote.waiting, None
        self._forget(remote)
        if connection is not None:
            connection.finish(reason)
            self._handler.disconnected(remote.peer)
        self._abandon(remote)
        if waiting is not None:
            waiting.abort()

    # --- looking after deadlines ----------------------------------------------------------------

    def _sweep(self, _: None) -> None:
        if self._closed and not self._connections:
            return
        self._timers.after(self._settings.sweep_ms, self._sweep, None)
        now = now_ms()
        # If this process was too busy to sweep in time, no other peer's deadline ends for that.
        late = now - self._sweep_due if now - self._sweep_due > self._settings.sweep_ms else 0
        self._sweep_due = now + self._settings.sweep_ms
        for connection in list(self._connections):
            if not connection.expired(now, late) and connection.state is State.OPEN:
                self._check_open(connection, now)
        for remote in self._outbox.stuck(now):
            if remote.connection is not None:
                remote.connection.fail(OverloadFault("this peer does not read what it is sent"))
        self._outbox.forget_message()

    def _check_open(self, connection: Connection, now: int) -> None:
        settings = self._settings
        if connection.frame_since and now - connection.frame_since >= settings.frame_timeout_ms:
            connection.fail(TimeoutFault("a frame took too long"))
        elif self._is_linked(connection):
            self._check_link(connection)
        elif now - connection.last_ms >= settings.idle_ms:
            remote = self._remotes.get(connection.peer) if connection.peer is not None else None
            if remote is None or remote.connection is not connection:
                return
            if remote.peer not in self._held and not remote.frames:
                self._counters.idle_closes += 1
                self._end(remote, IDLE)

    def _check_link(self, connection: Connection) -> None:
        """Break a connection with a link if the other machine has been silent for too long, or look
        again when it will have been."""
        left_ms = self._settings.link_timeout_ms - connection.silent_ms(now_ms())
        if connection.state is not State.OPEN or left_ms >= self._settings.sweep_ms:
            return
        if left_ms > 0:
            self._timers.after(left_ms, self._check_link, connection)
        else:
            connection.fail(BrokenFault("the other machine is silent"))

    # --- closing --------------------------------------------------------------------------------

    async def close(self) -> None:
        """Flush what is queued, say goodbye to all peers, and close; bounded in time."""
        deadline = self._loop.time() + self._settings.leave_timeout_ms / 1_000
        while any(remote.frames for remote in self._remotes.values()):
            if self._loop.time() >= deadline:
                break
            await asyncio.sleep(_CLOSING_STEP_S)
        self._closed = True
        self._losses.clear()
        for remote in list(self._remotes.values()):
            self._end(remote, LEAVING)
        for connection in list(self._connections):
            if connection.state < State.OPEN:
                connection.abort()
        while any(connection.connected for connection in self._connections):
            if self._loop.time() >= deadline:
                break
            await asyncio.sleep(_CLOSING_STEP_S)
        for connection in list(self._connections):
            connection.abort()
        self._dialer.close()

    # --- for status and metrics -----------------------------------------------------------------

    @property
    def peers(self) -> list[Remote]:
        """The connected peers."""
        return [remote for remote in self._remotes.values() if remote.connection is not None]

    def gauges(self) -> dict[str, int]:
        return {
            "connections": len(self.peers),
            "connections_held": sum(peer in self._remotes for peer in self._held),
            "dials_in_progress": len(self._dialer),
            "handshakes_in_progress": len(self._admission),
            "queued_bytes": self._outbox.bytes,
            "unfinished_bytes": self._unfinished.bytes,
        }

    def traffic(self) -> tuple[int, int]:
        """Bytes received and sent so far, TLS included."""
        live = self._connections
        return (
            self._counters.bytes_received + sum(c.bytes_received for c in live),
            self._counters.bytes_sent + sum(c.bytes_sent for c in live),
        )


def _behind_since(remote: Remote) -> tuple[bool, int, int]:
    """A key that sorts first the peer over the soft limit longest, then by the size of queues."""
    since = remote.congestion.since
    return not since, since, -remote.queued


def _last_used(remote: Remote) -> int:
    assert remote.connection is not None
    return remote.connection.last_ms
