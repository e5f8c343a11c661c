"""What is published in one turn of the loop is one signed run, and nothing waits for more."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial

import pytest

import weft
from net_kit import linked, node, turn, until
from swarm_kit import together
from weft.documents.headers import wrap
from weft.documents.run import RUN_MAX
from weft.net.config import Network
from weft.net.runtime import GATHERED_BYTES_MAX
from weft.protocol import config as protocol
from weft.protocol import seam

X = "/x"
LIVELY = weft.Config(
    network=Network(leave_timeout_ms=1_000),
    protocol=protocol.Config(cyclon=protocol.Cyclon(cycle_ms=300, reply_timeout_ms=2_000)),
)
swarm = partial(together, config=LIVELY)


async def test_events_of_one_turn_are_one_run_and_come_in_order() -> None:
    count = 2 * RUN_MAX + 2
    async with swarm(2) as (a, b):
        await a.subscribe(X)
        sub = await b.subscribe(X)
        await until(lambda: linked(a, X) and linked(b, X), "a link")
        receipts = [await a.publish(X, b"%d" % number) for number in range(count)]
        notes = [await anext(sub) for _ in range(count)]
        assert [note.payload for note in notes] == [b"%d" % number for number in range(count)]
        assert [note.event_id for note in notes] == [one.event_id for one in receipts]
        assert [note.number for note in notes] == list(range(1, count + 1))
        assert {one.outcome for one in receipts} == {"sent"}
        assert b.counters["payloads_received"] == count
        assert b.counters["runs_received"] == 3


async def test_events_with_headers_and_without_travel_in_one_run() -> None:
    headers = {"kind": "order"}
    envelope = wrap(headers, b"")
    sent = [(b"1", {}), (b"2", headers), (envelope, {}), (b"\xff" * 20, {}), (b"3", {})]
    async with (
        weft.Peer.open(config=LIVELY) as a,
        weft.Peer.open(config=LIVELY, join=a.address, decode=len) as b,
    ):
        await a.subscribe(X)
        sub = await b.subscribe(X)
        await until(lambda: linked(a, X) and linked(b, X), "a link")
        for payload, beside in sent:
            await a.publish(X, payload, headers=beside)
        notes = [await anext(sub) for _ in sent]
        assert [(note.payload, note.headers) for note in notes] == sent
        assert [note.value for note in notes] == [len(payload) for payload, _ in sent]
        assert b.counters["runs_received"] == 1


async def test_a_lone_event_goes_out_alone() -> None:
    async with swarm(2) as (a, b):
        await a.subscribe(X)
        sub = await b.subscribe(X)
        await until(lambda: linked(a, X) and linked(b, X), "a link")
        for number in (1, 2, 3):
            await a.publish(X, b"alone")
            assert (await anext(sub)).number == number
        assert b.counters["runs_received"] == 3


async def test_a_run_lingers_for_more_events_until_it_is_looked_at() -> None:
    """Published a turn apart, they are one run, which no timer of the machine cuts short."""
    patient = replace(LIVELY, network=Network(linger_ms=60_000, leave_timeout_ms=1_000))
    async with together(2, config=patient) as (a, b):
        await a.subscribe(X)
        sub = await b.subscribe(X)
        await until(lambda: linked(a, X) and linked(b, X), "a link")
        receipts = []
        for number in range(5):
            receipts.append(await a.publish(X, b"%d" % number))
            await turn()
        assert a.counters.get("published", 0) == 0
        assert receipts[-1].event_id
        notes = [await anext(sub) for _ in range(5)]
        assert [note.event_id for note in notes] == [one.event_id for one in receipts]
        assert b.counters["runs_received"] == 1
        await a.publish(X, b"closing sends what lingers")
        await a.close()
        assert (await anext(sub)).number == 6


@pytest.mark.parametrize("linger_ms", [-1, 60_001])
def test_lingering_has_bounds(linger_ms: int) -> None:
    with pytest.raises(ValueError, match="linger_ms must be 0 to 60000"):
        Network(linger_ms=linger_ms)
    assert Network(linger_ms=0).linger_ms == 0


async def test_looking_at_what_only_sending_tells_sends() -> None:
    async with swarm(2) as (peer, other):
        sub = await peer.subscribe(X)
        await other.subscribe(X)
        await until(lambda: linked(peer, X) and linked(other, X), "a link")
        receipt = await peer.publish(X, b"1")
        assert receipt.outcome == "sent" and sub.get_nowait() is None
        assert receipt.event is not None and receipt.event.number == 1
        note = sub.get_nowait()
        assert note is not None and note.event_id == receipt.event_id
        assert (receipt.peers, receipt.dropped) == (1, 0)


async def test_large_events_go_in_runs_of_their_own() -> None:
    async with swarm(2) as (a, b):
        await a.subscribe(X)
        sub = await b.subscribe(X)
        await until(lambda: linked(a, X) and linked(b, X), "a link")
        for _ in range(3):
            await a.publish(X, bytes(GATHERED_BYTES_MAX // 2 + 1))
        for _ in range(3):
            await anext(sub)
        assert b.counters["runs_received"] == 3


async def test_outside_of_a_topic_events_of_one_turn_share_their_way_too() -> None:
    async with swarm(2) as (outside, member):
        sub = await member.subscribe(X)
        receipts = await asyncio.gather(*(outside.publish(X, b"%d" % n) for n in range(10)))
        assert [one.outcome for one in receipts] == ["taken"] * 10
        assert len({one.event_id for one in receipts}) == 10
        assert [(await anext(sub)).payload for _ in range(10)] == [b"%d" % n for n in range(10)]
        assert member.counters["routed_received"] == 10
        assert member.counters["runs_received"] == 1


async def test_from_outside_many_are_on_their_way_in_order() -> None:
    count = 3 * RUN_MAX
    async with swarm(2) as (outside, member):
        sub = await member.subscribe(X)
        first = await outside.publish(X, b"0")
        assert first.outcome == "taken" and await first.final() is first
        receipts = [await outside.publish(X, b"%d" % number) for number in range(1, count)]
        assert {one.outcome for one in receipts} == {"queued"}
        notes = [await anext(sub) for _ in range(count)]
        assert [note.payload for note in notes] == [b"%d" % number for number in range(count)]
        finals = [await one.final() for one in receipts]
        assert {one.outcome for one in finals} == {"taken"}
        assert [note.event_id for note in notes[1:]] == [one.event_id for one in finals]
        assert member.counters["runs_received"] == 4


async def test_what_is_on_its_way_from_outside_is_answered_before_the_peer_closes() -> None:
    async with swarm(2) as (outside, member):
        sub = await member.subscribe(X)
        await outside.publish(X, b"0")
        receipt = await outside.publish(X, b"1")
        await outside.close()
        assert (await receipt.final()).outcome == "taken"
        assert [(await anext(sub)).payload for _ in range(2)] == [b"0", b"1"]


async def test_publishes_that_nobody_can_take_yet_share_their_answers() -> None:
    async with swarm(1) as (peer,):
        receipts = await asyncio.gather(*(peer.publish(X, b"") for _ in range(3)))
        assert [one.outcome for one in receipts] == ["queued"] * 3
        finals = [asyncio.create_task(one.final()) for one in receipts]
    assert [(await one).outcome for one in finals] == ["dropped"] * 3


async def test_what_no_honest_peer_does_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with node() as one:
        with caplog.at_level(logging.WARNING):
            one.do(seam.Warn("somebody has signed two different things"))
    assert "somebody has signed two different things" in caplog.text
