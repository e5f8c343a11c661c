"""What loading the public API costs a program."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

LOOK = "import gc, json, sys, weft\n{before}\nweft.Peer\nprint(json.dumps({said}))"


def say(said: str, before: str = "") -> object:
    program = LOOK.format(said=said, before=before)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return json.loads(ran.stdout)


def test_what_was_loaded_counts_as_old() -> None:
    """Else the first search for garbage among young objects goes through all of it."""
    assert say("20 * len(gc.get_objects(0)) < len(gc.get_objects(2))")
    assert say("gc.isenabled()")


@pytest.mark.parametrize("switch", ["enable", "disable"])
def test_a_program_finds_its_collector_as_it_left_it(switch: str) -> None:
    assert say("gc.isenabled()", f"gc.{switch}()") is (switch == "enable")


def test_what_a_program_froze_stays_frozen() -> None:
    assert say("frozen", "gc.freeze(); frozen = gc.get_freeze_count()")
    assert say("2 * gc.get_freeze_count() > frozen", "gc.freeze(); frozen = gc.get_freeze_count()")


def test_a_peer_without_files_does_not_load_what_reads_them() -> None:
    assert say("[one for one in ('pathlib', 'sqlite3', 'tomllib') if one in sys.modules]") == []


def test_a_peer_does_not_load_the_rooms_that_it_is_without() -> None:
    rooms = "('history.history', 'kademlia.kademlia', 'pulsar.pulsar', 'topic_dht.topic_dht')"
    assert say(f"[one for one in {rooms} if 'weft.protocol.' + one in sys.modules]") == []
