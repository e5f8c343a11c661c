"""Which source rows rest on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import weft
from weft.lab.code import code_of, files_behind, reach, revision

ROOT = Path(weft.__file__).resolve().parents[2]


def behind(name: str) -> set[str]:
    """The rooms and files outside of the lab that an experiment's simulation rests on."""
    return set(files_behind(reach(f"weft.lab.experiments.{name}:run")))


def test_rows_depend_on_the_simulation_and_not_on_measures_or_figures() -> None:
    reached = reach("weft.lab.experiments.pulsar_late:run")
    assert "settings" in reached["weft.lab.experiments.pulsar_gap:settings"]
    assert "class Net" in reached["weft.lab.pulsar:Net"]
    assert not [place for place in reached if place.endswith((":measure", ":figure", ":style"))]


def test_rows_depend_on_the_files_that_their_simulation_imports() -> None:
    over_arrays = behind("tadht_messages")
    assert {"weft.engine.topic_dht.roles", "weft.rules.roles", "weft.rules.prefix"} <= over_arrays
    assert not [
        each
        for each in over_arrays
        if each.startswith(("weft.protocol", "weft.engine.t"))
        and not each.startswith("weft.engine.topic_dht")
    ]
    peers = behind("pulsar_deliver")
    assert {"weft.sim.world", "weft.protocol.tera.tera", "weft.rules.tree"} <= peers
    assert "weft.references.scribe" not in peers
    assert "weft.references.scribe" in behind("references")
    assert not [each for each in over_arrays | peers if each.startswith("weft.lab")]


def test_what_is_imported_for_types_alone_makes_no_rows() -> None:
    kernels = behind("tera_4a")
    assert "weft.engine.tera.world" in kernels
    assert not [each for each in kernels if each.startswith(("weft.pipeline", "weft.sim"))]


def test_experiments_on_data_depend_on_what_draws_their_memberships() -> None:
    simulation = "weft.lab.experiments.stan_9:run"
    assert code_of(simulation, reads_data=True) != code_of(simulation)
    assert code_of(simulation) != code_of("weft.lab.experiments.stan_8:run")


def test_a_planted_defect_is_part_of_the_code() -> None:
    simulation = "weft.lab.experiments.tadht_messages:run"
    assert code_of(simulation, planted=True) != code_of(simulation)


def test_a_revision_is_the_commit_of_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    revision.cache_clear()
    words = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    head = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    assert head.startswith(revision().removesuffix("+"))
    assert len(revision()) >= 12
    revision.cache_clear()
    monkeypatch.setenv("PATH", "")
    assert revision() == f"weft {weft.__version__}"
    revision.cache_clear()
