"""Where a peer listens, and what it tells others about that."""

from __future__ import annotations

import ipaddress
import socket

from weft.ids import BadId, make_address, split_address
from weft.net.errors import ListenError


def parse_endpoint(text: str) -> tuple[str, int]:
    """`127.0.0.1:4001`, `[::1]:4001` or `/ip4/127.0.0.1/tcp/4001` → host, port."""
    if text.startswith("/"):
        if text.endswith("/tcp/0"):  # fine for listening, though nobody could dial it
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
