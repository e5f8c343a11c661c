"""Connections to the page: clients that open many, and say or read nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

import weft
from net_kit import keeping, until
from web_kit import TOKEN, publish, request, served, subscribed
from weft.store.memory import MemoryStore
from weft.web.connections import Connections, client_of
from weft.web.server import Web

Caller = tuple[asyncio.StreamReader, asyncio.StreamWriter]
UNFINISHED = b"GET /api/status HTTP/1.1\r\nHost: local"


@asynccontextmanager
async def page(connections: Connections) -> AsyncGenerator[Web, None]:
    async with (
        weft.Peer.open(config=keeping(), store=MemoryStore()) as peer,
        served(peer, connections=connections) as web,
    ):
        yield web


@asynccontextmanager
async def calling(
    web: Web, many: int, begin: bytes = UNFINISHED, source: str = "127.0.0.1"
) -> AsyncGenerator[list[Caller], None]:
    """Connections from an address, with the beginning of something."""
    host, _, port = web.address.rpartition(":")
    async with AsyncExitStack() as stack:
        callers: list[Caller] = []
        for _ in range(many):
            caller = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
            stack.callback(caller[1].close)
            caller[1].write(begin)
            callers.append(caller)
        yield callers


async def ended(caller: Caller) -> bool:
    """Waits until the other side has closed a connection."""
    with suppress(ConnectionError):
        while await caller[0].read(1 << 16):
            pass
    return True


async def test_connections_that_say_nothing_shut_nobody_out() -> None:
    """Neither other clients nor their own: the later ones take the place of the first ones.
    What is being answered goes on."""
    connections = Connections(per_client=8, in_all=16)
    async with (
        page(connections) as web,
        subscribed(web, "/api/events?topic=/a") as events,
        calling(web, 20) as mine,
        calling(web, 9, source="127.0.0.2") as others,
    ):
        assert all([await ended(caller) for caller in (*mine[:13], others[0])])
        assert (await request(web, "/api/status")).status == 200
        assert (await publish(web, "/a", b"goes on")).status == 200
        assert [note["payload"] for note in await events.take(1)] == ["goes on"]
        async with calling(web, 3, source="127.0.0.3"):
            await until(lambda: len(connections) == 16, "as many as there may be in all")
            assert await ended(others[1])  # of the client that has the most


async def test_where_none_waits_for_a_request_one_more_is_closed() -> None:
    connections = Connections(per_client=2)
    async with page(connections) as web, AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(subscribed(web, "/api/events?topic=/a"))
        async with calling(web, 1) as [caller]:
            assert await ended(caller)


@pytest.mark.parametrize(
    "begin",
    [
        b"",
        UNFINISHED,
        b"GET /api/status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nbody",
        f"POST /api/publish?topic=/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
        f"Authorization: Bearer {TOKEN}\r\n\r\nbody".encode(),
    ],
    ids=["nothing", "head", "body", "payload"],
)
async def test_a_request_that_is_never_whole_is_given_up(begin: bytes) -> None:
    async with page(Connections(request_s=0.05)) as web, calling(web, 1, begin) as [caller]:
        assert await ended(caller)


async def test_the_next_request_of_a_connection_is_given_up_too() -> None:
    async with (
        page(Connections(request_s=0.5)) as web,
        calling(web, 1, UNFINISHED + b"host\r\n\r\n") as [caller],
    ):
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await caller[0].readuntil(b"}}")  # the end of the answer
            caller[1].write(UNFINISHED)
        assert await ended(caller)


async def test_a_client_that_reads_nothing_is_cut_off() -> None:
    connections = Connections(stuck_s=0.05)
    async with page(connections) as web:
        assert (await publish(web, "/a", bytes(900_000))).status == 200
        asked = b"GET /api/history?topic=/a HTTP/1.1\r\nHost: localhost\r\n\r\n"
        async with calling(web, 1, asked * 20):
            await until(lambda: len(connections) == 1, "its connection")
            await until(lambda: len(connections) == 0, "its end")


def test_a_client_has_an_address_of_its_own_or_a_network() -> None:
    assert client_of("192.0.2.1") == client_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert client_of("2001:db8::1") == client_of("2001:db8::ffff:1") == "2001:db8::/64"
    assert client_of("fe80::1%eth0") == client_of("fe80::2%eth0")
    assert client_of("unknown") == "unknown"
