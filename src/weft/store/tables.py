"""The tables of an SQLite store, and what changes them: runs inside the store's transactions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from weft.documents.dag import Position, position, surely_pruned
from weft.documents.descriptor import Event
from weft.ids import Cid, Topic
from weft.store.interface import (
    Batch,
    Outcome,
    Retention,
    StoreCorrupt,
    StoreError,
    event_time,
)

APPLICATION = 0x77656674  # "weft"
VERSION = 1

_TABLES = (
    # What each topic's stream amounts to, and how far it is pruned.
    """CREATE TABLE topics (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        events INTEGER NOT NULL DEFAULT 0,
        bytes INTEGER NOT NULL DEFAULT 0,
        floor_height INTEGER NOT NULL DEFAULT 0,
        floor_cid BLOB NOT NULL DEFAULT x'',
        floor_ms INTEGER NOT NULL DEFAULT -1
    )""",
    """CREATE TABLE events (
        id INTEGER PRIMARY KEY,
        cid BLOB NOT NULL UNIQUE,
        topic INTEGER NOT NULL,
        height INTEGER NOT NULL,
        time_ms INTEGER NOT NULL,
        block BLOB NOT NULL
    )""",
    "CREATE INDEX stream ON events (topic, height, cid, time_ms)",
    "CREATE TABLE heads (topic INTEGER, cid BLOB, height INTEGER, PRIMARY KEY (topic, cid)) "
    "WITHOUT ROWID",
    # Parents that are not stored, the events that name them, and whether the search was given up.
    "CREATE TABLE wanted (parent BLOB, child BLOB, topic INTEGER, lost INTEGER, "
    "PRIMARY KEY (parent, child)) WITHOUT ROWID",
    "CREATE INDEX wanted_by ON wanted (child)",
    "CREATE TABLE blocks (cid BLOB PRIMARY KEY, block BLOB NOT NULL)",  # topic versions
    "CREATE TABLE records (name BLOB PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE pins (cid BLOB PRIMARY KEY) WITHOUT ROWID",
)


def prepare(database: sqlite3.Connection, path: Path, bytes_max: int | None) -> None:
    """Set the connection up, and make the tables in a new file."""
    (mode,) = database.execute("PRAGMA journal_mode=WAL").fetchone()
    if mode != "wal":
        raise StoreError(f"{path}: this file system cannot hold a store (journal mode {mode})")
    database.execute("PRAGMA synchronous=FULL")  # each commit reaches the disk
    if bytes_max is not None:
        (page_bytes,) = database.execute("PRAGMA page_size").fetchone()
        database.execute(f"PRAGMA max_page_count={max(1, bytes_max // page_bytes)}")
    database.execute("BEGIN IMMEDIATE")
    try:
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        (tables,) = database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if not tables:
            for statement in _TABLES:
                database.execute(statement)
            database.execute(f"PRAGMA application_id={APPLICATION}")
            database.execute(f"PRAGMA user_version={VERSION}")
        elif application != APPLICATION:
            raise StoreCorrupt(f"{path} is a database, but no weft store")
        elif version > VERSION:
            raise StoreError(f"{path} was written by a newer weft (format {version})")
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


class _TopicState:
    """What a transaction adds to a topic's row; written once at its end."""

    __slots__ = ("bytes", "events", "floor")

    def __init__(self, floor: Position) -> None:
        self.floor = floor
        self.events = 0
        self.bytes = 0


class Writer:
    """Adds batches in one transaction."""

    def __init__(self, database: sqlite3.Connection, topic_ids: dict[Topic, int]) -> None:
        self._database = database
        self._ids = topic_ids
        self._states: dict[int, _TopicState] = {}

    def add_batch(self, batch: Batch) -> list[Outcome]:
        if batch.topics:
            self._database.executemany(
                "INSERT OR IGNORE INTO blocks VALUES (?, ?)",
                [(version.cid, version.block) for version in batch.topics],
            )
        if batch.records:
            self._database.executemany(
                "INSERT OR REPLACE INTO records VALUES (?, ?)", batch.records
            )
        outcomes = [self._add(event, batch.now_ms) for event in batch.events]
        if batch.lost:
            give_up(self._database, batch.lost)
        return outcomes

    def _add(self, event: Event, now_ms: int) -> Outcome:
        execute = self._database.execute
        cid = event.cid
        topic = self._ids.get(event.topic) or self._topic_id(event.topic)
        state = self._states.get(topic) or self._state(topic)
        if position(event) <= state.floor:
            if execute("SELECT 1 FROM events WHERE cid = ?", (cid,)).fetchone():
                return "known"  # a head or pinned
            execute("DELETE FROM wanted WHERE parent = ?", (cid,))
            return "pruned"
        added = execute(
            "INSERT OR IGNORE INTO events (cid, topic, height, time_ms, block) "
            "VALUES (?, ?, ?, ?, ?)",
            (cid, topic, event.height, event_time(event, now_ms), event.block),
        )
        if not added.rowcount:
            return "known"
        state.events += 1
        state.bytes += len(event.block)
        for parent in event.parents:
            gone = execute("DELETE FROM heads WHERE topic = ? AND cid = ?", (topic, parent))
            if not gone.rowcount:
                self._note_gap(parent, event, topic, state.floor)
        if not execute("DELETE FROM wanted WHERE parent = ? AND topic = ?", (cid, topic)).rowcount:
            execute("INSERT INTO heads VALUES (?, ?, ?)", (topic, cid, event.height))
        return "stored"

    def _note_gap(self, parent: Cid, event: Event, topic: int, floor: Position) -> None:
        """The parent was no head: it has other children, or it is not there."""
        execute = self._database.execute
        query = "SELECT 1 FROM events WHERE cid = ? AND topic = ?"
        if execute(query, (parent, topic)).fetchone() is None and not surely_pruned(
            parent, event.height, floor
        ):
            execute("INSERT OR IGNORE INTO wanted VALUES (?, ?, ?, 0)", (parent, event.cid, topic))

    def _topic_id(self, topic: Topic) -> int:
        execute = self._database.execute
        execute("INSERT OR IGNORE INTO topics (name) VALUES (?)", (topic,))
        (number,) = execute("SELECT id FROM topics WHERE name = ?", (topic,)).fetchone()
        self._ids[topic] = number
        return int(number)

    def _state(self, topic: int) -> _TopicState:
        row = self._database.execute(
            "SELECT floor_height, floor_cid FROM topics WHERE id = ?", (topic,)
        ).fetchone()
        state = self._states[topic] = _TopicState(Position(row[0], Cid(row[1])))
        return state

    def finish(self) -> None:
        self._database.executemany(
            "UPDATE topics SET events = events + ?, bytes = bytes + ? WHERE id = ?",
            [(state.events, state.bytes, topic) for topic, state in self._states.items()],
        )


def give_up(database: sqlite3.Connection, lost: Iterable[tuple[Topic, Cid]]) -> None:
    """These parents are not missing any more: nobody has them."""
    database.executemany(
        "UPDATE wanted SET lost = 1 WHERE parent = ?2 AND topic = "
        "(SELECT id FROM topics WHERE name = ?1)",
        lost,
    )


def prune(
    database: sqlite3.Connection, topic: Topic, retention: Retention, now_ms: int, most: int
) -> int:
    """Drop the lowest events until the rest is within the limits; neither heads nor pinned ones."""
    row = database.execute(
        "SELECT id, events, bytes, floor_height, floor_cid, floor_ms FROM topics WHERE name = ?",
        (topic,),
    ).fetchone()
    if row is None:
        return 0
    number, events, size = row[:3]
    floor, floor_ms = Position(row[3], Cid(row[4])), row[5]
    oldest_ms = -1 if retention.age_ms is None else now_ms - retention.age_ms
    doomed: list[tuple[Cid]] = []
    rows = database.execute(
        "SELECT height, cid, time_ms, length(block), EXISTS (SELECT 1 FROM heads "
        "WHERE heads.topic = events.topic AND heads.cid = events.cid) OR EXISTS "
        "(SELECT 1 FROM pins WHERE pins.cid = events.cid) FROM events "
        "WHERE topic = ? ORDER BY height, cid",
        (number,),
    )
    for height, cid, time_ms, block_bytes, kept in rows:
        over = (
            (retention.events is not None and events > retention.events)
            or (retention.bytes is not None and size > retention.bytes)
            or time_ms < oldest_ms
        )
        if not over or len(doomed) >= most:
            break
        if not kept:
            doomed.append((cid,))
            events -= 1
            size -= block_bytes
            floor = max(floor, Position(height, cid))
            floor_ms = max(floor_ms, time_ms)
    rows.close()
    database.executemany("DELETE FROM events WHERE cid = ?", doomed)
    database.executemany("DELETE FROM wanted WHERE child = ?", doomed)
    database.execute(
        "UPDATE topics SET events = ?, bytes = ?, floor_height = ?, floor_cid = ?, floor_ms = ? "
        "WHERE id = ?",
        (events, size, *floor, floor_ms, number),
    )
    return len(doomed)


def contradiction(database: sqlite3.Connection) -> str | None:
    """What in the tables does not follow from the events, if anything."""
    checks = {
        "a head that is not stored": "SELECT 1 FROM heads WHERE cid NOT IN "
        "(SELECT cid FROM events WHERE events.topic = heads.topic) LIMIT 1",
        "a gap that is none": "SELECT 1 FROM wanted JOIN events ON events.cid = wanted.parent "
        "AND events.topic = wanted.topic LIMIT 1",
        "a wrong count": "SELECT 1 FROM topics WHERE (events, bytes) != (SELECT count(*), "
        "coalesce(sum(length(block)), 0) FROM events WHERE topic = topics.id) LIMIT 1",
    }
    for text, query in checks.items():
        if database.execute(query).fetchone() is not None:
            return text
    return None
