"""What others wrote never reaches a terminal as something that it obeys."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from signed_kit import NOW_MS, SPORTS, event
from weft.cli import output, topic
from weft.cli.main import main
from weft.store.interface import Batch
from weft.store.sqlite import SqliteStore
from weft.terminal import printable

ROOT = Path(__file__).resolve().parents[2]
EVIL = b"\x1b]0;owned\x07\x1b[2Jhi\n\xc2\x9b31m \x9b \xe2\x80\xae"
"""Sets the title, clears the screen, begins another line, a colour in eight bits, backwards."""
SHOWN = rb"\x1b]0;owned\x07\x1b[2Jhi\n\x9b31m \x9b \u202e"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    opened = SqliteStore(path)
    opened.commit([Batch(NOW_MS, (event(EVIL),))])
    opened.close()
    return path


def on_a_terminal(*arguments: str) -> bytes:
    """What a terminal is sent by a command."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "weft.cli.main", *arguments]
    with subprocess.Popen(
        command, stdout=theirs, stderr=theirs, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}
    ) as process:
        os.close(theirs)
        said = b""
        try:
            while piece := os.read(ours, 4_096):
                said += piece
        except OSError:
            pass  # how a terminal without a writer ends
        finally:
            os.close(ours)
    assert process.returncode == 0, said
    return said


def test_a_terminal_is_not_told_what_to_do(store: Path) -> None:
    assert on_a_terminal("history", SPORTS, "--store", str(store)) == SHOWN + b"\r\n"
    assert b"\x1b" not in on_a_terminal("history", SPORTS, "--store", str(store), "--json")


def test_a_terminal_gets_payloads_as_they_are_where_the_user_asks_for_them(store: Path) -> None:
    said = on_a_terminal("history", SPORTS, "--store", str(store), "--raw")
    assert said == EVIL.replace(b"\n", b"\r\n") + b"\r\n"


def test_a_program_gets_payloads_as_they_are(
    store: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["history", SPORTS, "--store", str(store)]) == 0
    assert capfdbinary.readouterr().out == EVIL + b"\n"


def test_words_about_what_others_say_are_printable(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b[31m\r\u202e"
    shown = r"\x1b[31m\r\u202e"
    assert output.table(["topic"], [[evil]]) == f"topic\n{shown}"
    info = {
        **dict.fromkeys(("cid", "parent", "record", "hierarchy"), ""),
        **{"topic": evil, "mine": False, "sequence": 1, "owners": [], "publishers": None},
        **{"sub_topics": {evil: "x"}, "asked": {evil: evil}},
    }
    assert "\x1b" not in topic.in_words(info) and topic.in_words(info).count(shown) == 4
    rows = [("address", evil), ("network", "weft")]
    assert output.rows_in_words(rows, 10) == f"address    {shown}\nnetwork    weft"
    output.say_subscribed(evil, "joined")
    assert capsys.readouterr().err == f"weft: subscribed to {shown}\n"
    assert main(["history", "--store", f"/nowhere/{evil}"]) != 0
    assert "\x1b" not in capsys.readouterr().err


def test_a_first_member_is_told_so_in_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.say_subscribed("/chat", "instantiated")
    assert capsys.readouterr().err == (
        "weft: subscribed to /chat (no other member was found so far)\n"
    )


def test_ordinary_text_stays_as_it_is() -> None:
    text = "Grüße,\t日本語, 👩‍👩‍👧, naïve"
    assert printable(text) == text
