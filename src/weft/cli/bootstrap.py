"""From a bare Python to a running command line: makes `.venv`, fills it, starts weft in it.

`./weft` runs this file with the first Python 3.11+ that it finds, so it imports nothing but the
standard library and nothing of weft. Each group of dependencies is a file in `requirements/`
with exact versions and hashes; a command gets the groups it needs, when it is first used.

One stamp per installed group holds the requirements' hash and the Python version. A mark tells that
an installation was interrupted and must start over. A lock (held on the `requirements` folder, so
it leaves no file) keeps two first uses apart. All messages go to stderr, since stdout belongs to
the command.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

EVERYTHING = ("core", "dev", "engine", "pipeline", "lab", "bench", "web", "mdns")
NEEDS: dict[tuple[str, ...], tuple[str, ...]] = {
    (): ("core",),
    ("bench", "engine"): ("core", "engine"),
    ("bench", "topic-dht"): ("core", "engine"),
    ("bench", "page"): ("core", "web"),
    ("bench", "exchange"): ("core", "web"),
    ("bench", "pipeline"): ("core", "engine", "pipeline", "bench"),
    ("cluster",): ("core", "engine", "pipeline"),
    ("data",): ("core", "engine", "pipeline", "lab"),
    ("demo",): ("core", "pipeline", "lab"),
    ("docs",): ("core", "docs"),
    ("lab",): ("core", "engine", "pipeline", "lab"),
    ("lab", "new"): ("core",),
    ("spark",): ("core", "engine", "pipeline", "lab"),
    ("sql",): ("core", "pipeline"),
    ("trace",): ("core", "pipeline", "lab"),
    ("trace", "convert"): ("core",),
    ("versus",): ("core", "engine", "pipeline", "lab"),
    ("web",): ("core", "web"),
    ("test",): EVERYTHING,
    ("check",): EVERYTHING,
}
"""Which groups a command needs; the longest matching row counts."""
OPTIONS = {"--web": "web", "--metrics": "web", "--mdns": "mdns", "--soak": "lab"}
"""Which group an option needs in addition to its command's."""
SPARES = {"--no-measure": "pipeline"}
"""Which group is not needed with an option."""
HELP = ("-h", "--help", "help")
"""Words that ask for a help text, which any Python can print."""

READ = "import sys; from weft.cli.main import check, main; sys.exit(main(None, check))"
USAGE = 2
"""The exit code of a command line that is wrong."""

PREPARE = ("-m", "weft.pipeline.session")
"""Makes every later Spark command start in half the time; if it fails, everything works anyway."""


class Failed(Exception):
    """The environment cannot be made; the text says why and what to do."""


def groups_for(arguments: Sequence[str]) -> tuple[str, ...]:
    """The groups of dependencies that this command line needs; none if it asks for a help text."""
    if not arguments or arguments[0] in HELP or asks_help(arguments):
        return ()
    words = tuple(word for word in arguments if not word.startswith("-"))
    known = next(NEEDS[words[:n]] for n in range(len(words), -1, -1) if words[:n] in NEEDS)
    given = {word.partition("=")[0] for word in arguments}
    more = dict.fromkeys(group for option, group in OPTIONS.items() if option in given)
    less = {group for option, group in SPARES.items() if option in given}
    return tuple(group for group in dict.fromkeys((*known, *more)) if group not in less)


def asks_help(arguments: Sequence[str]) -> bool:
    """Whether a command line asks for help. 'weft test' hands '--help' on to pytest if other
    arguments are there, too."""
    asked = {"-h", "--help"}.intersection(arguments)
    return bool(asked) and (arguments[0] != "test" or len(arguments) == 2)


def say(text: str) -> None:
    print(f"weft: {text}", file=sys.stderr, flush=True)


class Environment:
    """The virtual environment of one checkout."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / ".venv"
        self.python = self.home / "bin" / "python"
        self.stamps = self.home / "weft"
        self.unfinished = self.stamps / "unfinished"

    def requirements(self, group: str) -> Path:
        return self.root / "requirements" / f"{group}.txt"

    def stamp(self, group: str) -> str:
        """The text in the stamp of an up-to-date group."""
        digest = hashlib.sha256(self.requirements(group).read_bytes()).hexdigest()
        return f"{PYTHON} {digest}\n"

    def missing(self, groups: Sequence[str]) -> list[str]:
        """The groups that are not installed, or not as the requirements now say."""
        if self.is_unfinished():
            return list(groups)
        return [group for group in groups if self._read(group) != self.stamp(group)]

    def is_unfinished(self) -> bool:
        """Whether there is no environment to run in, yet: it lacks weft itself at first."""
        return self.unfinished.exists() or not self.python.exists()

    def _read(self, group: str) -> str:
        try:
            return (self.stamps / group).read_text()
        except OSError:
            return ""

    def refusal(self, arguments: Sequence[str]) -> str:
        """What is wrong with a command line, before anything is installed for it; empty if it is
        right, or if packages are missing, so that this Python cannot tell."""
        python = str(self.python) if self.python.exists() else sys.executable
        read = subprocess.run(
            [python, "-c", READ, *arguments],
            env={**os.environ, "PYTHONPATH": str(self.root / "src")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        return read.stderr if read.returncode == USAGE else ""

    def ensure(self, groups: Sequence[str]) -> list[str]:
        """Install what is missing, and say what that was; cheap when nothing is."""
        if not self.missing(groups):
            return []
        with locked(self.root / "requirements") as lock:
            missing = self.missing(groups)  # another first use may have done it meanwhile
            if not missing:
                return []
            if self.unfinished.exists():
                say("an earlier installation was interrupted; starting over")
            if self.unfinished.exists() or self._is_foreign():
                self._create(lock)
            self.unfinished.touch()
            for group in missing:
                self._install(group, lock)
            self.unfinished.unlink()
            return missing

    def _is_foreign(self) -> bool:
        """Whether `.venv` is missing, is not weft's, or was made by another version of Python."""
        ours = self.stamps.is_dir() and self.python.exists()
        return not (ours and (self.home / "lib" / f"python{PYTHON}").is_dir())

    def _create(self, lock: int) -> None:
        for module in ("venv", "ensurepip"):
            if importlib.util.find_spec(module) is None:
                raise Failed(
                    f"this Python ({sys.executable}) lacks the module '{module}'.\n"
                    f"On Debian or Ubuntu: apt install python{PYTHON}-venv (or python3-venv)"
                )
        say(f"first use: making an environment in {self.home}")
        shutil.rmtree(self.home, ignore_errors=True)
        self.stamps.mkdir(parents=True, exist_ok=True)
        self.unfinished.touch()  # before anything that can be interrupted
        base = getattr(sys, "_base_executable", None) or sys.executable
        done = subprocess.run(
            [base, "-E", "-m", "venv", str(self.home)],
            capture_output=True,
            text=True,
            check=False,
            pass_fds=[lock],
        )
        if done.returncode:
            detail = (done.stdout + done.stderr).strip()
            raise Failed(f"could not make {self.home}:\n{detail}")
        # A relative line, so that the checkout can be moved with its environment.
        for packages in self.home.glob("lib/python*/site-packages"):
            source = os.path.relpath(self.root / "src", packages)
            (packages / "weft.pth").write_text(source + "\n")

    def _install(self, group: str, lock: int) -> None:
        requirements = self.requirements(group)
        names = [
            line.split("==")[0] for line in requirements.read_text().splitlines() if "==" in line
        ]
        say(f"installing {len(names)} packages ({group})")
        command = [str(self.python), "-E", "-m", "pip", "install", "--no-input"]
        command += ["--disable-pip-version-check", "--require-hashes", "-r", str(requirements)]
        environment = {**os.environ, "PIP_USER": "0", "PYTHONUNBUFFERED": "1"}
        lines: list[str] = []
        with subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            pass_fds=[lock],
        ) as pip:
            assert pip.stdout is not None
            progress = Progress(len(names))
            try:
                for line in pip.stdout:
                    lines.append(line.rstrip())
                    progress.heard(line)
            except KeyboardInterrupt:
                pip.terminate()
                raise
            finally:
                progress.finish()
        if pip.returncode:
            raise Failed(
                "\n".join(["pip could not install the packages:", *lines[-12:]])
                + "\nThe first use needs a package registry within reach of pip "
                "(see 'pip config list'); run the same command again when it is."
            )
        (self.stamps / group).write_text(self.stamp(group))


class Progress:
    """Shows how many packages pip has handled: in one line on a terminal, else in a line for each
    quarter."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.seen = 0
        self.live = sys.stderr.isatty()

    def heard(self, line: str) -> None:
        """Take note of one line of pip's output."""
        words = line.split()
        if line.startswith(("Collecting ", "Processing ")):
            self.seen += 1
            self._show("fetching " + re.split(r"==|-\d", Path(words[1]).name)[0])
        elif "Downloading" in words and (size := large(line)):
            self._show(f"fetching {Path(words[1]).name} ({size})", always=True)
        elif line.startswith("Building wheels"):
            self._show("building " + words[-1], always=True)
        elif line.startswith("Installing collected packages"):
            self._show("unpacking", always=True)

    def _show(self, what: str, *, always: bool = False) -> None:
        text = f"weft:   {min(self.seen, self.total)}/{self.total} {what}"
        if self.live:
            print(f"\r{text:<70.70}", end="", file=sys.stderr, flush=True)
        elif always or self.seen % max(1, self.total // 4) == 0:
            print(text, file=sys.stderr, flush=True)

    def finish(self) -> None:
        if self.live:
            print(f"\r{'':<70}\r", end="", file=sys.stderr, flush=True)


def large(line: str) -> str:
    """The size that pip announces for a download that takes a while; nothing for others."""
    found = re.search(r"\((\d{2,}(?:\.\d+)? [MG]B)\)", line)
    return found[1] if found else ""


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Hold the lock on a folder; wait, and say so, while another process holds it. A child that is
    passed the handle holds the lock as well, so that it is safe while it outlives its parent."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another ./weft is installing; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def main(arguments: Sequence[str]) -> int:
    environment = Environment(ROOT)
    groups = groups_for(arguments)
    if not groups and environment.is_unfinished():
        os.environ["PYTHONPATH"] = str(ROOT / "src")
        os.execv(sys.executable, [sys.executable, "-m", "weft.cli.main", *arguments])
    if environment.missing(groups) and (wrong := environment.refusal(arguments)):
        print(wrong, end="", file=sys.stderr)
        return USAGE
    try:
        installed = environment.ensure(groups)
    except Failed as problem:
        for line in str(problem).splitlines():
            say(line)
        return 1
    except OSError as problem:
        say(f"cannot make the environment: {problem.filename}: {problem.strerror}")
        return 1
    except KeyboardInterrupt:
        say("interrupted; the next use starts the installation over")
        return 130
    python = str(environment.python)
    if "pipeline" in installed:
        say("preparing Java for Spark, once")
        subprocess.run([python, "-E", *PREPARE], stdin=subprocess.DEVNULL, check=False)
    os.execv(python, [python, "-m", "weft.cli.main", *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
