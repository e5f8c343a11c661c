"""What is written is for its owner alone, and what is run lies where nobody else can put it."""

from __future__ import annotations

import os
import stat
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft import private
from weft.cli.settings import own_home_of
from weft.ids import PeerId
from weft.net.tracer import Tracer
from weft.pipeline.traces.forms import Form, convert


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_that_are_made_are_private_and_others_stay(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(0o755)
    private.make_folder(shared / "one" / "two")
    private.make_folder(shared / "one" / "two")
    assert mode(shared / "one") == mode(shared / "one" / "two") == 0o700
    assert mode(shared) == 0o755


def test_a_trace_is_private_also_where_one_was_open_before(tmp_path: Path) -> None:
    fresh, old = tmp_path / "fresh.jsonl", tmp_path / "old.jsonl"
    old.write_bytes(b"{}\n")
    for path in (fresh, old):
        Tracer(PeerId(bytes(32)), path).close()
        assert mode(path) == 0o600
    assert old.read_bytes() == b"{}\n"


def test_what_is_written_anew_is_private_also_where_it_was_open_before(tmp_path: Path) -> None:
    fresh, old = tmp_path / "fresh.jsonl", tmp_path / "old.jsonl"
    old.write_bytes(b"longer than what follows")
    for path in (fresh, old):
        with private.begin_anew(path) as file:
            file.write(b"new")
        assert (mode(path), path.read_bytes()) == (0o600, b"new")


def test_a_converted_trace_is_private_and_follows_no_link_of_others(tmp_path: Path) -> None:
    """Another user of the folder guesses how a half-written file is called."""
    source, target, victim = tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "victim"
    source.touch()
    victim.write_bytes(b"precious")
    (tmp_path / "b.jsonl.part").symlink_to(victim)
    convert(source, target, Form.WEFT, lambda records, done: None)
    assert mode(target) == 0o600
    assert victim.read_bytes() == b"precious"


def test_a_draft_that_fails_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"before")
    with pytest.raises(RuntimeError), private.draft_of(target, replace=True) as file:
        file.write(b"half")
        raise RuntimeError
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("target", b"before")]


def test_a_device_is_written_to_and_a_pipe_refused(tmp_path: Path) -> None:
    """A program of root's that writes to /dev/null must not put a file in its place."""
    before = Path(os.devnull).stat()
    with private.draft_of(Path(os.devnull), replace=True) as file:
        file.write(b"nothing")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)
    assert Path(os.devnull).stat().st_ino == before.st_ino
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(FileExistsError), private.draft_of(pipe, replace=True):
        pass
    assert pipe.is_fifo()


def test_what_its_owner_may_not_write_stays_so_unless_it_must_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    file.chmod(0o444)
    private.tighten(file)
    assert mode(file) == 0o400
    private.tighten(file, writable=True)
    assert mode(file) == 0o600
    private.tighten(tmp_path / "missing")
    private.tighten(Path(os.devnull))
    assert mode(Path(os.devnull)) & 0o066


def test_a_program_must_lie_where_only_its_user_writes(tmp_path: Path) -> None:
    place = tmp_path / "a" / "b"
    place.mkdir(0o755, parents=True)
    (tmp_path / "a").chmod(0o755)
    program = place / "program"
    program.touch(0o755)
    assert private.stranger_on_the_way(program) is None
    assert private.stranger_on_the_way(place / "not yet there") is None
    for open_to_others in (0o777, 0o757):
        place.chmod(open_to_others)
        assert private.stranger_on_the_way(program) == place
    place.chmod(0o1777)  # as /tmp: others cannot touch what is not theirs
    assert private.stranger_on_the_way(program) is None
    program.chmod(0o666)
    assert private.stranger_on_the_way(program) == program
    place.chmod(0o755)
    program.chmod(0o755)
    (tmp_path / "a").chmod(0o777)
    assert private.stranger_on_the_way(program) == tmp_path / "a"


@pytest.mark.skipif(os.getuid() != 0, reason="only the administrator can give files away")
def test_what_another_user_owns_is_not_trusted(tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    planted.mkdir(0o755)
    os.chown(planted, 65_534, -1)
    assert private.stranger_on_the_way(planted / "java") == planted
    theirs = tmp_path / "group"
    theirs.mkdir(0o775)
    assert private.stranger_on_the_way(theirs) is None
    os.chown(theirs, -1, 4_242)
    theirs.chmod(0o775)
    assert private.stranger_on_the_way(theirs) == theirs


def test_the_usual_home_is_closed_and_one_that_is_named_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WEFT_HOME", raising=False)
    usual, named = tmp_path / ".weft", tmp_path / "named"
    for folder in (usual, named):
        folder.mkdir(0o755)
    assert own_home_of(Namespace(home=None)) == usual and mode(usual) == 0o700
    assert f"{usual} was open to others" in caplog.text
    assert own_home_of(Namespace(home=named)) == named and mode(named) == 0o755
    private.close_folder(tmp_path / "missing")
