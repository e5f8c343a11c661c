"""Prometheus metrics, as text and over a tiny HTTP endpoint.

The endpoint answers `GET /metrics` and nothing else, reads at most a few kilobytes of request
and gives up on callers that dawdle. It has no authentication: bind it to loopback, which is
what is done when only a port is given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from weft.net.errors import ListenError
from weft.net.listener import parse_endpoint

_REQUEST_BYTES_MAX = 8_192
_REQUEST_TIMEOUT_S = 5.0
_ANSWERED_AT_ONCE = 16  # guess: callers served at a time


def render(
    counters: Mapping[str, int], gauges: Mapping[str, float], labels: Mapping[str, str]
) -> str:
    """Prometheus' text format: counters get `_total`, everything the prefix `weft_`."""
    tail = ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())
    lines = []
    for kind, suffix, values in (("counter", "_total", counters), ("gauge", "", gauges)):
        for name, value in values.items():
            full = f"weft_{_clean(name)}{suffix}"
            lines.append(f"# TYPE {full} {kind}")
            lines.append(f"{full}{{{tail}}} {value}")
    return "\n".join(lines) + "\n"


def _clean(name: str) -> str:
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class Endpoint:
    """Serves the metrics until it is closed."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text
        self._server: asyncio.Server | None = None
        self._busy = 0
        self.address = ""

    async def open(self, where: str) -> None:
        """`where` is HOST:PORT, or only a port for loopback."""
        host, port = parse_endpoint(f"127.0.0.1:{where}" if where.isdecimal() else where)
        try:
            self._server = await asyncio.start_server(
                self._serve, host, port, limit=_REQUEST_BYTES_MAX
            )
        except OSError as error:
            raise ListenError(f"cannot serve metrics on {where}: {error.strerror}") from error
        name = self._server.sockets[0].getsockname()
        self.address = f"{name[0]}:{name[1]}"

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._busy += 1
        try:
            if self._busy <= _ANSWERED_AT_ONCE:
                async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                    request = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._answer(request))
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the caller's problem
        finally:
            self._busy -= 1
            writer.close()

    def _answer(self, request: bytes) -> bytes:
        words = request.split(b"\r\n", 1)[0].split(b" ")
        if len(words) == 3 and words[0] == b"GET" and words[1].split(b"?")[0] == b"/metrics":
            status, body = "200 OK", self._text().encode()
        else:
            status, body = "404 Not Found", b"metrics are at /metrics\n"
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + body
