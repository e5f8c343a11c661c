"""A peer's life, as programs and people see it: events, waiting to join, lines in the log."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import replace

import pytest
from test_net_api import LIVELY

import weft
from net_kit import turn, until
from weft.ids import Contact, PeerId
from weft.net.life import WAITING_MAX, Life, LifeEvents
from weft.store.memory import MemoryStore

HERE = Contact(PeerId(b"h" * 32), "/ip4/127.0.0.1/tcp/4001")
NEAR = Contact(PeerId(b"n" * 32), "/ip4/127.0.0.1/tcp/4002")
CLOSE = Contact(PeerId(b"c" * 32), "/ip4/127.0.0.1/tcp/4003")
FAR = Contact(PeerId(b"f" * 32), "/ip4/192.0.2.7/tcp/4001")
OUTSIDE = Contact(HERE.peer, "/ip4/192.0.2.9/tcp/4001")


def life(me: Contact = HERE) -> Life:
    return Life(me, lambda: True, lambda topic: None)


async def test_a_peer_with_an_address_to_join_by_is_not_alone_for_good() -> None:
    """Also where the peer there has answered once, and is gone: it may start again."""
    watched = life()
    assert watched.alone()
    watched.joining([NEAR])
    assert not watched.alone()
    watched.connected(NEAR)
    assert not watched.alone()
    watched.close()


async def test_a_supervisor_sees_isolation_come_and_go() -> None:
    async with weft.Peer.open(config=LIVELY) as peer:
        events = peer.events()
        assert (await anext(events)).kind == "isolated"
        async with weft.Peer.open(join=peer.address, config=LIVELY) as other:
            seen = {}
            while not {"joined", "connected"} <= seen.keys():
                event = await anext(events)
                seen[event.kind] = event
            assert seen["connected"].peer == other.id
            await peer.joined(timeout=0)
        while (event := await anext(events)).kind != "isolated":
            seen[event.kind] = event
        await until(lambda: peer.status()["connections"] == [], "the connection to end")
        if "disconnected" not in seen:
            seen["disconnected"] = await anext(events)
        assert seen["disconnected"].peer == other.id
    with pytest.raises(StopAsyncIteration):
        while True:
            await anext(events)
    with pytest.raises(weft.ClosedError):
        peer.events()


async def test_that_a_peer_knows_another_is_told_with_the_step_that_shows_it() -> None:
    told: Counter[str] = Counter()

    async def watch(events: LifeEvents) -> None:
        async for event in events:
            told[event.kind] += 1

    async with weft.Peer.open(config=LIVELY) as first:
        watching = asyncio.create_task(watch(first.events()))
        async with weft.Peer.open(join=first.address, config=LIVELY):
            while first.isolated:
                assert "joined" not in told
                await turn()
            await turn()
            assert told["isolated"] == told["joined"] == 1
        watching.cancel()


async def test_joined_waits_for_the_first_peer_to_come() -> None:
    async with (
        weft.Peer.open(config=LIVELY) as first,
        weft.Peer.open(join=first.address, config=LIVELY) as second,
    ):
        await second.joined()
        await first.joined()
        assert not first.isolated and not second.isolated
        assert second.unanswered == {}


async def test_a_dead_address_is_named_with_the_reason() -> None:
    async with weft.Peer.open(config=LIVELY) as gone:
        address = gone.address
    async with weft.Peer.open(join=address, config=LIVELY) as peer:
        await until(lambda: "cannot reach" in peer.unanswered[address], "the dial to fail")
        with pytest.raises(weft.IsolatedError) as caught:
            await peer.joined(timeout=0)
        assert isinstance(caught.value, TimeoutError)
        assert f"{address}: cannot reach 127.0.0.1 port" in str(caught.value)
        assert str(caught.value).endswith(": Connection refused")  # and no number of an error


async def test_without_an_address_the_reason_is_that() -> None:
    async with weft.Peer.open(config=LIVELY) as peer:
        with pytest.raises(weft.IsolatedError, match="no address to join by"):
            await peer.joined(timeout=0)


async def test_an_address_that_answered_and_has_gone_is_named_as_such() -> None:
    async with weft.Peer.open(config=LIVELY) as peer:
        async with weft.Peer.open(config=LIVELY) as gone:
            peer.join(gone.address)
            await peer.joined()
            assert peer.unanswered == {}
        await until(lambda: peer.isolated, "the other to be missed")
        with pytest.raises(weft.IsolatedError) as caught:
            await peer.joined(timeout=0)
        assert gone.address in str(caught.value) and "no address" not in str(caught.value)


async def test_an_address_that_is_given_later_is_watched_too() -> None:
    async with weft.Peer.open(config=LIVELY) as gone:
        address = gone.address
    async with weft.Peer.open(config=LIVELY) as peer:
        peer.join(address)
        await until(lambda: "cannot reach" in peer.unanswered.get(address, ""), "the dial to fail")


async def test_a_wrong_network_name_is_the_reason() -> None:
    other = replace(LIVELY, network=replace(LIVELY.network, name="other"))
    async with (
        weft.Peer.open(config=other) as first,
        weft.Peer.open(join=first.address, config=LIVELY) as second,
    ):
        await until(lambda: "network" in second.unanswered[first.address], "the greeting")
        assert "'other'" in second.unanswered[first.address]


async def test_a_wrong_peer_id_is_told_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async with weft.Peer.open(config=LIVELY) as first, weft.Peer.open(config=LIVELY) as third:
        mixed = f"{first.address.rpartition('/')[0]}/{third.id}"
        async with weft.Peer.open(join=mixed, config=LIVELY) as second:
            await until(lambda: "cannot join by" in caplog.text, "the line in the log")
            assert f"{first.id} answers at this address" in caplog.text
            assert f"wanted peer {third.id}" in second.unanswered[mixed]


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
async def test_a_web_server_is_told_from_a_peer(secure: bool) -> None:
    """By what it says: plain text, or the alert that it knows no such protocol over TLS."""
    no_protocol = bytes((21, 3, 3, 0, 2, 2, 120))  # a fatal alert (RFC 8446, 6; RFC 7301, 3.2)
    says = no_protocol if secure else b"HTTP/1.1 400 Bad Request\r\n\r\n"
    served: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(writer)
        await reader.read(1)
        writer.write(says)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, weft.Peer.open(config=LIVELY) as other:
        port = server.sockets[0].getsockname()[1]
        address = f"/ip4/127.0.0.1/tcp/{port}/p2p/{other.id}"
        async with weft.Peer.open(join=address, config=LIVELY) as peer:
            words = "speaks TLS, but not weft" if secure else "is no weft peer: it does not speak"
            await until(lambda: words in peer.unanswered[address], "the reason")
        for writer in served:
            writer.close()


async def test_an_address_that_never_answered_is_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    joining = life()
    joining.joining([NEAR, HERE, CLOSE], patience_s=0)  # its own address is not waited for
    joining.connected(CLOSE)
    joining.unreachable(NEAR.peer, None, "cannot reach 127.0.0.1 port 4002")
    await until(lambda: caplog.records, "a line")
    (line,) = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert line.endswith("has not answered for 0 s: cannot reach 127.0.0.1 port 4002")
    assert line.startswith("/ip4/127.0.0.1/tcp/4002/p2p/")
    joining.close()


async def test_a_watcher_that_does_not_read_is_told_how_much_it_missed() -> None:
    watched = life()
    events = watched.events()
    for _ in range(WAITING_MAX + 4):
        watched.connected(NEAR)
    first = await anext(events)
    assert (first.kind, first.missed) == ("connected", 5)  # and that it was isolated
    assert (await anext(events)).missed == 0
    watched.close()


async def test_events_that_are_not_read_on_are_not_kept() -> None:
    watched = life()
    events = watched.events()
    del events
    await turn()
    watched.connected(NEAR)
    assert (await anext(watched.events())).kind == "isolated"
    watched.close()


@pytest.mark.parametrize(
    ("me", "other", "lines"), [(HERE, FAR, 1), (HERE, NEAR, 0), (OUTSIDE, FAR, 0)]
)
async def test_a_loopback_address_that_is_told_to_other_machines_is_worth_a_line(
    me: Contact, other: Contact, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    joining, met = life(me), life(me)
    joining.joining([other])
    met.connected(other)
    met.connected(other)
    warnings = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert len(warnings) == 2 * lines
    assert all("works on this machine alone" in one.getMessage() for one in warnings)
    joining.close()
    met.close()


async def test_a_change_of_a_topic_comes_as_an_event() -> None:
    async with (
        weft.Peer.open(config=LIVELY, store=MemoryStore()) as owner,
        weft.Peer.open(config=LIVELY, store=MemoryStore(), join=owner.address) as member,
    ):
        events = member.events()
        orders = owner.owned.name("/orders")
        await owner.subscribe(orders)
        await member.subscribe(orders)
        cid = await owner.owned.create(orders, publishers=[member.id])
        async for event in events:
            if event.kind == "topic_changed":
                break
        assert (event.topic, event.cid) == (orders, cid)
