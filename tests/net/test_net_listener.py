"""Callers wait where nothing more can be opened, and are taken in once it can."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from net_kit import turn, until
from weft.net import listener
from weft.net.listener import Acceptor, bound


@contextmanager
def no_more_files() -> Iterator[None]:
    """As if this process had all files open that it may have."""
    free = os.dup(0)
    os.close(free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Greeter(asyncio.Protocol):
    """Says something to each caller."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(b"hello")
        transport.close()


async def test_at_the_limit_of_files_callers_wait_and_the_log_stays_short(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "PAUSE_S", 0.001)
    loop = asyncio.get_running_loop()
    pauses: list[float] = []
    call_later = loop.call_later
    monkeypatch.setattr(
        loop, "call_later", lambda after, *rest: (pauses.append(after), call_later(after, *rest))[1]
    )
    with ExitStack() as stack:
        place = bound("127.0.0.1", 0)
        acceptor = Acceptor(place, Greeter)
        acceptor.open(64)
        callers = [
            stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            for _ in range(20)
        ]
        with no_more_files():
            for caller in callers:
                caller.setblocking(False)
                await loop.sock_connect(caller, place.getsockname())
            await until(lambda: pauses.count(0.001) >= 3, "some pauses")
            # One line, however many callers wait and however often they are tried.
            assert [record.getMessage() for record in caplog.records] == [
                "no caller can be taken in for now: Too many open files"
            ]
        for caller in callers:
            assert await loop.sock_recv(caller, 16) == b"hello"
        assert caplog.records[1:] and caplog.records[1].getMessage() == "callers are taken in again"
        assert len(caplog.records) == 2
        await acceptor.close()


async def test_a_caller_just_taken_in_is_not_forgotten_when_listening_ends() -> None:
    loop = asyncio.get_running_loop()
    place = bound("127.0.0.1", 0)
    acceptor = Acceptor(place, Greeter)
    acceptor.open(64)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as caller:
        caller.setblocking(False)
        await loop.sock_connect(caller, place.getsockname())
        await turn()
        await acceptor.close()
        await acceptor.close()
        assert acceptor.closed
        assert await loop.sock_recv(caller, 16) in (b"hello", b"")


async def test_small_pieces_are_sent_to_a_caller_at_once() -> None:
    """Servers that asyncio makes on such a socket, as the page's is, do not wait for callers to
    acknowledge the head of an answer before they send its body."""
    taken = asyncio.Queue[asyncio.BaseTransport]()

    class Taker(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            taken.put_nowait(transport)

    loop = asyncio.get_running_loop()
    place = bound("127.0.0.1", 0)
    async with await loop.create_server(Taker, sock=place):
        _, writer = await asyncio.open_connection(*place.getsockname())
        transport = await taken.get()
        accepted = transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        transport.close()
        writer.close()
        await writer.wait_closed()
