"""Completion scripts offer what the commands take, and the shells accept them."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from weft.cli import completion
from weft.cli.main import COMMANDS


def complete(words: list[str]) -> list[str]:
    """What bash offers for the last of these words."""
    script = completion.bash(completion.commands())
    quoted = " ".join(f"'{word}'" for word in words)
    code = (
        f"{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _weft; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", code], text=True, capture_output=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_offers_commands() -> None:
    assert set(COMMANDS) <= set(complete(["weft", ""]))
    assert complete(["weft", "comp"]) == ["completion"]
    assert complete(["weft", "help", "comp"]) == ["completion"]


def test_bash_offers_options_and_choices() -> None:
    assert complete(["weft", "peer", "--metr"]) == ["--metrics"]
    assert complete(["weft", "completion", "z"]) == ["zsh"]
    assert complete(["weft", "sim", "--scheme", "fl"]) == ["flood"]
    assert complete(["weft", "peer", "--listen", ""]) == []


def test_bash_offers_files(tmp_path: object) -> None:
    assert "pyproject.toml" in complete(["weft", "peer", "--config", "pyproj"])


@pytest.mark.parametrize("shell", sorted(completion.WRITERS))
def test_scripts_mention_everything_and_parse(shell: str) -> None:
    script = completion.WRITERS[shell](completion.commands())
    for command in completion.commands():
        assert command.name in script
        for option in command.options:
            for name in option.names:
                # fish writes names without their dashes
                assert name.lstrip("-") in script, f"{command.name} {name}"
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)
