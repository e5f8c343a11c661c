"""Runs of any system, calm and under each fault: what is traced, and what strikes."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from weft.ids import Topic
from weft.lab.versus.crowd import Publications, Universe
from weft.lab.versus.network import WINDOW_MS, Fault, FaultKind, VersusRun
from weft.lab.versus.systems import OURS, REFERENCES, SYSTEMS, default_system
from weft.protocol.config import Config

A, B = Topic("/a"), Topic("/b")
UNIVERSE = Universe(((A, B),) * 4 + ((A,),) * 4 + ((B,),) * 4)


def played(system: str, fault: Fault | None = None) -> tuple[VersusRun, list[dict[str, Any]]]:
    file = io.BytesIO()
    events = Publications(UNIVERSE, 1, 6, WINDOW_MS)
    run = VersusRun(1, SYSTEMS[system], UNIVERSE, events, fault or Fault(), file)
    run.play()
    return run, [json.loads(line) for line in file.getvalue().splitlines()]


def test_the_default_is_one_of_the_systems() -> None:
    assert default_system().config().routing == Config().routing
    assert len(SYSTEMS) == len(OURS) + len(REFERENCES)
    assert sum(each.family == "reference" for each in SYSTEMS.values()) == 6


@pytest.mark.parametrize("system", ["tera-tree", "pulsarcast", "ref-scribe", "ref-gossipsub"])
def test_all_that_is_measured_happens_in_the_window(system: str) -> None:
    run, records = played(system)
    before = {each["type"] for each in records if each["timestamp"] < run.from_ms * 1_000_000}
    assert before == {"JOIN"}
    published = [each for each in records if each["type"] == "PUBLISH_MESSAGE"]
    delivered = [each for each in records if each["type"] == "DELIVER_MESSAGE"]
    assert len(published) == 6
    assert len(delivered) == 6 * 8  # each topic has eight subscribers
    assert all(
        each["sendRPC"]["meta"]["bytes"] > 0 for each in records if each["type"] == "SEND_RPC"
    )


@pytest.mark.parametrize(
    ("kind", "level", "live"),
    [("crash", 50, 6), ("silent", 50, 6), ("churn", 10, 12), ("crowd", 30, 12), ("loss", 20, 12)],
)
def test_faults_strike_as_they_are_called(kind: FaultKind, level: int, live: int) -> None:
    run, records = played("ref-gossipsub", Fault(kind, level))
    assert len(run.net.alive()) == live
    assert (run.net.world.network.lost > 0) == (kind == "loss")
    left = sum(each["type"] == "LEAVE" for each in records)
    assert (left > 0) == (kind in ("crash", "silent", "churn"))


def test_a_partition_cuts_and_heals() -> None:
    run, _ = played("tera-tree", Fault("partition", 30))
    network = run.net.world.network
    assert network.cut > 0
    assert not any(network.is_cut(a, b) for a in range(12) for b in range(12))


def test_hostile_peers_pass_nothing_on_and_leave_no_record() -> None:
    run, records = played("ref-scribe", Fault("hostile", 30))
    names = {each["peerID"] for each in records if each["type"] in ("JOIN", "DELIVER_MESSAGE")}
    assert len(names) == 12 - round(12 * 0.3)
    published = {one.peer for one in run.net.world.record.publications.values()}
    assert published
