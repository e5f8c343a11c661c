"""Consumers over real sockets and on real disks: nothing lost, nothing twice, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import weft
from net_kit import keeping, linked, turn, until
from weft.documents.descriptor import SealedEvent
from weft.ids import Topic
from weft.net.config import Network
from weft.net.consumer import Consumed, Consumer, Past, past_read
from weft.net.errors import UsageError
from weft.protocol import config as protocol
from weft.store.cursor import PositionError, PositionGap, PositionUnknown
from weft.store.durable import Durable
from weft.store.interface import Batch, Outcome, StoreFull
from weft.store.memory import MemoryStore

T = "/orders"


async def take(consumer: Consumer, count: int) -> list[Consumed]:
    return [await anext(consumer) for _ in range(count)]


def payloads(notes: list[Consumed]) -> list[bytes]:
    return [note.payload for note in notes]


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]


async def publish(peer: weft.Peer, first: int, last: int) -> None:
    for payload in numbered(first, last):
        await peer.publish(T, payload)


async def test_a_named_consumer_goes_on_after_what_it_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with weft.Peer.open(config=keeping(), store=path) as peer:
        async with peer.consume(T, name="billing") as consumer:
            await publish(peer, 1, 5)
            notes = await take(consumer, 5)
            assert payloads(notes) == numbered(1, 5)
            await notes[2].ack()
            await notes[0].ack()  # an earlier one takes nothing back
        async with peer.consume(T, name="billing") as again:
            assert payloads(await take(again, 2)) == numbered(4, 5)
    async with weft.Peer.open(config=keeping(), store=path) as peer:
        async with peer.consume(T, name="billing") as later:
            assert payloads(await take(later, 2)) == numbered(4, 5)
        async with peer.consume(T, name="shipping") as other:
            assert payloads(await take(other, 5)) == numbered(1, 5)


async def beat(beats: list[int]) -> None:
    while True:
        beats[0] += 1
        await turn()


@pytest.mark.parametrize("subscribes", [False, True])
async def test_a_program_whose_work_blocks_lets_its_peer_answer_others(
    subscribes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit for each event, of many that wait: a loop that never runs is a peer that is gone."""
    monkeypatch.setattr("weft.net.timers.TURN_S", 0)  # as if the work on each event took so long
    async with weft.Peer.open(config=keeping(), store=MemoryStore()) as peer:
        reader = await peer.subscribe(T) if subscribes else peer.consume(T)
        await publish(peer, 1, 20)
        beats = [0]
        beating = asyncio.create_task(beat(beats))
        await turn()
        before = beats[0]
        for number in range(20):
            note = await anext(reader)
            assert note.payload == b"%d" % (number + 1)
        assert beats[0] - before >= 20
        beating.cancel()


async def test_a_program_that_breaks_out_of_its_loop_reads_on_by_the_same_name() -> None:
    """It never closed the consumer, and cannot: it has no name for it."""
    async with weft.Peer.open(config=keeping(), store=MemoryStore()) as peer:
        await publish(peer, 1, 3)
        got = []
        for _ in range(3):
            async for note in peer.consume(T, name="billing"):
                got.append(note.payload)
                await note.ack()
                break
        assert got == numbered(1, 3)
        assert peer.status()["subscriptions"].keys() == {T}  # type: ignore[attr-defined]
        held = peer.consume(T, name="billing")
        with pytest.raises(weft.UsageError, match="close it first"):
            peer.consume(T, name="billing")
        await held.close()
        assert T not in peer.status()["subscriptions"]  # type: ignore[operator]


async def test_what_was_published_while_the_worker_was_away(tmp_path: Path) -> None:
    async with weft.Peer.open(config=keeping(), store=tmp_path / "a.db") as shop:
        await shop.subscribe(T)
        async with (
            weft.Peer.open(
                config=keeping(), store=tmp_path / "b.db", join=[shop.address]
            ) as worker,
            worker.consume(T) as consumer,
        ):
            await publish(shop, 1, 3)
            [*_, last] = await take(consumer, 3)
        await publish(shop, 4, 40)
        async with (
            weft.Peer.open(
                config=keeping(), store=tmp_path / "b.db", join=[shop.address]
            ) as worker,
            worker.consume(T, after=last.position) as consumer,
        ):
            assert payloads(await take(consumer, 37)) == numbered(4, 40)


async def test_a_worker_that_lost_its_store_goes_on_with_its_position(tmp_path: Path) -> None:
    async with weft.Peer.open(config=keeping(), store=tmp_path / "a.db") as shop:
        await shop.subscribe(T)
        await publish(shop, 1, 30)
        place = ""
        for first, last in ((1, 10), (11, 30)):
            async with (
                weft.Peer.open(
                    config=keeping(), store=MemoryStore(), join=[shop.address]
                ) as worker,
                worker.consume(T, after=place or None) as consumer,
            ):
                notes = await take(consumer, last - first + 1)
                assert payloads(notes) == numbered(first, last)
                place = notes[-1].position


async def test_a_store_that_has_only_the_end_of_what_was_read_repeats_nothing(
    tmp_path: Path,
) -> None:
    """It holds the event that the position names, and gets what lies before it afterwards."""
    async with (
        weft.Peer.open(config=keeping(), store=tmp_path / "a.db") as shop,
        shop.consume(T) as first,
    ):
        await publish(shop, 1, 20)
        async with weft.Peer.open(
            config=keeping(), store=MemoryStore(), join=[shop.address]
        ) as worker:
            live = await worker.subscribe(T)
            await until(lambda: linked(shop, T), "a link")
            await publish(shop, 21, 40)
            while (await anext(live)).payload != b"40":
                pass
            place = (await take(first, 30))[-1].position
            async with worker.consume(T, after=place) as second:
                assert payloads(await take(second, 10)) == numbered(31, 40)
                await shop.publish(T, b"41", confirm="stored", timeout=60)
                assert payloads(await take(second, 1)) == [b"41"]


async def test_a_worker_that_lost_its_store_waits_for_a_member_that_starts_later(
    tmp_path: Path,
) -> None:
    key, path = tmp_path / "a.key", tmp_path / "a.db"
    async with weft.Peer.open(config=keeping(), store=path, key=key) as shop:
        address, port = shop.address, shop.address.split("/")[4]
        async with shop.consume(T) as consumer:
            await publish(shop, 1, 10)
            place = (await take(consumer, 5))[-1].position
    async with (
        weft.Peer.open(config=keeping(), store=MemoryStore(), join=address) as worker,
        worker.consume(T, after=place) as consumer,
    ):
        reading = asyncio.create_task(take(consumer, 5))
        await until(lambda: "cannot reach" in str(worker.unanswered), "a dial in vain")
        async with weft.Peer.open(
            config=keeping(), store=path, key=key, listen=f"127.0.0.1:{port}"
        ) as shop:
            await shop.subscribe(T)
            assert payloads(await reading) == numbered(6, 10)


class FullStore(MemoryStore):
    """Has no room for the next place of a consumer, once."""

    full = False

    def stage(self, batches: Sequence[Batch]) -> list[list[Outcome]]:
        if self.full and any(batch.acks for batch in batches):
            self.full = False
            raise StoreFull("no room")
        return super().stage(batches)


async def test_an_acknowledgement_that_failed_is_not_taken_for_one_that_is_on_disk() -> None:
    store = FullStore()
    async with (
        weft.Peer.open(config=keeping(), store=store) as peer,
        peer.consume(T, name="billing") as consumer,
    ):
        await publish(peer, 1, 3)
        notes = await take(consumer, 3)
        store.full = True
        with pytest.raises(StoreFull):
            await notes[1].ack()
        await notes[1].ack()
        assert store.acked(Topic(T), "billing") == notes[1].position


async def test_an_acknowledgement_of_an_earlier_consumer_takes_no_place_back() -> None:
    async with weft.Peer.open(config=keeping(), store=MemoryStore()) as peer:
        async with peer.consume(T, name="billing") as earlier:
            await publish(peer, 1, 6)
            late = (await take(earlier, 3))[-1]
        async with peer.consume(T, name="billing") as consumer:
            await (await take(consumer, 5))[-1].ack()
            with pytest.raises(weft.ClosedError, match="comes again"):
                await late.ack()
        async with peer.consume(T, name="billing") as consumer:
            assert payloads(await take(consumer, 1)) == [b"6"]


async def test_a_name_that_began_now_gets_again_what_it_did_not_acknowledge(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.db"
    async with weft.Peer.open(config=keeping(), store=path) as peer:
        await peer.subscribe(T)
        await publish(peer, 1, 2)
        async with peer.consume(T, name="billing", after="now") as consumer:
            await publish(peer, 3, 4)
            assert payloads(await take(consumer, 1)) == [b"3"]
    async with (
        weft.Peer.open(config=keeping(), store=path) as peer,
        peer.consume(T, name="billing", after="now") as again,
    ):
        assert payloads(await take(again, 2)) == numbered(3, 4)


async def test_a_first_place_that_cannot_be_written_is_told_and_tried_again() -> None:
    store = FullStore()
    store.full = True
    async with (
        weft.Peer.open(config=keeping(), store=store) as peer,
        peer.consume(T, name="billing", after="now") as consumer,
    ):
        began = consumer.position
        await publish(peer, 1, 1)
        with pytest.raises(StoreFull):
            await anext(consumer)
        assert payloads(await take(consumer, 1)) == [b"1"]
        assert store.acked(Topic(T), "billing") == began


async def test_a_long_past_is_waited_for_as_long_as_it_comes() -> None:
    async with weft.Peer.open(config=keeping(), store=MemoryStore()) as peer:
        sub = await peer.subscribe(T)
        pages = iter(range(3))
        past = Past(lambda: next(pages, None) is None, lambda: True)
        await past_read(Durable(MemoryStore()), past, sub, patience_s=0)
        assert next(pages, None) is None


async def test_two_publishers_at_once(tmp_path: Path) -> None:
    """Concurrent events come in any order, each once, however often the consumer is replaced."""
    async with (
        weft.Peer.open(config=keeping(), store=tmp_path / "a.db") as a,
        weft.Peer.open(config=keeping(), store=tmp_path / "b.db", join=[a.address]) as b,
    ):
        await a.subscribe(T)
        await b.subscribe(T)
        await until(lambda: linked(b, T), "a link")
        publishing = asyncio.gather(publish(a, 1, 60), publish(b, 101, 160))
        got: list[bytes] = []
        place: str | None = None
        while len(got) < 120:
            async with b.consume(T, after=place) as consumer:
                notes = await take(consumer, min(7, 120 - len(got)))
            got += payloads(notes)
            place = notes[-1].position
        await publishing
        assert len(set(got)) == 120
        for first, last in ((1, 60), (101, 160)):
            mine = numbered(first, last)
            assert [one for one in got if one in mine] == mine


async def test_from_now_on(tmp_path: Path) -> None:
    async with weft.Peer.open(config=keeping(), store=tmp_path / "a.db") as peer:
        await peer.subscribe(T)
        await publish(peer, 1, 3)
        async with peer.consume(T, after="now") as consumer:
            await publish(peer, 4, 5)
            assert payloads(await take(consumer, 2)) == numbered(4, 5)


async def test_now_stays_now_whatever_of_the_past_comes_later(tmp_path: Path) -> None:
    """Beside a consumer from the beginning, and in the next life with the position that was kept.
    Neither the member's latest event nor the rest of its past is handed out."""
    path = tmp_path / "b.db"
    async with weft.Peer.open(config=keeping(), store=":memory:") as member:
        await member.subscribe(T)
        await publish(member, 1, 30)
        async with weft.Peer.open(config=keeping(), store=path, join=member.address) as peer:
            await peer.joined(30)
            live = await peer.consume(T, after="now")
            await publish(member, 31, 31)
            [note] = await take(live, 1)
            assert note.payload == b"31"
            assert payloads(await take(peer.consume(T), 31)) == numbered(1, 31)
            await publish(member, 32, 32)
            assert payloads(await take(live, 1)) == [b"32"]
        async with weft.Peer.open(config=keeping(), store=path, join=member.address) as peer:
            await peer.joined(30)
            again = peer.consume(T, after=note.position)
            await publish(member, 33, 33)
            assert payloads(await take(again, 2)) == numbered(32, 33)


async def test_now_is_later_than_what_a_peer_missed_while_it_was_away(tmp_path: Path) -> None:
    """But not later than what it publishes itself."""
    path = tmp_path / "b.db"
    async with weft.Peer.open(config=keeping(), store=":memory:") as member:
        await member.subscribe(T)
        async with weft.Peer.open(config=keeping(), store=path, join=member.address) as peer:
            await peer.joined(30)
            await peer.subscribe(T)
            await publish(peer, 1, 3)
        await publish(member, 4, 6)
        async with weft.Peer.open(config=keeping(), store=path, join=member.address) as peer:
            await peer.joined(30)
            consumer = peer.consume(T, name="billing", after="now")
            await publish(peer, 7, 7)
            assert payloads(await take(consumer, 1)) == [b"7"]
            await publish(member, 8, 8)
            assert payloads(await take(consumer, 1)) == [b"8"]


async def test_a_slow_consumer_loses_nothing(tmp_path: Path) -> None:
    settings = weft.Config(network=Network(subscription_events_max=4, subscription_patience_ms=1))
    async with (
        weft.Peer.open(config=settings, store=tmp_path / "a.db") as peer,
        peer.consume(T) as consumer,
    ):
        await publish(peer, 1, 200)
        assert payloads(await take(consumer, 200)) == numbered(1, 200)


async def test_retention_that_overtakes_a_consumer_is_an_error(tmp_path: Path) -> None:
    keep = protocol.Keep(events=5)
    settings = keeping(keep=keep, prune_every_ms=50)
    async with weft.Peer.open(config=settings, store=tmp_path / "a.db") as peer:
        async with peer.consume(T) as consumer:
            await publish(peer, 1, 2)
            [first, _] = await take(consumer, 2)
        await peer.subscribe(T)
        await publish(peer, 3, 20)
        held = peer.history.store
        await until(lambda: held.summary(Topic(T)).events == 5, "pruning")
        with pytest.raises(PositionGap, match="not kept any more"):
            await anext(peer.consume(T, after=first.position))


async def overtaken(peer: weft.Peer, name: str) -> None:
    """A consumer that has acknowledged one event, and retention that has dropped the next ones."""
    async with peer.consume(T, name=name) as consumer:
        await publish(peer, 1, 2)
        await (await anext(consumer)).ack()
    await peer.subscribe(T)
    await publish(peer, 3, 20)
    held = peer.history.store
    await until(lambda: held.summary(Topic(T)).events == 5, "pruning")


@pytest.mark.parametrize(("after", "firsts"), [(None, (b"16", b"17")), ("now", (b"21",))])
async def test_a_name_whose_place_is_not_kept_is_reset_and_goes_on(
    tmp_path: Path, after: str | None, firsts: tuple[bytes, ...]
) -> None:
    settings = keeping(keep=protocol.Keep(events=5), prune_every_ms=50)
    async with weft.Peer.open(config=settings, store=tmp_path / "a.db") as peer:
        await overtaken(peer, "billing")
        got: list[bytes] = []
        while not got:
            try:
                async for note in peer.consume(T, name="billing"):
                    got.append(note.payload)
                    await note.ack()
                    break
            except PositionGap as gap:  # as a program would do it
                assert "reset_consumer" in str(gap)
                await peer.reset_consumer(T, "billing", after=after)
                await publish(peer, 21, 21)
        assert got[0] in firsts  # 16 may have been dropped by now
        if got == [b"21"]:
            await publish(peer, 22, 22)
        async with peer.consume(T, name="billing") as consumer:  # without another reset
            assert (await anext(consumer)).payload == b"%d" % (int(got[0]) + 1)


async def test_a_reset_lasts_and_takes_a_position() -> None:
    store = MemoryStore()
    async with weft.Peer.open(config=keeping(), store=store) as peer:
        async with peer.consume(T, name="billing") as consumer:
            await publish(peer, 1, 5)
            notes = await take(consumer, 4)
            await notes[-1].ack()
            with pytest.raises(UsageError, match="close it first"):
                await peer.reset_consumer(T, "billing")
        await peer.reset_consumer(T, "billing", after=notes[1].position)
    async with weft.Peer.open(config=keeping(), store=store) as peer:
        async with peer.consume(T, name="billing") as consumer:
            [third] = await take(consumer, 1)
            assert third.payload == b"3"
        await peer.reset_consumer(T, "billing")
        with pytest.raises(weft.ClosedError):  # it would take the new place back
            await third.ack()
        async with peer.consume(T, name="billing") as consumer:
            assert payloads(await take(consumer, 5)) == numbered(1, 5)
        with pytest.raises(UsageError, match="is empty"):
            await peer.reset_consumer(T, "")
        with pytest.raises(PositionError, match="no position"):
            await peer.reset_consumer(T, "billing", after="nonsense")


async def test_a_wrong_after_is_told_even_where_the_place_of_a_name_counts() -> None:
    async with weft.Peer.open(config=keeping(), store=":memory:") as peer:
        async with peer.consume(T, name="billing") as consumer:
            await publish(peer, 1, 1)
            [note] = await take(consumer, 1)
            await note.ack()
        with pytest.raises(PositionError, match="no position"):
            peer.consume(T, name="billing", after="nonsense")
        with pytest.raises(PositionError, match="not in /other"):
            peer.consume("/other", name="billing", after=note.position)
        with pytest.raises(UsageError, match="reads one topic"):
            peer.consume([T, "/other"])  # type: ignore[arg-type]


async def test_two_peers_with_one_store_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with weft.Peer.open(config=keeping(), store=path) as peer:
        with pytest.raises(weft.StoreBusy, match=r"already with the store .*a\.db"):
            await weft.Peer.open(config=keeping(), store=path)
        await publish(peer, 1, 1)
    async with weft.Peer.open(config=keeping(), store=path) as peer:
        assert payloads(await take(peer.consume(T), 1)) == [b"1"]


async def test_a_name_that_was_reset_begins_where_its_next_consumer_says() -> None:
    async with weft.Peer.open(config=keeping(), store=":memory:") as peer:
        async with peer.consume(T, name="billing") as consumer:
            await publish(peer, 1, 2)
            await (await take(consumer, 2))[-1].ack()
        await peer.reset_consumer(T, "billing")
        async with peer.consume(T, name="billing", after="now") as consumer:
            await publish(peer, 3, 3)
            assert payloads(await take(consumer, 1)) == [b"3"]
        await peer.reset_consumer(T, "billing", after="now")
        await publish(peer, 4, 4)
        async with peer.consume(T, name="billing") as consumer:  # a reset to "now" is a place
            assert payloads(await take(consumer, 1)) == [b"4"]


async def test_a_name_reset_to_now_in_an_empty_store_gets_no_past() -> None:
    async with weft.Peer.open(config=keeping(), store=":memory:") as member:
        await member.subscribe(T)
        await publish(member, 1, 5)
        async with weft.Peer.open(config=keeping(), store=":memory:", join=member.address) as peer:
            await peer.joined(30)
            await peer.reset_consumer(T, "billing", after="now")
            consumer = await peer.consume(T, name="billing")
            await publish(member, 6, 6)
            assert payloads(await take(consumer, 1)) == [b"6"]


async def test_in_a_new_store_what_all_members_have_dropped_is_a_gap(tmp_path: Path) -> None:
    """The worker lost its store, and the shop does not keep what the worker has not read yet."""
    settings = keeping(keep=protocol.Keep(events=5), prune_every_ms=50)
    async with weft.Peer.open(config=settings, store=tmp_path / "a.db") as shop:
        async with shop.consume(T) as consumer:
            await publish(shop, 1, 2)
            place = (await take(consumer, 2))[-1].position
        await shop.subscribe(T)
        await publish(shop, 3, 20)
        held = shop.history.store
        await until(lambda: held.summary(Topic(T)).events == 5, "pruning")
        async with weft.Peer.open(
            config=keeping(), store=MemoryStore(), join=shop.address
        ) as worker:
            with pytest.raises(PositionGap, match=r"at height 2 .* up to height 15 is not kept"):
                await anext(worker.consume(T, after=place))
            await worker.reset_consumer(T, "billing", after=None)
            async with worker.consume(T, name="billing") as consumer:
                assert payloads(await take(consumer, 5)) == numbered(16, 20)


class MeasuredStore(MemoryStore):
    """Notes how much was read from it at once."""

    largest = 0

    def events(self, *args: Any, **kwargs: Any) -> list[SealedEvent]:
        found = super().events(*args, **kwargs)
        self.largest = max(self.largest, sum(len(event.block) for event in found))
        return found


async def test_large_events_are_read_a_few_at_a_time() -> None:
    store = MeasuredStore()
    async with weft.Peer.open(config=keeping(), store=store) as peer:
        for number in range(40):
            await peer.publish(T, b"%d" % number + bytes(500_000))
        notes = await take(peer.consume(T), 40)
        assert [len(note.payload) > 500_000 for note in notes] == [True] * 40
        assert store.largest < 9_000_000  # 16 of them; the next ones are 8


async def test_a_consumer_that_waits_ends_when_its_peer_closes(tmp_path: Path) -> None:
    async with weft.Peer.open(config=keeping(), store=tmp_path / "a.db") as peer:
        consumer = peer.consume(T)
        await publish(peer, 1, 3)
        await take(consumer, 3)
        waiting = asyncio.create_task(anext(consumer, None))  # type: ignore[arg-type]
        early = asyncio.create_task(anext(peer.consume("/other"), None))  # type: ignore[arg-type]
        await turn()
    assert await waiting is None and await early is None


async def test_mistakes_are_told(tmp_path: Path) -> None:
    async with weft.Peer.open(config=keeping()) as storeless:
        with pytest.raises(UsageError, match="needs a store"):
            storeless.consume(T)
    async with weft.Peer.open(config=keeping(), store=tmp_path / "a.db") as peer:
        with pytest.raises(PositionError, match="no position"):
            peer.consume(T, after="nonsense")
        with pytest.raises(UsageError, match="empty"):
            peer.consume(T, name="")
        consumer = peer.consume(T, name="billing")
        with pytest.raises(UsageError, match="already"):
            peer.consume(T, name="billing")
        await publish(peer, 1, 1)
        note = await anext(consumer)
        assert repr(consumer).startswith("Consumer 'billing'('/orders'")
        with pytest.raises(PositionError, match="not in /other"):
            peer.consume("/other", after=note.position)
        nameless = await anext(peer.consume(T))
        with pytest.raises(UsageError, match="name"):
            await nameless.ack()
        await consumer.close()
        with pytest.raises(StopAsyncIteration):
            await anext(consumer)


async def test_a_position_that_nobody_knows_is_an_error(tmp_path: Path) -> None:
    async with (
        weft.Peer.open(config=keeping(), store=tmp_path / "a.db") as one,
        weft.Peer.open(config=keeping(), store=tmp_path / "b.db") as other,
    ):
        async with one.consume(T) as consumer:
            await publish(one, 1, 1)
            note = await anext(consumer)
        with pytest.raises(PositionUnknown, match="not stored here"):
            await anext(other.consume(T, after=note.position))
