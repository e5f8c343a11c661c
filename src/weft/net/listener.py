"""Where a peer listens, what it tells others about that, and how many may call at once."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections import Counter

from weft.ids import BadId, make_address, split_address
from weft.net.connection import Connection
from weft.net.errors import ListenError


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
            f"listening on {host} is not an address others can dial: "
            "set 'announce' to the host name or address they shall use"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ListenError(f"cannot listen on {listen}: {error.strerror or error}") from error
    actual = listener.getsockname()[1]
    return listener, make_address(*_announced(announce, actual)) if announce else make_address(
        host, actual
    )


def _announced(announce: str, actual: int) -> tuple[str, int]:
    if announce.startswith("/") or announce.startswith("[") or announce.count(":") == 1:
        host, port = parse_endpoint(announce)
        return host, port or actual
    return announce, actual


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


async def stop_serving(server: asyncio.Server) -> None:
    """Close a listening server after the callers that the system had accepted have their protocol.

    asyncio makes a caller's transport one turn of its loop after the system accepted the caller. A
    server closed within that turn makes the transport's constructor fail silently (CPython 3.11):
    the caller would hang on a socket that nothing closes.
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    await asyncio.sleep(0)
    server.close()


class Admission:
    """The callers that have not proven themselves yet, oldest first.

    An unproven caller costs a socket and, once it speaks, a TLS handshake. Their number is bounded,
    in all and per address; when the bound is reached the one that has taken longest makes room.
    Honest callers are through within milliseconds, so under a flood of silent callers the
    silent ones go.
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
