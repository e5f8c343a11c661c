"""The network driver's counters, and a small HTTP endpoint for Prometheus.

The endpoint answers `GET /metrics` (and `HEAD`) and nothing else, reads at most a few kilobytes of
request and gives up on slow callers. It has no authentication: bind it to loopback, which is the
default when only a port is given.

A web page in a browser on this machine may make its own name lead to this machine's address (DNS
rebinding), and then read the metrics. The browser says in `Host` which name it was given, so only
trusted names are answered: loopback's, the address that was called, and those in the settings.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import accumulate

from weft.net.arguments import text_in
from weft.net.errors import FAULTS, Fault, ListenError, MetricsError
from weft.net.listener import Acceptor, bound, parse_endpoint
from weft.protocol.wire import Message

_REQUEST_BYTES_MAX = 8_192
_REQUEST_TIMEOUT_S = 5.0
_ANSWERED_AT_ONCE = 16  # guess: callers served at a time
_WAITING_MAX = 100  # guess: callers that may wait to be taken in
_READS = ("GET", "HEAD")
HERE = ("localhost", "127.0.0.1", "::1")

_WORD_START = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
_BYTES = (16.0, 64.0, 256.0, 1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0)
_DROPS = ("queue full", "peer lost", "disconnected", "too large", "unreachable")


class Histogram:
    """Counts values by bounds: how many were at most each bound."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0  # of all values

    def add(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self.total += value * times

    def cumulated(self) -> list[tuple[str, float]]:
        """For each bound, how many values were not above it; the last bound is infinite."""
        names = [*map(str, self._bounds), "+Inf"]
        return list(zip(names, accumulate(self._counts), strict=True))


@dataclass(slots=True, eq=False, repr=False, match_args=False)
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
    key_clashes: int = 0  # another process was found to use this peer's key
    notifications_dropped: int = 0
    opened: int = 0
    publish_waits_queue: int = 0  # publishes that waited for room in a queue
    publish_waits_window: int = 0  # publishes from outside that waited for an answer
    reads_held: int = 0  # times a connection was not read, since its events found a full queue
    store_errors: int = 0  # batches of events that could not be made durable
    writes: int = 0
    faults: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys((kind.counter for kind in FAULTS), 0)
    )
    dialled: dict[str, int] = field(default_factory=dict)
    drops: dict[tuple[str, str], int] = field(
        default_factory=lambda: {(kind, why): 0 for kind in ("event", "control") for why in _DROPS}
    )
    latencies: Histogram = field(default_factory=lambda: Histogram(_SECONDS))
    sizes: Histogram = field(default_factory=lambda: Histogram(_BYTES))

    def observe(self, seconds: float, sizes: Sequence[int]) -> None:
        """Events with payloads of these sizes were delivered, `seconds` after they were published.
        A clock behind the publisher's makes that negative, which counts as 0."""
        self.latencies.add(max(0.0, seconds), len(sizes))
        if sizes.count(sizes[0]) == len(sizes):  # nearly always
            self.sizes.add(sizes[0], len(sizes))
        else:
            for size in sizes:
                self.sizes.add(size)

    @property
    def histograms(self) -> dict[str, Histogram]:
        return {"delivery_seconds": self.latencies, "payload_bytes": self.sizes}

    def fault(self, fault: Fault) -> None:
        self.faults[fault.counter] += 1

    def dial(self, message: object) -> None:
        """A connection is made because of this message."""
        self.dials += 1
        kind = _WORD_START.sub("_", type(message).__name__).lower()
        self.dialled[kind] = self.dialled.get(kind, 0) + 1

    def dropped(self, message: Message, reason: str) -> None:
        carries_event = message.carries
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
