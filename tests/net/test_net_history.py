"""Events that stay, over real sockets and on real disks: replay, owned topics, paths, archives."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import weft
from net_kit import PATIENCE_S, keeping, linked, until
from weft.cli.main import main
from weft.cli.topic import in_words
from weft.ids import cid_of, cid_text, parse_cid
from weft.net import replay, runtime
from weft.net.config import Network
from weft.net.control import ControlServer, Request, change_topic
from weft.net.control_client import ControlClient
from weft.net.errors import ControlError, HistoryError, UsageError
from weft.protocol import config as protocol
from weft.protocol.history import reader
from weft.store.car import load
from weft.store.memory import MemoryStore
from weft.store.sqlite import SqliteStore

T = "/sports"


@asynccontextmanager
async def pair(tmp_path: Path) -> AsyncGenerator[tuple[weft.Peer, weft.Peer], None]:
    """Two subscribed peers with stores."""
    async with (
        weft.Peer.open(config=keeping(), store=tmp_path / "a.db") as a,
        weft.Peer.open(config=keeping(), store=tmp_path / "b.db", join=[a.address]) as b,
    ):
        await a.subscribe(T)
        await b.subscribe(T)
        await until(lambda: linked(b, T), "a link")
        yield a, b


def held(peer: weft.Peer) -> int:
    return len(list(peer.history.read(T)))


async def test_a_latecomer_reads_the_past_and_then_what_comes(tmp_path: Path) -> None:
    async with pair(tmp_path) as (a, b):
        receipts = await asyncio.gather(*(a.publish(T, b"%d" % n) for n in range(300)))
        assert {receipt.outcome for receipt in receipts} == {"sent"}
        await until(lambda: held(b) == 300, "all events")
        async with weft.Peer.open(config=keeping(), store=MemoryStore(), join=[b.address]) as late:
            subscription = late.subscribe(T, since="beginning")
            got = [(await anext(subscription)).cid for _ in range(300)]
            await a.publish(T, b"now")
            last = await anext(subscription)
            assert last.payload == b"now"
            stream = [event.cid for event in a.history.read(T)]
            assert [parse_cid(cid) for cid in [*got, last.cid]] == stream
        again = b.subscribe(T, since=got[-1])
        assert (await anext(again)).payload == b"now"


async def test_a_reader_far_behind_is_spared_payloads_until_it_is_level(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader, "NEAR", 100)
    monkeypatch.setattr(reader, "FAR", 400)
    async with weft.Peer.open(config=keeping(), store=MemoryStore()) as a:
        await a.subscribe(T)
        await asyncio.gather(*(a.publish(T, b"%d" % n) for n in range(1_500)))
        async with weft.Peer.open(config=keeping(), store=MemoryStore(), join=[a.address]) as late:
            sub = late.subscribe(T, since="beginning")
            got = [int((await anext(sub)).payload)]
            for n in range(1_500, 1_800):  # while it reads
                await a.publish(T, b"%d" % n)
                while (note := sub.get_nowait()) is not None:
                    got.append(int(note.payload))
            while len(got) < 1_800:
                got.append(int((await anext(sub)).payload))
            assert got == list(range(1_800))
            assert late.counters["tree_spared"] >= 1
            pushed = late.counters.get("payloads_received", 0)
            while late.counters.get("payloads_received", 0) == pushed:  # payloads come again
                await a.publish(T, b"level")
                assert (await anext(sub)).payload == b"level"


async def test_a_slow_reader_gets_the_rest_from_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More comes while the past is read than may wait for the reader."""
    monkeypatch.setattr(replay, "HELD_MAX", 10)
    monkeypatch.setattr(replay, "PAGE", 8)
    settings = weft.Config(network=Network(subscription_events_max=16))
    async with weft.Peer.open(config=settings, store=tmp_path / "a.db") as peer:
        await (await peer.subscribe(T)).close()
        for number in range(50):
            await peer.publish(T, b"%d" % number)
        slow = await peer.subscribe(T, since="beginning")
        for number in range(50, 100):
            await peer.publish(T, b"%d" % number)
        got = [int((await anext(slow)).payload) for _ in range(100)]
        assert got == list(range(100))
        assert slow.dropped == 0


async def test_owned_topics(tmp_path: Path) -> None:
    async with pair(tmp_path) as (a, b):
        await b.owned.follow(T, a.id)
        cid = await a.owned.create(T)
        await until(lambda: b.owned.info(T), "news of the owner")
        assert (await b.publish(T, "mine")).outcome == "refused"
        await a.owned.allow(T, b.id)
        await until(lambda: b.owned.info(T).publishers == (b.id,), "leave to publish")  # type: ignore[union-attr]
        assert (await b.publish(T, "mine")).outcome == "sent"
        await a.owned.add_subtopic(T, "football")
        await until(lambda: b.owned.info(T).sub_topics, "the sub-topic")  # type: ignore[union-attr]
        info = b.owned.info(T)
        assert info is not None and info.sequence == 3 and not info.mine
        assert await b.history.get(f"/{info.cid}/parent/parent/owners/0") == await a.history.get(
            f"{cid}/author"
        )
        with pytest.raises(HistoryError, match="another peer holds"):
            await b.owned.revoke(T, b.id)
        with pytest.raises(HistoryError, match="has no 'nowhere'"):
            await b.history.get(f"{cid}/nowhere")
        with pytest.raises(UsageError, match="starts with a CID"):
            await b.history.get("football")
        await a.owned.revoke(T, b.id)
        await until(lambda: b.owned.info(T).publishers == (), "the revocation")  # type: ignore[union-attr]
        assert (await b.publish(T, "mine")).reason.startswith("the owners of /sports")
        assert 'reason="not_allowed"' in b.metrics()


async def test_asking_an_owner_for_a_sub_topic(tmp_path: Path) -> None:
    async with pair(tmp_path) as (owner, other):
        await owner.subscribe("/a")
        await other.subscribe("/a")
        await other.owned.follow("/a", owner.id)
        await owner.owned.create("/a", publishers=[other.id])
        await until(lambda: other.owned.info("/a") is not None, "news of the topic")
        assert await other.owned.ask_subtopic("/a", "b") == "waiting"
        info = owner.owned.info("/a")
        assert info is not None and info.asked == {"b": other.id} and not info.sub_topics
        await owner.owned.add_subtopic("/a", "b")

        def hangs() -> bool:
            info = other.owned.info("/a")
            return info is not None and "b" in info.sub_topics

        await until(hangs, "the sub-topic")
        with pytest.raises(HistoryError, match="already"):
            await other.owned.ask_subtopic("/a", "b")
        with pytest.raises(HistoryError, match="add the sub-topic"):
            await owner.owned.ask_subtopic("/a", "c")


@pytest.mark.parametrize("headers", [None, {"kind": "large", "note": "n" * 2_000}])
async def test_the_largest_payload_is_said_and_comes(
    tmp_path: Path, headers: dict[str, str] | None
) -> None:
    """What fits in a block decides, and one byte more is an error at once."""
    async with pair(tmp_path) as (a, b), asyncio.timeout(PATIENCE_S):
        for topic in (T, [T, "/more"]):
            with pytest.raises(UsageError, match="too large") as caught:
                await a.publish(topic, bytes(1 << 20), headers=headers)
        found = re.search(r"at most (\d+)", str(caught.value))
        assert found is not None
        most = int(found[1])
        assert (1 << 20) - 4_000 < most < 1 << 20
        with pytest.raises(UsageError, match=f"at most {most}"):
            await a.publish(T, bytes(most + 1), headers=headers)
        sub = await b.subscribe(T)
        assert (await a.publish(T, bytes(most), headers=headers)).outcome == "sent"
        note = await anext(sub)
        assert (len(note.payload), note.number) == (most, 1)
        assert note.headers == (headers or {})
        assert a.counters["history_store_failed"] == 0


async def test_old_events_are_pruned(tmp_path: Path) -> None:
    settings = keeping(keep=protocol.Keep(events=10), prune_every_ms=50)
    async with weft.Peer.open(config=settings, store=tmp_path / "a.db") as peer:
        await peer.subscribe(T)
        for number in range(40):
            await peer.publish(T, b"%d" % number)
        await until(lambda: peer.counters.get("history_pruned") == 30, "pruning")
        assert held(peer) == 10


async def test_exported_streams_can_be_loaded(tmp_path: Path) -> None:
    async with weft.Peer.open(config=keeping(), store=tmp_path / "a.db") as peer:
        await peer.subscribe(T)
        await peer.owned.create(T)
        for number in range(5):
            await peer.publish(T, b"%d" % number)
        assert peer.history.export(T, tmp_path / "t.car") == (tmp_path / "t.car").stat().st_size
        stream = [event.cid for event in peer.history.read(T)]
    copy = SqliteStore(tmp_path / "copy.db")
    with (tmp_path / "t.car").open("rb") as file:
        loaded = load(copy, file, 0)
    assert (loaded.events, loaded.topics, loaded.refused) == (5, 1, {})
    assert [event.cid for event in copy.events(T)] == stream  # type: ignore[arg-type]
    copy.close()


async def test_an_exported_stream_is_for_its_owner_and_follows_no_link(tmp_path: Path) -> None:
    link, victim = tmp_path / "t.car", tmp_path / "victim"
    victim.write_bytes(b"precious")
    link.symlink_to(victim)
    async with weft.Peer.open(config=keeping(), store=tmp_path / "a.db") as peer:
        await peer.subscribe(T)
        await peer.publish(T, b"x")
        peer.history.export(T, link)
    assert victim.read_bytes() == b"precious"
    assert stat.S_IMODE(link.lstat().st_mode) == 0o600


async def test_without_a_store_it_says_so() -> None:
    async with weft.Peer.open(config=keeping()) as peer:
        with pytest.raises(HistoryError, match="store="):
            await peer.owned.create(T)
        with pytest.raises(HistoryError, match="store="):
            peer.history.read(T)
        with pytest.raises(UsageError, match="store="):
            peer.subscribe(T, since="beginning")


async def test_over_the_control_socket(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    async with weft.Peer.open(config=keeping(), store=tmp_path / "a.db") as peer:
        server = ControlServer(peer, path)
        await server.open()
        try:
            await peer.subscribe(T)
            async with ControlClient(path) as client:
                made = await client.ask("topic", action="create", topic=T)
                assert made["info"]["mine"] and made["cid"] == made["info"]["cid"]
                await client.publish(T, b"one")
                value = (await client.ask("get", path=f"{made['cid']}/name"))["value"]
                assert value == T
                whole = (await client.ask("get", path=made["cid"]))["value"]
                assert whole["#"] == {} and "bytes" in whole["author"]["/"]
                with pytest.raises(ControlError, match=r"is this peer.s already"):
                    await client.ask("topic", action="create", topic=T)
                assert (await client.ask("topic", action="show", topic="/x"))["info"] is None
            async with ControlClient(path) as listener:
                notes = listener.subscribe(T, since="beginning")
                await anext(notes)
                note = await anext(notes)
                assert note["payload"] == b"one" and note["cid"].startswith("bafyrei")
                await notes.aclose()
            async with ControlClient(path) as listener:
                notes = listener.subscribe(T, since_ms=0)
                await anext(notes)
                assert (await anext(notes))["payload"] == b"one"
                await notes.aclose()
        finally:
            await server.close()


async def test_a_topic_is_made_from_another_and_read_with_its_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, store = tmp_path / "control.sock", tmp_path / "a.db"
    async with weft.Peer.open(config=keeping(), store=store) as peer:
        server = ControlServer(peer, path)
        await server.open()
        try:
            async with ControlClient(path) as client:
                old = await client.ask("topic", action="create", topic=T)
                await client.publish(T, b"old")
                make = {"action": "create", "topic": "/new", "made_from": T}
                made = (await client.ask("topic", **make))["info"]
                assert (made["made_from"], made["made_from_version"]) == (T, old["cid"])
                assert f"{T}  {old['cid']}" in in_words(made)
                await client.publish(T, b"later")
                await client.publish("/new", b"new")
                with pytest.raises(ControlError, match="no version of /nowhere is known"):
                    await client.ask("topic", **{**make, "made_from": "/nowhere"})
                with pytest.raises(ControlError, match="base32"):
                    await client.ask("topic", **{**make, "made_from": "nonsense"})
        finally:
            await server.close()
        assert [event.payload for event in peer.history.read("/new")] == [b"new"]
        through = peer.history.read_through("/new")
        assert [event.payload for event in through] == [b"old", b"new"]
    assert main(["history", "/new", "--store", str(store)]) == 0
    assert capsys.readouterr().out == f"{T}\told\n/new\tnew\n"


async def test_an_event_that_only_others_have_can_be_read_on_from(tmp_path: Path) -> None:
    """A second life asked the same way, and got nothing, silently: its store had all but the event
    that it named."""
    async with pair(tmp_path) as (a, b):
        for number in range(6):
            await a.publish(T, b"%d" % number)
        await until(lambda: held(b) == 6, "all events")
        cid = cid_text(list(a.history.read(T))[2].cid)
        for _ in range(3):
            store, key = tmp_path / "late.db", tmp_path / "late.key"
            async with weft.Peer.open(
                config=keeping(), store=store, key=key, join=[b.address]
            ) as late:
                sub = await late.subscribe(T, since=cid)
                got = [(await anext(sub)).payload for _ in range(3)]
                assert got == [b"3", b"4", b"5"]


async def test_an_event_from_elsewhere_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "SEEK_SECONDS", 0.2)
    async with pair(tmp_path) as (a, b):
        await a.publish("/other", b"x")
        (other,) = a.history.read("/other")
        with pytest.raises(weft.PositionError, match="is one of /other, not of"):
            a.subscribe(T, since=cid_text(other.cid))
        remote = b.subscribe(T, since=cid_text(other.cid))  # which a has, and b has not
        with pytest.raises(weft.PositionError, match="is one of /other, not of"):
            await anext(remote)
        made_up = b.subscribe(T, since=cid_text(cid_of(b"made up")))
        with pytest.raises(weft.PositionError, match="neither this peer nor a member"):
            await anext(made_up)
        assert made_up.closed and made_up.get_nowait() is None
        with pytest.raises(StopAsyncIteration):
            await anext(made_up)


async def test_a_peer_without_others_to_ask_says_at_once_that_it_does_not_know_an_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runtime, "SEEK_SECONDS", None)  # for ever
    async with weft.Peer.open(config=keeping(), store=":memory:") as peer:
        made_up = peer.subscribe(T, since=cid_text(cid_of(b"made up")))
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(weft.PositionUnknown, match="neither this peer nor a member"):
                await anext(made_up)


async def test_following_shows_other_claims_and_a_second_create_is_told_of_the_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path) as (a, b):
        await a.owned.create(T)
        await until(lambda: b.owned.claims(T) == [(a.id,)], "the claim")
        made = await change_topic(b, Request("topic", T, action="create"))
        assert made["claims"] == [(a.id,)]
        assert f"{T} is claimed by {a.id}, too" in caplog.text
        followed = await change_topic(b, Request("topic", T, action="follow", owners=[a.id]))
        assert (followed["claims"], followed["believed"]) == ([], (a.id,))
        await until(lambda: b.owned.info(T), "the version of the owner that is followed")


async def test_what_a_damaged_store_cannot_give_is_an_error_and_no_silence(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with weft.Peer.open(config=keeping(), store=path) as peer:
        for payload in (b"first", b"last"):
            await peer.publish(T, payload)
        first, _ = [event.cid for event in peer.history.read(T)]
    database = sqlite3.connect(path)
    database.execute("UPDATE events SET block = zeroblob(9) WHERE cid = ?", (first,))
    database.commit()
    async with weft.Peer.open(config=keeping(), store=path) as peer:
        with pytest.raises(weft.StoreCorrupt, match="is damaged"):
            await anext(peer.subscribe(T, since="beginning"))
    database.execute("UPDATE events SET block = zeroblob(9)")
    database.commit()
    database.close()
    async with weft.Peer.open(config=keeping(), store=path) as peer:
        with pytest.raises(weft.StoreCorrupt, match="is damaged"):
            peer.subscribe(T)
        with pytest.raises(weft.StoreCorrupt, match="is damaged"):
            peer.consume(T)
        subscription = peer.subscribe("/other")
        with pytest.raises(weft.StoreCorrupt, match="is damaged"):
            await subscription.add(T)
        await peer.publish("/other", b"goes on")
        assert (await anext(subscription)).payload == b"goes on"
