"""What the network driver counts, and how Prometheus reads it: as text, over a tiny HTTP endpoint.

The endpoint answers `GET /metrics` and nothing else, reads at most a few kilobytes of request
and gives up on slow callers. It has no authentication: bind it to loopback, which is
what is done when only a port is given.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

from weft.net.errors import FAULTS, Fault, ListenError
from weft.net.listener import parse_endpoint, stop_serving
from weft.protocol.messages import PAYLOAD_KINDS
from weft.protocol.wire import Message

_REQUEST_BYTES_MAX = 8_192
_REQUEST_TIMEOUT_S = 5.0
_ANSWERED_AT_ONCE = 16  # guess: callers served at a time

_WORD_START = re.compile(r"(?<=[a-z])(?=[A-Z])")
_DROPS = ("queue full", "peer lost", "disconnected", "too large", "unreachable")


@dataclass(slots=True)
class Counters:
    """The driver's counters, all monotone. Frequent ones are plain attributes, rare ones are in
    dictionaries: faults by their kind, in `dialled` the dials by the message that they were made
    for, and in `drops` the messages that did not leave, by reason and by what they carried."""

    accepts: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    delivered: int = 0
    dials: int = 0
    events_dropped: int = 0  # event-carrying messages that did not leave
    evictions: int = 0
    frames_received: int = 0
    frames_sent: int = 0
    handler_errors: int = 0
    idle_closes: int = 0
    notifications_dropped: int = 0
    opened: int = 0
    store_errors: int = 0  # batches of events that could not be made durable
    writes: int = 0
    faults: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys((kind.counter for kind in FAULTS), 0)
    )
    dialled: dict[str, int] = field(default_factory=dict)
    drops: dict[tuple[str, str], int] = field(
        default_factory=lambda: {(kind, why): 0 for kind in ("event", "control") for why in _DROPS}
    )

    def fault(self, fault: Fault) -> None:
        self.faults[fault.counter] += 1

    def dial(self, message: object) -> None:
        """A connection is made because of this message."""
        self.dials += 1
        kind = _WORD_START.sub("_", type(message).__name__).lower()
        self.dialled[kind] = self.dialled.get(kind, 0) + 1

    def dropped(self, message: Message, reason: str) -> None:
        carries_event = isinstance(message, PAYLOAD_KINDS)
        self.events_dropped += carries_event
        self.drops["event" if carries_event else "control", reason] += 1

    def as_dict(self) -> dict[str, int]:
        counts = {one.name: getattr(self, one.name) for one in fields(self) if one.type == "int"}
        counts.update(self.faults)
        counts.update({f"dials_for_{kind}": count for kind, count in self.dialled.items()})
        for (kind, reason), count in self.drops.items():
            counts[f"dropped_{kind}_{reason.replace(' ', '_')}"] = count
        return counts


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

    async def close(self) -> None:
        if self._server is not None:
            await stop_serving(self._server)

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
