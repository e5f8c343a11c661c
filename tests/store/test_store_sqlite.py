"""The SQLite store when things go wrong: errors that say so, and no half-written block."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from signed_kit import NOW_MS, SPORTS, chain, event
from weft.store import sqlite
from weft.store.interface import (
    Batch,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
)
from weft.store.reader import read_all
from weft.store.sqlite import SqliteStore

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def opened(path: Path, bytes_max: int | None = None) -> Iterator[SqliteStore]:
    store = SqliteStore(path, bytes_max)
    try:
        yield store
    finally:
        store.close()


def change(path: Path, statement: str) -> None:
    """Somebody changes the file behind the store's back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(statement)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "store.db"


def test_a_store_is_all_there_after_a_restart(path: Path) -> None:
    events = chain(5)
    with opened(path) as store:
        store.commit([Batch(NOW_MS, tuple(events[:3] + events[4:]))])
    with opened(path) as store:
        assert store.missing(SPORTS) == [events[3].cid]
        store.commit([Batch(NOW_MS, (events[3],))])
        assert store.heads(SPORTS) == {events[4].cid: 5}
        assert store.events(SPORTS) == events
        assert store.verify() == 5


def test_a_commit_is_on_disk(path: Path, connections: list[sqlite3.Connection]) -> None:
    with opened(path):
        writer = connections[0]
        assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert writer.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_nobody_sees_what_is_not_committed(path: Path) -> None:
    one, two = chain(2)
    with opened(path) as store:
        store.commit([Batch(NOW_MS, (one,))])
        store.stage([Batch(NOW_MS, (two,))])
        assert not store.has(two.cid)
        assert store.heads(SPORTS) == {one.cid: 1}
        store.settle()
        assert store.heads(SPORTS) == {two.cid: 2}


def test_a_batch_that_fails_leaves_nothing_behind(path: Path) -> None:
    good, bad = chain(2)
    with opened(path) as store:
        with pytest.raises(StoreError):
            # A record that SQLite cannot hold, after events that it could.
            store.commit([Batch(NOW_MS, (good, bad)), Batch(NOW_MS, records=((None, None),))])  # type: ignore[arg-type]
        assert store.topics() == {}
        assert not store.has(good.cid)
        store.commit([Batch(NOW_MS, (good,))])
        assert store.heads(SPORTS) == {good.cid: 1}
        assert store.verify() == 1


def fill(store: SqliteStore) -> list[bytes]:
    """Store events until it fails; what was stored before."""
    stored: list[bytes] = []
    last = event(bytes(20_000))
    for _ in range(1_000):
        store.commit([Batch(NOW_MS, (last,))])
        stored.append(last.cid)
        last = event(bytes(20_000), last)
    raise AssertionError("it never fails")


def test_a_full_store_says_so_and_goes_on_reading(path: Path) -> None:
    with opened(path, bytes_max=400_000) as store:
        with pytest.raises(StoreFull, match="is full"):
            fill(store)
        held = [each.cid for each in read_all(store, SPORTS)]
        assert len(held) > 5
        assert store.summary(SPORTS).events == len(held)
        assert store.verify() == len(held)
        with pytest.raises(StoreFull):
            store.commit([Batch(NOW_MS, (event(bytes(300_000)),))])
        assert store.verify() == len(held)
    with opened(path) as store:  # with room again
        store.commit([Batch(NOW_MS, (event(bytes(300_000)),))])
        assert store.verify() == len(held) + 1


def test_a_disk_that_takes_no_more(path: Path) -> None:
    """The system refuses to let files grow, as a full disk does."""
    script = """
        import resource, sys
        from pathlib import Path
        from signed_kit import NOW_MS, SPORTS
        from tests.store.test_store_sqlite import fill
        from weft.store.interface import StoreError
        from weft.store.sqlite import SqliteStore
        store = SqliteStore(Path(sys.argv[1]))
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
        try:
            fill(store)
        except StoreError as error:
            print(type(error).__name__, error)
        count = store.summary(SPORTS).events
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        assert store.verify() == count > 3
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), path],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}:{ROOT / 'tests' / 'kit'}"},
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Store")
    assert str(path) in done.stdout
    with opened(path) as store:
        assert store.verify() > 3


def test_a_file_that_is_no_database(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(StoreCorrupt, match="is no weft store"):
        SqliteStore(path)
    assert path.read_bytes().startswith(b"not a database")


def test_somebody_elses_database(path: Path) -> None:
    path.parent.mkdir()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE mine (x)")
    other.close()
    with pytest.raises(StoreCorrupt, match="no weft store"):
        SqliteStore(path)


def test_a_store_of_a_newer_weft(path: Path) -> None:
    with opened(path):
        change(path, "PRAGMA user_version=99")
    with pytest.raises(StoreError, match="newer weft"):
        SqliteStore(path)


def test_damage_is_found_out(path: Path) -> None:
    events = chain(200)
    with opened(path) as store:
        store.commit([Batch(NOW_MS, tuple(events))])
    data = bytearray(path.read_bytes())
    place = data.index(events[100].block[-40:])
    data[place] ^= 0xFF  # one byte of one block
    path.write_bytes(data)
    with opened(path) as store:
        with pytest.raises(StoreCorrupt, match="is damaged"):
            store.get(events[100].cid)
        with pytest.raises(StoreCorrupt, match="is damaged"):
            store.events(SPORTS)
        with pytest.raises(StoreCorrupt, match="is damaged"):
            store.verify()
        assert store.get(events[0].cid) == events[0].block
    for start in range(4_096, len(data), 4_096):
        data[start : start + 64] = bytes(64)  # the heads of all pages
    path.write_bytes(data)
    with pytest.raises(StoreCorrupt, match=r"is damaged|malformed"), opened(path) as store:
        store.verify()


def test_contradictions_are_found_out(path: Path) -> None:
    with opened(path) as store:
        store.commit([Batch(NOW_MS, tuple(chain(3)))])
        change(path, "UPDATE topics SET events = 4")
        with pytest.raises(StoreCorrupt, match="a wrong count"):
            store.verify()


def test_a_place_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreReadOnly, match="cannot make"):
        SqliteStore(tmp_path / "file" / "store.db")
    with pytest.raises(StoreReadOnly, match="cannot be opened"):
        SqliteStore(tmp_path)  # a folder
    with pytest.raises(StoreReadOnly, match=r"cannot open store .*: File name too long"):
        SqliteStore(tmp_path / ("long" * 100))


def test_what_is_no_store_is_refused_and_left_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    notes, database, logged = (tmp_path / name for name in ("notes.txt", "other.db", "wal.db"))
    notes.write_text("not a database, and long enough to be taken for one" * 40)
    change(database, "CREATE TABLE theirs (x)")
    change(logged, "PRAGMA journal_mode=WAL")
    change(logged, "CREATE TABLE theirs (x)")
    found = {}
    for path in (notes, database, logged):
        path.chmod(0o644)
        found[path] = path.read_bytes()
        with pytest.raises(StoreCorrupt, match="no weft store"):
            SqliteStore(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o644 and path.read_bytes() == found[path]
    assert not caplog.text and set(tmp_path.iterdir()) == set(found)


def test_the_folder_of_a_store_is_made_and_none_above_it(tmp_path: Path) -> None:
    with opened(tmp_path / "new" / "store.db") as store:
        assert not store.topics()
    with pytest.raises(StoreReadOnly, match=r"there is no .*missing; make it first"):
        SqliteStore(tmp_path / "missing" / "new" / "store.db")
    assert not (tmp_path / "missing").exists()


def test_a_folder_that_may_not_be_written_to() -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        with opened(place / "store.db") as store:
            store.commit([Batch(NOW_MS, (event(),))])
        place.chmod(0o555)
        (place / "store.db").chmod(0o444)
        user = os.geteuid()
        try:
            if user == 0:  # root may write anywhere
                os.seteuid(65_534)
            with pytest.raises(StoreReadOnly, match=r"may not be written to|cannot be opened"):
                SqliteStore(place / "store.db")
            with pytest.raises(StoreReadOnly, match="cannot be opened"):
                SqliteStore(place / "new.db")
        finally:
            os.seteuid(user)
            place.chmod(0o755)
        with opened(place / "store.db") as store:
            assert store.verify() == 1


def test_one_peer_lives_with_a_store_and_others_may_look(path: Path) -> None:
    with opened(path) as store:
        store.hold()
        with opened(path) as other:
            assert other.topics() == {}
            with pytest.raises(StoreBusy, match="a peer is running already with the store"):
                other.hold()
        store.commit([Batch(NOW_MS, (event(),))])
        store.hold()  # no effect
    with opened(path) as store:
        store.hold()
        assert store.summary(SPORTS).events == 1
    assert [one.name for one in path.parent.iterdir()] == [path.name]  # the lock is gone


def test_another_process_that_does_not_let_go(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_S", 0.05)
    with opened(path) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy, match="another process"):
            store.commit([Batch(NOW_MS, (event(),))])
        assert store.topics() == {}
        other.execute("ROLLBACK")
        other.close()
        store.commit([Batch(NOW_MS, (event(),))])
        assert store.summary(SPORTS).events == 1


def test_a_store_written_before_beginnings_were_kept_is_opened(path: Path) -> None:
    with opened(path) as store:
        store.commit([Batch(NOW_MS, (event(),))])
    change(path, "DROP TABLE beginnings")
    with opened(path) as store:
        assert store.beginning(SPORTS) == b"" and store.events(SPORTS) == [event()]
        store.commit([Batch(NOW_MS, beginnings=((SPORTS, b"told"),))])
        assert store.beginning(SPORTS) == b"told"


def test_no_other_user_can_read_a_store(path: Path) -> None:
    before = os.umask(0)
    try:
        with opened(path) as store:
            store.commit([Batch(NOW_MS, (event(),))])
            files = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert files == dict.fromkeys(["store.db", "store.db-shm", "store.db-wal"], 0o600)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_new_store_at_the_end_of_a_link_is_private_from_the_first(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir()
    link = path.with_name("link.db")
    link.symlink_to(path)
    with opened(link) as store:
        store.commit([Batch(NOW_MS, (event(),))])
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not caplog.text


def test_a_store_that_others_could_read_is_made_private(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(path) as store:
        store.commit([Batch(NOW_MS, (event(),))])
    path.chmod(0o644)
    with opened(path) as store:
        assert store.verify() == 1
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "store.db had mode 0644; now only its owner can use it" in caplog.text


_LEFT_BEHIND = """
    import os, sys
    from pathlib import Path
    from signed_kit import NOW_MS, event
    from weft.store.interface import Batch
    from weft.store.sqlite import SqliteStore
    os.umask(0)
    store = SqliteStore(Path(sys.argv[1]))
    store.commit([Batch(NOW_MS, (event(),))])
    os._exit(0)  # as a crash: what is written lies in the log beside the store
"""


def leave_behind(path: Path) -> Path:
    """A process writes to a store and dies; returns the index that it leaves."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_LEFT_BEHIND), path],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests' / 'kit'}"},
        check=True,
    )
    assert done.returncode == 0
    return path.with_name(path.name + "-shm")


def test_a_read_only_index_that_a_crash_left_costs_nothing(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    index = leave_behind(path)
    index.chmod(0o444)
    with opened(path) as store:
        assert store.events(SPORTS) == [event()]
        assert stat.S_IMODE(index.stat().st_mode) == 0o600
    assert "store.db-shm had mode 0444" in caplog.text


def test_a_read_only_index_of_another_user_is_named() -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "store.db"
        index = leave_behind(place)
        user = os.geteuid()
        if user != 0:
            pytest.skip("only the administrator can take another user's place")
        for file in (place.parent, place, place.with_name("store.db-wal")):
            os.chown(file, 65_534, -1)
        index.chmod(0o444)
        try:
            os.seteuid(65_534)
            with pytest.raises(StoreReadOnly, match=r"store\.db-shm: it may not be written to"):
                SqliteStore(place)
        finally:
            os.seteuid(user)
        index.chmod(0o600)
        with opened(place) as store:  # and nothing is lost
            assert store.events(SPORTS) == [event()]


@pytest.mark.parametrize("behind", ["DROP TABLE signers", "UPDATE signers SET bytes = bytes - 1"])
def test_signers_are_counted_where_an_older_weft_has_written(path: Path, behind: str) -> None:
    with opened(path) as store:
        store.commit([Batch(NOW_MS, tuple(chain(5)))])
        counted = store.signers(SPORTS)
    change(path, behind)
    with opened(path) as store:
        assert store.signers(SPORTS) == counted and store.verify() == 5
