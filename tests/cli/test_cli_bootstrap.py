"""The launcher, for real: a copy of the front door, real environments, a local package."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from processes import PATIENCE_SECONDS, children, command_of
from weft.cli import bootstrap
from weft.pipeline.resources import wait_until

ROOT = Path(__file__).resolve().parents[2]


def make_wheel(folder: Path, version: str) -> str:
    """A tiny pure-Python package; returns the requirements line that pins it."""
    folder.mkdir(exist_ok=True)
    info = f"weft_probe-{version}.dist-info"
    files = {
        "weft_probe.py": f"VERSION = '{version}'\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: weft-probe\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = []
    wheel = folder / f"weft_probe-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
            checksum = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode()
            record.append(f"{name},sha256={checksum.rstrip('=')},{len(text)}")
        archive.writestr(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,\n"]))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return f"weft-probe=={version} --hash=sha256:{digest}\n"


class Checkout:
    """A copy of the repository's front door whose only dependency is the tiny package."""

    def __init__(self, root: Path, wheels: Path) -> None:
        self.root, self.wheels = root, wheels
        shutil.copytree(ROOT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "weft", root / "weft")
        shutil.copy(ROOT / "pyproject.toml", root / "pyproject.toml")
        (root / "tests").mkdir()
        (root / "requirements").mkdir()
        self.require(make_wheel(wheels, "1.0"))

    def require(self, line: str) -> None:
        (self.root / "requirements" / "core.txt").write_text(line)

    def environment(self, **extra: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        # weft's own dependencies come from the environment that runs this test.
        packages = sysconfig.get_paths()["purelib"]
        return {
            **kept,
            "PYTHONPATH": packages,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_CONFIG_FILE": os.devnull,
            "WEFT_PYTHON": sys.executable,
            **extra,
        }

    def start(self, *arguments: str, **extra: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.root / "weft"), *(arguments or ["--version"])],
            env=self.environment(**extra),
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *arguments: str, **extra: str) -> tuple[int, str, str]:
        process = self.start(*arguments, **extra)
        out, err = process.communicate()
        return process.returncode, out, err

    def installed(self) -> str:
        """The version of the tiny package in the environment."""
        python = self.root / ".venv" / "bin" / "python"
        code = "import weft_probe; print(weft_probe.VERSION)"
        return subprocess.check_output([python, "-E", "-c", code], text=True).strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    root = tmp_path / "a checkout"  # with a space: paths must be quoted everywhere
    root.mkdir()
    return Checkout(root, tmp_path / "wheels")


def test_first_use_installs_once_also_if_there_are_two_and_later_uses_do_not(
    checkout: Checkout,
) -> None:
    both = [checkout.start(), checkout.start()]
    ends = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    assert all(out.startswith("weft ") for out, _ in ends)  # stdout belongs to the command
    [installing] = [err for _, err in ends if "first use" in err]
    assert "1 packages" in installing
    assert checkout.installed() == "1.0"

    code, out, err = checkout.run()
    assert (code, err) == (0, "")

    checkout.require(make_wheel(checkout.wheels, "1.1"))
    code, out, err = checkout.run()
    assert code == 0 and "first use" not in err
    assert checkout.installed() == "1.1"

    # A checkout can be moved with its environment.
    checkout.root = checkout.root.rename(checkout.root.with_name("moved"))
    code, out, err = checkout.run()
    assert (code, err) == (0, "") and out.startswith("weft ")
    python = checkout.root / ".venv" / "bin" / "python"
    where = subprocess.check_output(
        [python, "-E", "-c", "import weft.cli.bootstrap as b; print(b.__file__)"], text=True
    )
    assert Path(where.strip()).is_relative_to(checkout.root)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["web", "--at", "somewhere"], "'somewhere' is neither PORT nor HOST:PORT"),
        (["lab", "rum"], "invalid choice: 'rum'"),
        (["lab", "run", "tera-4x"], "no experiment is called 'tera-4x' (did you mean 'tera-4"),
        (["lab", "audit", "--only", "stan*x"], "no experiment is called 'stan*x'"),
        (["swamr"], "there is no command 'swamr' (did you mean 'swarm'?)"),
    ],
)
def test_a_wrong_command_line_installs_nothing(
    checkout: Checkout, arguments: list[str], said: str
) -> None:
    code, out, err = checkout.run(*arguments, PYTHONPATH="")
    assert (code, out) == (2, "") and said in err
    assert not (checkout.root / ".venv").exists()


def test_interrupted_installation_starts_over(checkout: Checkout) -> None:
    """What the killed one had started writes on, and nothing else is written meanwhile."""
    process = checkout.start()
    assert process.stderr is not None
    assert any("installing" in line for line in process.stderr)

    def pips() -> list[int]:
        """A child that has not become pip yet still holds this test's end of the pipe."""
        return [one for one in children(process.pid) if "pip" in command_of(one).split()]

    assert wait_until(lambda: bool(pips()), PATIENCE_SECONDS)
    [pip] = pips()
    os.kill(pip, signal.SIGSTOP)
    process.kill()
    process.communicate()
    assert (checkout.root / ".venv" / "weft" / "unfinished").exists()
    lock = os.open(checkout.root / "requirements", os.O_RDONLY)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(lock)
        os.kill(pip, signal.SIGKILL)
    code, _, err = checkout.run()
    assert code == 0 and "interrupted; starting over" in err
    assert checkout.installed() == "1.0"


def test_help_is_there_while_another_use_installs(checkout: Checkout) -> None:
    """The environment has a Python before it has weft."""
    assert checkout.run()[0] == 0
    home = checkout.root / ".venv"
    [line] = home.glob("lib/python*/site-packages/weft.pth")
    line.unlink()
    (home / "weft" / "unfinished").touch()
    code, out, err = checkout.run("sim", "--help")
    assert (code, err) == (0, "") and out.startswith("usage: weft sim")


def test_wrong_hash_is_refused(checkout: Checkout) -> None:
    checkout.require(f"weft-probe==1.0 --hash=sha256:{'0' * 64}\n")
    code, out, err = checkout.run()
    assert code == 1 and out == ""
    assert "pip could not install" in err and "HASHES" in err.upper()


def test_no_registry_within_reach(checkout: Checkout) -> None:
    code, _, err = checkout.run(PIP_FIND_LINKS=str(checkout.root / "tests"))
    assert code == 1
    assert "run the same command again" in err
    assert "Traceback" not in err
    assert checkout.run()[0] == 0  # once the registry is there


def test_no_room_for_the_environment(checkout: Checkout) -> None:
    (checkout.root / ".venv").write_text("a file in its place")
    code, _, err = checkout.run()
    assert code == 1 and ".venv" in err and "Traceback" not in err


def test_python_too_old_says_so(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2 && exit 0\nexit 1\n')
    old.chmod(0o755)
    shutil.copy(ROOT / "weft", tmp_path / "weft")
    done = subprocess.run(
        [tmp_path / "weft"],
        env={**os.environ, "WEFT_PYTHON": str(old)},
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Python 3.11 or newer, but found Python 3.9.2" in done.stderr
    assert "apt install" in done.stderr


def test_missing_venv_module_says_which_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "core.txt").write_text("")
    monkeypatch.setitem(sys.modules, "ensurepip", None)  # as on Debian without python3-venv
    with pytest.raises(bootstrap.Failed, match=r"'ensurepip'.*\n.*-venv"):
        bootstrap.Environment(tmp_path).ensure(["core"])


@pytest.mark.parametrize(
    ("arguments", "groups"),
    [
        ([], ()),
        (["peer", "--listen", "127.0.0.1:0"], ("core",)),
        (["bench", "peer", "--json"], ("core",)),
        (["bench", "engine"], ("core", "engine")),
        (["bench", "pipeline", "--only", "prune"], ("core", "engine", "pipeline", "bench")),
        (["cluster", "up", "--workers", "2"], ("core", "engine", "pipeline")),
        (["demo", "--out", "there"], ("core", "pipeline", "lab")),
        (["demo", "--no-measure"], ("core", "lab")),
        (["trace", "measure", "there", "--follow"], ("core", "pipeline", "lab")),
        (["lab", "run", "tera-4a"], ("core", "engine", "pipeline", "lab")),
        (["lab", "new", "my-question"], ("core",)),
        (["trace", "convert", "go.pb", "lines.jsonl"], ("core",)),
        (["test", "tests/cli", "-x"], bootstrap.EVERYTHING),
        (["--help"], ()),
        (["help", "lab"], ()),
        (["lab", "run", "--help"], ()),
        (["test", "--help"], ()),
        (["test", "tests/cli", "--help"], bootstrap.EVERYTHING),
        (["web"], ("core", "web")),
        (["swarm", "--web", "--peers", "9"], ("core", "web")),
        (["peer", "--web=8700", "--mdns"], ("core", "web", "mdns")),
    ],
)
def test_groups_by_command(arguments: list[str], groups: tuple[str, ...]) -> None:
    assert bootstrap.groups_for(arguments) == groups


def test_every_group_is_pinned_with_hashes_and_names_no_place() -> None:
    needed = {group for groups in bootstrap.NEEDS.values() for group in groups}
    files = sorted((ROOT / "requirements").glob("*.txt"))
    assert needed <= {path.stem for path in files}
    for path in files:
        text = path.read_text()
        assert "://" not in text and "--index" not in text and "--find-links" not in text
        requirements = text.replace("\\\n", " ").splitlines()
        for line in requirements:
            if line and not line.startswith("#"):
                assert "==" in line and "--hash=sha256:" in line, f"{path.name}: {line[:60]}"
