"""A campaign draws every kind of run, shrinks what fails, and keeps all of it with its replay."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processes import PATIENCE_SECONDS, children
from weft.cli import sim
from weft.cli.main import main
from weft.cli.settings import ROUTINGS
from weft.pipeline.resources import wait_until
from weft.sim import campaign, faults, scenario
from weft.sim.campaign import Asked, Played, draw_settings, kind_of, play, shrink, shrunk
from weft.sim.scenario import Result, ScenarioSettings, run

SEEDS = range(2_000)
TINY = ["--peers", "4", "--topics", "1", "--events", "4", "--calm"]


def is_running(pid: int) -> bool:
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


# --- drawing ------------------------------------------------------------------------------------


def test_every_kind_of_run_is_drawn() -> None:
    drawn = [draw_settings(seed) for seed in SEEDS]
    assert drawn[:50] == [draw_settings(seed) for seed in SEEDS[:50]]
    peers = [one.peers for one in drawn]
    assert set(peers) <= set(range(4, 301)) and min(peers) == 4 and max(peers) > 250
    assert sum(number <= 16 for number in peers) > 0.7 * len(drawn)
    assert 0.01 * len(drawn) < sum(number > 64 for number in peers) < 0.03 * len(drawn)
    assert max(one.peers for one in drawn if one.hostile) > 64
    assert {one.topics for one in drawn} == set(range(1, 51))
    assert {one.routing for one in drawn} == set(ROUTINGS)
    schemes = {(one.routing, one.scheme) for one in drawn if one.scheme is not None}
    assert schemes == {(name, one) for name, known in scenario.SCHEMES.items() for one in known}
    disasters = Counter(disaster for one in drawn for disaster in one.disasters)
    assert set(disasters) == set(faults.DISASTERS)
    assert all(not one.disasters for one in drawn if one.calm)
    assert all(one.history for one in drawn if one.brief)
    for name in ("calm", "history", "brief", "hierarchy"):
        assert {getattr(one, name) for one in drawn} == {False, True}


@pytest.mark.parametrize(
    "asked",
    [
        Asked(peers=7, topics=2, events=0, history=True),
        Asked(routing="pulsarcast", hierarchy=True, calm=True),
        Asked(scheme="full-gossip", disasters=("power-loss",)),
        Asked(hostile=30, attack="eclipse"),
    ],
)
def test_what_is_asked_holds_for_every_run(asked: Asked) -> None:
    for seed in SEEDS[:300]:
        drawn = draw_settings(seed, asked)
        for name, wanted in vars(asked).items():
            assert wanted in (None, False, ()) or getattr(drawn, name) == wanted


def test_the_command_of_a_run_asks_for_exactly_this_run() -> None:
    parser = argparse.ArgumentParser()
    sim.add_arguments(parser)
    for seed in SEEDS[:300]:
        drawn = draw_settings(seed)
        if not drawn.calm:
            drawn = replace(drawn, without=faults.FAULTS[seed % 9 :: 2])
        words = drawn.command().split()
        assert words[:2] == ["./weft", "sim"]
        args = parser.parse_args(words[2:])
        read = sim.settings_of(args, args.seed)
        assert replace(read, scheme=None) == replace(drawn, scheme=None)
        assert read.scheme_used == drawn.scheme_used


def test_hostile_peers_are_drawn_in_a_third_of_the_runs() -> None:
    drawn = Counter(draw_settings(seed).hostile for seed in SEEDS)
    assert set(drawn) == {0, *campaign.HOSTILE_SHARES}
    assert 0.3 < 1 - drawn[0] / len(SEEDS) < 0.36


# --- shrinking ----------------------------------------------------------------------------------


@given(seed=st.integers(0, 1 << 40), peers=st.integers(3, 12), events=st.integers(0, 9))
def test_what_a_failure_does_not_need_is_taken_away(seed: int, peers: int, events: int) -> None:
    """A failure that needs so many peers and events, and crashes, is shrunk to little more."""
    played: list[ScenarioSettings] = []

    def fails(settings: ScenarioSettings) -> Result:
        played.append(settings)
        needs = settings.peers >= peers and settings.events >= events
        needed = needs and "crashes" not in settings.without and not settings.calm
        return Result(settings, violations=[f"peer {settings.peers} lost it"] if needed else [])

    drawn = replace(draw_settings(seed), calm=False, hostile=30, attack="drop")
    if not fails(drawn).violations:
        return
    found = shrink(drawn, frozenset({"peer lost it"}), fails)
    assert found is not None and found.violations
    smallest = found.settings
    assert not smallest.disasters and not smallest.history and not smallest.hierarchy
    assert not smallest.hostile and smallest.attack is None
    assert smallest.peers <= peers * 10 // 9 + 1 and smallest.events <= events * 10 // 9 + 1
    assert set(smallest.without) == set(faults.FAULTS) - {"crashes"}
    assert smallest.topics == 1
    assert len(played) <= campaign.TRIES_MAX + 2


def test_another_kind_of_failure_is_not_taken_for_the_same() -> None:
    def fails(settings: ScenarioSettings) -> Result:
        return Result(settings, violations=["something else broke"])

    assert shrink(draw_settings(1), frozenset({"peer lost it"}), fails) is None


def test_violations_of_one_kind_look_the_same() -> None:
    first = "peer 3 was handed event 9 of peer 7 (life 1) in /news/0 at 99 ms"
    other = "peer 4 was handed event 8 of peer 1 (life 2) in /film/1 at 12 ms"
    assert kind_of(first) == kind_of(other) != kind_of("peer 3 raised KeyError at 0 ms")


# --- the command --------------------------------------------------------------------------------


def test_a_campaign_in_processes_keeps_every_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "runs.jsonl"
    words = ["sim", "--campaign", "0.02", *TINY, "--keep", str(kept)]
    assert main([*words, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    lines = [json.loads(line) for line in kept.read_text().splitlines()]
    assert summary["runs"] == len(lines) > 0 and summary["failures"] == []
    assert len({line["replay"] for line in lines}) == len(lines)
    first = lines[0]
    assert main([*first["replay"].split()[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["delivered"] == first["delivered"]
    assert main(words) == 0  # a second campaign adds to the file
    again = kept.read_text().splitlines()
    assert [json.loads(line) for line in again[: len(lines)]] == lines and len(again) > len(lines)


def test_processes_end_with_a_campaign_that_was_killed(tmp_path: Path) -> None:
    words = ["sim", "--campaign", "60", *TINY, "--processes", "2"]
    killed = subprocess.Popen([sys.executable, "-m", "weft.cli.main", *words], cwd=tmp_path)
    try:
        # Two, and one that Python keeps for itself.
        assert wait_until(lambda: len(children(killed.pid)) == 3, PATIENCE_SECONDS)
        workers = children(killed.pid)
    finally:
        killed.kill()
        killed.wait()
    assert wait_until(lambda: not any(map(is_running, workers)), PATIENCE_SECONDS)


def test_failures_are_shrunk_kept_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_this_process(*_: object) -> Iterator[Played]:
        yield shrunk(play(ScenarioSettings(seed=4, peers=6, topics=2, events=12, calm=True)))

    monkeypatch.setattr(scenario, "GHOST_PERCENT_MAX", -1)  # no network can have fewer than none
    monkeypatch.setattr(campaign, "campaign", in_this_process)
    kept = tmp_path / "runs.jsonl"
    assert main(["sim", "--campaign", "1", "--keep", str(kept)]) == 1
    text = capsys.readouterr().out
    (line,) = (json.loads(line) for line in kept.read_text().splitlines())
    assert (
        line["shrunk"] == "./weft sim --seed 4 --peers 3 --topics 1 --events 0 --scheme tree --calm"
    )
    assert line["shrunk"] in text and line["replay"] in text
    assert "1 runs" in text and "1 with violations" in text and "name peers that are gone" in text


def test_an_interrupt_keeps_what_was_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> Iterator[Played]:
        yield Played(run(ScenarioSettings(seed=4, peers=3, topics=1, events=1, calm=True)), 0.1)
        raise KeyboardInterrupt

    monkeypatch.setattr(campaign, "campaign", interrupted)
    kept = tmp_path / "runs.jsonl"
    assert main(["sim", "--campaign", "1", "--keep", str(kept)]) == 130
    assert "1 runs (interrupted)" in capsys.readouterr().out
    assert len(kept.read_text().splitlines()) == 1


class Pool:
    """In place of processes: runs are played at once, and never shrunk to the end."""

    def __init__(self, *_: object) -> None:
        self.futures: list[Future[object]] = []

    def submit(self, work: Callable[..., object], one: object) -> Future[object]:
        future: Future[object] = Future()
        self.futures.append(future)
        if work is play:
            future.set_result(work(one))
        elif POOL_DIES in str(one):
            future.set_exception(BrokenProcessPool())
        else:
            future.set_exception(KeyboardInterrupt())
        return future

    def shutdown(self, *_: object, **__: object) -> None:
        pass


POOL_DIES = "seed=5,"


@pytest.mark.parametrize(("seed", "code"), [(4, 1), (5, 1)])
def test_a_failure_that_is_being_shrunk_is_not_lost(
    seed: int,
    code: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At Ctrl-C (seed 4), and where a process dies (seed 5), which names what it was doing."""
    monkeypatch.setattr(scenario, "GHOST_PERCENT_MAX", -1)
    monkeypatch.setattr(campaign, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(sim.secrets, "randbelow", lambda most: seed)
    kept = tmp_path / "runs.jsonl"
    words = ["sim", "--campaign", "1", *TINY, "--processes", "1", "--keep", str(kept)]
    assert main(words) == code
    said = capsys.readouterr()
    (line,) = (json.loads(line) for line in kept.read_text().splitlines())
    assert line["violations"] and line["shrunk"] is None
    assert line["replay"] in said.out
    assert ("1 runs (interrupted)" in said.out) == (seed == 4)
    assert ("a process died" in said.err and line["replay"] in said.err) == (seed == 5)


def test_when_its_time_is_over_a_campaign_says_what_it_waits_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(
        seeds: object, is_over: object, asked: object, count: object, told: Callable[..., None]
    ) -> Iterator[Played]:
        told(2, 1)
        yield from ()

    monkeypatch.setattr(campaign, "campaign", slow)
    monkeypatch.setattr(sim, "TOLD_EVERY_S", 0.0)
    words = ["sim", "--keep", str(tmp_path / "runs.jsonl"), "--campaign"]
    assert main([*words, "0.000001"]) == 0
    assert "time is over, 2 still played, 1 being shrunk" in capsys.readouterr().err
    assert main([*words, "100"]) == 0
    assert " s left, 1 being shrunk" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "runs.jsonl"
    assert main(["sim", "--campaign", "1", "--keep", str(place)]) == 1
    assert f"cannot write {place}" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")
def test_a_disk_that_fills_is_named_and_the_failure_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_this_process(*_: object) -> Iterator[Played]:
        yield play(ScenarioSettings(seed=4, peers=3, topics=1, events=0, calm=True))

    monkeypatch.setattr(scenario, "GHOST_PERCENT_MAX", -1)
    monkeypatch.setattr(campaign, "campaign", in_this_process)
    assert main(["sim", "--campaign", "1", "--keep", "/dev/full"]) == 1
    said = capsys.readouterr()
    assert "cannot write /dev/full: No space left on device; the last of 1 runs" in said.err
    assert "./weft sim --seed 4 --peers 3" in said.out
