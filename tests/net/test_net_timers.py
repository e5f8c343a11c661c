"""Shared timers: never early, in order, one wake-up for many."""

from __future__ import annotations

import asyncio
import logging

import pytest
from net_kit import until

from weft.net.timers import TICK_MS, Timers, now_ms, shared_timers


async def test_timers_fire_in_order_and_not_early() -> None:
    timers = Timers(asyncio.get_running_loop())
    fired: list[tuple[int, int]] = []
    start = now_ms()
    for delay in (60, 5, 30, 5, 0, 61):
        timers.after(delay, lambda d: fired.append((d, now_ms() - start)), delay)
    await until(lambda: len(fired) == 6)
    assert [delay for delay, _ in fired] == [0, 5, 5, 30, 60, 61]
    assert all(elapsed >= delay for delay, elapsed in fired)
    assert len(timers) == 0


async def test_a_sooner_timer_set_later_comes_first() -> None:
    timers = Timers(asyncio.get_running_loop())
    fired: list[str] = []
    timers.after(100, fired.append, "late")
    timers.after(10, fired.append, "soon")
    await until(lambda: fired == ["soon"])
    await until(lambda: fired == ["soon", "late"])


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


async def test_a_thousand_timers_of_one_tick_wake_the_loop_once() -> None:
    loop = asyncio.get_running_loop()
    timers = Timers(loop)
    wakes = 0
    run = timers._run

    def counted() -> None:
        nonlocal wakes
        wakes += 1
        run()

    timers._run = counted  # type: ignore[method-assign]
    fired: list[int] = []
    for number in range(1_000):
        timers.after(50, fired.append, number)
    await until(lambda: len(fired) == 1_000)
    assert fired == list(range(1_000))
    assert wakes <= 2 + 50 // TICK_MS


async def test_peers_of_one_loop_share_their_timers() -> None:
    assert shared_timers() is shared_timers()
