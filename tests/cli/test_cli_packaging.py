"""weft as a package that others take: metadata, extras, and what is said where one is missing."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import weft
from weft.cli import bootstrap, peer
from weft.cli.main import extra_of, extras_for
from weft.cli.parser import addresses_in, parser_for

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "/ip4/127.0.0.1/tcp/4001/p2p/12D3KooWLJ6EeRAkBqB6pD4NbRHgS1d8YiUwr283MVKyjpv6AGt7"


def project() -> dict[str, object]:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


def test_all_brings_every_extra_that_commands_need() -> None:
    extras = project()["optional-dependencies"]
    assert isinstance(extras, dict)
    everything = set(re.findall(r"\w+", extras["all"][0])) - {"weft"}
    assert everything == set(bootstrap.EVERYTHING) - {"core", "dev"}


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "msgspec>=0.19",
        'prometheus-client>=0.21; extra == "web"',
        'numpy>=2 ; extra=="engine"',
    ]
    monkeypatch.setattr(metadata, "requires", lambda name: lines)
    monkeypatch.setattr(metadata, "packages_distributions", dict)
    assert extra_of("prometheus_client") == "web"
    assert extra_of("numpy") == "engine"
    assert extra_of("somethingelse") == "all"
    # All that a command needs is told at once, not one extra after another.
    assert extras_for(["demo", "--web"], "numpy") == "pipeline,lab,web"
    assert extras_for(["peer"], "prometheus_client") == "web"


def test_help_needs_no_package_at_all() -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); sys.argv[1:] = ['--help']; "
    code += "import runpy; runpy.run_module('weft', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: weft COMMAND")


def test_files_that_people_look_for() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert project()["license"] == "Apache-2.0"
    for name in ("CONTRIBUTING.md", "Dockerfile", "compose.yaml", "packaging/weft.service"):
        assert (ROOT / name).is_file()
    assert project()["version"] == weft.__version__


def test_the_service_starts_a_first_peer_and_others_by_their_options() -> None:
    unit = (ROOT / "packaging" / "weft.service").read_text()
    [line] = re.findall(r"^ExecStart=/opt/weft/bin/weft peer (.+)$", unit, re.MULTILINE)
    assert "\nEnvironmentFile=-/etc/weft/options\n" in unit  # it may be missing
    words = line.replace("%H", "first.example.org").split()
    parser = parser_for("peer", peer)
    first = parser.parse_args([word for word in words if word != "$WEFT_OPTIONS"])
    assert not first.join and words[-1] == "$WEFT_OPTIONS"
    [more] = re.findall(r"'WEFT_OPTIONS=(.+)'", unit)
    assert more.split()[0] == "--bootstrap"
    told = parser.parse_args([*words[:-1], "--join", ADDRESS, "--announce", "second.example.org"])
    assert told.join == [ADDRESS] and told.announce == "second.example.org"


def test_bootstrap_files_say_where_to_join(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "peers"
    path.write_text(f"# the first one\n\n  {ADDRESS}\n{ADDRESS}\n")
    assert addresses_in(str(path)) == [ADDRESS, ADDRESS]
    path.write_text("not an address\n")
    with pytest.raises(Exception, match="not an address"):
        addresses_in(str(path))
    assert not capsys.readouterr().err
    late = tmp_path / "late"
    monkeypatch.setattr("time.sleep", lambda _: late.write_text(ADDRESS))
    assert addresses_in(str(late)) == [ADDRESS]
    assert "waiting for an address in" in capsys.readouterr().err  # it does not just stand still
