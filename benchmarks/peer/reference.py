"""What the machine itself allows, measured in the same run as the figures.

- `tls_message_us`: one 200-byte message over one TLS 1.3 connection on loopback, asyncio's own
  TLS, both ends in this process: CPU time for one message a write and for 32 a write.
- `tls_handshake_ms` and `tls_connection_kb`: a mutually authenticated TLS 1.3 connection of
  asyncio's with Ed25519 certificates, both ends: CPU time to set it up, memory to keep it.
- `python_calls_per_s`: method calls with a heap push and pop, the floor of any simulator.
"""

from __future__ import annotations

import asyncio
import datetime
import heapq
import os
import ssl
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.peer.machine import proportional_set_kb
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PAYLOAD_BYTES = 200
MESSAGES = 20_000
CONNECTIONS = 100
CALLS = 300_000


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Server and client side of mutually authenticated TLS 1.3 with one Ed25519 certificate."""
    key = Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "bench")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, None)
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ) + certificate.public_bytes(serialization.Encoding.PEM)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.pem"
        path.touch(mode=0o600)
        path.write_bytes(pem)
        both = []
        for side in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
            context = ssl.SSLContext(side)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.check_hostname = False
            context.load_cert_chain(path)
            context.load_verify_locations(path)
            context.verify_mode = ssl.CERT_REQUIRED
            both.append(context)
    return both[0], both[1]


class Counting(asyncio.Protocol):
    """Counts bytes and wakes the task that waits for a number of them."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.wanted = 0
        self.arrived = asyncio.Event()
        self.may_write = asyncio.Event()
        self.may_write.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.wanted -= len(data)
        if self.wanted <= 0:
            self.arrived.set()

    def pause_writing(self) -> None:
        self.may_write.clear()

    def resume_writing(self) -> None:
        self.may_write.set()


async def connect(port: int, client: ssl.SSLContext) -> Counting:
    loop = asyncio.get_running_loop()
    _, protocol = await loop.create_connection(Counting, "127.0.0.1", port, ssl=client)
    return protocol


async def listen(
    server: ssl.SSLContext, factory: Callable[[], Counting]
) -> tuple[asyncio.Server, int]:
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(factory, "127.0.0.1", 0, ssl=server, backlog=CONNECTIONS)
    return listener, int(listener.sockets[0].getsockname()[1])


async def message_us(per_write: int) -> float:
    """CPU microseconds of one message, both ends together."""
    server, client = contexts()
    accepted: list[Counting] = []

    def factory() -> Counting:
        accepted.append(Counting())
        return accepted[-1]

    listener, port = await listen(server, factory)
    sender = await connect(port, client)
    (receiver,) = accepted
    chunk = bytes(PAYLOAD_BYTES * per_write)
    assert sender.transport is not None
    receiver.wanted = MESSAGES // per_write * len(chunk)
    cpu = time.process_time()
    for _ in range(MESSAGES // per_write):
        await sender.may_write.wait()
        sender.transport.write(chunk)
    await receiver.arrived.wait()
    cpu = time.process_time() - cpu
    sender.transport.close()
    listener.close()
    return cpu / (MESSAGES // per_write * per_write) * 1e6


async def connection_cost() -> dict[str, float]:
    """CPU milliseconds of a handshake and kilobytes of a connection, both ends together."""
    server, client = contexts()
    accepted: list[Counting] = []

    def factory() -> Counting:
        accepted.append(Counting())
        return accepted[-1]

    listener, port = await listen(server, factory)
    first = await connect(port, client)
    before_kb, cpu = proportional_set_kb(os.getpid()), time.process_time()
    opened = [await connect(port, client) for _ in range(CONNECTIONS)]
    cpu = time.process_time() - cpu
    after_kb = proportional_set_kb(os.getpid())
    for protocol in (first, *opened):
        assert protocol.transport is not None
        protocol.transport.close()
    listener.close()
    return {
        "tls_handshake_ms": cpu / CONNECTIONS * 1e3,
        "tls_connection_kb": (after_kb - before_kb) / CONNECTIONS,
    }


class Callee:
    def __init__(self) -> None:
        self.count = 0

    def handle(self, item: int) -> int:
        self.count += item
        return self.count


def python_calls_per_s() -> float:
    callee, heap = Callee(), [(index, index) for index in range(1000)]
    cpu = time.process_time()
    for index in range(CALLS):
        when, item = heapq.heappop(heap)
        callee.handle(item)
        heapq.heappush(heap, (when + 1000, index))
    return CALLS / (time.process_time() - cpu)


def messages() -> dict[str, float]:
    """Beside CPU per notification and notifications a second."""
    return {
        "tls_message_us": asyncio.run(message_us(1)),
        "tls_message_us_32_a_write": asyncio.run(message_us(32)),
    }


def connections() -> dict[str, float]:
    """Beside what an idle peer costs."""
    return asyncio.run(connection_cost())


def calls() -> dict[str, float]:
    """Beside messages a second in the simulator."""
    return {"python_calls_per_s": python_calls_per_s()}
