"""One authenticated connection: TCP, TLS in memory, greetings, frames.

    SECURING ── TLS done ──▶ GREETING ── both Hellos ──▶ OPEN ── finish() ──▶ ENDING ──▶ CLOSED

The dialling side says Hello first; the accepting side answers with its own, or with a Goodbye.
Only then do messages flow, so a connection that turns out to be one too many has carried none.

A connection ends in one of two ways. `finish` closes our half: Goodbye and close_notify go out,
and whatever the other side had already sent is still read and handled until it closes its half
too, so a clean end loses nothing. `fail` is for all faults: the other side is told why if it can
still be told, and nothing it sends is looked at again.

Bytes from the socket land in one buffer per thread and are consumed at once, so an idle
connection holds no buffer at all.

A machine that loses its power or its network says nothing, and a link at rest expects nothing of
it. So where a link runs over a connection (`carry_link`), the system asks the other machine's
system by itself (TCP keepalive, RFC 1122): a probe a second while nothing comes, which costs no
message and does not wake Python. The other system answers although its process is busy or stopped;
such a process is noticed by `liveness.py` alone.

With the default `link_timeout_ms` such a connection has broken when nothing has come for 4.8 s, so
four probes in a row have no answer. Three would be too few: a network that stands still for 3 s
swallows three. Nor may they be 2 s apart: two would have to do then. Linux by itself would give up
within that time only if nothing was sent meanwhile: data that waits for its acknowledgement stops
the probes, and TCP's patience with it (`tcp_user_timeout_ms`) begins anew. A ping that leaves 4 s
after the other machine vanished made it 7.6 s (measured). So the pool asks the system each second
for how long nothing has come (`silent_ms`). A receiver that only does not read is not silent, since
its system acknowledges.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from contextlib import suppress
from enum import IntEnum
from struct import calcsize, unpack
from typing import Protocol, cast

from weft.ids import BadId, Contact, PeerId, peer_short, split_address
from weft.net import codec
from weft.net.codec import FrameReader, Goodbye, Hello
from weft.net.config import Network
from weft.net.errors import (
    BrokenFault,
    Fault,
    FrameFault,
    GreetingFault,
    RefusedFault,
    TimeoutFault,
)
from weft.net.timers import now_ms
from weft.net.tls import Channel, Credentials, Ended
from weft.protocol.wire import Message
from weft.terminal import printable

RECEIVE_BYTES = 128 << 10  # guess: eight full TLS records in one go
SMALL_BYTES = 64 << 10  # guess: an unfinished frame up to this size is not counted
WRITE_BUFFER_BYTES = 128 << 10  # guess: handed to the kernel ahead of what it takes
_PROBES = 4
"""guess: so many without an answer, evenly within `link_timeout_ms`. Systems take whole seconds."""
_TCP_INFO = "=2xBB48xII"
"""Linux's `tcp_info`, as far as it is read: data sent again and probes without an answer, and for
how many ms no data and no acknowledgement have come."""
_ASKED_LEAST = 2
"""guess: a machine is silent if it was asked so often; a time in which this one slept is none."""

_thread = threading.local()


def _receive_buffer() -> memoryview:
    view = getattr(_thread, "buffer", None)
    if view is None:
        view = _thread.buffer = memoryview(bytearray(RECEIVE_BYTES))
    return cast(memoryview, view)


class State(IntEnum):
    SECURING = 0
    GREETING = 1
    OPEN = 2
    ENDING = 3  # we said goodbye, and read on
    CLOSED = 4


class Owner(Protocol):
    """The object that a connection reports to."""

    def accepted(self, connection: Connection) -> None:
        """Another peer called; nothing is known of it yet."""

    def greeted(self, connection: Connection) -> None:
        """The other side's Hello is in: `open` or `fail` it, now or later."""

    def received(self, connection: Connection, message: Message, size: int) -> None: ...

    def unfinished(self, connection: Connection, size: int) -> None:
        """The connection holds `size` bytes of an unfinished frame; 0: less than counts."""

    def writable(self, connection: Connection) -> None:
        """The transport takes more again."""

    def ended(self, connection: Connection, fault: Fault | None, reason: str) -> None:
        """The connection is no longer usable: by a fault, or since the other side said goodbye. Not
        called for a connection that `finish` ended from this side."""

    def gone(self, connection: Connection) -> None:
        """Closed for good; called exactly once."""


class Connection(asyncio.BufferedProtocol):
    """One connection, from either side. `contact` is known once the other side has greeted."""

    def __init__(
        self,
        owner: Owner,
        credentials: Credentials,
        hello: Hello,
        settings: Network,
        expected: PeerId | None = None,
    ) -> None:
        self._owner = owner
        self._credentials = credentials
        self._hello = hello
        self._settings = settings
        self.expected = expected
        self.dialled = expected is not None
        self._transport: asyncio.Transport | None = None
        self._channel: Channel | None = None
        self._buffer = _receive_buffer()
        self._reader = FrameReader()
        self._frame_bytes_max = codec.HELLO_BYTES_MAX
        self._pauses = 0
        self.state = State.SECURING
        self.writable = True
        self.contact: Contact | None = None
        self.remote_ip = ""
        self.last_ms = now_ms()  # when bytes last went either way
        self._deadline = self.last_ms + settings.handshake_timeout_ms  # 0: none
        self._linked_since = 0  # when a link began to run over it; 0: none does
        self.frame_since = 0  # when the unfinished frame began; 0: none
        self._told_unfinished = 0  # bytes of it, as far as its owner was told
        self.bytes_received = 0
        self.bytes_sent = 0

    @property
    def peer(self) -> PeerId | None:
        """The peer at the other end: proven once it has greeted, and before that the peer that
        was dialled; None while a caller has not greeted."""
        return self.contact.peer if self.contact is not None else self.expected

    @property
    def connected(self) -> bool:
        """Whether there is a TCP connection under it."""
        return self._transport is not None

    def stop_clock(self) -> None:
        """No deadline runs: the connection waits for something on this side."""
        self._deadline = 0

    def restart_clock(self) -> None:
        """Its turn to be dialled has come: TCP has to connect in time."""
        self.last_ms = now_ms()
        self._deadline = self.last_ms + self._settings.dial_timeout_ms

    # --- what asyncio tells ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        if self.state is State.CLOSED:  # given up while TCP was connecting
            self._transport.abort()
            return
        # asyncio does this only for sockets made with an explicit protocol number; without it,
        # Nagle's algorithm and delayed acknowledgements make 40 ms of every second small write.
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
            timeout_ms = self._settings.tcp_user_timeout_ms
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)
        address = transport.get_extra_info("peername")
        self.remote_ip = str(address[0]) if address else ""
        if not self.dialled:
            self._owner.accepted(self)
        else:
            self._deadline = now_ms() + self._settings.handshake_timeout_ms
            self._channel = Channel(self._credentials, dialled=True, expected=self.expected)
            self._advance()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.last_ms = now_ms()
        self.bytes_received += nbytes
        if self.state is State.CLOSED:
            return
        if self._channel is None:  # created late: a silent caller costs next to nothing
            self._channel = Channel(self._credentials, dialled=False)
        self._channel.feed(self._buffer[:nbytes])
        self._advance()

    def eof_received(self) -> bool | None:
        if self.state < State.ENDING:
            self.fail(BrokenFault("the other side ended without a goodbye"))
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        was, self.state = self.state, State.CLOSED
        self._forget_input()
        self._channel = None
        self._transport = None
        if was < State.ENDING:
            fault = BrokenFault(f"the connection broke: {exc or 'closed'}")
            self._owner.ended(self, fault, str(fault))
        self._owner.gone(self)

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        if self.state is State.OPEN:
            self._owner.writable(self)

    # --- reading --------------------------------------------------------------------------------

    def _advance(self) -> None:
        try:
            if self.state is State.SECURING and not self._secure():
                return
            self._read()
        except Fault as fault:
            self.fail(fault)

    def _secure(self) -> bool:
        assert self._channel is not None
        done = self._channel.handshake()
        self._send_raw(self._channel.pull())
        if done:
            self.state = State.GREETING
            if self.dialled:
                self.write(codec.encode(self._hello))
        return done

    def _read(self) -> None:
        reader, channel = self._reader, self._channel
        assert channel is not None
        finished = False
        while not self._pauses and self.state is not State.CLOSED:
            body = reader.next(self._frame_bytes_max)
            if body is not None:
                finished = True
                self._take(body)
                continue
            try:
                data = channel.read()
            except Ended:
                self._other_ended("it closed the connection")
                return
            if data is None:
                break
            reader.feed(data)
        if self.state is State.CLOSED:
            return  # and all that came in is forgotten
        unfinished = reader.unfinished
        if not unfinished:
            self.frame_since = 0
        elif finished or not self.frame_since:
            self.frame_since = self.last_ms
        if unfinished > SMALL_BYTES or self._told_unfinished:
            self._tell_unfinished(unfinished if unfinished > SMALL_BYTES else 0)

    def _tell_unfinished(self, size: int) -> None:
        self._told_unfinished = size
        self._owner.unfinished(self, size)

    def _forget_input(self) -> None:
        """Drop all input that was not handled now, since closing may take long."""
        self._reader = FrameReader()
        if self._told_unfinished:
            self._tell_unfinished(0)

    def _take(self, body: bytes) -> None:
        if self.state is State.GREETING:
            self._greet(body)
            return
        message = codec.decode(body)
        if type(message) is Goodbye:
            self._other_ended(printable(message.reason))
        else:
            self._owner.received(self, cast(Message, message), len(body) + codec.HEADER_BYTES)

    def _greet(self, body: bytes) -> None:
        greeting = codec.decode_greeting(body)
        if isinstance(greeting, Goodbye):
            raise RefusedFault(f"refused: {printable(greeting.reason)}")
        if self.contact is not None:
            raise FrameFault("a second greeting")
        assert self._channel is not None
        other = peer_short(self._channel.peer)
        if greeting.version != self._hello.version:
            if not self.dialled:
                self.write(codec.encode(self._hello))  # so that both sides can say why
            raise GreetingFault(
                f"peer {other} speaks version {greeting.version}, this one {self._hello.version}"
            )
        if greeting.network != self._hello.network:
            raise GreetingFault(
                f"peer {other} belongs to network {greeting.network!r}, "
                f"this one to {self._hello.network!r}"
            )
        if greeting.address:
            try:
                split_address(greeting.address)
            except BadId as error:
                raise GreetingFault(f"unusable listen address: {error}") from error
        self.contact = Contact(self._channel.peer, greeting.address)
        self._owner.greeted(self)

    def hold_reading(self) -> None:
        """Stop reading; every hold needs its `release_reading`."""
        self._pauses += 1
        if self._pauses == 1 and self._transport is not None:
            self._transport.pause_reading()

    def release_reading(self) -> None:
        self._pauses -= 1
        if self._pauses == 0 and self._transport is not None and self.state is not State.CLOSED:
            self._transport.resume_reading()
            self._advance()  # there may be frames in the reader, or bytes inside TLS

    # --- links ----------------------------------------------------------------------------------

    def carry_link(self, linked: bool) -> None:
        """Have the system probe whether the other machine is there, or stop it: a link runs over
        this connection from now on, or none any more."""
        self._linked_since = now_ms() if linked else 0
        if self._transport is None:
            return
        sock = self._transport.get_extra_info("socket")
        with suppress(OSError):  # the connection has just broken, and asyncio is about to say so
            if linked:
                for name, value in _probes(self._settings.link_timeout_ms).items():
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, linked)

    def silent_ms(self, now: int) -> int:
        """For how long nothing has come from the other machine, not even an acknowledgement, though
        it was asked; 0 where it is not probed, or where the system does not say."""
        if not self._linked_since or self._transport is None or sys.platform != "linux":
            return 0
        sock = self._transport.get_extra_info("socket")
        try:
            info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, calcsize(_TCP_INFO))
        except OSError:  # broken, as above
            return 0
        again, probes, data_ms, acknowledgement_ms = unpack(_TCP_INFO, info)
        if again + probes < _ASKED_LEAST:
            return 0
        return int(min(data_ms, acknowledgement_ms, now - self._linked_since))

    # --- writing --------------------------------------------------------------------------------

    def open(self) -> None:
        """Take the connection into use; the accepting side answers the greeting."""
        if not self.dialled:
            self.write(codec.encode(self._hello))
        self.state = State.OPEN
        self._deadline = 0
        self._frame_bytes_max = self._settings.frame_bytes_max

    def write(self, frames: bytes) -> None:
        """Send whole frames, in one TLS record where they fit."""
        if self._channel is None or self.state is State.CLOSED:
            return
        try:
            self._send_raw(self._channel.write(frames))
        except Fault as fault:
            self.fail(fault)

    def _send_raw(self, ciphertext: bytes) -> None:
        if ciphertext and self._transport is not None:
            self.last_ms = now_ms()
            self.bytes_sent += len(ciphertext)
            self._transport.write(ciphertext)

    # --- ending ---------------------------------------------------------------------------------

    def finish(self, reason: str) -> None:
        """End from this side without losing what the other side has already sent."""
        if self.state is State.OPEN:
            self._say_goodbye(reason)
            self.state = State.ENDING
            self._deadline = now_ms() + self._settings.drain_timeout_ms
        else:
            self.abort()

    def fail(self, fault: Fault) -> None:
        """End because of a fault, telling the other side if it can be told."""
        was = self.state
        if was is State.CLOSED:
            return
        if was is State.SECURING and self._channel is not None:
            self._send_raw(self._channel.pull())  # TLS's own alert
        elif was in (State.GREETING, State.OPEN):
            self._say_goodbye(str(fault))
        self._close()
        if was is not State.ENDING:
            self._owner.ended(self, fault, str(fault))

    def abort(self) -> None:
        """Drop the connection now; its owner knows."""
        self.state = State.CLOSED
        self._forget_input()
        if self._transport is not None:
            self._transport.abort()

    def expired(self, now: int, late: int) -> bool:
        """End the connection if its deadline has passed; True if it did. The deadline moves by the
        time that this process was `late` in looking."""
        if self._deadline:
            self._deadline += late
        if not self._deadline or now < self._deadline:
            return False
        if self.state < State.OPEN:
            step = ("TLS handshake", "greeting")[self.state] if self.connected else "TCP connect"
            self.fail(TimeoutFault(f"the {step} took too long"))
        else:
            self.abort()
        return True

    def _other_ended(self, reason: str) -> None:
        """The other side closed its half: everything it sent has been read."""
        if self.state is State.GREETING:
            raise RefusedFault(f"refused: {reason}")
        was_open = self.state is State.OPEN
        if was_open and self._channel is not None:
            self._send_raw(self._channel.end())
        self._close()
        if was_open:
            self._owner.ended(self, None, reason)

    def _say_goodbye(self, reason: str) -> None:
        channel = self._channel
        if channel is not None:
            try:
                self._send_raw(channel.write(codec.encode(Goodbye(reason[:256]))))
            except Fault:
                return  # TLS is broken, so there is nothing polite left to do
            self._send_raw(channel.end())

    def _close(self) -> None:
        """Flush what is buffered and close; the deadline bounds how long the flush may take."""
        self.state = State.CLOSED
        self._forget_input()
        self._deadline = now_ms() + self._settings.drain_timeout_ms
        if self._transport is not None:
            self._transport.close()


def _probes(timeout_ms: int) -> dict[str, int]:
    """The options of TCP keepalive that this system has, with their values."""
    every_s = max(1, timeout_ms // (1_000 * _PROBES))
    options = {
        "TCP_KEEPIDLE": every_s,
        "TCP_KEEPALIVE": every_s,  # what macOS calls it
        "TCP_KEEPINTVL": every_s,
        "TCP_KEEPCNT": _PROBES,
    }
    return {name: value for name, value in options.items() if hasattr(socket, name)}
