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


@pytest.mark.parametrize(
    "module",
    [
        *("weft.protocol.history.history", "weft.protocol.kademlia.kademlia"),
        *("weft.protocol.pulsar.pulsar", "weft.protocol.topic_dht.topic_dht"),
        *("weft.net.consumer", "weft.net.tracer", "weft.store.car", "weft.store.cursor", "libipld"),
        *("weft.documents.dag", "weft.documents.descriptor", "weft.net.history", "weft.net.replay"),
        *("weft.net.dht", "weft.net.metrics", "weft.protocol.flood", "weft.store.reader"),
        *("nacl.bindings", "cryptography.hazmat.primitives.serialization", "secrets"),
    ],
)
def test_a_peer_does_not_load_what_it_is_without(module: str) -> None:
    """A peer as it comes has no DHT, no store, no trace and no routing but TERA."""
    assert say(f"{module!r} in sys.modules") is False


def test_a_room_is_loaded_with_the_first_message_of_its_own() -> None:
    module = "weft.protocol.pulsar.branch"
    leave = "from weft.net import codec; left = codec.decode(bytes((0x92, 73, 0xA2)) + b'/t')"
    assert say(f"[type(left).__name__, {module!r} in sys.modules]", leave) == ["TreeLeave", True]
