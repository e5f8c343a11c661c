"""What the network tests share: scripted machines on real sockets, and a caller that misbehaves.

A `Node` is a `Runtime` with a machine that only records what it is told and says what the test
wants said. A `Caller` speaks TLS by hand, so that it can say anything at any point.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

from OpenSSL import SSL

import weft
from nameless import unsigned_run
from weft.ids import Contact, PeerId, Topic, split_address
from weft.net import codec
from weft.net.codec import FrameReader, Goodbye, Hello
from weft.net.config import Network
from weft.net.identity import Identity
from weft.net.listener import bind
from weft.net.runtime import Runtime
from weft.net.tls import Channel, Credentials, Ended
from weft.net.tracer import Tracer
from weft.protocol import config as protocol
from weft.protocol import messages as m
from weft.protocol import seam
from weft.protocol.liveness import Ping
from weft.protocol.wire import Payload

QUICK = Network(
    idle_ms=60_000,
    handshake_timeout_ms=60_000,  # hundreds at once take a while on a busy machine
    dial_timeout_ms=60_000,
    drain_timeout_ms=2_000,
    leave_timeout_ms=2_000,
)
TOPIC = Topic("/t")


def keeping(**history: object) -> weft.Config:
    """Settings of peers that keep events, and find each other soon."""
    return weft.Config(
        network=Network(leave_timeout_ms=1_000),
        protocol=protocol.Config(
            cyclon=protocol.Cyclon(cycle_ms=500),
            history=protocol.HistorySettings(**history),  # type: ignore[arg-type]
        ),
    )


PATIENCE_S = 300.0  # for a machine ten times slower; nothing takes that long
_TURNS = 4  # what needs nothing from outside is there after a few


def linked(peer: weft.Peer, topic: str) -> bool:
    """Whether it has a link in a topic."""
    return bool(peer.status()["topics"][topic]["links"])  # type: ignore[index]


async def turn() -> None:
    """One turn of the event loop: all that is ready runs, and no time need pass."""
    await asyncio.sleep(0)


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait for a condition; fails loudly when it does not come true."""
    deadline = time.monotonic() + PATIENCE_S
    for _ in range(_TURNS):
        if condition():
            return
        await turn()
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited in vain for {what or condition}")
        await asyncio.sleep(0.002)


class Scripted:
    """A machine that records facts; `react` may answer them with effects."""

    def __init__(self) -> None:
        self.facts: list[seam.Input] = []
        self.react: Callable[[seam.Input], list[seam.Effect]] = lambda fact: []

    def handle(self, fact: seam.Input, now: int) -> list[seam.Effect]:
        self.facts.append(fact)
        return self.react(fact)

    @property
    def messages(self) -> list[m.AnyMessage]:
        return [fact.message for fact in self.facts if isinstance(fact, seam.Received)]

    @property
    def nonces(self) -> list[int]:
        return [message.nonce for message in self.messages if isinstance(message, Ping)]

    @property
    def lost(self) -> list[PeerId]:
        return [fact.peer for fact in self.facts if isinstance(fact, seam.PeerLost)]


class Node:
    """A scripted machine on the network."""

    def __init__(self, runtime: Runtime, machine: Scripted, identity: Identity) -> None:
        self.runtime = runtime
        self.machine = machine
        self.identity = identity
        self.me = runtime.me
        self.pool = runtime.pool

    def do(self, *effects: seam.Effect) -> None:
        """Have the machine wish for these."""
        self.machine.react, before = lambda fact: list(effects), self.machine.react
        self.runtime.feed(seam.TimerFired(seam.Timer("test")))
        self.machine.react = before

    def send(self, to: Contact, *messages: m.AnyMessage) -> None:
        self.do(*(seam.Send(to, message) for message in messages))

    def ping(self, to: Node, *nonces: int) -> None:
        self.send(to.me, *(Ping(nonce, 0) for nonce in nonces))

    def count(self, name: str) -> int:
        return self.runtime.counters.as_dict()[name]

    def gauge(self, name: str) -> int:
        return self.pool.gauges()[name]

    @property
    def connections(self) -> int:
        return len(self.pool.peers)


@asynccontextmanager
async def node(
    network: Network = QUICK, identity: Identity | None = None, trace: Path | None = None
) -> AsyncGenerator[Node, None]:
    identity = identity or Identity.generate()
    listener, address = bind("127.0.0.1:0")
    me = Contact(identity.peer, address)
    machine = Scripted()
    tracer = Tracer(identity.peer, trace) if trace is not None else None
    runtime = Runtime(machine, me, Credentials(identity), network, tracer)
    await runtime.start(listener, 1, ())
    try:
        yield Node(runtime, machine, identity)
    finally:
        await runtime.close()


def ordered_identities() -> tuple[Identity, Identity]:
    """Two identities, the smaller peer id first."""
    first, second = sorted((Identity.generate(), Identity.generate()), key=lambda one: one.peer)
    return first, second


def quick(**changes: object) -> Network:
    return replace(QUICK, **changes)  # type: ignore[arg-type]


def payload(number: int, size: int = 100) -> Payload:
    return Payload(TOPIC, unsigned_run(PeerId(b"p" * 32), bytes(size), first=number), 1)


HELLO = Hello(codec.WIRE_VERSION, "weft", "/ip4/127.0.0.1/tcp/9", "test")


class Caller:
    """A client of our making. `credentials` is anything with an OpenSSL `context`."""

    def __init__(self, credentials: Credentials | None = None, address: str = "127.0.0.1") -> None:
        """`address`: of this machine, to call from."""
        self.identity = Identity.generate()
        self._address = address
        self._credentials = credentials or Credentials(self.identity)
        self._frames = FrameReader()

    async def connect(self, to: Contact) -> None:
        host, port = split_address(to.address)
        self._reader, self._writer = await asyncio.open_connection(
            host, port, local_addr=(self._address, 0)
        )

    async def secure(self, expected: PeerId | None = None) -> None:
        self._channel = Channel(self._credentials, dialled=True, expected=expected)
        done = False
        while not done:
            done = self._channel.handshake()
            self.send_raw(self._channel.pull())
            if not done:
                await self._more()

    async def _more(self) -> None:
        data = await self._reader.read(65_536)
        if not data:
            raise EOFError
        self._channel.feed(data)

    def send_raw(self, data: bytes) -> None:
        self._writer.write(data)

    def send(self, data: bytes) -> None:
        """Plaintext, whatever it is."""
        self._writer.write(self._channel.write(data))

    async def flush(self) -> None:
        await self._writer.drain()

    def stop_reading(self) -> None:
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]

    def read_on(self) -> None:
        self._writer.transport.resume_reading()  # type: ignore[attr-defined]

    def abort(self) -> None:
        """End without a word, as a process that is killed."""
        self._writer.transport.abort()

    async def greet(self, to: Contact, hello: Hello = HELLO) -> Hello | Goodbye:
        """All the way to an open connection."""
        await self.connect(to)
        await self.secure(to.peer)
        self.send(codec.encode(hello))
        return codec.decode_greeting(await self.frame())

    async def frame(self) -> bytes:
        """The body of the next frame from the other side."""
        while True:
            body = self._frames.next(1 << 24)
            if body is not None:
                return body
            data = self._channel.read()
            if data is None:
                await self._more()
            else:
                self._frames.feed(data)

    async def goodbye(self) -> str:
        """Why the other side ends; empty if it does not say."""
        try:
            while True:
                message = codec.decode(await self.frame())
                if isinstance(message, Goodbye):
                    return message.reason
        except (EOFError, Ended, OSError):
            return ""

    async def ended(self) -> None:
        """Wait until the other side has closed."""
        try:
            while await self._reader.read(65_536):
                pass
        except OSError:
            pass

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError, SSL.Error):
            await self._writer.wait_closed()


@asynccontextmanager
async def caller(credentials: Credentials | None = None) -> AsyncGenerator[Caller, None]:
    one = Caller(credentials)
    try:
        yield one
    finally:
        await one.close()
