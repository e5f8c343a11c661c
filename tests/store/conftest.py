"""What tests of the SQLite store share."""

from __future__ import annotations

import sqlite3

import pytest


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
