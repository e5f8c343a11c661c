"""What `--since` means, and what commands about history say when something is missing."""

from __future__ import annotations

import argparse
import socket
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import pytest

from weft.cli import get, store, topic
from weft.cli.main import main
from weft.cli.problem import FAILED, USAGE, Problem
from weft.ids import cid_of, cid_text
from weft.store import car
from weft.store.sqlite import SqliteStore

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


class _Stopped(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> _Stopped:
        return cls.fromtimestamp(NOW.timestamp(), tz)


def test_since(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "datetime", _Stopped)
    assert store.since("beginning") == "beginning"
    cid = cid_text(cid_of(b"block"))
    assert store.since(cid) == cid
    assert store.reading_since(store.since(cid)) == cid_of(b"block")
    assert store.since("90m") == NOW - timedelta(minutes=90)
    when = store.since("2026-03-01T12:00+00:00")
    assert store.reading_since(when) == 1_772_366_400_000
    assert store.reading_since(None) == "beginning"
    with pytest.raises(argparse.ArgumentTypeError, match="neither 'beginning'"):
        store.since("yesterday")


CID = cid_text(cid_of(b"block"))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["history"], USAGE, "there is no store at"),
        (["export", "/a", "a.car"], USAGE, "there is no store at"),
        (["get", CID], USAGE, "there is no store at"),
        (["import", "no-such.car"], FAILED, "no-such.car"),
        (["topic", "show", "/a"], FAILED, "start one with 'weft peer'"),
        (["topic", "allow", "/a"], USAGE, "at least one peer id"),
        (["topic", "add", "/a"], USAGE, "one name"),
        (["topic", "ask", "/a"], USAGE, "one name"),
        (["topic", "ask", "/a", "b"], FAILED, "start one with 'weft peer'"),
        (["get", "rubbish"], USAGE, "a merkle path starts with a CID"),
        (["get", "/rubbish/payload", "--store", "none.db"], USAGE, "starts with a CID"),
        (["topic", "show", "/a", "x"], USAGE, "takes only the topic"),
        (["topic", "allow", "/a", "x", "--owner", "y"], USAGE, "--owner is for create"),
        (["topic", "show", "/a", "--anyone"], USAGE, "--anyone is for"),
        (["topic", "paint", "/a"], USAGE, "invalid choice"),
        (["topic", "name", "/a", "x"], USAGE, "takes only the topic"),
        (["topic", "show", "/~a/orders"], USAGE, "owner's peer id must follow"),
        (["sub", "/a", "--since", "yesterday"], USAGE, "neither 'beginning'"),
        (["sub", "/a", "--store", "x"], USAGE, "--store goes with --join"),
    ],
)
def test_what_is_missing_is_named(
    arguments: list[str],
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WEFT_HOME", str(tmp_path))
    try:
        found = main(arguments)
    except SystemExit as ended:
        found = int(str(ended.code))
    captured = capsys.readouterr()
    assert said in captured.err and "Traceback" not in captured.err
    assert found == code


def test_a_file_that_is_no_store_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to look into" * 40)
    assert main(["history", "--store", str(path)]) == FAILED
    assert "is no weft store" in capsys.readouterr().err
    assert main(["import", str(path), "--store", str(tmp_path / "new.db")]) == FAILED
    assert "notes.txt" in capsys.readouterr().err


def test_a_socket_that_a_killed_peer_left_is_no_running_peer(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_HOME", str(tmp_path))
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "control.sock"))
    archive = tmp_path / "a.car"
    archive.write_bytes(b"".join(car.encode((), ())))
    assert main(["import", str(archive)]) == 0
    assert capsys.readouterr().out.startswith("0 events stored")
    assert main(["get", CID]) == FAILED
    assert "no peer answers" not in capsys.readouterr().err


def test_nothing_is_imported_into_the_store_of_a_running_peer(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    archive, path = tmp_path / "a.car", tmp_path / "store.db"
    archive.write_bytes(b"".join(car.encode((), ())))
    lived_with = SqliteStore(path)
    lived_with.hold()
    assert main(["import", str(archive), "--store", str(path)]) == FAILED
    assert "stop it first" in capsys.readouterr().err
    lived_with.close()
    assert main(["import", str(archive), "--store", str(path)]) == 0


def test_an_empty_store_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    SqliteStore(path).close()
    assert main(["history", "--store", str(path)]) == 0
    assert capsys.readouterr().out == "nothing is stored\n"
    assert main(["history", "/a", "--store", str(path)]) == 0
    assert "nothing is stored of /a" in capsys.readouterr().err
    assert main(["export", "/a", str(tmp_path / "a.car"), "--store", str(path)]) == FAILED
    assert "nothing is stored of /a" in capsys.readouterr().err
    assert not list(tmp_path.glob("a.car*"))


def test_raw_values() -> None:
    assert get.raw("text") == b"text"
    assert get.raw({"/": {"bytes": "AP8"}}) == b"\x00\xff"
    with pytest.raises(Problem, match="neither"):
        get.raw({"name": "x"})


def test_an_owner_is_described_in_words() -> None:
    info = {
        "topic": "/a",
        "cid": "bafy2",
        "owners": ["anna"],
        "publishers": None,
        "sub_topics": {"b": "bafy3"},
        "parent": "",
        "sequence": 1,
        "record": "bafz",
        "mine": False,
        "hierarchy": "/a",
        "asked": {"tennis": "ben"},
    }
    text = topic.in_words(info)
    assert "/a: events count in the topics above" in text
    assert "tennis  by ben" in text
    assert "anyone" in text and "it is the first" in text and "b  bafy3" in text


def test_topics_without_a_version_in_words() -> None:
    text = topic.unknown_in_words("/a", [["12D3a", "12D3b"], ["12D3c"]])
    assert text.splitlines() == [
        "nobody is known to own /a",
        "claimed by 12D3a, 12D3b: weft topic follow /a 12D3a 12D3b",
        "claimed by 12D3c: weft topic follow /a 12D3c",
    ]
    assert "belongs to 12D3x, as its name says" in topic.unknown_in_words("/~12D3x/orders", [])
    assert topic.unknown_in_words("/a", [["12D3c"]], ["12D3a", "12D3b"]).splitlines() == [
        "/a is believed to be owned by 12D3a, 12D3b; no version of it is known yet",
        "/a is claimed by 12D3c; that is not believed here",
    ]


def test_following_says_what_is_known() -> None:
    unknown = topic.followed_in_words("/a", ["12D3a", "12D3b"], None)
    assert unknown.startswith("from now on only 12D3a, 12D3b own /a; no version of it is known yet")
    assert topic.rivals_in_words("/a", [["12D3c", "12D3d"]]) == [
        "/a is claimed by 12D3c, 12D3d; that is not believed here"
    ]
