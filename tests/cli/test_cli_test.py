"""`weft test`: what pytest is told."""

from __future__ import annotations

import os
import sys

import pytest

from weft.cli.test import GROUPED, command, environment

PYTEST = [sys.executable, "-m", "pytest", *GROUPED]
CORES = os.cpu_count() or 1
ONE_MORE = ["-n", str(CORES + 1)]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], ONE_MORE),
        (["tests/cli", "-x"], [*ONE_MORE, "tests/cli", "-x"]),
        (["-n", "0", "--pdb"], ["-n", "0", "--pdb"]),
        (["--fast"], [*ONE_MORE, "-m", "not slow"]),
        (["tests/net", "--fast", "-n0"], ["-m", "not slow", "tests/net", "-n0"]),
    ],
)
def test_arguments_go_to_pytest(arguments: list[str], told: list[str]) -> None:
    assert command(arguments) == [*PYTEST, *told]


def test_processes_of_tests_keep_bytecode() -> None:
    given = {"PYTHONDONTWRITEBYTECODE": "1", "PATH": "/bin"}
    assert environment(given) == {"PATH": "/bin"}


def test_every_place_named_as_slow_is_there(pytestconfig: pytest.Config) -> None:
    places = pytestconfig.rootpath / "tests"
    slow = pytestconfig.pluginmanager.get_plugin(str(places / "conftest.py"))
    assert slow is not None
    for place in slow.SLOW:
        file, _, name = place.partition("::")
        assert (places / file).exists(), place
        assert not name or f"def {name}(" in (places / file).read_text(), place
