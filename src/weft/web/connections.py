"""Connections to the page: how many a client may have, and how long a request may take.

A connection costs its client nothing, and the page a file handle. A client that opens many and
sends nothing, or a letter now and then, must not shut others out. So:

- a request, head and body, has to be complete within a time;
- a client that reads nothing of its answer for a time is disconnected;
- connections are limited for each client (by its address) and in all. Above a limit, a new
  connection replaces the one that has waited longest for a request: one of the same client if that
  client is at its limit, else one of the client that has the most. If no connection waits for a
  request, the new one is closed.

Connections of a proxy belong to many clients, so they count only in the sum; `guard.py` limits the
requests and streams of each client behind a proxy.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Sequence
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

_PER_CLIENT = 128  # guess: a browser has about ten
_IN_ALL = 512  # guess: of the 1,024 file handles that a process usually has
_REQUEST_S = 20.0  # guess: the largest payload at 50 kB/s
_STUCK_S = 30.0  # guess: a client that has read nothing for so long is gone or hostile
_IPV6_PREFIX = 64  # one machine may use all addresses that share this prefix


def client_of(host: str) -> str:
    """Which client an address belongs to: with IPv6, its network."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host  # a name that a proxy gives in place of an address
    if address.version == 4:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), _IPV6_PREFIX), strict=False))


class Connections:
    """The open connections to the page, and their limits."""

    def __init__(
        self,
        proxies: Sequence[str] = (),
        per_client: int = _PER_CLIENT,
        in_all: int = _IN_ALL,
        request_s: float = _REQUEST_S,
        stuck_s: float = _STUCK_S,
    ) -> None:
        """`proxies`: addresses or networks whose connections belong to many clients."""
        self.request_s = request_s
        self.stuck_s = stuck_s
        self._per_client = per_client
        self._in_all = in_all
        self._proxies = [ipaddress.ip_network(proxy) for proxy in proxies]
        self._clients: dict[asyncio.Transport, str] = {}
        self._counts: Counter[str] = Counter()
        self._waiting: dict[asyncio.Transport, None] = {}  # for a request, the longest first

    def __len__(self) -> int:
        return len(self._clients)

    def enter(self, transport: asyncio.Transport, host: str) -> None:
        """A connection was made. If there are too many, closes another one or this one."""
        client = client_of(host)
        if not self._make_room(client, host):
            return transport.abort()
        self._clients[transport] = client
        self._counts[client] += 1
        self.waits(transport)

    def waits(self, transport: asyncio.Transport) -> None:
        """The connection waits for a request from now on."""
        if transport in self._clients:
            self._waiting.setdefault(transport)

    def serves(self, transport: asyncio.Transport) -> None:
        """A request on the connection is being answered."""
        self._waiting.pop(transport, None)

    def leave(self, transport: asyncio.Transport) -> None:
        """A connection has ended; also called for one that was never admitted."""
        self._waiting.pop(transport, None)
        client = self._clients.pop(transport, None)
        if client is not None:
            self._counts[client] -= 1
            if not self._counts[client]:
                del self._counts[client]

    def _make_room(self, client: str, host: str) -> bool:
        longest: asyncio.Transport | None
        if self._counts[client] >= self._per_client and not self._is_proxy(host):
            longest = next((each for each in self._waiting if self._clients[each] == client), None)
        elif len(self) >= self._in_all:
            # The first of several that are equal has waited longest.
            longest = max(self._waiting, key=self._among, default=None)
        else:
            return True
        if longest is not None:
            self.leave(longest)
            longest.abort()
        return longest is not None

    def _among(self, transport: asyncio.Transport) -> int:
        """How many connections the client of this connection has."""
        return self._counts[self._clients[transport]]

    def _is_proxy(self, host: str) -> bool:
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._proxies)


class Settings(uvicorn.Config):
    """The server's settings, with the `Connections` that its connections share."""

    def __init__(self, app: ASGIApp, shared: Connections, **more: Any) -> None:
        self.shared = shared
        super().__init__(app, http=Http, ws=WebSocket, **more)


class _Watched(asyncio.Protocol):
    """A connection that is closed once its client stops reading."""

    config: Settings
    transport: asyncio.Transport
    _unread: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.config.shared.leave(self.transport)
        self.resume_writing()
        super().connection_lost(exc)

    def _watch(self) -> None:
        left = self.transport.get_write_buffer_size()
        loop = asyncio.get_running_loop()
        self._unread = loop.call_later(self.config.shared.stuck_s, self._look_at_unread, left)

    def _look_at_unread(self, before: int) -> None:
        if self.transport.get_write_buffer_size() >= before:
            self.transport.abort()
        else:
            self._watch()


class WebSocket(_Watched, WebSocketsSansIOProtocol):
    """A connection that began as `Http` and is a stream now. `guard.py` counts the streams of each
    client, and pings notice a client that is gone."""

    config: Settings


class Http(_Watched, H11Protocol):
    """A connection whose requests have to come in time."""

    config: Settings
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        super().connection_made(transport)
        # No buffer of 64 kB: `pause_writing` tells at once that a client stops reading.
        transport.set_write_buffer_limits(high=0)
        self.config.shared.enter(transport, self.client[0] if self.client else "")
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect(False)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def _look(self) -> None:
        """Note whether a request is being answered, and whether the client has to send more of
        one."""
        if self.transport.get_protocol() is not self:  # a web socket from now on
            self._expect(False)
            return self.config.shared.serves(self.transport)
        if self.cycle is None or self.cycle.response_complete:
            self.config.shared.waits(self.transport)
        else:
            self.config.shared.serves(self.transport)
        self._expect(self.conn.their_state in (h11.IDLE, h11.SEND_BODY))

    def _expect(self, more: bool) -> None:
        if not more and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        elif more and self._deadline is None and not self.transport.is_closing():
            wait = self.config.shared.request_s
            self._deadline = self.loop.call_later(wait, self.transport.abort)
