"""Completion scripts offer what the commands take, and the shells accept them."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from weft.cli import completion, data, data_ingest
from weft.cli.main import COMMANDS
from weft.cli.parser import actions_of


def complete(words: list[str]) -> list[str]:
    """What bash offers for the last of these words."""
    quoted = " ".join(f"'{word}'" for word in words)
    code = (
        f"{completion.script('bash')}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; "
        '_shtab_weft; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", code], text=True, capture_output=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Every long option of a parser and of those below it."""
    words = parser.format_usage().replace("[", " ").replace("]", " ").split()
    yield from (word for word in words if word.startswith("--"))
    for actions in actions_of(parser):
        for nested in actions.choices.values():
            yield from options(nested)


def test_bash_offers_commands() -> None:
    assert set(COMMANDS) <= set(complete(["weft", ""]))
    assert complete(["weft", "comp"]) == ["completion"]
    assert complete(["weft", "help", "comp"]) == ["completion"]


def test_bash_offers_options_and_choices() -> None:
    assert complete(["weft", "peer", "--metr"]) == ["--metrics"]
    assert complete(["weft", "completion", "z"]) == ["zsh"]
    assert complete(["weft", "sim", "--scheme", "fl"]) == ["flood"]
    assert complete(["weft", "peer", "--listen", ""]) == []
    assert "--nodes" in complete(["weft", "data", "synth", "--"])


def test_bash_offers_actions_and_their_options() -> None:
    assert set(data.ACTIONS) <= set(complete(["weft", "data", ""]))
    assert set(complete(["weft", "data", "ingest", "--format", ""])) == set(data_ingest.FORMATS)
    assert "pyproject.toml" in complete(["weft", "data", "ingest", "--out", "pyproj"])


def test_bash_offers_files() -> None:
    assert "pyproject.toml" in complete(["weft", "peer", "--config", "pyproj"])


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_scripts_mention_everything_and_parse(shell: str) -> None:
    script = completion.script(shell)
    for name in (*COMMANDS, *options(completion.whole_parser())):
        assert name.lstrip("-") in script, name  # fish writes options without their dashes
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)
