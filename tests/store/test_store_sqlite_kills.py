"""A process that is killed while it stores: receipts are honoured, nothing is damaged."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from benchmarks.history import kills
from benchmarks.history.events import CREATED_MS, TOPIC, some

from weft.documents.position import START
from weft.ids import cid_of
from weft.store.interface import Batch, StoreCorrupt
from weft.store.sqlite import SqliteStore


def test_killed_at_random_points(tmp_path: Path) -> None:
    result = kills.run(kills=5, seed=7, place=tmp_path)
    assert result["problems"] == []
    assert result["receipted"] > 20
    assert (result["receipted_lost"], result["corrupted"]) == (0, 0)


def test_the_check_has_teeth(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    events = some(30)
    store.commit([Batch(CREATED_MS, tuple(events))])
    damage = sqlite3.connect(path, isolation_level=None)
    receipts = [event.cid for event in events]
    lost, end = kills.check(path, receipts, START)
    assert lost == 0
    assert end.height == 10
    assert kills.check(path, [*receipts, cid_of(b"never stored")], START)[0] == 1
    damage.execute("DELETE FROM heads WHERE cid = ?", (events[-1].cid,))
    with pytest.raises(kills.Corrupt, match="lost a head"):
        kills.check(path, receipts, START)
    damage.execute("INSERT INTO heads VALUES (1, ?, ?)", (events[-1].cid, 10))
    damage.execute("INSERT INTO heads VALUES (1, ?, ?)", (events[5].cid, 2))
    with pytest.raises(kills.Corrupt, match="a head that is none"):
        kills.check(path, receipts, START)
    damage.execute("DELETE FROM heads WHERE cid = ?", (events[5].cid,))
    damage.execute("DELETE FROM events WHERE cid = ?", (events[5].cid,))
    with pytest.raises(StoreCorrupt, match="a wrong count"):
        kills.check(path, receipts, START)
    size = len(events[5].block)
    damage.execute("UPDATE topics SET events = events - 1, bytes = bytes - ?", (size,))
    with pytest.raises(kills.Corrupt, match="lacks a parent"):
        kills.check(path, receipts, START)
    assert store.summary(TOPIC).events == 29
    damage.close()
    store.close()
