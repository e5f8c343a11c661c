"""The page's server for tests, and clients of it: plain HTTP, and Server-Sent Events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import weft
from net_kit import keeping
from weft.store.memory import MemoryStore
from weft.web.connections import Connections
from weft.web.guard import READS_PER_S
from weft.web.server import Web
from weft.web.source import Single

TOKEN = "a token of the tests"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@asynccontextmanager
async def served(
    peer: weft.Peer,
    lab: Path = Path("nowhere"),
    token: str = TOKEN,
    where: str = "127.0.0.1:0",
    proxies: Sequence[str] = (),
    connections: Connections | None = None,
    reads_per_s: float = READS_PER_S,
) -> AsyncGenerator[Web, None]:
    async with Web(
        Single(peer),
        where,
        lab=lab,
        token=token,
        proxies=proxies,
        connections=connections,
        reads_per_s=reads_per_s,
    ) as web:
        yield web


@asynccontextmanager
async def alone() -> AsyncGenerator[Web, None]:
    """The page of a peer that knows no other and keeps its events in memory."""
    async with weft.Peer.open(config=keeping(), store=MemoryStore()) as peer, served(peer) as web:
        yield web


class Answer:
    """What came back of a request."""

    def __init__(self, head: bytes, body: bytes) -> None:
        first, *fields = head.decode("latin-1").split("\r\n")
        self.status = int(first.split()[1])
        named = (field.partition(":") for field in fields if field)
        self.headers = {name.lower(): value.strip() for name, _, value in named}
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def _begin(
    web: Web, path: str, method: str, headers: Mapping[str, str], body: bytes
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = web.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 24)
    fields = {"Host": web.address, "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value)
    writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
    return reader, writer


async def request(
    web: Web,
    path: str,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> Answer:
    """One request on a connection of its own."""
    fields = {"Connection": "close", **(headers or {})}
    reader, writer = await _begin(web, path, method, fields, body)
    head = await reader.readuntil(b"\r\n\r\n")
    answer = Answer(head, await reader.read())
    writer.close()
    return answer


async def publish(web: Web, topic: str, payload: bytes) -> Answer:
    return await request(web, f"/api/publish?topic={topic}", "POST", BEARER, payload)


class Events:
    """A subscription over HTTP, as a browser or curl has it."""

    def __init__(self, reader: asyncio.StreamReader, head: bytes) -> None:
        self.answer = Answer(head, b"")
        self._reader = reader
        self.last_id = ""

    async def take(self, many: int) -> list[Any]:
        """So many events."""
        found: list[Any] = []
        while len(found) < many:
            line = await self._line()
            if line.startswith("id: "):
                self.last_id = line[4:]
            elif line.startswith("data: "):
                found.append(json.loads(line[6:]))
        return found

    async def _line(self) -> str:
        """One line; the sizes of chunks stand on lines of their own, and are none of the stream."""
        while True:
            line = (await self._reader.readuntil(b"\n")).decode().rstrip("\r\n")
            if line.startswith(("id: ", "data: ", "retry: ", ":")):
                return line


@asynccontextmanager
async def subscribed(
    web: Web, path: str, headers: Mapping[str, str] | None = None
) -> AsyncGenerator[Events, None]:
    reader, writer = await _begin(web, path, "GET", headers or {}, b"")
    try:
        yield Events(reader, await reader.readuntil(b"\r\n\r\n"))
    finally:
        writer.close()
