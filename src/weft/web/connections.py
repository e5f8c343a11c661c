"""Connections to the page: how many a client may have, and how long it may keep one waiting.

A connection costs its client nothing, and the page a file handle. So that a client that opens many
and says nothing (or says a letter now and then) shuts nobody out:

- a request has to be whole within a time, head and body;
- a client that reads nothing of its answer for a time is cut off;
- a client (by its address) has so many connections, and all clients together so many. One more
  takes the place of the connection that has waited longest for a request: of the same client where
  that has its number, else of the client that has the most. Where no connection waits for a
  request, the new one is closed.

Connections of a proxy are many clients', so they count in the sum alone; `guard.py` limits the
requests and streams of each client behind it.
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
_STUCK_S = 30.0  # guess
_IPV6_PREFIX = 64  # a machine has the rest of an address to itself, and takes new ones at will


def client_of(host: str) -> str:
    """Which client an address belongs to: with IPv6, its network."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host  # what a proxy says instead
    if address.version == 4:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), _IPV6_PREFIX), strict=False))


class Connections:
    """Those that are open."""

    def __init__(
        self,
        proxies: Sequence[str] = (),
        per_client: int = _PER_CLIENT,
        in_all: int = _IN_ALL,
        request_s: float = _REQUEST_S,
        stuck_s: float = _STUCK_S,
    ) -> None:
        """`proxies`: addresses or networks whose connections are many clients'."""
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
        """A connection was made. Closes another one, or this one, where there are too many."""
        client = client_of(host)
        if not self._make_room(client, host):
            return transport.abort()
        self._clients[transport] = client
        self._counts[client] += 1
        self.waits(transport)

    def waits(self, transport: asyncio.Transport) -> None:
        """A request is waited for, from now on."""
        if transport in self._clients:
            self._waiting.setdefault(transport)

    def serves(self, transport: asyncio.Transport) -> None:
        """A request is being answered."""
        self._waiting.pop(transport, None)

    def leave(self, transport: asyncio.Transport) -> None:
        """A connection has ended; also called for one that never came in."""
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
        """How many connections its client has."""
        return self._counts[self._clients[transport]]

    def _is_proxy(self, host: str) -> bool:
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._proxies)


class Settings(uvicorn.Config):
    """The server's settings, with what its connections share."""

    def __init__(self, app: ASGIApp, shared: Connections, **more: Any) -> None:
        self.shared = shared
        super().__init__(app, http=Http, ws=WebSocket, **more)


class _Watched(asyncio.Protocol):
    """A connection whose client is cut off once it reads nothing any more."""

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
    """A connection that began as `Http` and is one of its client's streams; `guard.py` counts
    those, and pings find out whether the client is there."""

    config: Settings


class Http(_Watched, H11Protocol):
    """A connection whose requests have to come in time."""

    config: Settings
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        super().connection_made(transport)
        # Not only from 64 kB on: whatever the client does not read is known here.
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
        """See whether a request is being answered, and whether the client has to go on with one."""
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
