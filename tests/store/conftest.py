"""What tests of stores share."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.store.interface import Store
from weft.store.memory import MemoryStore
from weft.store.sqlite import SqliteStore


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "store.db")
    yield made
    made.close()


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    """The connections that stores open, in their order: a store's writer, then its reader."""
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def note(*args, **named) -> sqlite3.Connection:  # type: ignore[no-untyped-def]
        opened.append(connect(*args, **named))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", note)
    return opened
