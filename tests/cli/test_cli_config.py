"""Settings: the printed defaults are the defaults, files and flags are read as they say."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

import weft
from weft.cli import config as command
from weft.cli import settings
from weft.cli.main import main
from weft.net import config as toml


def uncommented() -> str:
    return re.sub(r"^# (\w+ =)", r"\1", "\n".join(command.lines(weft.Config())), flags=re.M)


def test_printed_defaults_are_the_defaults() -> None:
    text = uncommented()
    assert toml.parse_toml(text.encode(), weft.Config, "printed") == weft.Config()
    assert "cycle_ms" in text and "idle_ms" in text


def test_every_default_says_where_it_comes_from() -> None:
    for line in command.lines(weft.Config().protocol.cyclon, "protocol.cyclon"):
        if "=" in line:
            assert re.search(r"# (paper|measured|guess)", line), line


def arguments(**given: object) -> argparse.Namespace:
    flags = {"listen": None, "announce": None, "hierarchy": [], "routing": None}
    values = {"config": None, "set": [], **flags, **given}
    return argparse.Namespace(**values)


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "weft.toml"
    path.write_text(
        '[network]\nname = "test"\nlisten = "127.0.0.1:1"\n[protocol.cyclon]\ncycle_ms = 7\n'
    )
    config = settings.config_of(arguments(config=path))
    assert config.network.name == "test" and config.protocol.cyclon.cycle_ms == 7
    config = settings.config_of(
        arguments(
            config=path,
            listen="127.0.0.1:2",
            set=["protocol.cyclon.cycle_ms=9", "protocol.dissemination.scheme=gossip"],
        )
    )
    assert config.network.name == "test"
    assert config.network.listen == "127.0.0.1:2"
    assert config.protocol.cyclon.cycle_ms == 9
    assert config.protocol.dissemination.scheme == "gossip"


def test_hierarchies_are_named_by_flags_or_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "weft.toml"
    path.write_text('[protocol]\nhierarchies = ["/news"]\n')
    assert settings.config_of(arguments(config=path)).protocol.hierarchies == ("/news",)
    flags = arguments(config=path, hierarchy=["/sports", "/größe/ü", "/"])
    assert settings.config_of(flags).protocol.hierarchies == ("/sports", "/größe/ü", "/")
    path.write_text('[protocol]\nhierarchies = ["news"]\n')
    with pytest.raises(weft.ConfigError, match="hierarchies: topic 'news' must start with"):
        settings.config_of(arguments(config=path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[network\n", "not valid TOML"),
        ("[network]\nidle_mss = 3\n", "did you mean 'idle_ms'"),
        ("[network]\nidle_ms = 'soon'\n", "network.idle_ms"),
        ("[network]\nidle_ms = 0\n", "at least 1"),
        ("network = 3\n", "must be a table"),
        ("[protocol.dissemination]\nscheme = 'shout'\n", "scheme"),
    ],
)
def test_malformed_file(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "weft.toml"
    path.write_text(text)
    for command_line in (["config", "--check", str(path)], ["peer", "--config", str(path)]):
        assert main(command_line) == 2
        error = capsys.readouterr().err
        assert said in error and str(path) in error and "Traceback" not in error


def test_good_file_is_fine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "weft.toml"
    path.write_text(uncommented())
    assert main(["config", "--check", str(path)]) == 0
    assert "is fine" in capsys.readouterr().out
