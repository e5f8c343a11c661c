"""Workloads that real users made."""

from __future__ import annotations

import json

import pytest

from weft.sim.recorded import BadRecording, recorded
from weft.sim.scenario import ScenarioSettings, run
from weft.sim.workload import Shape

HELD = [{"user": name, "topic": topic} for name in "abcd" for topic in ("x", "y")]
DONE = [
    {"user": "abcd"[number % 4], "topic": "xy"[number % 2], "at_ms": 5_000 + at}
    for number, at in enumerate((0, 1, 2, 3, 1000, 1001, 5000, 5002))
]
LINES = [json.dumps(each) for each in [*HELD, *reversed(DONE)]]


def test_order_bursts_and_places_stay() -> None:
    found = recorded("some", [*LINES, ""]).workload(1, 100, 501, Shape())
    assert [len(topics) for topics in found.interests] == [2] * 4
    first, *_, last = found.publications
    assert (first.at_ms, last.at_ms) == (0, 500)
    assert [each.at_ms for each in found.publications] == [0, 0, 0, 0, 99, 100, 499, 500]
    assert [each.peer for each in found.publications] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert len({each.payload for each in found.publications}) == 8


def test_a_seed_stands_for_a_place_in_the_trace() -> None:
    known = recorded("some", LINES)
    parts = {known.workload(seed, 3, 100, Shape()).publications[0].peer for seed in range(20)}
    assert len(parts) > 1
    assert known.workload(4, 3, 100, Shape()) == known.workload(4, 3, 100, Shape())


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("oops", "line 2 is no JSON object"),
        ('{"user": 1, "topic": "x"}', "line 2: user and topic must be text"),
        ('{"user": "a", "topic": "x", "at_ms": "now"}', "line 2: 'at_ms'"),
        ("", "has no events"),
    ],
)
def test_what_is_no_workload_is_said(line: str, why: str) -> None:
    with pytest.raises(BadRecording, match=why):
        recorded("some", [json.dumps(HELD[0]), line])


def test_a_network_plays_it() -> None:
    known = recorded("some.jsonl", LINES)
    settings = ScenarioSettings(seed=3, peers=4, topics=2, events=8, calm=True, recorded=known)
    result = run(settings)
    assert not result.violations
    assert (result.counts["published"], result.counts["delivered"]) == (8, 32)
    assert "--workload some.jsonl" in settings.command() and "--peers" not in settings.command()
    with pytest.raises(ValueError, match="how many peers"):
        ScenarioSettings(seed=3, peers=5, topics=2, recorded=known)
