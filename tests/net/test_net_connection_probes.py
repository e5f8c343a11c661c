"""Where a link runs over a connection, the system probes whether the other machine is there."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from struct import pack
from typing import Any

import pytest

from net_kit import Node, node, quick, until
from weft.ids import split_address
from weft.protocol import seam

PROBES = all(
    hasattr(socket, name) for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_INFO")
)
pytestmark = pytest.mark.skipif(not PROBES, reason="Linux has all of these options")

OF_PROBES = {getattr(socket, name) for name in ("TCP_KEEPIDLE", "TCP_INFO")} if PROBES else set()
SWEPT = quick(idle_ms=100, link_timeout_ms=1_000)
"""Connections are looked at every 25 ms."""


class Sockets:
    """Every socket that was made."""

    def __init__(self) -> None:
        self.made: list[socket.socket] = []
        self.refuse = False  # options, as sockets do that the other end has reset
        self.silent_ms: tuple[int, int] | None = None  # what they say instead of what is so
        self.asked = (0, 0)

    def between(self, caller: Node, called: Node) -> socket.socket:
        """The caller's end of the connection."""
        place = split_address(called.me.address)
        found = [one for one in self.made if one.fileno() >= 0 and _other_end(one) == place]
        assert len(found) == 1, f"{caller.me} has {len(found)} connections to {called.me}"
        return found[0]


def _other_end(sock: socket.socket) -> tuple[str, int] | None:
    try:
        host, port = sock.getpeername()
    except (OSError, ValueError):
        return None
    return host, port


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sockets]:
    known = Sockets()

    class Known(socket.socket):
        def __init__(self, *arguments: int, **options: int) -> None:
            super().__init__(*arguments, **options)
            known.made.append(self)

        def setsockopt(self, level: int, name: int, value: object, *rest: object) -> None:  # type: ignore[override]
            if known.refuse and level == socket.IPPROTO_TCP and name in OF_PROBES:
                raise OSError(errno.EINVAL, "Invalid argument")
            super().setsockopt(level, name, value)  # type: ignore[arg-type]

        def getsockopt(self, level: int, name: int, *rest: int) -> Any:
            if known.refuse and level == socket.IPPROTO_TCP and name in OF_PROBES:
                raise OSError(errno.EINVAL, "Invalid argument")
            said = super().getsockopt(level, name, *rest)
            asked = level == socket.IPPROTO_TCP and name == socket.TCP_INFO
            if not asked or known.silent_ms is None:
                return said
            return said[:2] + bytes(known.asked) + said[4:52] + pack("=II", *known.silent_ms)

    monkeypatch.setattr(socket, "socket", Known)
    yield known
    known.made.clear()


def probed(sock: socket.socket) -> bool:
    return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))


def of_tcp(sock: socket.socket, *names: str) -> list[int]:
    return [sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names]


async def sweeps(one: Node) -> None:
    """Until it has looked at its connections several times: an idle one of a stranger is closed by
    the fourth look."""
    async with node() as stranger:
        stranger.ping(one, 0)
        await until(lambda: one.connections == 2)
        await until(lambda: one.connections == 1)


async def test_an_open_connection_is_probed_from_the_hold_to_the_release(sockets: Sockets) -> None:
    async with node() as a, node() as b:
        a.ping(b, 1)
        await until(lambda: b.machine.nonces == [1])
        sock = sockets.between(a, b)
        assert not probed(sock)
        a.do(seam.Hold(b.me))
        assert probed(sock)
        assert of_tcp(sock, "TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT") == [1, 1, 4]
        a.do(seam.Release(b.me.peer))
        assert not probed(sock)


async def test_a_connection_made_after_the_hold_is_probed(sockets: Sockets) -> None:
    async with node() as a, node() as b, node() as c:
        a.do(seam.Hold(b.me))
        a.ping(b, 1)
        a.ping(c, 1)
        await until(lambda: b.machine.nonces == c.machine.nonces == [1])
        assert probed(sockets.between(a, b))
        assert not probed(sockets.between(a, c))


async def test_a_connection_that_the_other_peer_made_is_probed_too(sockets: Sockets) -> None:
    async with node() as a, node() as b:
        b.ping(a, 1)
        await until(lambda: a.machine.nonces == [1])
        caller = sockets.between(b, a)
        (called,) = [
            one
            for one in sockets.made
            if one.fileno() >= 0 and _other_end(one) == caller.getsockname()
        ]
        a.do(seam.Hold(b.me))
        assert probed(called)
        assert not probed(caller)  # b has not said that it holds a link


@pytest.mark.parametrize(
    ("timeout_ms", "options"),
    [(1_000, [1, 1, 4]), (4_800, [1, 1, 4]), (9_600, [2, 2, 4]), (48_000, [12, 12, 4])],
)
async def test_a_longer_patience_sends_fewer_probes(
    sockets: Sockets, timeout_ms: int, options: list[int]
) -> None:
    async with node(quick(link_timeout_ms=timeout_ms)) as a, node() as b:
        a.do(seam.Hold(b.me))
        a.ping(b, 1)
        await until(lambda: b.machine.nonces == [1])
        sock = sockets.between(a, b)
        assert of_tcp(sock, "TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT") == options


async def test_a_socket_that_takes_no_options_any_more_raises_nothing(sockets: Sockets) -> None:
    async with node(SWEPT) as a, node() as b:
        a.ping(b, 1)
        await until(lambda: b.machine.nonces == [1])
        sockets.refuse = True
        a.do(seam.Hold(b.me))
        await sweeps(a)
        sockets.refuse = False
        assert a.count("handler_errors") == 0
        a.ping(b, 2)
        await until(lambda: b.machine.nonces == [1, 2])


async def test_a_peer_that_is_not_connected_can_be_held_and_released(sockets: Sockets) -> None:
    async with node() as a, node() as b:
        a.do(seam.Hold(b.me), seam.Release(b.me.peer))
        a.ping(b, 1)
        await until(lambda: b.machine.nonces == [1])
        assert not probed(sockets.between(a, b))


async def test_a_link_whose_other_machine_is_silent_is_lost(sockets: Sockets) -> None:
    async with node(SWEPT) as a, node() as b:
        a.do(seam.Hold(b.me))
        a.ping(b, 1)
        await until(lambda: b.machine.nonces == [1])
        sockets.silent_ms, sockets.asked = (5_000, 5_000), (1, 1)
        await until(lambda: a.machine.lost == [b.me.peer])
        assert a.count("fault_broken") == 1


@pytest.mark.parametrize(
    ("silent_ms", "asked"),
    [
        ((5_000, 5_000), (0, 1)),  # this machine slept, and has only begun to ask
        ((5_000, 0), (0, 4)),  # no data, but acknowledgements
        ((0, 5_000), (0, 4)),  # nothing to acknowledge, but data
    ],
)
async def test_a_link_whose_other_machine_speaks_or_was_not_asked_stays(
    sockets: Sockets, silent_ms: tuple[int, int], asked: tuple[int, int]
) -> None:
    async with node(SWEPT) as a, node() as b:
        a.do(seam.Hold(b.me))
        a.ping(b, 1)
        await until(lambda: b.machine.nonces == [1])
        sockets.silent_ms, sockets.asked = silent_ms, asked
        for _ in range(10):  # a second and more: the time from which silence counts
            await sweeps(a)
        assert a.machine.lost == []


async def test_silence_before_a_link_stood_does_not_count(sockets: Sockets) -> None:
    """Nothing was expected of the other machine then."""
    async with node(quick(idle_ms=100, link_timeout_ms=3_600_000)) as a, node() as b:
        a.do(seam.Hold(b.me))
        a.ping(b, 1)
        await until(lambda: b.machine.nonces == [1])
        sockets.silent_ms, sockets.asked = (7_200_000, 7_200_000), (0, 4)
        await sweeps(a)
        assert a.machine.lost == []
