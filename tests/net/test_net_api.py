"""The front door, with real peers in one process: join, subscribe, publish, leave, come back."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from dataclasses import replace
from datetime import date, datetime
from functools import partial
from pathlib import Path

import msgspec
import pytest

import weft
from net_kit import linked, turn, until
from swarm_kit import together
from weft.documents.headers import wrap
from weft.documents.run import RUN_MAX
from weft.ids import parse_contact, peer_text, split_address
from weft.net.arguments import Encode
from weft.net.config import Network
from weft.net.identity import Identity
from weft.net.subscription import Decode
from weft.protocol import config as protocol
from weft.protocol.config import Routing
from weft.store.memory import MemoryStore

LIVELY = weft.Config(
    network=Network(leave_timeout_ms=1_000),
    protocol=protocol.Config(
        cyclon=protocol.Cyclon(cycle_ms=300, reply_timeout_ms=2_000),
        tera=protocol.Tera(lookup_timeout_ms=2_000, route_timeout_ms=2_000),
    ),
)


swarm = partial(together, config=LIVELY)


async def test_five_peers_deliver_every_event_to_every_subscriber() -> None:
    async with swarm(5) as peers:
        subs = [await peer.subscribe("/sports/football") for peer in peers[:4]]
        await until(lambda: all(linked(peer, "/sports/football") for peer in peers[:4]), "links")
        sent = set()
        for number in range(50):
            for peer in peers:  # the last one is not subscribed
                payload = f"{number} from {peer.id}".encode()
                receipt = await peer.publish("/sports/football", payload)
                outcome = (await receipt.final()).outcome
                assert outcome == ("taken" if peer is peers[4] else "sent")
                sent.add((receipt.event_id, payload))
        for peer, sub in zip(peers, subs, strict=False):
            notes = [await anext(sub) for _ in range(250)]
            assert {(note.event_id, note.payload) for note in notes} == sent
            assert len(sub) == 0
            for publisher in peers:
                mine = [note.number for note in notes if note.publisher == publisher.id]
                assert sorted(mine) == list(range(1, 51))
            own = [note for note in notes if note.publisher == peer.id]
            assert all(note.hops == 0 for note in own)
        assert peers[4].counters.get("parasites", 0) == 0
        assert sum(peer.drops for peer in peers) == 0


async def test_two_peers_in_order_none_lost() -> None:
    count = 5 * RUN_MAX
    async with swarm(2) as (a, b):
        await a.subscribe("/x")
        sub = await b.subscribe("/x")
        await until(lambda: linked(a, "/x") and linked(b, "/x"), "links")
        for number in range(count):
            receipt = await a.publish("/x", str(number))
            assert receipt.peers == 1
            assert receipt.dropped == 0
        for number in range(count):
            note = await anext(sub)
            assert note.payload == str(number).encode()
            assert note.publisher == a.id
            assert note.topic == "/x"


async def test_a_non_subscriber_is_told_which_access_point_took_its_event() -> None:
    async with swarm(3) as (a, b, c):
        sub = await b.subscribe("/news")
        receipt = await c.publish("/news", b"hello")
        assert receipt.outcome == "taken"
        assert receipt.access_point is not None
        assert receipt.access_point_text == b.address
        note = await anext(sub)
        assert note.event_id == receipt.event_id
        assert a.status()["topics"] == {}


@pytest.mark.parametrize("routing", ["tera", "topic-dht", "pulsarcast", "flood"])
async def test_a_member_that_knows_no_other_is_told_so(routing: Routing) -> None:
    """With a dead address to join by, a flood to nobody said "delivered", too."""
    async with weft.Peer.open(config=LIVELY) as gone:
        address = gone.address
    async with weft.Peer.open(config=LIVELY, join=address, routing=routing) as peer:
        sub = peer.subscribe("/x")
        receipt = await peer.publish("/x", b"hello?")
        assert receipt.outcome in ("alone", "queued")
        with pytest.raises(weft.NotConfirmed) as caught:
            await peer.publish("/x", b"hello?", confirm="taken", timeout=0.2)
        assert caught.value.outcome in ("alone", "timeout")
        await sub.close()


async def test_a_flood_to_nobody_is_not_delivered() -> None:
    async with weft.Peer.open(config=LIVELY, routing="flood") as peer:
        assert (await peer.publish("/x", b"hello?")).outcome == "alone"


async def test_a_member_that_is_alone_with_a_store_is_told_so() -> None:
    async with swarm(1, history=True) as (peer,):
        await peer.subscribe("/x")
        receipt = await peer.publish("/x", b"hello?", confirm="accepted")
        assert (receipt.outcome, receipt.access_point_text) == ("alone", peer.address)


async def test_a_publisher_gets_the_certainty_that_it_asks_for() -> None:
    async with swarm(3) as (a, b, c):
        await a.subscribe("/x")
        taken = await c.publish("/x", b"1", confirm="taken", timeout=60)
        assert (taken.outcome, taken.access_point_text) == ("taken", a.address)
        await b.subscribe("/x")
        await until(lambda: linked(a, "/x") and linked(b, "/x"), "links")
        both = await b.publish(["/x"], b"2", confirm="taken")
        assert [(receipt.outcome, receipt.copies) for receipt in both] == [("sent", (a.id,))]
        for confirm in ("accepted", "taken"):
            with pytest.raises(weft.NotConfirmed, match="no subscriber of /nobody") as caught:
                await c.publish("/nobody", b"3", confirm=confirm)  # type: ignore[call-overload]
            assert caught.value.outcome == "no_subscriber"
        with pytest.raises(weft.NotConfirmed, match="1 of 2 peers said that they have taken it"):
            await b.publish("/x", b"4", confirm="taken", copies=2, timeout=2)
        for wrong, match in (
            ({"confirm": "safe"}, "expected one of accepted, taken, stored"),
            ({"confirm": "stored"}, "without a store publishes is stored nowhere"),
            ({"confirm": "taken", "copies": 0}, "a number from 1"),
            ({"confirm": "accepted", "copies": 2}, "copies are counted with"),
            ({"copies": 2}, "copies are counted with"),
        ):
            with pytest.raises(weft.UsageError, match=match):
                await c.publish("/x", b"5", **wrong)  # type: ignore[call-overload]


@pytest.mark.parametrize("history", [False, True])
async def test_receipts_count_the_peers_that_an_event_was_sent_to(history: bool) -> None:
    """Not those that were asked for an access point, nor this one; and what is stored first was
    "sent to 0 peers" where it was published in a list of topics, as `weft pub` does."""
    async with swarm(3, history=history) as (a, b, outside):
        await a.subscribe("/x")
        for topic in ("/x", ["/x"]):
            [alone] = listed(await a.publish(topic, b""))
            assert (alone.outcome, alone.peers) == ("alone", 0)
        await b.subscribe("/x")
        await until(lambda: linked(a, "/x") and linked(b, "/x"), "links")
        for topic in ("/x", ["/x"]):
            [sent] = listed(await a.publish(topic, b""))
            assert (sent.outcome, sent.peers) == ("sent", 1)
            [taken] = listed(await outside.publish(topic, b""))
            taken = await taken.final()
            assert (taken.outcome, taken.peers) == ("taken", 1)


def listed(receipts: weft.Receipt | list[weft.Receipt]) -> list[weft.Receipt]:
    return receipts if isinstance(receipts, list) else [receipts]


async def test_copies_are_on_the_disks_of_others() -> None:
    async with swarm(3, history=True) as (a, b, c):
        for peer in (a, b):
            await peer.subscribe("/x")
        await until(lambda: linked(a, "/x") and linked(b, "/x"), "links")
        member = await a.publish("/x", b"1", confirm="stored", timeout=60)
        assert (member.outcome, member.copies) == ("sent", (b.id,))
        outside = await c.publish("/x", b"2", confirm="stored", copies=2, timeout=60)
        assert set(outside.copies) == {a.id, b.id}
        for peer in (a, b):
            assert {event.payload for event in peer.history.read("/x")} == {b"1", b"2"}


async def test_a_member_without_a_store_hears_that_it_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It was told "delivered", and nothing else."""
    async with (
        weft.Peer.open(config=LIVELY, store=MemoryStore()) as owner,
        weft.Peer.open(config=LIVELY, join=owner.address) as stranger,
    ):
        await owner.owned.create("/orders")
        await owner.subscribe("/orders")
        await stranger.subscribe("/orders")
        await until(lambda: linked(stranger, "/orders"), "a link")
        assert (await stranger.publish("/orders", b"")).outcome == "sent"
        await until(lambda: "refused an event of this peer" in caplog.text, "the refusal")
        with pytest.raises(weft.NotConfirmed, match="owners do not let its publisher") as no:
            await stranger.publish("/orders", b"", confirm="taken", timeout=60)
        assert no.value.outcome == "refused"


async def test_a_refusal_is_told_in_words(caplog: pytest.LogCaptureFixture) -> None:
    """Also where the peers of a network differ in what they are set to."""
    async with (
        weft.Peer.open(config=LIVELY, store=MemoryStore()) as member,
        weft.Peer.open(
            config=LIVELY, store=MemoryStore(), join=member.address, hierarchies="/a"
        ) as publisher,
    ):
        await member.subscribe("/a")
        receipt = await publisher.publish("/a/b", b"")
        (above,) = await receipt.above()
        refused = await above.final()
        assert refused.outcome == "refused"
        assert "it comes from a sub-topic, and the topic is in no hierarchy there" in refused.reason
        assert "_" not in refused.reason


async def test_peers_without_a_store_are_told_of_where_copies_on_disk_are_asked_for() -> None:
    async with (
        weft.Peer.open(config=LIVELY, store=MemoryStore()) as keeper,
        weft.Peer.open(config=LIVELY, join=keeper.address) as storeless,
    ):
        await keeper.subscribe("/orders")
        await storeless.subscribe("/orders")
        receipt = await keeper.publish("/orders", b"", confirm="taken", timeout=60)
        assert receipt.copies == (storeless.id,)
        with pytest.raises(weft.NotConfirmed, match="1 took it and did not store it"):
            await keeper.publish("/orders", b"", confirm="stored", timeout=2)


async def test_without_network_it_is_accepted_and_not_taken() -> None:
    async with weft.Peer.open(config=LIVELY) as gone:
        address = gone.address
    async with weft.Peer.open(config=LIVELY, join=address) as peer:
        assert (await peer.publish("/x", b"", confirm="accepted")).outcome == "queued"
        await until(lambda: "cannot reach" in peer.unanswered[address], "the dial to fail")
        with pytest.raises(weft.NotConfirmed, match="cannot reach") as caught:
            await peer.publish("/x", b"", confirm="taken", timeout=0)
        assert caught.value.outcome == "timeout"
        await peer.subscribe("/y")
        with pytest.raises(weft.NotConfirmed, match="cannot reach"):
            await peer.publish("/y", b"", confirm="taken", timeout=0.1)


async def test_an_event_for_nobody_is_reported() -> None:
    async with swarm(2) as (a, _):
        receipt = await a.publish("/nobody", b"hello?")
        assert receipt.outcome == "no_subscriber"
        assert (await receipt.final()) is receipt


async def test_an_event_without_network_waits_for_one() -> None:
    async with weft.Peer.open(config=LIVELY) as late:
        receipt = await late.publish("/news", b"early")
        assert receipt.outcome == "queued"
        async with weft.Peer.open(join=[late.address], config=LIVELY) as other:
            sub = await other.subscribe("/news")
            final = await receipt.final()
            assert final.outcome == "taken"
            assert final.event_id == receipt.event_id
            assert (await anext(sub)).payload == b"early"


async def test_a_queued_event_ends_as_dropped_when_the_peer_closes() -> None:
    async with weft.Peer.open(config=LIVELY) as alone:
        receipt = await alone.publish("/news", b"early")
        assert receipt.outcome == "queued"
    final = await receipt.final()
    assert (final.outcome, final.reason) == ("dropped", "this peer left the network")


async def test_a_publisher_that_the_topics_peers_refuse_is_told_why() -> None:
    async with (
        weft.Peer.open(config=LIVELY, store=MemoryStore()) as owner,
        weft.Peer.open(config=LIVELY, join=owner.address) as stranger,
    ):
        await owner.owned.create("/orders")
        sub = await owner.subscribe("/orders")
        await stranger.joined()
        with pytest.raises(weft.NotConfirmed, match="owners do not let its publisher") as no:
            await stranger.publish("/orders", b"", confirm="taken")
        assert no.value.outcome == "refused" and len(sub) == 0


async def test_two_subscriptions_to_one_topic_share_it() -> None:
    async with swarm(1) as (peer,):
        first, second = peer.subscribe("/x"), peer.subscribe("/x")
        await first
        await second
        await peer.publish("/x", b"both")
        assert (await anext(first)).payload == (await anext(second)).payload == b"both"
        await first.close()
        await peer.publish("/x", b"one")
        assert (await anext(second)).payload == b"one"
        assert first.get_nowait() is None
        await second.close()
        assert peer.status()["topics"] == {}


async def test_a_scheme_that_cannot_be_is_refused_before_anything_is_joined() -> None:
    async with swarm(1) as (peer,):
        with pytest.raises(weft.UsageError, match=r"no scheme 'loud'.*tree, gossip, flood"):
            peer.subscribe("/x", scheme="loud")  # type: ignore[arg-type]
        assert peer.status()["topics"] == {}
        await peer.subscribe("/x", scheme="gossip")
        with pytest.raises(weft.UsageError, match="by the scheme gossip already"):
            peer.subscribe("/x", scheme="tree")


async def test_a_closed_subscription_ends_its_iteration_after_what_waits() -> None:
    async with swarm(1) as (peer,):
        async with peer.subscribe("/x") as sub:
            await peer.publish("/x", b"1")
            await peer.publish("/x", b"2")
        assert sub.closed
        assert [note.payload async for note in sub] == [b"1", b"2"]
        await peer.publish("/x", b"3")
        assert len(sub) == 0


async def test_a_reader_waiting_when_the_peer_closes_ends() -> None:
    async with swarm(1) as (peer,):
        sub = await peer.subscribe("/x")
        reading = asyncio.create_task(_read_all(sub))
        await turn()  # it waits now
    assert await reading == []


async def test_two_readers_of_one_subscription_are_told_apart() -> None:
    async with swarm(1) as (peer,):
        sub = await peer.subscribe("/x")
        first = asyncio.create_task(anext(sub))
        await turn()  # it waits now
        with pytest.raises(weft.UsageError, match="subscribe twice"):
            await anext(sub)
        await peer.publish("/x", b"for the first")
        assert (await first).payload == b"for the first"
        assert "1 waiting" not in repr(sub)


async def _read_all(sub: weft.Subscription) -> list[weft.Notification]:
    return [note async for note in sub]


async def test_a_closed_peer_says_so() -> None:
    async with swarm(1) as (peer,):
        pass
    assert peer.closed
    with pytest.raises(weft.ClosedError):
        await peer.publish("/x", b"")
    with pytest.raises(weft.ClosedError):
        peer.subscribe("/x")
    await peer.close()  # again is fine


async def test_bad_arguments_are_named() -> None:
    async with swarm(1) as (peer,):
        with pytest.raises(weft.UsageError, match="start with '/'"):
            peer.subscribe("football")
        with pytest.raises(weft.UsageError, match="too large"):
            await peer.publish("/x", bytes((1 << 20) + 1))
        mark = wrap({"any": "header"}, b"")[:16]  # a payload that begins so needs an envelope
        with pytest.raises(weft.UsageError, match="too large"):
            await peer.publish("/x", mark.ljust(1 << 20))
        with pytest.raises(weft.UsageError, match="empty or unusable"):
            await peer.publish("/x//y", b"")
    with pytest.raises(weft.UsageError, match="names no peer"):
        await weft.Peer.start(join=["/ip4/127.0.0.1/tcp/1"])
    with pytest.raises(weft.ListenError):
        await weft.Peer.start(listen="256.0.0.1:0")


@pytest.mark.parametrize("payload", [5, None, 1.5, ["a"], {"a": 1}])
async def test_a_payload_that_is_neither_bytes_nor_text_is_refused(payload: object) -> None:
    async with swarm(1) as (peer,):
        with pytest.raises(weft.UsageError, match="bytes or a text, not"):
            await peer.publish("/x", payload)


@pytest.mark.parametrize(
    ("topic", "instead"),
    [
        ("/a/#", "hierarchies=['/a'], --hierarchy /a)"),
        ("/a/*/c", "hierarchies=['/a'], --hierarchy /a)"),
        ("/a/b>/>", "hierarchies=['/a/b>'], --hierarchy /a/b>)"),
        ("/+/b", "no topic stands above all others"),
        ("/#", "no topic stands above all others"),
    ],
)
async def test_wildcards_are_refused_with_what_to_use_instead(
    topic: str, instead: str, tmp_path: Path
) -> None:
    async with weft.Peer.open(config=LIVELY, store=tmp_path / "store.db") as peer:
        for use in (peer.subscribe, peer.consume):
            with pytest.raises(weft.UsageError, match="wildcard") as caught:
                use(topic)
            assert instead in str(caught.value)
        with pytest.raises(weft.UsageError, match="wildcard"):
            await peer.publish(topic, b"")
        await peer.subscribe("/a#/b+c")  # part of a segment is no wildcard


@pytest.mark.parametrize("topic", [5, None, b"/a", {5}])
async def test_a_topic_that_is_no_text_is_named(topic: object) -> None:
    async with swarm(1) as (peer,):
        with pytest.raises(weft.UsageError, match="expected a t"):
            await peer.publish(topic, b"")  # type: ignore[call-overload]
        with pytest.raises(weft.UsageError, match="expected a t"):
            peer.subscribe(topic)  # type: ignore[arg-type]


async def test_one_address_to_join_by_is_understood() -> None:
    async with (
        weft.Peer.open(config=LIVELY) as first,
        weft.Peer.open(join=first.address, config=LIVELY) as second,
    ):
        await until(lambda: not first.isolated and not second.isolated, "both to meet")
    with pytest.raises(weft.UsageError, match="no text and no list"):
        await weft.Peer.start(join=5)  # type: ignore[arg-type]


async def test_no_address_to_join_by_may_be_none() -> None:
    """As it comes from a program's own settings."""
    async with weft.Peer.open(join=None) as peer:
        assert peer.isolated and not peer.unanswered


async def test_arguments_of_a_wrong_kind_are_named_and_not_overlooked() -> None:
    async with weft.Peer.open(store=MemoryStore()) as peer:
        with pytest.raises(weft.UsageError, match="a timeout is for confirm"):
            await peer.publish("/x", b"", timeout=1)
        for seconds in ("1", -1, True, float("nan")):
            with pytest.raises(weft.UsageError, match="a timeout is a number of seconds"):
                await peer.publish("/x", b"", confirm="taken", timeout=seconds)  # type: ignore[call-overload]
            with pytest.raises(weft.UsageError, match="a timeout is a number of seconds"):
                await peer.joined(seconds)  # type: ignore[arg-type]
        with pytest.raises(weft.UsageError, match="callback is 5"):
            peer.subscribe("/x", callback=5)  # type: ignore[arg-type]
        with pytest.raises(weft.UsageError, match=re.escape("subscribe(['/x', '/y'])")):
            peer.subscribe("/x", "/y")  # type: ignore[arg-type]
        with pytest.raises(weft.UsageError, match="after is 5"):
            peer.consume("/x", after=5)  # type: ignore[arg-type]
        with pytest.raises(weft.UsageError, match="the name of a consumer"):
            peer.consume("/x", name=5)  # type: ignore[arg-type]
        with pytest.raises(weft.UsageError, match="headers are a mapping"):
            await peer.publish("/x", b"", headers=0)  # type: ignore[call-overload]
        for since in (5, date(2026, 1, 1)):
            with pytest.raises(weft.UsageError, match="since is "):
                peer.subscribe("/x", since=since)  # type: ignore[arg-type]
        with pytest.raises(weft.UsageError, match="no time that can be"):
            peer.subscribe("/x", since=datetime.min)
    with pytest.raises(weft.UsageError, match="the store has no name"):
        await weft.Peer.start(store="")
    for announce in ("a b:c", "a b", "a/b", "0.0.0.0", "[::]:4001", ":::", "a:b:c", "[::g]:4001"):
        with pytest.raises(weft.ListenError, match=re.escape(f"cannot announce {announce!r}")):
            await weft.Peer.start(announce=announce)


async def test_a_peer_is_opened_for_a_block_or_for_its_caller() -> None:
    opening = weft.Peer.open()
    for _ in range(2):
        async with opening as peer:
            with pytest.raises(weft.UsageError, match="open with this peer"):
                await opening.__aenter__()
        assert peer.closed
    async with await opening as peer:  # as with nats-py
        assert not peer.closed
    assert peer.closed
    peer = await weft.Peer.open()
    await peer.close()


async def test_a_closed_peer_neither_joins_nor_serves() -> None:
    peer = await weft.Peer.start()
    await peer.close()
    with pytest.raises(weft.ClosedError):
        peer.join(peer.address)
    with pytest.raises(weft.ClosedError):
        await peer.serve_metrics("127.0.0.1:0")


async def test_a_peer_whose_closing_was_cancelled_is_closed_all_the_same() -> None:
    """Each caller of `close` may rely on it that the peer is closed when that returns."""
    async with weft.Peer.open(config=LIVELY) as gone:
        address = gone.address
    peer = await weft.Peer.start(config=LIVELY, join=address)
    await peer.publish("/x", b"")  # which another peer may take yet: closing waits a little
    first = asyncio.create_task(peer.close())
    await turn()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await asyncio.gather(peer.close(), peer.close())
    assert peer.closed
    await peer.close()


async def test_a_peer_that_is_used_in_another_event_loop_says_so() -> None:
    """Its answers would never come there."""
    async with weft.Peer.open(store=":memory:") as peer:

        async def use() -> list[object]:
            calls = (
                peer.publish("/x", b""),
                peer.publish(["/x", "/y"], b""),
                peer.joined(),
                peer.close(),
            )
            return await asyncio.gather(*calls, return_exceptions=True)

        for error in await asyncio.to_thread(lambda: asyncio.run(use())):
            assert isinstance(error, weft.UsageError) and "another event loop" in str(error)
        for sync in (
            partial(peer.subscribe, "/x"),
            partial(peer.consume, "/x"),
            peer.events,
            peer.collect_links,
        ):
            with pytest.raises(weft.UsageError, match="another event loop"):
                await asyncio.to_thread(sync)
        assert not peer.closed


@pytest.mark.parametrize("stored", [False, True])
async def test_events_that_no_peer_took_are_dropped_only_without_a_store(
    stored: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with weft.Peer.open(config=LIVELY, store=":memory:" if stored else None) as peer:
        assert (await peer.publish("/x", b"")).outcome == "queued"
    warned = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    lost = ["closing: no peer has taken some of the latest events; they are dropped"]
    assert warned == ([] if stored else lost)


@pytest.mark.parametrize(
    "name",
    [
        "listen",
        "announce",
        "join",
        "key",
        "config",
        "trace",
        "metrics",
        "store",
        "routing",
        "hierarchies",
        "encode",
        "decode",
    ],
)
async def test_what_a_peer_is_opened_with_is_of_the_right_kind(name: str) -> None:
    for given in (5, b"/x", object()):
        with pytest.raises(weft.UsageError, match=name):
            await weft.Peer.start(**{name: given})  # type: ignore[arg-type]


async def test_texts_that_cannot_be_written_are_refused() -> None:
    lone = "\udc80"  # half of a letter, as file names bring it that are no UTF-8
    async with weft.Peer.open(store=MemoryStore()) as peer:
        for use in (peer.subscribe, peer.consume):
            with pytest.raises(weft.UsageError, match="UTF-8"):
                use(f"/x{lone}")
        with pytest.raises(weft.UsageError, match="UTF-8"):
            await peer.publish("/x", lone)
        with pytest.raises(weft.UsageError, match="UTF-8"):
            peer.consume("/x", name=lone)
        with pytest.raises(weft.UsageError, match="UTF-8"):
            await peer.reset_consumer("/x", lone)


async def test_files_are_named_by_texts_and_by_paths(tmp_path: Path) -> None:
    settings, key = tmp_path / "weft.toml", tmp_path / "key"
    settings.write_text('[network]\nname = "from the file"\n')
    for config in (settings, str(settings)):
        async with weft.Peer.open(config=config, key=str(key)) as peer:
            assert peer.config.network.name == "from the file"
            assert peer.id == peer_text(Identity.load(str(key)).peer)
    with pytest.raises(weft.ConfigError, match="cannot read"):
        await weft.Peer.start(config=str(tmp_path / "missing.toml"))
    for load in (Identity.load, Identity.load_or_generate, weft.Config.load):
        for given in (5, b"key", None, "", "\0"):
            with pytest.raises(weft.UsageError, match="file"):
                load(given)  # type: ignore[operator]


async def test_an_encoder_that_fails_is_told_of_with_what_it_was_given() -> None:
    units: dict[object, bytes] = {}
    async with weft.Peer.open(encode=lambda value: units[value]) as peer:
        with pytest.raises(weft.UsageError, match="the encoder does not take 'mm': KeyError"):
            await peer.publish("/x", "mm")
    async with weft.Peer.open(encode=lambda value: 5) as peer:  # type: ignore[arg-type, return-value]
        with pytest.raises(weft.UsageError, match=r"not int .*the encoder made it of 'mm'"):
            await peer.publish("/x", "mm")


async def test_a_peer_that_does_not_start_leaves_nothing_behind(tmp_path: Path) -> None:
    """The program keeps the error, and so all that its traceback holds."""
    key = Identity.load_or_generate(tmp_path / "key")
    path = tmp_path / "store.db"
    async with weft.Peer.open() as other:
        taken = ":".join(map(str, split_address(parse_contact(other.address).address)))
        with pytest.raises(weft.ListenError) as kept:
            await weft.Peer.start(listen=taken, key=key, store=path)
    async with weft.Peer.open(key=Identity.load_or_generate(tmp_path / "key"), store=path) as peer:
        assert peer.id == peer_text(key.peer)
    assert kept.value is not None


async def test_a_store_in_memory_has_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with weft.Peer.open(config=LIVELY, store=":memory:") as peer:
        await peer.publish("/x", b"kept")
        assert (await anext(peer.consume("/x"))).payload == b"kept"
    assert os.listdir(tmp_path) == []


async def test_what_others_are_told_can_be_given_to_the_peer() -> None:
    async with weft.Peer.open(listen="0.0.0.0:0", announce="127.0.0.1", config=LIVELY) as peer:
        assert peer.address.startswith("/ip4/127.0.0.1/tcp/")
        async with weft.Peer.open(join=peer.address, config=LIVELY) as other:
            await until(lambda: not other.isolated, "the announced address to work")


def test_every_error_that_users_meet_has_one_root() -> None:
    errors = [
        value
        for value in (getattr(weft, name) for name in weft.__all__)
        if isinstance(value, type) and issubclass(value, Exception)
    ]
    assert len(errors) > 20
    assert all(issubclass(error, weft.WeftError) for error in errors)
    assert {weft.StoreError, weft.PositionGap, weft.Refused, weft.BadId} <= set(errors)


@pytest.mark.parametrize(
    ("encode", "decode"),
    [(json.dumps, json.loads), (msgspec.json.encode, msgspec.json.decode)],
    ids=["texts", "bytes"],
)
async def test_an_encoder_makes_texts_or_bytes(encode: Encode, decode: Decode) -> None:
    async with weft.Peer.open(encode=encode, decode=decode) as peer:
        sub = await peer.subscribe("/readings")
        for value in ({"celsius": [21.5]}, "a text"):
            await peer.publish("/readings", value)
            assert (await anext(sub)).value == value


async def test_the_largest_payload_arrives() -> None:
    async with swarm(2) as (a, b):
        await a.subscribe("/big")
        sub = await b.subscribe("/big")
        await until(lambda: linked(a, "/big") and linked(b, "/big"), "links")
        data = bytes(range(256)) * 4_096
        await a.publish("/big", data)
        await a.publish("/big", data[::-1])
        assert (await anext(sub)).payload == data
        assert (await anext(sub)).payload == data[::-1]


async def test_a_leaving_peer_is_forgotten_by_its_neighbours() -> None:
    async with swarm(3) as (a, b, _):
        async with weft.Peer.open(join=[a.address], config=LIVELY) as guest:
            await until(lambda: guest.id in str(a.status()["view"]), "the guest to be known")
        await until(lambda: guest.id not in str(a.status()["view"]), "the guest to be forgotten")
        await until(lambda: guest.id not in str(b.status()["view"]))


async def test_a_peer_finds_back_after_losing_everybody(tmp_path: Path) -> None:
    key = tmp_path / "hub.key"
    hub = await weft.Peer.start(key=key, config=LIVELY)
    listen = hub.address.split("/")
    where = f"{listen[2]}:{listen[4]}"
    async with weft.Peer.open(join=[hub.address], config=LIVELY) as peer:
        sub = await peer.subscribe("/x")
        await until(lambda: not peer.isolated)
        await hub.close()
        await until(lambda: peer.isolated, "the peer to notice")
        async with weft.Peer.open(listen=where, key=key, config=LIVELY) as again:
            assert again.address == hub.address
            await until(lambda: not peer.isolated, "the peer to rejoin")
            receipt = await (await again.publish("/x", b"back")).final()
            assert receipt.outcome == "taken"
            assert (await anext(sub)).payload == b"back"


async def test_the_trace_tells_the_story(tmp_path: Path) -> None:
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    async with (
        weft.Peer.open(config=LIVELY, trace=first) as a,
        weft.Peer.open(join=[a.address], config=LIVELY, trace=second) as b,
    ):
        sub = await b.subscribe("/x")
        await until(lambda: not a.isolated)
        receipt = await a.publish("/x", b"traced")
        await anext(sub)
    records = {
        path: [json.loads(line) for line in path.read_text().splitlines()]
        for path in (first, second)
    }
    published = [r["publishMessage"] for r in records[first] if r["type"] == "PUBLISH_MESSAGE"]
    assert [record["messageID"] for record in published] == [receipt.event_id]
    delivered = [r["deliverMessage"] for r in records[second] if r["type"] == "DELIVER_MESSAGE"]
    assert [record["messageID"] for record in delivered] == [receipt.event_id]
    sent = [r["sendRPC"] for r in records[first] if r["type"] == "SEND_RPC"]
    got = [r["recvRPC"] for r in records[second] if r["type"] == "RECV_RPC"]
    route = next(record for record in sent if record["meta"]["kind"] == "RouteEvent")
    assert route["sendTo"] == b.id
    assert any(record["meta"] == route["meta"] and record["receivedFrom"] == a.id for record in got)
    assert any(r["type"] == "ADD_PEER" and r["addPeer"]["peerID"] == b.id for r in records[first])
    assert any(r["type"] == "REMOVE_PEER" for r in records[first])


async def test_status_is_json_and_names_what_matters() -> None:
    async with swarm(2) as (a, b):
        await a.subscribe("/x")
        status = json.loads(json.dumps(a.status()))
        assert status["peer"] == a.id
        assert status["address"] == a.address
        assert status["network"]["connections"] == len(status["connections"]) == 1
        assert status["connections"][0]["peer"] == b.id
        assert status["subscriptions"]["/x"] == {"waiting": 0, "dropped": 0}


async def test_every_place_that_metrics_are_served_on_ends_with_the_peer() -> None:
    async with weft.Peer.open(config=LIVELY) as peer:
        places = [await peer.serve_metrics("127.0.0.1:0") for _ in range(2)]
    for host, port in (place.split(":") for place in places):
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(host, int(port))


async def test_metrics_are_served_over_http() -> None:
    async with weft.Peer.open(config=LIVELY) as peer:
        host, port = (await peer.serve_metrics("127.0.0.1:0")).split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost:9100\r\n\r\n")
        answer = (await reader.read()).decode()
        writer.close()
        assert answer.startswith("HTTP/1.1 200 OK\r\n")
        body = answer.split("\r\n\r\n", 1)[1]
        assert f'weft_net_connections{{peer="{peer.id}"}} 0.0' in body
        assert "# TYPE weft_net_frames_sent_total counter" in body
        values = {line.split("{")[0] for line in body.splitlines() if not line.startswith("#")}
        assert "weft_isolated" in values
        here = b"Host: 127.0.0.1\r\n\r\n"
        for request, status in ((b"GET / HTTP/1.1\r\n" + here, b"404"), (b"\r\n" + here, b"404")):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(request)
            assert status in await reader.readline()
            writer.close()
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"x" * 20_000)  # no end of headers within the limit
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"Host: localhost", b"200"),
        (b"hOST: LOCALHOST.:9100", b"200"),
        (b"Host: [::1]:9100", b"200"),
        (b"Host: 127.0.0.2:80", b"200"),  # the address that is called
        (b"Host: metrics.example:9100", b"200"),  # named in the settings
        (b"Host: rebound.example", b"421"),
        (b"Host: 127.0.0.1.rebound.example", b"421"),
        (b"Host: 10.0.0.1", b"421"),
        (b"Host: localhost\r\nHost: rebound.example", b"421"),
        (b"Accept: */*", b"421"),
    ],
)
async def test_metrics_are_for_callers_that_mean_this_machine(host: bytes, status: bytes) -> None:
    """A web page whose name leads to this machine's address must not read them."""
    network = replace(LIVELY.network, metrics_hosts=("Metrics.example",))
    async with weft.Peer.open(config=replace(LIVELY, network=network)) as peer:
        where, port = (await peer.serve_metrics("127.0.0.2:0")).split(":")
        reader, writer = await asyncio.open_connection(where, int(port))
        writer.write(b"GET /metrics HTTP/1.1\r\n" + host + b"\r\n\r\n")
        answer = await reader.read()
        writer.close()
        assert answer.split(b" ")[1] == status
        assert (b"weft_isolated" in answer) is (status == b"200")


async def test_a_metrics_port_that_is_taken_fails_the_start() -> None:
    async with weft.Peer.open() as peer:
        address = await peer.serve_metrics("127.0.0.1:0")
        with pytest.raises(weft.ListenError, match="metrics"):
            await weft.Peer.start(metrics=address)


async def test_headers_come_with_the_event_whichever_peer_has_a_store() -> None:
    headers = {"kind": "order", "überschrift": "ja"}
    async with (
        weft.Peer.open(config=LIVELY, store=MemoryStore()) as keeps,
        weft.Peer.open(config=LIVELY, join=keeps.address) as plain,
    ):
        subs = [await peer.subscribe("/x") for peer in (keeps, plain)]
        await until(lambda: linked(keeps, "/x") and linked(plain, "/x"), "links")
        mark = wrap(headers, b"")[:16] + b"looks like an envelope"
        for peer in (keeps, plain):
            await peer.publish("/x", b"1", headers=headers)
            await peer.publish(["/x"], mark, confirm="taken", timeout=60)
        for sub in subs:
            notes = [await anext(sub) for _ in range(4)]
            for publisher in (keeps, plain):
                mine = [note for note in notes if note.publisher == publisher.id]
                assert {(note.payload, tuple(note.headers.items())) for note in mine} == {
                    (b"1", tuple(headers.items())),
                    (mark, ()),
                }
        async with keeps.consume("/x") as consumer:
            stored = [await anext(consumer) for _ in range(2)]
        assert [note.headers for note in stored] == [headers, {}]
        cid = stored[0].cid
        assert await keeps.history.get(f"/{cid}/metadata/header.kind") == "order"


async def test_headers_that_cannot_be_sent_are_refused() -> None:
    async with swarm(1) as (peer,):
        for headers, match in (
            ({"a": 5}, "texts"),
            ({"": "x"}, "1 to 64"),
            ("kind=order", "a mapping"),
            ({"a": "x" * 4_096}, "too long"),
        ):
            with pytest.raises(weft.UsageError, match=match):
                await peer.publish("/x", b"", headers=headers)  # type: ignore[call-overload]
        with pytest.raises(weft.UsageError, match="at most 1048553 with these headers"):
            await peer.publish("/x", bytes(1 << 20), headers={"a": "b"})


@pytest.mark.parametrize("stored", [False, True])
async def test_a_program_that_publishes_and_ends_at_once_is_heard(stored: bool) -> None:
    """Nothing is waited for but what `close` waits for: no join, no confirmation."""
    patient = weft.Config(network=Network(leave_timeout_ms=60_000))
    async with weft.Peer.open() as reader:
        sub = await reader.subscribe("/orders")
        for number in range(3):
            store = ":memory:" if stored else None
            async with weft.Peer.open(join=reader.address, store=store, config=patient) as writer:
                receipt = await writer.publish("/orders", f"order {number}")
            assert (await receipt.final()).outcome == "taken"
        assert [await text_of(sub) for _ in range(3)] == [f"order {n}" for n in range(3)]


async def text_of(sub: weft.Subscription) -> str:
    return (await anext(sub)).payload.decode()
