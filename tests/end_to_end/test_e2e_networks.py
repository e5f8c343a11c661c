"""Peers in networks that are not alike: behind a router that hides them, and over bad lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from processes import FAST, Process, run, seconds_until, started
from spaces import OUTSIDE, Spaces, Unavailable, spaces

AT_REST = [
    *("--set", "protocol.links.ping_after_ms=86400000"),
    *("--set", "protocol.cyclon.cycle_ms=86400000"),
]
"""Nothing is sent over a link in whose topic nothing is published: no ping and no view exchange."""
EVENTS = [f"event {number}" for number in range(40)]


class Divided:
    """Two peers outside, and one inside that no other peer can dial, all in one topic."""

    def __init__(self, made: Spaces, folder: Path, stack: ExitStack) -> None:
        self._made, self._folder, self._stack = made, folder, stack
        self.first = self._start("outside", "--listen", f"{OUTSIDE}:4001")
        self.join = ["--join", self.first.line()]
        self.second = self._start("outside", "--listen", f"{OUTSIDE}:4002", *self.join)
        self.hidden = self._start("inside", "--listen", "10.77.1.2:4003", *self.join)
        self.all = (self.first, self.second, self.hidden)
        for process in (self.second, self.hidden):
            process.line()  # its address

    def _start(self, side: str, *arguments: str) -> Process:
        home = str(self._folder / f"{side}{len(list(self._folder.iterdir()))}")
        where = started(
            *("peer", "--home", home, "--subscribe", "/t", *FAST, *arguments),
            by=self._made.by(side),
        )
        process = self._stack.enter_context(where)
        process.until_error("subscribed to /t")
        return process

    def publish(self, side: str, *payloads: str) -> None:
        """By a visitor on that side."""
        done = run(
            *("pub", *self.join, *FAST, "/t", "-"),
            stdin="\n".join(payloads),
            by=self._made.by(side),
        )
        assert done.returncode == 0, done.stderr

    def assert_all_got(self, payloads: list[str]) -> None:
        """Each of them once, everywhere."""
        for process in self.all:
            while len(process.said) < 1 + len(payloads):
                process.line()
            assert sorted(process.said[1:]) == sorted(payloads)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def network(stack: ExitStack, name: str, **lines: int) -> Spaces:
    try:
        return stack.enter_context(spaces(name, **lines))
    except Unavailable as why:
        pytest.skip(f"no networks of its own for this test: {why}")


def test_a_peer_behind_nat_gets_everything(stack: ExitStack, tmp_path: Path) -> None:
    """Outside has no route to it, so that every connection is one that it made itself."""
    divided = Divided(network(stack, "nat"), tmp_path, stack)
    divided.publish("outside", *EVENTS)
    divided.publish("inside", "from inside")
    divided.assert_all_got([*EVENTS, "from inside"])


def test_lines_that_lose_packets_lose_no_events(stack: ExitStack, tmp_path: Path) -> None:
    divided = Divided(network(stack, "loss", loss_percent=5), tmp_path, stack)
    divided.publish("outside", *EVENTS)
    divided.assert_all_got(EVENTS)


def test_slow_lines_that_lose_packets_lose_no_events(stack: ExitStack, tmp_path: Path) -> None:
    """A tenth of a second each way, up to a fifth more or less, so packets overtake each other."""
    made = network(stack, "slow", loss_percent=2, delay_ms=100)
    divided = Divided(made, tmp_path, stack)
    divided.publish("outside", *EVENTS)
    divided.assert_all_got(EVENTS)


async def test_a_machine_that_vanishes_is_noticed_though_nothing_is_sent(
    stack: ExitStack, tmp_path: Path
) -> None:
    """By both ends: each sees the other's machine vanish."""
    made = network(stack, "gone")
    homes = {side: str(tmp_path / side) for side in ("outside", "inside")}

    def peer(side: str, *arguments: str) -> str:
        where = ["peer", "--home", homes[side], "--subscribe", "/t", *AT_REST, *arguments]
        return stack.enter_context(started(*where, by=made.by(side))).line()

    first = peer("outside", "--listen", f"{OUTSIDE}:4001")
    peer("inside", "--listen", "10.77.1.2:4003", "--join", first)

    def links(side: str) -> int:
        done = run("status", "--json", "--home", homes[side])
        assert done.returncode == 0, done.stderr
        return len(json.loads(done.stdout)["topics"]["/t"]["links"])

    async def linked() -> bool:
        return all(links(side) == 1 for side in homes)

    async def alone() -> bool:
        return all(links(side) == 0 for side in homes)

    await seconds_until(linked)
    made.cut()
    await seconds_until(alone)
    assert await alone()
