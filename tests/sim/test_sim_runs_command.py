"""`weft sim`: what it prints, its exit codes, many runs at once, where its time goes."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from weft.cli.main import main
from weft.cli.sim import SCHEMES
from weft.protocol.peer import Peer
from weft.sim import scenario
from weft.sim.runs import profiled, run_many
from weft.sim.scenario import Scenario, ScenarioSettings, run
from weft.trace import Writer

SMALL = ["--peers", "6", "--topics", "2", "--events", "12", "--calm"]


def test_json_is_one_object_with_all_that_was_promised(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seed", "4", *SMALL, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {"seed", "peers", "topics", "events", "faults", "counts"} <= result.keys()
    assert result["violations"] == []
    assert result["replay"] == (
        "./weft sim --seed 4 --peers 6 --topics 2 --events 12 --scheme tree --calm"
    )
    counts = result["counts"]
    assert counts["handled"] > counts["delivered"] > 0
    assert counts["messages"]["ShuffleRequest"] > 0
    assert counts["payload_copies_per_delivery"] >= 1


def test_replay_command_plays_the_same_run(capsys: pytest.CaptureFixture[str]) -> None:
    main(["sim", "--seed", "9", "--peers", "10", "--events", "20", "--json"])
    first = capsys.readouterr().out
    words = json.loads(first)["replay"].split()
    assert words[:2] == ["./weft", "sim"]
    main([*words[1:], "--json"])
    assert capsys.readouterr().out == first


def test_words_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seed", "4", *SMALL]) == 0
    text = capsys.readouterr().out
    assert "seed 4: 6 peers, 12 events published" in text
    assert "no violations" in text


def test_violations_are_shown_with_the_replay_and_fail(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenario, "GHOST_PERCENT_MAX", -1)  # no network can have fewer than none
    assert main(["sim", "--seed", "4", *SMALL]) == 1
    text = capsys.readouterr().out
    assert "name peers that are gone" in text
    assert "replay: ./weft sim --seed 4" in text
    assert main(["sim", "--seeds", "4..5", "--processes", "1", *SMALL]) == 1
    text = capsys.readouterr().out
    assert "2 runs" in text and "2 with violations" in text
    assert "first replay: ./weft sim --seed 4" in text


def test_machine_that_raises_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object, fact: object, now: int) -> None:
        raise KeyError("lost my head")

    monkeypatch.setattr(Peer, "handle", fail)
    (text,) = run(ScenarioSettings(seed=1, peers=3)).violations
    assert text.startswith("peer 0 raised KeyError('lost my head') at 0 ms on Started(")


def test_many_seeds_in_two_processes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seeds", "1..3", *SMALL, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["runs"], summary["failed"], summary["replay"]) == (3, [], None)
    settings = [
        ScenarioSettings(seed=s, peers=6, topics=2, events=12, calm=True) for s in (1, 2, 3)
    ]
    alone = [run(one).as_dict() for one in settings]
    assert [result.as_dict() for result in run_many(settings, 2)] == alone


def test_interrupt_keeps_what_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop_at_two(settings: ScenarioSettings) -> scenario.Result:
        if settings.seed == 2:
            raise KeyboardInterrupt
        return run(settings)

    monkeypatch.setattr("weft.sim.runs.run", stop_at_two)
    assert main(["sim", "--seeds", "1..9", "--processes", "1", *SMALL]) == 130
    assert "1 runs (of 9: interrupted)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--seeds", "9..1"], "not a range of seeds like 1..200"),
        (["--seeds", "many"], "not a range of seeds like 1..200"),
        (["--peers", "2"], "whole number from 3"),
        (["--seed", "1", "--seeds", "1..2"], "not allowed with"),
        (["--seeds", "1..2", "--trace", "x"], "are for one run"),
        (["--campaign", "soon"], "not a number of minutes above 0"),
        (["--campaign", "1", "--seed", "3"], "not allowed with"),
        (["--campaign", "1", "--trace", "x"], "are for one run"),
        (["--campaign", "1", "--calm", "--disaster", "mass-crash"], "a calm run has no faults"),
        (["--campaign", "1", "--without", "loss"], "--without is for replaying a run"),
        (["--campaign", "1", "--history", "--brief"], "--brief is for replaying a run"),
        (["--seed", "1", "--brief"], "brief goes with history"),
        (["--seed", "1", "--keep", "x"], "goes with --campaign"),
        (["--seed", "1", "--disaster", "flood"], "invalid choice"),
    ],
)
def test_wrong_usage_is_explained(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(["sim", *words])
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    assert expected in capsys.readouterr().err


def test_trace_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "run.jsonl"
    assert main(["sim", "--seed", "4", *SMALL, "--json", "--trace", str(trace)]) == 0
    counts = json.loads(capsys.readouterr().out)["counts"]
    kinds = [json.loads(line)["type"] for line in trace.read_bytes().splitlines()]
    assert kinds.count("DELIVER_MESSAGE") == counts["delivered"]
    assert kinds.count("PUBLISH_MESSAGE") == counts["published"]
    assert kinds.count("SEND_RPC") == counts["sent"]
    assert kinds.count("RECV_RPC") == counts["handled"]
    assert kinds.count("DROP_RPC") == counts["undelivered"]


def test_tracing_does_not_change_the_run(tmp_path: Path) -> None:
    settings = ScenarioSettings(seed=6, peers=10, events=20)
    with (tmp_path / "run.jsonl").open("wb") as file:
        traced = run(settings, Writer(file))
    assert traced.as_dict() == run(settings).as_dict()


def test_profile_names_the_rooms() -> None:
    world = Scenario(ScenarioSettings(seed=1, peers=6, topics=2, events=10, calm=True)).world
    _, report = profiled(lambda: world.run_until(100_000))
    assert report.startswith("own time by room: sim ")
    shares = [float(word.rstrip("%,")) for word in report.splitlines()[0].split() if "%" in word]
    assert sum(shares) == pytest.approx(100, abs=2)
    assert all(f"{room} " in report.splitlines()[0] for room in ("protocol", "rules", "other"))


def test_all_schemes_of_all_routings_can_be_chosen() -> None:
    assert sorted(SCHEMES) == sorted(chain.from_iterable(scenario.SCHEMES.values()))


@pytest.mark.parametrize("scheme", scenario.SCHEMES["topic-dht"])
def test_the_scheme_chosen_is_the_one_played(scheme: scenario.AnyScheme) -> None:
    asked = ScenarioSettings(
        seed=4, peers=6, topics=2, events=12, routing="topic-dht", scheme=scheme
    )
    played = Scenario(replace(asked, calm=True))
    assert played.play() == [] and played.judge() == []
    assert {one.config.topic_dht.scheme for one in played.net.peers()} == {scheme}
    assert f"--scheme {scheme} --routing topic-dht" in asked.command()


@pytest.mark.parametrize(
    ("routing", "scheme", "choice"),
    [
        ("topic-dht", "tree", "there are full-gossip, forward-gossip, full-treecast, forward-"),
        ("tera", "full-gossip", "there are tree, gossip, flood"),
        ("pulsarcast", "tree", "there is none to choose"),
    ],
)
def test_a_scheme_of_another_routing_is_refused(
    routing: str, scheme: str, choice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sim", "--routing", routing, "--scheme", scheme]) == 2
    assert f"no scheme {scheme} with the routing {routing}: {choice}" in capsys.readouterr().err
