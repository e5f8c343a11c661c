"""Where a peer listens, which address it tells others, and how many may call at once.

An `Acceptor` takes callers in. asyncio's own servers do badly when the process may open no more
files: they try as often as the backlog is long, each time with a traceback in the log, and again a
second later for each attempt (measured with 160 callers waiting: 0.2 of a core and 1 MB of log a
second).
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import re
import socket
from collections import Counter
from collections.abc import Callable

from weft.bounded import BoundedDict
from weft.ids import BadId, make_address, split_address
from weft.net.connection import Connection
from weft.net.errors import ListenError
from weft.net.timers import now_ms

log = logging.getLogger("weft.net")

_ACCEPTED_AT_ONCE = 64  # guess: callers taken in before the rest of the loop has its turn
PAUSE_S = 1.0  # guess: pause after the process could open nothing for a caller
_NOTICES_MAX = 256  # guess: peers and matters that a line was written about
_NOTICE_MS = 1_000  # guess: between two lines about what others do
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""The process, or the whole system, can open nothing more at the moment."""
_HOST = re.compile(r"[\w.:%-]+")
"""The form of a host's name or IP address."""


def parse_endpoint(text: str) -> tuple[str, int]:
    """`127.0.0.1:4001`, `[::1]:4001` or `/ip4/127.0.0.1/tcp/4001` → host, port."""
    if text.startswith("/"):
        if text.endswith("/tcp/0"):  # fine for listening, though it cannot be dialled
            return split_address(text[:-1] + "1")[0], 0
        try:
            return split_address(text)
        except BadId as error:
            raise ListenError(str(error)) from error
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise ListenError(f"cannot listen on {text!r}: expected HOST:PORT, such as 127.0.0.1:4001")
    return host, int(port)


def bind(listen: str, announce: str = "") -> tuple[socket.socket, str]:
    """A bound socket, and the address to tell others (a multiaddr without its /p2p part)."""
    host, port = parse_endpoint(listen)
    everywhere = _is_unspecified(host)
    if everywhere and not announce:
        raise ListenError(
            f"{host} is not an address that others can dial: "
            "say with 'announce' (--announce) which host name or address they shall use"
        )
    try:
        listener = bound(host, port)
    except OSError as error:
        raise ListenError(f"cannot listen on {listen}: {error.strerror or error}") from error
    actual = listener.getsockname()[1]
    try:
        told = _announced(announce, actual) if announce else (host, actual)
    except BaseException:
        listener.close()
        raise
    return listener, make_address(*told)


def bound(host: str, port: int) -> socket.socket:
    """A socket bound to this address, which does not listen yet.

    The protocol is named, because asyncio sends small pieces at once (TCP_NODELAY) only on sockets
    whose protocol is known to be TCP. Otherwise the body of each answer waits until its head is
    acknowledged, which takes 40 ms on Linux."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except BaseException:
        listener.close()
        raise
    return listener


def _announced(announce: str, actual: int) -> tuple[str, int]:
    host, port = announce, 0
    if announce.startswith("/") or announce.startswith("[") or announce.count(":") == 1:
        try:
            host, port = parse_endpoint(announce)
        except ListenError as error:
            raise ListenError(
                f"cannot announce {announce!r}: expected HOST or HOST:PORT"
            ) from error
    # Only numbers have colons: a host's name with one cannot be looked up.
    if not _HOST.fullmatch(host) or _is_unspecified(host) or (":" in host and not _is_ip(host)):
        raise ListenError(f"cannot announce {announce!r}: others cannot dial {host!r}")
    return host, port or actual


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class Acceptor:
    """Takes callers in from a bound socket, and gives each a protocol. While the process can open
    no more files, callers wait in the system's queue; the log says so once."""

    def __init__(self, listener: socket.socket, make: Callable[[], asyncio.BaseProtocol]) -> None:
        self._listener = listener
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._entering: set[asyncio.Task[object]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._crowded = False  # there was no room for the latest caller
        self.closed = False

    def open(self, backlog: int) -> None:
        """Begin to listen; at most `backlog` callers may wait to be taken in."""
        self._listener.setblocking(False)
        self._listener.listen(backlog)
        self._resume()

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener.fileno(), self._take_in)

    def _take_in(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                caller, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue  # the caller has gone already
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                self._wait(error)
                return
            if self._crowded:
                self._crowded = False
                log.warning("callers are taken in again")
            self._enter(caller)

    def _wait(self, error: OSError) -> None:
        if not self._crowded:
            self._crowded = True
            log.warning("no caller can be taken in for now: %s", error.strerror)
        self._loop.remove_reader(self._listener.fileno())
        self._pause = self._loop.call_later(PAUSE_S, self._resume)

    def _enter(self, caller: socket.socket) -> None:
        caller.setblocking(False)
        entering = self._loop.connect_accepted_socket(self._make, caller)
        task: asyncio.Task[object] = self._loop.create_task(entering)
        self._entering.add(task)
        task.add_done_callback(self._entering.discard)

    async def close(self) -> None:
        """Stop listening. Callers that were taken in get their protocol first, because nothing else
        would close their sockets."""
        if self.closed:
            return
        self.closed = True
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener.fileno())
        if self._entering:
            await asyncio.wait(self._entering)
        self._listener.close()


class Admission:
    """The callers that have not proven themselves yet, oldest first.

    An unproven caller costs a socket and, once it speaks, a TLS handshake. Their number is bounded,
    in all and per address; when the bound is reached, the caller that has taken longest makes room.
    Honest callers are done within milliseconds, so under a flood the silent callers go.
    """

    def __init__(self, most: int, most_per_ip: int) -> None:
        self._most = most
        self._most_per_ip = most_per_ip
        self._callers: dict[Connection, str] = {}
        self._per_ip: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._callers)

    def enter(self, caller: Connection) -> Connection | None:
        """A new caller; returns the one that must go for it, if any."""
        victim = None
        if self._per_ip[caller.remote_ip] >= self._most_per_ip:
            victim = next(c for c, ip in self._callers.items() if ip == caller.remote_ip)
        elif len(self._callers) >= self._most:
            victim = next(iter(self._callers))
        if victim is not None:
            self.leave(victim)
        self._callers[caller] = caller.remote_ip
        self._per_ip[caller.remote_ip] += 1
        return victim

    def leave(self, caller: Connection) -> None:
        """The caller has greeted, or is gone."""
        ip = self._callers.pop(caller, None)
        if ip is not None:
            self._per_ip[ip] -= 1
            if not self._per_ip[ip]:
                del self._per_ip[ip]


class Unfinished:
    """The bytes of unfinished frames, over all connections.

    A part of a frame must be kept until the rest comes: a hundred callers that each sent all but
    the last byte of a largest frame made a peer hold 430 MB. So the bytes are bounded in all. When
    there are more, the frame that has taken longest goes, with its connection: an honest frame is
    complete within moments, so under an attack the attackers' frames go. Linked peers go last.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held: dict[Connection, int] = {}  # the one that began first comes first
        self.bytes = 0

    def note(
        self, connection: Connection, size: int, linked: Callable[[Connection], bool]
    ) -> Connection | None:
        """A connection holds `size` bytes now; returns the connection that must go, if any."""
        self.bytes += size - self._held.get(connection, 0)
        if not size:
            self._held.pop(connection, None)
            return None
        self._held[connection] = size
        if self.bytes <= self._bytes_max:
            return None
        strangers = (one for one in self._held if not linked(one))
        return next(strangers, None) or next(iter(self._held))


class Notices:
    """Warnings in the log about other peers: one for each peer and matter, and at most one a
    second, so that nobody can fill the log."""

    def __init__(self) -> None:
        self._said: BoundedDict[tuple[str, str], None] = BoundedDict(_NOTICES_MAX)
        self._next_ms = 0

    def say(self, other: str, matter: str, text: str) -> None:
        """Write a line; `other` is the peer, or the address, that it is about."""
        now = now_ms()
        if (other, matter) in self._said or now < self._next_ms:
            return
        self._next_ms = now + _NOTICE_MS
        self._said[other, matter] = None
        log.warning("%s", text)
