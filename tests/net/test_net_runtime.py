"""The runtime carries out what the machine wants, and survives what goes wrong."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import time
import weakref
from contextlib import suppress

import pytest

from nameless import unsigned_run
from net_kit import PATIENCE_S, TOPIC, Scripted, node, turn, until
from weft.ids import Contact, Topic, peer_text, split_address
from weft.net.dht import Dht
from weft.net.errors import ClosedError, DhtError, HistoryError
from weft.net.history import Owned
from weft.net.identity import Identity
from weft.protocol import seam


async def test_timers_come_back_to_the_machine() -> None:
    async with node() as a:
        a.do(seam.SetTimer(40, seam.Timer("late", TOPIC, 2)), seam.SetTimer(1, seam.Timer("soon")))
        wanted = [
            seam.TimerFired(seam.Timer("soon")),
            seam.TimerFired(seam.Timer("late", TOPIC, 2)),
        ]
        await until(lambda: a.machine.facts[-2:] == wanted)


async def test_a_closed_peer_is_not_kept_alive_by_its_timers() -> None:
    async with node() as a:
        a.do(seam.SetTimer(3_600_000, seam.Timer("in an hour")))
        runtime = weakref.ref(a.runtime)
        machine = weakref.ref(a.machine)
    del a
    await until(lambda: gc.collect() >= 0 and runtime() is None and machine() is None)


@pytest.mark.parametrize("turns", range(4))
async def test_a_caller_accepted_while_the_peer_closes_is_turned_away(turns: int) -> None:
    """The system accepts a caller some turns of the loop before its transport is made, and the
    peer closes in between."""
    async with node() as a:
        with socket.create_connection(split_address(a.me.address)) as caller:
            caller.setblocking(False)
            for _ in range(turns):
                await turn()
            await a.runtime.close()
            with suppress(ConnectionResetError):
                async with asyncio.timeout(PATIENCE_S):
                    assert await asyncio.get_running_loop().sock_recv(caller, 1) == b""


async def test_failing_handlers_of_timers_and_commands_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(fact: seam.Input) -> list[seam.Effect]:
        if isinstance(fact, seam.TimerFired):
            raise RuntimeError("a bug in a timer")
        return []

    async with node() as a:
        a.do(seam.SetTimer(1, seam.Timer("x")))
        a.machine.react = fail
        with caplog.at_level(logging.ERROR):
            await until(lambda: a.count("handler_errors") == 1)
        assert "a bug in a timer" in caplog.text
        a.machine.react = lambda fact: []
        async with node() as b:
            b.ping(a, 1)
            await until(lambda: a.machine.nonces == [1])


async def test_a_publish_that_cannot_be_handled_is_answered() -> None:
    def fail(fact: seam.Input) -> list[seam.Effect]:
        if isinstance(fact, seam.Publish | seam.PublishTogether):
            raise RuntimeError("a bug in publishing")
        return []

    async with node() as a, asyncio.timeout(PATIENCE_S):
        a.machine.react = fail
        one = await a.runtime.publish(TOPIC, b"")
        both = await a.runtime.publish_together({TOPIC: [TOPIC], Topic("/y"): [Topic("/y")]}, b"")
        for receipt in (one, *both):
            assert receipt.outcome == "failed" and "could not be handled" in receipt.reason


async def test_every_command_that_cannot_be_handled_is_answered() -> None:
    def fail(fact: seam.Input) -> list[seam.Effect]:
        if isinstance(fact, seam.DhtGet | seam.FollowTopic):
            raise RuntimeError("a bug in a command")
        return []

    async with node() as a, asyncio.timeout(PATIENCE_S):
        a.machine.react = fail
        with pytest.raises(DhtError, match="could not be handled"):
            await Dht(a.runtime, True).get(b"key")
        owner = peer_text(Identity.generate().peer)
        with pytest.raises(HistoryError, match="could not be handled"):
            await Owned(a.runtime, None).follow("/x", owner)  # type: ignore[arg-type]


async def test_an_effect_that_nobody_knows_is_an_error_and_no_end() -> None:
    async with node() as a:
        a.do("nonsense")  # type: ignore[arg-type]
        assert a.count("handler_errors") == 1


async def test_answers_find_their_publishers_in_any_order() -> None:
    tokens: list[int] = []

    def react(fact: seam.Input) -> list[seam.Effect]:
        if isinstance(fact, seam.Publish):
            tokens.append(fact.token)
        return []

    async with node() as a:
        a.machine.react = react
        topics = [Topic(f"/{number}") for number in range(3)]
        publishes = [asyncio.create_task(a.runtime.publish(topic, b"")) for topic in topics]
        await until(lambda: len(tokens) == 3)
        access = Contact(Identity.generate().peer, "/ip4/127.0.0.1/tcp/1")
        for token in reversed(tokens):
            run = unsigned_run(a.me.peer, b"", first=token)
            a.do(seam.Answer(token, "delivered", access, run))
        receipts = await asyncio.gather(*publishes)
        assert [receipt.event.number for receipt in receipts] == tokens  # type: ignore[union-attr]
        assert all(receipt.access_point == access for receipt in receipts)


async def test_the_answer_to_a_cancelled_publish_is_ignored() -> None:
    async with node() as a:
        publish = asyncio.create_task(a.runtime.publish(TOPIC, b""))
        await until(lambda: isinstance(a.machine.facts[-1], seam.Publish))
        command = a.machine.facts[-1]
        assert isinstance(command, seam.Publish)
        publish.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publish
        a.do(seam.Answer(command.token, "delivered"))
        assert a.count("handler_errors") == 0


async def test_closing_before_a_topic_is_joined_is_an_error_for_a_waiting_subscriber() -> None:
    async with node() as a:  # whose machine never answers
        sub = a.runtime.subscribe(TOPIC)
        waiting = asyncio.ensure_future(asyncio.gather(sub))
        await turn()  # it waits now
    with pytest.raises(ClosedError, match="before /t was joined"):
        await waiting
    assert [note async for note in sub] == []


async def test_a_busy_publisher_lets_others_have_their_turn() -> None:
    def react(fact: seam.Input) -> list[seam.Effect]:
        return [seam.Answer(fact.token, "delivered")] if isinstance(fact, seam.Publish) else []

    async with node() as a:
        a.machine.react = react
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await turn()

        task = asyncio.create_task(other())
        for _ in range(1_000):
            await a.runtime.publish(TOPIC, b"")
        task.cancel()
        assert turns >= 10


async def test_the_machine_is_told_that_it_started_and_that_it_leaves() -> None:
    async with node() as a:
        machine: Scripted = a.machine
    started = machine.facts[0]
    assert isinstance(started, seam.Started)
    assert (started.incarnation, started.contacts) == (1, ())
    assert started.wall_ms > 1_600_000_000_000  # milliseconds since 1970
    assert machine.facts[-1] == seam.Leave()


async def test_a_machine_that_slept_is_told_what_the_wall_clock_says(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The clock of a process stands still while its machine sleeps; dates do not."""
    day_ms = 26 * 3_600_000
    now_ns = time.time_ns()
    async with node() as one:
        monkeypatch.setattr(time, "time_ns", lambda: now_ns + day_ms * 1_000_000)

        def told() -> list[seam.ClockMoved]:
            one.runtime.feed(seam.TimerFired(seam.Timer("test")))
            return [fact for fact in one.machine.facts if isinstance(fact, seam.ClockMoved)]

        await until(told)
        assert "the clock moved by +936" in caplog.text
        [moved] = told()
        assert moved.wall_ms == now_ns // 1_000_000 + day_ms
