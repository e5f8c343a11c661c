"""A small HTTP endpoint for Prometheus, and what it shows (`counters.py` has the driver's part).

The endpoint answers `GET /metrics` (and `HEAD`) and nothing else, reads at most a few kilobytes of
request and gives up on slow callers. It has no authentication: bind it to loopback, which is the
default when only a port is given.

A web page in a browser on this machine may make its own name lead to this machine's address (DNS
rebinding), and then read the metrics. The browser says in `Host` which name it was given, so only
trusted names are answered: loopback's, the address that was called, and those in the settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from weft.net.arguments import text_in
from weft.net.counters import Histogram
from weft.net.errors import ListenError, MetricsError
from weft.net.listener import Acceptor, bound, parse_endpoint

_REQUEST_BYTES_MAX = 8_192
_REQUEST_TIMEOUT_S = 5.0
_ANSWERED_AT_ONCE = 16  # guess: callers served at a time
_WAITING_MAX = 100  # guess: callers that may wait to be taken in
_READS = ("GET", "HEAD")
HERE = ("localhost", "127.0.0.1", "::1")


def render(
    counters: Mapping[str, int],
    gauges: Mapping[str, float],
    histograms: Mapping[str, Histogram],
    labels: Mapping[str, str],
) -> str:
    """Prometheus' text format; `exposition.py` says how names become metrics."""
    try:
        from weft.net.exposition import Exposition  # noqa: PLC0415  (needs an extra)
    except ModuleNotFoundError as error:
        raise MetricsError(
            f"metrics need the package {error.name!r}: pip install 'weft[web]'"
        ) from error
    return Exposition(counters, gauges, histograms, labels).text()


class Endpoint:
    """Serves the metrics until it is closed."""

    def __init__(self, text: Callable[[], str], hosts: Sequence[str] = ()) -> None:
        """`hosts`: names, beside loopback's and the address itself, that callers may use."""
        self._text = text
        self._hosts = frozenset(name.lower() for name in (*HERE, *hosts))
        self._acceptor: Acceptor | None = None
        self._busy = 0
        self.address = ""

    async def open(self, where: str) -> None:
        """`where` is HOST:PORT, or only a port for loopback."""
        text_in("metrics", where)
        host, port = parse_endpoint(f"127.0.0.1:{where}" if where.isdecimal() else where)
        try:
            listener = bound(host, port)
            self._acceptor = Acceptor(listener, self._protocol)
            self._acceptor.open(_WAITING_MAX)
        except OSError as error:
            raise ListenError(f"cannot serve metrics on {where}: {error.strerror}") from error
        name = listener.getsockname()
        self.address = f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"

    async def close(self) -> None:
        if self._acceptor is not None:
            await self._acceptor.close()

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        reader = asyncio.StreamReader(limit=_REQUEST_BYTES_MAX)
        return asyncio.StreamReaderProtocol(reader, self._serve)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._busy += 1
        try:
            if self._busy <= _ANSWERED_AT_ONCE:
                async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                    request = await reader.readuntil(b"\r\n\r\n")
                    called = writer.get_extra_info("sockname")
                    writer.write(self._answer(request, str(called[0]) if called else ""))
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the caller's problem
        finally:
            self._busy -= 1
            writer.close()

    def _answer(self, request: bytes, called: str) -> bytes:
        """The answer to a request that came in at the address `called`."""
        first, *fields = request.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if _host(fields) not in (*self._hosts, called):
            status = "421 Misdirected Request"
            body = b"unknown host name; network.metrics_hosts lists the names that are served\n"
        elif len(words) == 3 and words[0] in _READS and words[1].split("?")[0] == "/metrics":
            status, body = "200 OK", self._text().encode()
        else:
            status, body = "404 Not Found", b"metrics are at /metrics\n"
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + (b"" if words[0] == "HEAD" else body)


def _host(fields: Sequence[str]) -> str:
    """The name in a request's `Host` header, without the port; empty unless there is exactly one
    such header."""
    values = [
        value
        for name, _, value in (field.partition(":") for field in fields)
        if name.strip().lower() == "host"
    ]
    return host_in(values[0]) if len(values) == 1 else ""


def host_in(value: str) -> str:
    """The name in a `Host` header, without the port."""
    host = value.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")
