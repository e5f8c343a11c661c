"""The web server: uvicorn on this event loop, from `open` to `close`.

async with Web(Single(peer), "127.0.0.1:8700") as web:
    print(web.url)
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import socket
from typing import Self
from urllib.parse import quote

import uvicorn

from weft.net.errors import ListenError
from weft.net.listener import bound, parse_endpoint
from weft.web.connections import Connections, Settings
from weft.web.guard import READS_PER_S, Guard
from weft.web.routes import STREAMS, Routes
from weft.web.source import Source

TOKEN_VARIABLE = "WEFT_WEB_TOKEN"  # noqa: S105  (the name of a variable)
_MESSAGE_BYTES_MAX = 4_096  # pages send no messages that matter


class _Server(uvicorn.Server):
    """A server that says when it is up, and leaves signals to the command that runs it."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Web:
    """The page and the HTTP interface of one source."""

    def __init__(
        self,
        source: Source,
        where: str,
        *,
        lab: Path = Path("out/lab"),
        hosts: Sequence[str] = (),
        token: str | None = None,
        proxies: Sequence[str] = (),
        connections: Connections | None = None,
        reads_per_s: float = READS_PER_S,
    ) -> None:
        """`where` is HOST:PORT. `hosts`: names that callers may use, beside loopback's and the
        address itself. The token is drawn, unless it is given here or in WEFT_WEB_TOKEN. `proxies`:
        addresses or networks that are trusted to name the client that they ask for
        (`X-Forwarded-For`). `connections` and `reads_per_s` are the limits of clients."""
        self._where = where
        self.token = token or os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(16)
        self._routes = Routes(source, lab)
        guard = Guard(self._routes.application(), self.token, hosts, STREAMS, reads_per_s)
        config = Settings(
            guard,
            Connections(proxies) if connections is None else connections,
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=bool(proxies),
            forwarded_allow_ips=list(proxies),
            ws_max_size=_MESSAGE_BYTES_MAX,
            timeout_graceful_shutdown=2,
        )
        self._server = _Server(config)
        self._serving: asyncio.Task[None] | None = None
        self.address = ""

    @property
    def url(self) -> str:
        """The page's URL on this machine; with `localhost` if it listens on all addresses."""
        host, _, port = self.address.rpartition(":")
        anywhere = ipaddress.ip_address(host.strip("[]")).is_unspecified
        return f"http://localhost:{port}/" if anywhere else f"http://{self.address}/"

    @property
    def url_with_token(self) -> str:
        """The URL for a browser, which does not send the part after the # to any server."""
        return f"{self.url}#token={quote(self.token, safe='')}"

    @property
    def open_to_others(self) -> bool:
        """Whether other machines may reach it."""
        return not ipaddress.ip_address(self.address.rpartition(":")[0].strip("[]")).is_loopback

    async def looked_at(self, seconds: float) -> None:
        """Wait until a page is open, at most so many seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._routes.picture.seen.wait(), seconds)

    async def __aenter__(self) -> Self:
        host, port = parse_endpoint(self._where)
        try:
            listener = bound(host, port)
        except OSError as error:
            problem = error.strerror or error
            raise ListenError(f"cannot serve the page on {self._where}: {problem}") from error
        name = listener.getsockname()
        self.address = f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"
        self._serving = asyncio.create_task(self._server.serve([listener]))
        await self._server.up.wait()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._routes.closing.set()  # ends streams; their clients connect again by themselves
        await self._routes.picture.close()
        await self._routes.leave()
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving
