"""Runs of any system, calm and under each fault: what is traced, and what strikes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from weft.ids import Topic
from weft.lab.experiments import versus
from weft.lab.sources import Source
from weft.lab.traced import WindowWriter
from weft.lab.versus.crowd import Publications, Universe
from weft.lab.versus.network import WINDOW_MS, Fault, FaultKind, VersusRun
from weft.lab.versus.systems import OURS, REFERENCES, SYSTEMS, default_system
from weft.protocol.config import Config

A, B = Topic("/a"), Topic("/b")
UNIVERSE = Universe(((A, B),) * 4 + ((A,),) * 4 + ((B,),) * 4)


def played(
    system: str, fault: Fault | None = None, seed: int = 1
) -> tuple[VersusRun, list[dict[str, Any]]]:
    file = io.BytesIO()
    events = Publications(UNIVERSE, seed, 6, WINDOW_MS)
    run = VersusRun(seed, SYSTEMS[system], UNIVERSE, events, fault or Fault(), WindowWriter(file))
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


@pytest.mark.parametrize("level", [50, 80])
@pytest.mark.parametrize("seed", range(10))
def test_a_crash_strikes_before_the_first_event(level: int, seed: int) -> None:
    """What a peer publishes in the millisecond of its death may be nowhere afterwards: all that
    its copies were on their way to may die in that millisecond, too."""
    run, _ = played("tera-tree", Fault("crash", level), seed)
    record, live = run.net.world.record, set(run.net.alive())
    asked = [one for one in record.publications.values() if one.at_ms >= run.from_ms]
    assert asked and {one.peer for one in asked} <= live
    given = {(each.event.payload, each.peer) for each in record.deliveries}
    for one in asked:
        wanted = live & set(UNIVERSE.members(one.topic))
        assert {(one.payload, peer) for peer in wanted} <= given


def test_a_partition_cuts_and_heals() -> None:
    run, _ = played("tera-tree", Fault("partition", 30))
    network = run.net.world.network
    assert network.cut > 0
    assert not any(network.is_cut(a, b) for a in range(12) for b in range(12))


def test_with_a_store_all_that_was_published_while_the_halves_were_apart_arrives() -> None:
    """They are apart until events are no longer held for repair."""
    fault = Fault("kept", versus.KEPT_S)
    run, records = played("tera-tree", fault)
    network = run.net.world.network
    assert network.cut > 0
    healed_ns = (run.from_ms + fault.level * 1_000) * 1_000_000
    delivered = [each for each in records if each["type"] == "DELIVER_MESSAGE"]
    assert len(delivered) == 6 * 8
    late = sum(each["timestamp"] >= healed_ns for each in delivered)
    assert 0 < late < len(delivered)
    held_ms = run.net.config.dissemination.recent_ms
    assert fault.level * 1_000 - WINDOW_MS > held_ms


def test_faults_strike_the_default_the_best_and_the_references_on_every_source(
    tmp_path: Path,
) -> None:
    """In the full size; the quick one has five minutes."""
    sources = {
        "grid": Source("grid"),
        "trace": Source("wikipedia_edits", tmp_path, tmp_path / "subs.csv.gz"),
        "own": Source("mine", tmp_path),
    }
    asked = {default_system().name, *versus.BEST, *(each.name for each in REFERENCES)}
    for name, source in sources.items():
        full = [each for each in versus.points("full", source) if each["fault"] != "calm"]
        assert {each["system"] for each in full} == asked
        assert {each["fault"] for each in full} == {*versus.FAULTS["full"], "kept"}
        quick = [each for each in versus.points("quick", source) if each["fault"] != "calm"]
        assert bool(quick) == (name != "trace")
    calm = [each for each in versus.points("full", sources["trace"]) if each["fault"] == "calm"]
    assert [each["system"] for each in calm] == list(SYSTEMS)


def test_hostile_peers_pass_nothing_on_and_leave_no_record() -> None:
    run, records = played("ref-scribe", Fault("hostile", 30))
    names = {each["peerID"] for each in records if each["type"] in ("JOIN", "DELIVER_MESSAGE")}
    assert len(names) == 12 - round(12 * 0.3)
    published = {one.peer for one in run.net.world.record.publications.values()}
    assert published
