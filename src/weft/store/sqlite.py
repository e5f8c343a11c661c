"""A store in an SQLite file.

In WAL mode with `synchronous=FULL` a transaction is on disk when it is committed, however many
batches it holds; that is what a receipt means, and why commits are grouped (`durable`). A process
killed at any point leaves whole transactions behind. Readers have a connection of their own, see
only what is committed, and never wait for the writer.

Events lie in the order they came in, so that writing appends; one index finds them by CID, one
keeps the stream's order. Heads and gaps are tables that change with the events. Every block that
is read is hashed again, so a damaged file is found out before it is believed.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from weft.documents.dag import START, Position
from weft.documents.descriptor import Event, known_event
from weft.ids import Cid, Topic, cid_of, cid_text
from weft.store import tables
from weft.store.interface import (
    PAGE,
    Batch,
    Outcome,
    Retention,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    Summary,
)

_BUSY_S = 5.0
"""guess: how long to wait for another process that is writing."""


class SqliteStore:
    """See `interface.Store`. Any thread may call; writers take turns, so do readers."""

    def __init__(self, path: Path, bytes_max: int | None = None) -> None:
        """Open or create the store. `bytes_max` bounds the file, beside what the disk does."""
        self.path = path
        self._writing, self._reading = threading.Lock(), threading.Lock()
        with self._errors("open"):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StoreReadOnly(f"cannot make {path.parent}: {error.strerror}") from error
            self._writer = self._connect()
            try:
                tables.prepare(self._writer, path, bytes_max)
                self._reader = self._connect()
                self._reader.execute("PRAGMA query_only=ON")
            except BaseException:
                self._writer.close()
                raise
        self._topic_ids: dict[Topic, int] = {}

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(
            self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
        )

    def close(self) -> None:
        with self._writing, self._reading:
            self._reader.close()
            self._writer.close()

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        """SQLite's errors as the store's."""
        try:
            yield
        except sqlite3.Error as error:
            _raise(error, self.path, doing)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All of what is done inside, on disk, or nothing of it."""
        with self._staging() as database:
            yield database
        self.settle()

    @contextmanager
    def _staging(self) -> Iterator[sqlite3.Connection]:
        """A transaction that stays open, with the writers' lock held, until it is settled; if what
        is done inside fails, neither stays."""
        self._writing.acquire()
        with self._or_undone():
            self._writer.execute("BEGIN IMMEDIATE")
            yield self._writer

    @contextmanager
    def _or_undone(self) -> Iterator[None]:
        """Undo the transaction and let go of the lock if what is done inside fails."""
        try:
            with self._errors("write to"):
                yield
        except BaseException:
            # Ids of topics that were new in this transaction are gone with it.
            self._topic_ids.clear()
            try:
                with self._errors("undo a write to"):
                    if self._writer.in_transaction:
                        self._writer.execute("ROLLBACK")
            finally:
                self._writing.release()
            raise

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        with self._reading, self._errors("read"):
            yield self._reader

    # --- writing ------------------------------------------------------------------------------

    def commit(self, batches: Sequence[Batch]) -> list[list[Outcome]]:
        outcomes = self.stage(batches)
        self.settle()
        return outcomes

    def stage(self, batches: Sequence[Batch]) -> list[list[Outcome]]:
        with self._staging() as database:
            writer = tables.Writer(database, self._topic_ids)
            outcomes = [writer.add_batch(batch) for batch in batches]
            writer.finish()
        return outcomes

    def settle(self) -> None:
        with self._or_undone():
            self._writer.execute("COMMIT")
        self._writing.release()

    def pin(self, cids: Iterable[Cid]) -> None:
        with self._transaction() as database:
            database.executemany("INSERT OR IGNORE INTO pins VALUES (?)", [(cid,) for cid in cids])

    def unpin(self, cids: Iterable[Cid]) -> None:
        with self._transaction() as database:
            database.executemany("DELETE FROM pins WHERE cid = ?", [(cid,) for cid in cids])

    def give_up(self, topic: Topic, cids: Iterable[Cid]) -> None:
        with self._transaction() as database:
            tables.give_up(database, [(topic, cid) for cid in cids])

    def prune(self, topic: Topic, retention: Retention, now_ms: int, most: int = 10_000) -> int:
        with self._transaction() as database:
            dropped = tables.prune(database, topic, retention, now_ms, most)
        return dropped

    # --- reading ------------------------------------------------------------------------------

    def _row(self, query: str, *values: object) -> tuple[Any, ...] | None:
        with self._read() as database:
            row: tuple[Any, ...] | None = database.execute(query, values).fetchone()
            return row

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._read() as database:
            return database.execute(query, values).fetchall()

    def get(self, cid: Cid) -> bytes | None:
        row = self._row(
            "SELECT block FROM events WHERE cid = ?1 UNION ALL "
            "SELECT block FROM blocks WHERE cid = ?1 LIMIT 1",
            cid,
        )
        return None if row is None else self._checked(cid, row[0])

    def has(self, cid: Cid) -> bool:
        query = "SELECT 1 FROM events WHERE cid = ?1 UNION ALL SELECT 1 FROM blocks WHERE cid = ?1"
        return self._row(query, cid) is not None

    def height(self, topic: Topic, cid: Cid) -> int | None:
        row = self._row(
            "SELECT height FROM events JOIN topics ON topics.id = events.topic "
            "WHERE cid = ? AND name = ?",
            cid,
            topic,
        )
        return None if row is None else row[0]

    def heads(self, topic: Topic) -> dict[Cid, int]:
        rows = self._rows(
            "SELECT cid, height FROM heads JOIN topics ON topics.id = heads.topic "
            "WHERE name = ? ORDER BY cid",
            topic,
        )
        return {Cid(cid): height for cid, height in rows}

    def missing(self, topic: Topic, most: int = PAGE) -> list[Cid]:
        rows = self._rows(
            "SELECT DISTINCT parent FROM wanted JOIN topics ON topics.id = wanted.topic "
            "WHERE name = ? AND NOT lost ORDER BY parent LIMIT ?",
            topic,
            most,
        )
        return [Cid(parent) for (parent,) in rows]

    def events(
        self, topic: Topic, after: Position = START, since_ms: int = 0, limit: int = PAGE
    ) -> list[Event]:
        rows = self._rows(
            "SELECT cid, block FROM events WHERE topic = (SELECT id FROM topics WHERE name = ?) "
            "AND (height, cid) > (?, ?) AND time_ms >= ? ORDER BY height, cid LIMIT ?",
            topic,
            *after,
            since_ms,
            limit,
        )
        return [known_event(self._checked(cid, block), cid) for cid, block in rows]

    def downwards(self, topic: Topic, start: Position) -> Iterator[tuple[Cid, tuple[Cid, ...]]]:
        before = Position(start.height, Cid(start.cid + b"\0"))  # just above: start is included
        while True:
            rows = self._rows(
                "SELECT height, cid, block FROM events "
                "WHERE topic = (SELECT id FROM topics WHERE name = ?) "
                "AND (height, cid) < (?, ?) ORDER BY height DESC, cid DESC LIMIT ?",
                topic,
                *before,
                PAGE,
            )
            for _, cid, block in rows:
                yield cid, known_event(self._checked(cid, block), cid).parents
            if len(rows) < PAGE:
                return
            before = Position(*rows[-1][:2])

    def _checked(self, cid: Cid, block: bytes) -> bytes:
        if cid_of(block) != cid:
            raise StoreCorrupt(f"{self.path}: the block of {cid_text(cid)} is damaged")
        return block

    def topics(self) -> dict[Topic, Summary]:
        rows = self._rows(
            "SELECT name, events, bytes, floor_ms, floor_height, floor_cid "
            "FROM topics ORDER BY name"
        )
        return {Topic(row[0]): _summary(row[1:]) for row in rows}

    def summary(self, topic: Topic) -> Summary:
        row = self._row(
            "SELECT events, bytes, floor_ms, floor_height, floor_cid FROM topics WHERE name = ?",
            topic,
        )
        return Summary() if row is None else _summary(row)

    def record(self, name: bytes) -> bytes | None:
        row = self._row("SELECT record FROM records WHERE name = ?", name)
        return None if row is None else row[0]

    def records(self) -> dict[bytes, bytes]:
        return dict(self._rows("SELECT name, record FROM records ORDER BY name"))

    def pins(self) -> list[Cid]:
        return [Cid(cid) for (cid,) in self._rows("SELECT cid FROM pins ORDER BY cid")]

    def verify(self, progress: Callable[[int], None] = lambda done: None) -> int:
        """Read everything and check it: the file, every block, heads and counts. How many blocks
        there are; `StoreCorrupt` at the first thing wrong."""
        with self._read() as database:
            (found,) = database.execute("PRAGMA integrity_check(1)").fetchone()
            if found != "ok":
                raise StoreCorrupt(f"{self.path} is damaged: {found}")
            done = 0
            query = "SELECT cid, block FROM blocks UNION ALL SELECT cid, block FROM events"
            for cid, block in database.execute(query):
                self._checked(cid, block)
                done += 1
                if done % PAGE == 0:
                    progress(done)
            wrong = tables.contradiction(database)
            if wrong:
                raise StoreCorrupt(f"{self.path} contradicts itself: {wrong}")
        return done


def _summary(row: tuple[Any, ...]) -> Summary:
    events, size, floor_ms, floor_height, floor_cid = row
    return Summary(events, size, Position(floor_height, Cid(floor_cid)), floor_ms)


_KINDS: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_FULL: (StoreFull, "is full; make room or lower the retention"),
    sqlite3.SQLITE_CORRUPT: (StoreCorrupt, "is damaged; restore it, or move it away"),
    sqlite3.SQLITE_NOTADB: (StoreCorrupt, "is no weft store"),
    sqlite3.SQLITE_READONLY: (StoreReadOnly, "may not be written to"),
    sqlite3.SQLITE_CANTOPEN: (StoreReadOnly, "cannot be opened; look at its folder"),
    sqlite3.SQLITE_PERM: (StoreReadOnly, "may not be written to"),
    sqlite3.SQLITE_BUSY: (StoreBusy, "is held by another process"),
    sqlite3.SQLITE_LOCKED: (StoreBusy, "is held by another process"),
    sqlite3.SQLITE_IOERR: (StoreError, "cannot be read or written; look at the disk"),
}


def _raise(error: sqlite3.Error, path: Path, doing: str) -> NoReturn:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary code
    kind, text = _KINDS.get(code, (StoreError, ""))
    raise kind(f"cannot {doing} store {path}: it {text or 'failed'} ({error})") from error
