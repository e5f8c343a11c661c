"""Decides which requests reach the page and its HTTP interface.

The page is on loopback by default, where any web page that a browser on this machine shows can send
requests to it. So:

- `Host` must be a trusted name, as for the metrics (`net/metrics.py` says why);
- a request that comes from another page, as the browser says (`Origin`, `Sec-Fetch-Site`), is
  refused; also for web sockets, which the same-origin rule does not cover. No CORS header is sent;
- a request that changes something needs the token, in a header that no other page can set;
- requests a second and open streams are limited for each client (by its address).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from typing import TypeAlias

import msgspec
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft.bounded import BoundedDict
from weft.net.metrics import HERE, host_in
from weft.web.connections import client_of

BODY_BYTES_MAX = 1_000_000
"""Fits in a block of the store, which has 1 MiB for the payload and the rest of an event."""
_UNREAD_BYTES_MAX = 4 * BODY_BYTES_MAX  # guess: read of a refused body, so that the answer arrives
_UNREAD_S = 5.0  # guess: time to read so much
_WRITES_PER_S = 5_000.0  # guess: more than a peer publishes, one request each
_BURST_S = 2.0  # guess: the allowance of so many seconds may be used at once
READS_PER_S = 100.0
"""guess: requests of one client without the token; a page sends a few now and then."""
STREAMS_MAX = 32
"""guess: pages and subscriptions of one client."""
_CLIENTS_MAX = 4_096  # guess: addresses remembered

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Refusal: TypeAlias = tuple[int, str]


class Allowance:
    """How many requests and streams one client may still open: a token bucket, and a count."""

    def __init__(self, per_s: float, now: float) -> None:
        self._per_s = per_s
        self._left = per_s * _BURST_S
        self._at = now
        self.streams = 0

    def take(self, now: float) -> bool:
        self._left = min(self._per_s * _BURST_S, self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def enter(self) -> bool:
        """Open a stream, if there is room for one more."""
        if self.streams >= STREAMS_MAX:
            return False
        self.streams += 1
        return True

    def leave(self) -> None:
        self.streams -= 1


class Guard:
    """The ASGI application around the page's own, which refuses requests."""

    def __init__(
        self,
        app: ASGIApp,
        token: str,
        hosts: Sequence[str] = (),
        streams: Sequence[str] = (),
        reads_per_s: float = READS_PER_S,
    ) -> None:
        """`hosts`: names that callers may use beside loopback's; `streams`: paths that stay
        open."""
        self._app = app
        self._token = token
        self._hosts = frozenset(name.lower() for name in (*HERE, *hosts))
        self._streams = frozenset(streams)
        self._reads_per_s = reads_per_s
        self._clients: BoundedDict[tuple[str, bool], Allowance] = BoundedDict(_CLIENTS_MAX)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        headers = Headers(scope=scope)
        client = self._client(scope, self.knows(headers))
        refused = self._refusal(scope, headers, client)
        if refused is not None:
            await _read_away(scope, receive)
            return await _refuse(scope, send, *refused)
        if scope["path"] not in self._streams:
            return await self._app(scope, _bounded(receive), _with_headers(send))
        if not client.enter():
            return await _refuse(scope, send, 429, f"at most {STREAMS_MAX} streams at a time")
        try:
            return await self._app(scope, receive, _with_headers(send))
        finally:
            client.leave()

    def knows(self, headers: Headers) -> bool:
        """Whether a request carries the token."""
        kind, _, token = headers.get("authorization", "").partition(" ")
        given = token.strip().encode()
        return kind.lower() == "bearer" and secrets.compare_digest(given, self._token.encode())

    def _client(self, scope: Scope, trusted: bool) -> Allowance:
        """The allowance of a client. With the token it is a separate one, so that requests without
        the token cannot use it up."""
        key = (client_of(str((scope.get("client") or ("",))[0])), trusted)
        known = self._clients.get(key)
        if known is None:
            per_s = _WRITES_PER_S if trusted else self._reads_per_s
            known = self._clients[key] = Allowance(per_s, _now())
        return known

    def _refusal(self, scope: Scope, headers: Headers, client: Allowance) -> Refusal | None:
        if not client.take(_now()):
            return 429, "too many requests; wait a second"
        called = str((scope.get("server") or ("",))[0])
        given = headers.getlist("host")
        host = host_in(given[0]) if len(given) == 1 else ""
        if host not in self._hosts and host != called:
            return 421, "unknown host name; network.metrics_hosts lists the names that are served"
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != given[0]:
            return 403, "requests of other pages are not answered"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "requests of other pages are not answered"
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD"):
            if not self.knows(headers):
                return 401, "without the token this is read-only: 'Authorization: Bearer TOKEN'"
            length = headers.get("content-length", "0")
            if not length.isdecimal() or int(length) > BODY_BYTES_MAX:
                return 413, f"at most {BODY_BYTES_MAX} bytes"
        return None


class TooLarge(Exception):
    """The body of a request is larger than allowed."""


def _bounded(receive: Receive) -> Callable[[], Awaitable[Message]]:
    """As `receive`, up to the largest body: a body without a declared length may be endless."""
    size = 0

    async def limited() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > BODY_BYTES_MAX:
            raise TooLarge
        return message

    return limited


def _with_headers(send: Send) -> Callable[[MutableMapping[str, object]], Awaitable[None]]:
    """As `send`, with the headers that every answer has."""
    more = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await send(message)

    return sent


async def _read_away(scope: Scope, receive: Receive) -> None:
    """Read the body of a refused request. The system resets a connection that is closed with unread
    bytes, and the client may never see the answer."""
    if scope["type"] != "http":
        return
    size = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_UNREAD_S):
            while size <= _UNREAD_BYTES_MAX:
                message = await receive()
                size += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return


async def _refuse(scope: Scope, send: Send, status: int, why: str) -> None:
    if scope["type"] == "websocket":
        return await send({"type": "websocket.close", "code": 1008, "reason": why})
    body = msgspec.json.encode({"error": why})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if status == 429:
        headers.append((b"retry-after", b"1"))
    await _with_headers(send)({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _now() -> float:
    return asyncio.get_running_loop().time()
