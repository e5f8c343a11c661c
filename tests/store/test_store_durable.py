"""Grouped commits: a receipt means on disk, and errors reach all that wait."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from net_kit import PATIENCE_S
from signed_kit import NOW_MS, SPORTS, chain, event
from weft.store import durable
from weft.store.durable import Durable
from weft.store.interface import Batch, Retention, StoreError, StoreFull
from weft.store.memory import MemoryStore
from weft.store.sqlite import SqliteStore


class SlowDisk(SqliteStore):
    """A store whose disk answers when it is told to."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.syncs = threading.Event()
        self.may_sync = threading.Event()

    def settle(self) -> None:
        self.syncs.set()
        assert self.may_sync.wait(PATIENCE_S)
        super().settle()


async def test_what_waits_together_is_committed_together(tmp_path: Path) -> None:
    events = chain(300)
    store = SlowDisk(tmp_path / "store.db")
    writer = Durable(store)
    commits: list[None] = []
    writer.watch(lambda: commits.append(None))
    first = writer.submit(Batch(NOW_MS, (events[0],)))
    assert await asyncio.to_thread(store.syncs.wait, 30)
    rest = [writer.submit(Batch(NOW_MS, (each,))) for each in events[1:]]
    assert not first.done()
    assert not store.has(events[0].cid)  # no receipt, and nobody sees it
    store.may_sync.set()
    assert await asyncio.gather(first, *rest) == [["stored"]] * 300
    assert len(commits) == 1 + 2  # alone; then 256 and 43
    assert store.heads(SPORTS) == {events[-1].cid: 300}
    assert await writer.put(Batch(NOW_MS, (events[7],))) == ["known"]
    await writer.close()
    assert store.verify() == 300
    store.close()


async def test_when_the_store_is_full_its_waiters_are_told(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", bytes_max=200_000)
    writer = Durable(store)
    small, large = event(b"small"), event(bytes(500_000))
    with pytest.raises(StoreFull):
        await writer.put(Batch(NOW_MS, (large,)))
    assert await writer.put(Batch(NOW_MS, (small,))) == ["stored"]
    assert not store.has(large.cid)
    await writer.close()
    store.close()


async def test_a_sync_that_fails_stores_nothing(
    tmp_path: Path, connections: list[sqlite3.Connection]
) -> None:
    class BrokenDisk(SqliteStore):
        broken = True

        def settle(self) -> None:
            if self.broken:
                connections[0].execute("ROLLBACK")  # what was staged is gone; COMMIT will fail
            super().settle()

    store = BrokenDisk(tmp_path / "store.db")
    writer = Durable(store)
    results = await asyncio.gather(
        *(writer.put(Batch(NOW_MS, (each,))) for each in chain(3)), return_exceptions=True
    )
    assert [type(result) for result in results] == [StoreError] * 3
    assert store.topics() == {}
    store.broken = False
    assert await writer.put(Batch(NOW_MS, (event(),))) == ["stored"]
    await writer.close()
    store.close()


async def test_closing_writes_what_is_waiting(tmp_path: Path) -> None:
    events = chain(20)
    store = SqliteStore(tmp_path / "store.db")
    writer = Durable(store)
    waiting = [writer.submit(Batch(NOW_MS, (each,))) for each in events]
    waiting[3].cancel()  # too late: it is stored all the same
    await writer.close()
    assert store.summary(SPORTS).events == 20
    assert all(each.done() for each in waiting)
    with pytest.raises(StoreError, match="closed"):
        await writer.put(Batch(NOW_MS, (event(),)))
    await writer.close()
    store.close()


async def test_too_much_waiting_makes_publishers_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting(MemoryStore):
        most = 0

        def stage(self, batches: Sequence[Batch]) -> list[list[durable.Outcome]]:
            self.most = max(self.most, len(batches))
            return super().stage(batches)

    monkeypatch.setattr(durable, "PENDING_BYTES_MAX", 5_000)
    store = Counting()
    writer = Durable(store)
    await asyncio.gather(*(writer.put(Batch(NOW_MS, (each,))) for each in chain(200)))
    assert store.summary(SPORTS).events == 200
    assert 1 < store.most < 20
    await writer.close()


async def test_pruning_takes_its_turn_between_writes(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    writer = Durable(store)
    events = chain(60)
    waiting = [writer.submit(Batch(NOW_MS, (each,))) for each in events[:30]]
    pruned = writer.prune(SPORTS, Retention(events=5), NOW_MS)
    waiting += [writer.submit(Batch(NOW_MS, (each,))) for each in events[30:]]
    await asyncio.gather(*waiting)
    first = await pruned
    second = await writer.prune(SPORTS, Retention(events=5), NOW_MS)
    assert first + second == 55
    await writer.close()
    assert await writer.prune(SPORTS, Retention(events=5), NOW_MS) == 0
    assert store.verify() == 5
    store.close()
