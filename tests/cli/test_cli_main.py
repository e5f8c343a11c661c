"""The command line as a user meets it: help, guesses, exit codes, no tracebacks."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from weft.cli import main as cli
from weft.cli.problem import FAILED, USAGE
from weft.ids import cid_of, cid_text

ADDRESS = "/ip4/127.0.0.1/tcp/4001/p2p/12D3KooWSPdeEWbnLDsZKYNFgCDSEuJ9eX5wVGUmEvjaGDm2bwgn"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(weft.__file__).parents[1])}


def outcome(arguments: list[str]) -> int:
    """The exit code, whichever way it is given."""
    try:
        return cli.main(arguments)
    except SystemExit as end:
        assert isinstance(end.code, int)
        return end.code


def test_overview_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(["--help"]) == 0
    text = capsys.readouterr().out
    for command in cli.COMMANDS:
        assert f"\n  {command} " in text


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_the_examples_of_a_command_are_understood(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("peers.txt").write_text(ADDRESS)
    _, peer = ADDRESS.rsplit("/", 1)
    shown = {"/ip4/127.0.0.1/tcp/4001/p2p/12D3KooW...": ADDRESS, "12D3KooW...": peer}
    shown |= {"ADDRESS": ADDRESS, "bafyrei...": cid_text(cid_of(b"some block"))}
    examples = cli.module_of(command).EXAMPLES
    for text, value in shown.items():
        examples = examples.replace(text, value)
    for line in examples.splitlines():
        example, *_ = re.split(r" {2,}| > ", line.strip())  # before its explanation
        for part in re.split(r" (?:&&|\|) ", example):
            if part.startswith("weft ") and "my-question" not in part:
                assert cli.check(shlex.split(part)[1:]) == 0


def test_options_may_stand_between_arguments() -> None:
    words = ["/chat", "--also", "/news", "hello"]
    args = cli.read("pub", cli.module_of("pub"), words)
    assert (args.topic, args.also, args.data) == ("/chat", ["/news"], "hello")


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: weft {command}")
    assert outcome(["help", command]) == 0
    assert capsys.readouterr().out == text


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(["--version"]) == 0
    assert capsys.readouterr().out == f"weft {weft.__version__}\n"


def test_no_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome([]) == USAGE
    assert "usage: weft COMMAND" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["peeer"], "there is no command 'peeer' (did you mean 'peer'?)"),
        (["demo", "--peer", "3"], "unknown option '--peer' (did you mean '--peers'?)"),
        (["demo", "--peers=many"], "'many' is not a whole number from 2 to 500"),
        (["demo", "--peers", "1"], "'1' is not a whole number from 2 to 500"),
        (["peer", "--listen", "4001"], "'4001' is not HOST:PORT"),
        (["peer", "--listen", "127.0.0.1:70000"], "is not HOST:PORT"),
        (["peer", "--join", "127.0.0.1:4001"], "names no peer"),
        (["peer", "--subscribe", "football"], "must start with '/'"),
        (["peer", "--subscribe", "/a/#"], "has a wildcard '#'"),
        (["sub", "--home", "/nowhere", "/a/#"], "has a wildcard '#'"),
        (["pub", "--home", "/nowhere", "/a/*", "x"], "has a wildcard '*'"),
        (["swarm", "--subscribe", "/a/#"], "has a wildcard '#'"),
        (["web", "--subscribe", "/a/#"], "has a wildcard '#'"),
        (["topic", "create", "--home", "/nowhere", "/a/#"], "has a wildcard '#'"),
        (["topic", "show"], "required: TOPIC\n"),
        (["topic", "follow", "--home", "/nowhere", "/a", "xx"], "'xx' is not an Ed25519 peer id"),
        (["pub", "--copies", "2", "/a", "x"], "--copies goes with --confirm"),
        (["pub", "--confirm", "stored", "--join", ADDRESS, "/a", "x"], "give --store FILE"),
        (["peer", "surplus"], "unexpected argument 'surplus'"),
        (["peer", "--set", "network.idle_ms"], "expected KEY=VALUE"),
        (["peer", "--set", "network.idle_mss=3"], "unknown key 'network.idle_mss'"),
        (["peer", "--set", "network.idle_ms=soon"], "network.idle_ms"),
        (["peer", "--set", "network=3"], "must be a table"),
        (["peer", "--config", "no/such/file.toml"], "no/such/file.toml"),
        (["sub"], "TOPIC"),
        (["sub", "/a", "--timeout", "-1"], "seconds above 0"),
        (["pub", "/a//b", "x"], "empty or unusable segment"),
        (["completion", "tcsh"], "invalid choice: 'tcsh'"),
        (["swarm", "--set", "network.listen='0.0.0.0:1'"], "leave network.listen out"),
    ],
)
def test_wrong_usage(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert outcome(arguments) == USAGE
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == "" and "Traceback" not in captured.err


@pytest.mark.parametrize("command", ["status", "topics", "pub", "sub"])
def test_without_a_running_peer(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rest = {"pub": ["/a", "x"], "sub": ["/a"]}.get(command, [])
    assert outcome([command, "--home", str(tmp_path), *rest]) == FAILED
    assert "weft peer" in capsys.readouterr().err


def test_demo_leaves_other_folders_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    precious = tmp_path / "thesis.txt"
    precious.write_text("years of work")
    assert outcome(["demo", "--out", str(tmp_path)]) == USAGE
    assert "not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    assert outcome(["demo", "--out", str(precious)]) == USAGE
    assert "is a file" in capsys.readouterr().err


def test_reader_that_has_seen_enough_gets_no_traceback() -> None:
    command = f"{sys.executable} -m weft.cli.main config | head -1"
    done = subprocess.run(
        command, shell=True, env=ENVIRONMENT, text=True, capture_output=True, check=False
    )
    assert done.stdout.startswith("# Settings")
    assert done.stderr == ""


def test_help_waits_for_nothing_heavy() -> None:
    """Neither the network nor any extra is loaded before a command runs."""
    code = (
        "import sys; from weft.cli import main; main.main(['--help']); "
        "print([name for name in ('weft.net.api', 'cryptography', 'numpy', 'numba', 'pyspark', "
        "'matplotlib') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, text=True, capture_output=True, check=True
    )
    assert done.stderr.strip() == "[]"


def test_asking_a_running_peer_loads_none(tmp_path: Path) -> None:
    """`weft status` and its like talk to a socket: that takes no identity, TLS or machine."""
    code = (
        "import sys; from weft.cli import main; main.main(['status', '--home', sys.argv[1]]); "
        "print([name for name in ('weft.net.api', 'weft.protocol.peer', 'OpenSSL', 'nacl') "
        "if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env=ENVIRONMENT,
        text=True,
        capture_output=True,
        check=True,
    )
    assert "no peer answers" in done.stderr
    assert done.stdout.strip() == "[]"


def test_missing_extra_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    missing = ModuleNotFoundError("No module named 'numba'", name="numba")
    problem = cli.explain(missing, ["bench", "engine"])
    assert problem is not None and "'numba'" in str(problem) and "'weft[engine]'" in str(problem)
    assert cli.explain(ModuleNotFoundError("x", name="weft.nonsense"), ["lab"]) is None
    assert cli.explain(ZeroDivisionError(), ["lab"]) is None  # our own fault: keeps its traceback
