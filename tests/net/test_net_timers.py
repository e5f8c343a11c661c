"""Shared timers: never early, in order, one wake-up for many."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from net_kit import until
from weft.net import timers as module
from weft.net.timers import Timers, shared_timers


class Loop:
    """An event loop's clock that the test sets, and the one call that it waits for."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.calls = 0
        self._waiting: list[tuple[float, Callable[[], None]]] = []

    def call_at(self, when: float, callback: Callable[[], None]) -> Loop:
        self.calls += 1
        self._waiting = [(when, callback)]
        return self

    def cancel(self) -> None:
        self._waiting = []

    def run_until(self, now_ms: int) -> None:
        """Let time pass: a call that is due is made at its own time."""
        while self._waiting and self._waiting[0][0] * 1_000 <= now_ms:
            [(when, callback)], self._waiting = self._waiting, []
            self.now_ms = round(when * 1_000)
            callback()
        self.now_ms = now_ms


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    one = Loop()
    monkeypatch.setattr(module, "now_ms", lambda: one.now_ms)
    return one


def test_timers_fire_in_order_and_not_early(loop: Loop) -> None:
    timers = Timers(loop)  # type: ignore[arg-type]
    start = loop.now_ms
    fired: list[tuple[int, int]] = []
    for delay in (60, 5, 30, 5, 0, 61):
        timers.after(delay, lambda d: fired.append((d, loop.now_ms - start)), delay)
    loop.run_until(start + 100)
    assert [delay for delay, _ in fired] == [0, 5, 5, 30, 60, 61]
    assert all(delay <= passed <= delay + module.TICK_MS for delay, passed in fired)


def test_a_sooner_timer_set_later_comes_first(loop: Loop) -> None:
    timers = Timers(loop)  # type: ignore[arg-type]
    fired: list[str] = []
    timers.after(100, fired.append, "late")
    timers.after(10, fired.append, "soon")
    loop.run_until(loop.now_ms + 50)
    assert fired == ["soon"]
    loop.run_until(loop.now_ms + 100)
    assert fired == ["soon", "late"]


def test_a_thousand_timers_of_one_tick_wake_the_loop_once(loop: Loop) -> None:
    timers = Timers(loop)  # type: ignore[arg-type]
    fired: list[int] = []
    for number in range(1_000):
        timers.after(50, fired.append, number)
    loop.run_until(loop.now_ms + 1_000)
    assert fired == list(range(1_000))
    assert loop.calls == 1


async def test_timers_may_set_timers_and_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    timers = Timers(asyncio.get_running_loop())
    rounds: list[int] = []

    def again(left: int) -> None:
        rounds.append(left)
        if left:
            timers.after(0, again, left - 1)
        raise RuntimeError("a failing timer")

    with caplog.at_level(logging.ERROR):
        timers.after(0, again, 5)
        await until(lambda: rounds == [5, 4, 3, 2, 1, 0])
    assert "a failing timer" in caplog.text


async def test_peers_of_one_loop_share_their_timers() -> None:
    assert shared_timers() is shared_timers()
