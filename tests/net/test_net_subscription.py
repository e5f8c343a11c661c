"""What an application holds: several topics in one subscription, callbacks, encoders."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable

import pytest
from test_net_api import LIVELY, linked, swarm

import weft
from net_kit import PATIENCE_S, turn, until
from signed_kit import chain
from weft.documents.descriptor import SealedEvent
from weft.ids import Cid, Topic
from weft.net.config import Network
from weft.net.subscription import Subscription
from weft.net.timers import Turns, shared_timers
from weft.store.memory import MemoryStore


class Failing(MemoryStore):
    """A store that cannot be read once it `fails`."""

    fails = False

    def height(self, topic: Topic, cid: Cid) -> int | None:
        if self.fails:
            raise weft.StoreError("the disk is gone")
        return super().height(topic, cid)


async def test_one_subscription_reads_several_topics() -> None:
    async with swarm(2) as (a, b):
        sub = await b.subscribe(["/a", "/b", "/a"])
        assert sub.topics == ("/a", "/b") and set(sub.outcomes) == {"/a", "/b"}
        for topic in ("/a", "/b", "/a"):
            await a.publish(topic, topic, confirm="taken", timeout=60)
        notes = [await anext(sub) for _ in range(3)]
        assert sorted(note.topic for note in notes) == ["/a", "/a", "/b"]
        assert all(note.payload.decode() == note.topic for note in notes)
        await sub.close()
        assert b.status()["topics"] == {}
        assert (await a.publish("/a", b"")).outcome in ("no_subscriber", "queued")


@pytest.mark.parametrize("since", [None, "beginning"])
async def test_what_a_peer_publishes_itself_can_be_left_out(since: str | None) -> None:
    async with weft.Peer.open(config=LIVELY, store=MemoryStore()) as peer:
        everything = await peer.subscribe("/x")
        if since is None:
            others = await peer.subscribe("/x", own=False)
        for payload in (b"1", b"2"):
            await peer.publish("/x", payload)
        if since is not None:
            others = await peer.subscribe("/x", since=since, own=False)
        async with weft.Peer.open(config=LIVELY, join=peer.address, store=MemoryStore()) as another:
            await another.subscribe("/x")
            await another.publish("/x", b"3", confirm="taken", timeout=60)
            assert (await anext(others)).payload == b"3" and len(others) == 0
            assert [(await anext(everything)).payload for _ in range(3)] == [b"1", b"2", b"3"]


async def test_a_store_that_fails_after_an_event_was_found_ends_the_subscription() -> None:
    _, two = chain(2)
    store = Failing()

    async def seek(_: Subscription) -> SealedEvent:
        store.fails = True
        return two

    past = store, two.cid, seek
    sub = Subscription(two.topic, Network(), shared_timers(), Silent(), past)
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(weft.StoreError, match="the disk is gone"):
            await anext(sub)
    assert sub.closed


async def test_topics_come_and_go_while_it_is_read() -> None:
    async with swarm(1) as (peer,):
        sub = await peer.subscribe("/a")
        reading = asyncio.create_task(anext(sub))
        await turn()
        await sub.add("/b")
        await sub.add("/b")  # again is fine
        await peer.publish("/b", b"1")
        assert (await reading).topic == "/b"
        await sub.remove("/a")
        assert sub.topics == ("/b",) and list(peer.status()["topics"]) == ["/b"]  # type: ignore[call-overload]
        await peer.publish("/a", b"2")
        await peer.publish("/b", b"3")
        assert (await anext(sub)).payload == b"3"
        with pytest.raises(weft.UsageError, match="has no topic '/a'"):
            await sub.remove("/a")
        with pytest.raises(weft.UsageError, match="wildcard"):
            await sub.add("/a/#")
        await sub.close()
        for change in (sub.add, sub.remove):
            with pytest.raises(weft.ClosedError):
                await change("/b")


async def test_topics_are_given_by_whatever_can_be_iterated() -> None:
    async with swarm(1) as (peer,):
        assert (await peer.subscribe({"/b", "/a"})).topics == ("/a", "/b")
        sub = await peer.subscribe(name for name in ("/b", "/a", "/b"))
        assert sub.topics == ("/b", "/a")
        await sub.add({"/d", "/c"})
        await sub.add(())
        assert sub.topics == ("/b", "/a", "/c", "/d")
        with pytest.raises(weft.UsageError, match="no topic '/e'"):
            await sub.remove(["/a", "/e"])
        await sub.remove(iter(["/a", "/b"]))
        assert sub.topics == ("/c", "/d")
        receipts = await peer.publish({"/d", "/c"}, b"to both")
        assert [receipt.topic for receipt in receipts] == ["/c", "/d"]
        assert [(await anext(sub)).payload for _ in receipts] == [b"to both"] * 2
        with pytest.raises(weft.UsageError, match="callback is None"):
            sub.each(None)  # type: ignore[arg-type]


async def test_a_subscription_shows_the_topics_that_it_has() -> None:
    async with swarm(1) as (peer,):
        sub = await peer.subscribe(["/a", "/b"])
        assert repr(sub) == "Subscription('/a' and 1 more, instantiated, 0 waiting)"
        await sub.remove("/a")
        assert repr(sub) == "Subscription('/b', instantiated, 0 waiting)"
        await sub.remove("/b")
        assert repr(sub) == "Subscription(no topics, 0 waiting)"
        await sub.close()
        assert repr(sub) == "Subscription(no topics, closed, 0 waiting)"


async def test_only_a_reader_that_need_not_wait_gives_the_loop_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[Turns] = []
    give = Turns.give

    async def counted(turns: Turns) -> None:
        given.append(turns)
        await give(turns)

    monkeypatch.setattr(Turns, "give", counted)
    async with swarm(1) as (peer,):
        sub = await peer.subscribe("/a")
        reading = asyncio.create_task(anext(sub))
        await turn()
        await peer.publish("/a", b"1")
        assert (await reading).payload == b"1" and given == []
        await peer.publish("/a", b"2")
        await until(lambda: len(sub) == 1)
        assert (await anext(sub)).payload == b"2" and len(given) == 1


class Silent:
    """A way into topics that never answers."""

    def __init__(self) -> None:
        self.left: list[Topic] = []

    def enter(self, *_: object) -> None:
        pass

    async def leave(self, subscription: weft.Subscription, topics: Iterable[Topic]) -> None:
        self.left.extend(topics)


async def test_a_block_that_is_cancelled_before_it_begins_leaves_its_topic() -> None:
    door = Silent()
    sub = weft.Subscription(Topic("/a"), Network(), shared_timers(), door)
    sub.enter(Topic("/a"))
    entering = asyncio.ensure_future(sub.__aenter__())
    await turn()
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert sub.closed and door.left == ["/a"]


async def test_a_subscription_is_joined_once_the_last_of_its_topics_is() -> None:
    sub = weft.Subscription(Topic("/a"), Network(), shared_timers(), Silent())
    sub.enter(Topic("/a"))
    sub.enter(Topic("/b"))
    joined = asyncio.ensure_future(sub)
    sub.answered(Topic("/a"), "joined")
    for _ in range(4):
        await turn()
    assert not joined.done()
    sub.answered(Topic("/b"), "instantiated")
    assert await joined is sub
    assert sub.outcomes == {"/a": "joined", "/b": "instantiated"}


async def test_a_topic_stays_while_another_subscription_has_it() -> None:
    async with swarm(1) as (peer,):
        many, one = await peer.subscribe(["/a", "/b"]), await peer.subscribe("/a")
        await many.remove("/a")
        await many.close()
        await peer.publish("/a", b"here")
        assert (await anext(one)).payload == b"here"


async def test_a_thousand_topics_need_no_thousand_tasks() -> None:
    async with swarm(1) as (peer,):
        before = len(asyncio.all_tasks())
        sub = await peer.subscribe([f"/sensors/{number}" for number in range(1_000)])
        assert len(asyncio.all_tasks()) <= before + 1
        for number in range(1_000):
            await peer.publish(f"/sensors/{number}", str(number))
        notes = [await anext(sub) for _ in range(1_000)]
        assert [note.topic for note in notes] == [f"/sensors/{n}" for n in range(1_000)]


async def test_what_several_topics_cannot_have_is_named() -> None:
    async with weft.Peer.open(config=LIVELY, store=MemoryStore()) as peer:
        with pytest.raises(weft.UsageError, match="past of several topics"):
            peer.subscribe(["/a", "/b"], since="beginning")
        with pytest.raises(weft.UsageError, match="no topic"):
            peer.subscribe([])
        with pytest.raises(weft.UsageError, match="expected one of log, raise, mark"):
            peer.subscribe("/a", on_loss="cry")  # type: ignore[arg-type]


async def test_a_topic_that_is_added_is_live_while_the_past_of_another_is_read() -> None:
    async with weft.Peer.open(config=LIVELY, store=MemoryStore()) as peer:
        await peer.publish("/a", b"before")
        sub = peer.subscribe("/a", since="beginning")
        await sub.add("/b")
        await peer.publish("/b", b"now")
        assert {(await anext(sub)).payload for _ in range(2)} == {b"before", b"now"}


async def test_callbacks_are_called_one_after_the_other(caplog: pytest.LogCaptureFixture) -> None:
    async with swarm(1) as (peer,):
        plain: list[bytes] = []
        awaited: list[bytes] = []

        def note_down(note: weft.Notification) -> None:
            plain.append(note.payload)
            if note.payload == b"1":
                raise RuntimeError("a defect of the application")

        async def wait_and_note_down(note: weft.Notification) -> None:
            await turn()
            awaited.append(note.payload)
            if note.payload == b"2":
                raise asyncio.CancelledError  # as of a task that was waited for

        first = await peer.subscribe("/a", callback=note_down)
        (await peer.subscribe("/a")).each(wait_and_note_down)
        with pytest.raises(weft.UsageError, match="callback already"):
            first.each(note_down)
        for number in range(200):
            await peer.publish("/a", str(number))
        expected = [b"%d" % number for number in range(200)]
        await until(lambda: plain == awaited == expected, "all calls")
        assert "a defect of the application" in caplog.text
        assert "a callback of the subscription to /a was cancelled" in caplog.text
        with pytest.raises(weft.UsageError, match="a callback reads this subscription"):
            await anext(first)


async def test_values_go_through_the_encoder_that_was_given_once() -> None:
    codec = {"encode": json.dumps, "decode": json.loads}
    async with (
        weft.Peer.open(config=LIVELY, store=MemoryStore(), **codec) as a,  # type: ignore[arg-type]
        weft.Peer.open(config=LIVELY, store=MemoryStore(), join=a.address) as b,
    ):
        decoded, raw = await a.subscribe("/a"), await b.subscribe("/a")
        await until(lambda: linked(a, "/a") and linked(b, "/a"), "links")
        for value in ({"temperature": 21.5}, "a text", None):
            await a.publish("/a", value)
            note = await anext(decoded)
            assert note.value == value
            assert note.payload == json.dumps(value).encode()
            assert (await anext(raw)).value == note.payload
        await a.publish("/a", b"[1]")  # bytes are a payload already
        assert (await anext(decoded)).value == [1]
        async with a.consume("/a") as consumer:
            assert (await anext(consumer)).value == {"temperature": 21.5}
        with pytest.raises(weft.UsageError, match="encoder does not take"):
            await a.publish("/a", {1, 2})
