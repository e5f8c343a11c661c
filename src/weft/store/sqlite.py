"""A store in an SQLite file.

In WAL mode with `synchronous=FULL` a transaction is on disk when it is committed, however many
batches it holds; that is what a receipt means, and why commits are grouped (`durable`). A process
killed at any point leaves whole transactions behind. Readers have a connection of their own, see
only what is committed, and never wait for the writer.

Events lie in the order they came in, so that writing appends; one index finds them by CID, one
keeps the stream's order. Heads and gaps are tables that change with the events. Every block that
is read is hashed again, so a damaged file is found out before it is believed.

Any number of processes may read a store, but only one peer works with it (`hold`): the first peer
would not notice what a second one writes, and both would hand out the same consumer's events. The
lock is a file of its own, since SQLite's locks are released when this process closes any other
handle of the store's file.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TypeAlias, TypeVar
from urllib.parse import quote

from msgspec import Struct

from weft import private
from weft.documents.dag import surely_pruned
from weft.documents.descriptor import SealedEvent, known_event
from weft.documents.position import START, Position, position
from weft.documents.refusal import Refused
from weft.ids import Cid, PeerId, Topic, cid_of, cid_text
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
    event_time,
)

BUSY_S = 5.0
"""guess: how long to wait for another process that is writing."""


_APPLICATION = 0x77656674  # "weft"
_VERSION = 1

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
    # Not used any more; part of format 1.
    "CREATE TABLE pins (cid BLOB PRIMARY KEY) WITHOUT ROWID",
)
_ADDED_TABLES = (
    # What a peer was told when its subscription began. Files of format 1 may lack this table, and
    # an older weft leaves it alone.
    "CREATE TABLE IF NOT EXISTS beginnings (topic TEXT PRIMARY KEY, told BLOB NOT NULL) "
    "WITHOUT ROWID",
    # One row: what tells this store from others, and the number of the event stored last.
    "CREATE TABLE IF NOT EXISTS arrivals (identity BLOB NOT NULL, last INTEGER NOT NULL)",
    "INSERT INTO arrivals SELECT randomblob(16), coalesce(max(id), 0) FROM events "
    "WHERE NOT EXISTS (SELECT 1 FROM arrivals)",
    # The highest number of arrival that retention has dropped of a topic.
    "CREATE TABLE IF NOT EXISTS dropped (topic INTEGER PRIMARY KEY, arrival INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS consumers (topic TEXT, name TEXT, position TEXT NOT NULL, "
    "PRIMARY KEY (topic, name)) WITHOUT ROWID",
    # How much of each topic each publisher has signed; it follows from the events.
    "CREATE TABLE IF NOT EXISTS signers (topic INTEGER, signer BLOB, bytes INTEGER NOT NULL, "
    "PRIMARY KEY (topic, signer)) WITHOUT ROWID",
)

_ID_MAX = (1 << 63) - 1

T = TypeVar("T")
_Row: TypeAlias = tuple[Any, ...]
"""A row as the driver returns it, typed by the columns of its query."""


class SqliteStore:
    """See `interface.Store`. Any thread may call; writers take turns, so do readers."""

    def __init__(self, path: Path, bytes_max: int | None = None) -> None:
        """Open or create the store. `bytes_max` bounds the size of the file."""
        self.path = path
        self._held: BinaryIO | None = None  # the lock's file, while a peer works with this store
        self._writing, self._reading = threading.Lock(), threading.Lock()
        with self._errors("open"):
            self._look()
            _make_private(path)
            self._writer = self._connect()
            try:
                _prepare(self._writer, path, bytes_max)
                self._reader = self._connect()
                self._reader.execute("PRAGMA query_only=ON")
            except BaseException:
                self._writer.close()
                raise
        self._topic_ids: dict[Topic, int] = {}

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(
            self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )

    def _look(self) -> None:
        """Refuse a file that is no store, before anything about it is changed. SQLite reads it: if
        we opened and closed the file ourselves, this process would lose its locks on it."""
        try:
            mode = self.path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise StoreReadOnly(f"cannot open store {self.path}: {error.strerror}") from error
        if stat.S_ISDIR(mode):
            raise StoreReadOnly(f"{self.path} cannot be opened: it is a folder; name a file in it")
        # Files beside the store are another process's, or left by a crash. A connection that may
        # write would remove them when it closes, one that only reads does not.
        reading = "ro" if _files_beside(self.path)[0].exists() else "rw"
        place = f"file:{quote(os.fsencode(self.path))}?mode={reading}"
        looking = sqlite3.connect(place, uri=True, timeout=BUSY_S)
        try:
            _check_store(looking, self.path)
        except sqlite3.Error as error:
            if _code(error) not in _MENDED:
                raise
        finally:
            looking.close()

    def hold(self) -> None:
        """Take the store for one peer; `StoreBusy` if another peer on this machine has it."""
        lock = self._lock_path()
        busy = StoreBusy(
            f"a peer is running already with the store {self.path}, in this or another process; "
            "one store is one peer's: stop that one, or give this one a store of its own"
        )
        while self._held is None:
            try:
                file = private.append_to(lock, 0)
            except OSError as error:
                raise StoreReadOnly(f"cannot lock store {lock}: {error.strerror}") from error
            if not private.lock(file, lock, busy):
                return
            if _is_at(file, lock):
                self._held = file
            else:  # the peer that held it has just taken the file away
                file.close()

    def _lock_path(self) -> Path:
        path = self.path.resolve()
        return path.with_name(path.name + "-peer")

    def close(self) -> None:
        with self._writing, self._reading:
            self._reader.close()
            self._writer.close()
            if self._held is not None:
                self._lock_path().unlink(missing_ok=True)
                self._held.close()
                self._held = None

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        """SQLite's errors as the store's."""
        try:
            yield
        except sqlite3.Error as error:
            _raise(error, self.path, doing)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all that is done inside is on disk afterwards, or nothing of it."""
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
            writer = _Writer(database, self._topic_ids)
            outcomes = [writer.add_batch(batch) for batch in batches]
            writer.finish()
        return outcomes

    def settle(self) -> None:
        with self._or_undone():
            self._writer.execute("COMMIT")
        self._writing.release()

    def prune(self, topic: Topic, retention: Retention, now_ms: int, most: int = 10_000) -> int:
        with self._transaction() as database:
            dropped = _prune(database, topic, retention, now_ms, most)
        return dropped

    # --- reading ------------------------------------------------------------------------------

    def _row(self, query: str, *values: object) -> _Row | None:
        with self._read() as database:
            row: _Row | None = database.execute(query, values).fetchone()
            return row

    def _value(self, default: T, query: str, *values: object) -> T:
        """The first column of the first row; where there is none, the default."""
        row = self._row(query, *values)
        return default if row is None else row[0]

    def _rows(self, query: str, *values: object) -> list[_Row]:
        with self._read() as database:
            return database.execute(query, values).fetchall()

    def get(self, cid: Cid) -> bytes | None:
        row = self._row(
            "SELECT block FROM events WHERE cid = ? UNION ALL "
            "SELECT block FROM blocks WHERE cid = ? LIMIT 1",
            cid,
            cid,
        )
        return None if row is None else self._checked(cid, row[0])

    def has(self, cid: Cid) -> bool:
        query = "SELECT 1 FROM events WHERE cid = ? UNION ALL SELECT 1 FROM blocks WHERE cid = ?"
        return self._row(query, cid, cid) is not None

    def height(self, topic: Topic, cid: Cid) -> int | None:
        place = self._place(topic, cid)
        return None if place is None else place[0]

    def _place(self, topic: Topic, cid: Cid) -> _Row | None:
        """An event's height and its number of arrival."""
        return self._row(
            "SELECT height, events.id FROM events JOIN topics ON topics.id = events.topic "
            "WHERE cid = ? AND name = ?",
            cid,
            topic,
        )

    def heads(self, topic: Topic) -> dict[Cid, int]:
        rows = self._rows(
            "SELECT cid, height FROM heads JOIN topics ON topics.id = heads.topic "
            "WHERE name = ? ORDER BY cid",
            topic,
        )
        return {Cid(cid): height for cid, height in rows}

    def missing(self, topic: Topic, most: int = PAGE) -> list[Cid]:
        return self._wanted(topic, most, lost=False)

    def lost(self, topic: Topic, most: int = PAGE) -> list[Cid]:
        return self._wanted(topic, most, lost=True)

    def _wanted(self, topic: Topic, most: int, lost: bool) -> list[Cid]:
        rows = self._rows(
            "SELECT DISTINCT parent FROM wanted JOIN topics ON topics.id = wanted.topic "
            "WHERE name = ? AND lost = ? ORDER BY parent LIMIT ?",
            topic,
            lost,
            most,
        )
        return [Cid(parent) for (parent,) in rows]

    def events(
        self,
        topic: Topic,
        after: Position = START,
        since_ms: int = 0,
        limit: int = PAGE,
        arrived: int | None = None,
    ) -> list[SealedEvent]:
        rows = self._rows(
            "SELECT cid, block FROM events WHERE topic = (SELECT id FROM topics WHERE name = ?) "
            "AND (height, cid) > (?, ?) AND time_ms >= ? AND id <= ? ORDER BY height, cid LIMIT ?",
            topic,
            *after,
            since_ms,
            _ID_MAX if arrived is None else arrived,
            limit,
        )
        return [known_event(self._checked(cid, block), cid) for cid, block in rows]

    def identity(self) -> bytes:
        return self._arrivals()[0]

    def last_arrival(self) -> int:
        return self._arrivals()[1]

    def _arrivals(self) -> tuple[bytes, int]:
        row = self._row("SELECT identity, last FROM arrivals")
        assert row is not None
        return row[0], row[1]

    def arrivals(
        self, topic: Topic, after: int, limit: int = PAGE
    ) -> list[tuple[int, SealedEvent]]:
        rows = self._rows(
            "SELECT id, cid, block FROM events "
            "WHERE topic = (SELECT id FROM topics WHERE name = ?) AND id > ? ORDER BY id LIMIT ?",
            topic,
            after,
            limit,
        )
        return [(number, known_event(self._checked(cid, one), cid)) for number, cid, one in rows]

    def arrival(self, topic: Topic, cid: Cid) -> int | None:
        place = self._place(topic, cid)
        return None if place is None else place[1]

    def dropped(self, topic: Topic) -> int:
        query = "SELECT arrival FROM dropped WHERE topic = (SELECT id FROM topics WHERE name = ?)"
        return self._value(0, query, topic)

    def acked(self, topic: Topic, consumer: str) -> str:
        query = "SELECT position FROM consumers WHERE topic = ? AND name = ?"
        return self._value("", query, topic, consumer)

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

    def signer_bytes(self, topic: Topic, signer: PeerId) -> int:
        query = (
            "SELECT signers.bytes FROM signers JOIN topics ON topics.id = signers.topic "
            "WHERE name = ? AND signer = ?"
        )
        return self._value(0, query, topic, signer)

    def signers(self, topic: Topic, most: int = PAGE) -> list[tuple[PeerId, int]]:
        rows = self._rows(
            "SELECT signer, signers.bytes FROM signers JOIN topics ON topics.id = signers.topic "
            "WHERE name = ? ORDER BY signers.bytes DESC, signer LIMIT ?",
            topic,
            most,
        )
        return [(PeerId(signer), size) for signer, size in rows]

    def beginning(self, topic: Topic) -> bytes:
        return self._value(b"", "SELECT told FROM beginnings WHERE topic = ?", topic)

    def records(self) -> dict[bytes, bytes]:
        return dict(self._rows("SELECT name, record FROM records ORDER BY name"))

    def verify(self) -> int:
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
            wrong = _contradiction(database)
            if wrong:
                raise StoreCorrupt(f"{self.path} contradicts itself: {wrong}")
        return done


def _summary(row: _Row) -> Summary:
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


_MENDED = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)
"""Errors that may end once the store's files are private; one that stays is raised afterwards."""


def _make_private(path: Path) -> None:
    """Make the store's files readable and writable by their owner, and by nobody else.
    SQLite gives the files beside the store the store's own mode. One that a crash left behind may
    have another, and a -shm that may not be written would make the whole store read-only."""
    above = path.parent.parent
    if not above.exists():  # more than one folder is missing: more likely a slip of the pen
        raise StoreReadOnly(f"cannot make {path.parent}: there is no {above}; make it first")
    try:
        private.make_folder(path.parent)
    except OSError as error:
        raise StoreReadOnly(f"cannot make {path.parent}: {error.strerror}") from error
    with suppress(OSError):  # SQLite names the error better, or needs only to read
        private.make_file(path.resolve())  # where a link leads, there may be nothing yet
    for beside in _files_beside(path):
        private.tighten(beside, writable=True)


def _is_at(file: BinaryIO, path: Path) -> bool:
    """Whether an open file still has its name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _files_beside(path: Path) -> list[Path]:
    """SQLite's log of writes that are not in the store's file yet, and the log's index."""
    return [path.with_name(path.name + end) for end in ("-wal", "-shm")]


def _raise(error: sqlite3.Error, path: Path, doing: str) -> NoReturn:
    kind, text = _KINDS.get(_code(error), (StoreError, ""))
    for one in [path, *_files_beside(path)] if kind is StoreReadOnly else ():
        if one.exists() and not os.access(one, os.W_OK, effective_ids=True):
            path, text = one, "may not be written to; let this user write it, and try again"
    raise kind(f"cannot {doing} store {path}: it {text or 'failed'} ({error})") from error


def _code(error: sqlite3.Error) -> int:
    """The primary code."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


# --- the tables, and what changes them inside a transaction ---------------------------------------


def _prepare(database: sqlite3.Connection, path: Path, bytes_max: int | None) -> None:
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
        if not _check_store(database, path):
            for statement in _TABLES:
                database.execute(statement)
            database.execute(f"PRAGMA application_id={_APPLICATION}")
            database.execute(f"PRAGMA user_version={_VERSION}")
        for statement in _ADDED_TABLES:
            database.execute(statement)
        _count_signers(database)
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _check_store(database: sqlite3.Connection, path: Path) -> bool:
    """Whether there is a store; False if there is nothing, an error if it is anything else."""
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    (tables,) = database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if not tables:
        return False
    if application != _APPLICATION:
        raise StoreCorrupt(f"{path} is a database, but no weft store")
    if version > _VERSION:
        raise StoreError(f"{path} was written by a newer weft (format {version})")
    return True


def _count_signers(database: sqlite3.Connection) -> None:
    """Count each signer's bytes anew in topics that an older weft, which does not count them, has
    written to."""
    uncounted = database.execute(
        "SELECT id FROM topics WHERE bytes != "
        "(SELECT coalesce(sum(bytes), 0) FROM signers WHERE signers.topic = topics.id)"
    ).fetchall()
    for (topic,) in uncounted:
        sizes: Counter[bytes] = Counter()
        for cid, block in database.execute(
            "SELECT cid, block FROM events WHERE topic = ?", (topic,)
        ):
            sizes[_signer(cid, block)] += len(block)
        database.execute("DELETE FROM signers WHERE topic = ?", (topic,))
        database.executemany(
            "INSERT INTO signers VALUES (?, ?, ?)",
            [(topic, signer, size) for signer, size in sizes.items()],
        )


def _signer(cid: Cid, block: bytes) -> bytes:
    """The publisher of a stored event; nobody, if the block is damaged."""
    try:
        return known_event(block, cid).publisher
    except Refused:
        return b""


class _TopicState(Struct):
    """The changes of one transaction to a topic's row, written once at its end."""

    floor: Position
    signers: dict[bytes, int]
    events: int = 0
    bytes: int = 0


class _Writer:
    """Adds batches in one transaction."""

    def __init__(self, database: sqlite3.Connection, topic_ids: dict[Topic, int]) -> None:
        self._database = database
        self._ids = topic_ids
        self._states: dict[int, _TopicState] = {}
        (self._arrived,) = database.execute("SELECT last FROM arrivals").fetchone()

    def add_batch(self, batch: Batch) -> list[Outcome]:
        if batch.topics:
            self._database.executemany(
                "INSERT OR IGNORE INTO blocks VALUES (?, ?)",
                [(version.cid, version.block) for version in batch.topics],
            )
        for statement, rows in (
            ("INSERT OR REPLACE INTO records VALUES (?, ?)", batch.records),
            ("INSERT OR REPLACE INTO beginnings VALUES (?, ?)", batch.beginnings),
            ("INSERT OR REPLACE INTO consumers VALUES (?, ?, ?)", batch.acks),
        ):
            if rows:
                self._database.executemany(statement, rows)
        outcomes = [self._add(event, batch.now_ms) for event in batch.events]
        if batch.lost:
            _give_up(self._database, batch.lost)
        return outcomes

    def _add(self, event: SealedEvent, now_ms: int) -> Outcome:
        execute = self._database.execute
        cid = event.cid
        topic = self._ids.get(event.topic) or self._topic_id(event.topic)
        state = self._states.get(topic) or self._state(topic)
        if position(event) <= state.floor:
            if execute("SELECT 1 FROM events WHERE cid = ?", (cid,)).fetchone():
                return "known"  # a head
            execute("DELETE FROM wanted WHERE parent = ? AND topic = ?", (cid, topic))
            return "pruned"
        added = execute(
            "INSERT OR IGNORE INTO events (id, cid, topic, height, time_ms, block) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (
                self._arrived + 1,  # SQLite would give a number again that was dropped
                cid,
                topic,
                event.height,
                event_time(event, now_ms),
                event.block,
            ),
        )
        if not added.rowcount:
            return "known"
        self._arrived += 1
        size = len(event.block)
        state.events += 1
        state.bytes += size
        state.signers[event.publisher] = state.signers.get(event.publisher, 0) + size
        for parent in event.parents:
            gone = execute("DELETE FROM heads WHERE topic = ? AND cid = ?", (topic, parent))
            if not gone.rowcount:
                self._note_gap(parent, event, topic, state.floor)
        if not execute("DELETE FROM wanted WHERE parent = ? AND topic = ?", (cid, topic)).rowcount:
            execute("INSERT INTO heads VALUES (?, ?, ?)", (topic, cid, event.height))
        return "stored"

    def _note_gap(self, parent: Cid, event: SealedEvent, topic: int, floor: Position) -> None:
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
        state = self._states[topic] = _TopicState(Position(row[0], Cid(row[1])), {})
        return state

    def finish(self) -> None:
        self._database.executemany(
            "UPDATE topics SET events = events + ?, bytes = bytes + ? WHERE id = ?",
            [(state.events, state.bytes, topic) for topic, state in self._states.items()],
        )
        self._database.execute("UPDATE arrivals SET last = ?", (self._arrived,))
        self._database.executemany(
            "INSERT INTO signers VALUES (?, ?, ?) "
            "ON CONFLICT (topic, signer) DO UPDATE SET bytes = bytes + excluded.bytes",
            [
                (topic, signer, size)
                for topic, state in self._states.items()
                for signer, size in state.signers.items()
            ],
        )


def _give_up(database: sqlite3.Connection, lost: Iterable[tuple[Topic, Cid]]) -> None:
    """These parents are not missing any more: no peer has them."""
    database.executemany(
        "UPDATE wanted SET lost = 1 WHERE topic = (SELECT id FROM topics WHERE name = ?) "
        "AND parent = ?",
        lost,
    )


def _prune(
    database: sqlite3.Connection, topic: Topic, retention: Retention, now_ms: int, most: int
) -> int:
    """Drop the lowest events until the rest is within the limits, but no heads."""
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
    freed: Counter[bytes] = Counter()
    rows = database.execute(
        "SELECT id, height, cid, time_ms, block, EXISTS (SELECT 1 FROM heads "
        "WHERE heads.topic = events.topic AND heads.cid = events.cid) FROM events "
        "WHERE topic = ? ORDER BY height, cid",
        (number,),
    )
    latest = 0
    for arrival, height, cid, time_ms, block, kept in rows:
        over = (
            (retention.events is not None and events > retention.events)
            or (retention.bytes is not None and size > retention.bytes)
            or time_ms < oldest_ms
        )
        if not over or len(doomed) >= most:
            break
        if not kept:
            doomed.append((cid,))
            latest = max(latest, arrival)
            events -= 1
            size -= len(block)
            freed[_signer(cid, block)] += len(block)
            floor = max(floor, Position(height, cid))
            floor_ms = max(floor_ms, time_ms)
    rows.close()
    database.execute(
        "INSERT INTO dropped VALUES (?, ?) "
        "ON CONFLICT (topic) DO UPDATE SET arrival = max(arrival, excluded.arrival)",
        (number, latest),
    )
    database.executemany("DELETE FROM events WHERE cid = ?", doomed)
    database.executemany("DELETE FROM wanted WHERE child = ?", doomed)
    database.executemany(
        "UPDATE signers SET bytes = bytes - ? WHERE topic = ? AND signer = ?",
        [(bytes_freed, number, signer) for signer, bytes_freed in freed.items()],
    )
    database.execute("DELETE FROM signers WHERE topic = ? AND bytes <= 0", (number,))
    database.execute(
        "UPDATE topics SET events = ?, bytes = ?, floor_height = ?, floor_cid = ?, floor_ms = ? "
        "WHERE id = ?",
        (events, size, *floor, floor_ms, number),
    )
    return len(doomed)


def _contradiction(database: sqlite3.Connection) -> str | None:
    """A text about the first row of the tables that contradicts the events; None: there is none."""
    checks = {
        "a head that is not stored": "SELECT 1 FROM heads WHERE cid NOT IN "
        "(SELECT cid FROM events WHERE events.topic = heads.topic) LIMIT 1",
        "a gap that is none": "SELECT 1 FROM wanted JOIN events ON events.cid = wanted.parent "
        "AND events.topic = wanted.topic LIMIT 1",
        "a wrong count": "SELECT 1 FROM topics WHERE (events, bytes) != (SELECT count(*), "
        "coalesce(sum(length(block)), 0) FROM events WHERE topic = topics.id) LIMIT 1",
        "a wrong count of a signer": "SELECT 1 FROM topics WHERE bytes != (SELECT "
        "coalesce(sum(bytes), 0) FROM signers WHERE topic = topics.id) LIMIT 1",
    }
    for text, query in checks.items():
        if database.execute(query).fetchone() is not None:
            return text
    return None
