"""py-libp2p's GossipSub under our load, in an environment of its own.

The environment is made on the first run, under the user's cache directory, and kept. Where it
cannot be made (no network, no wheel for this Python) the figures are None and `error` says why.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peer.machine import cache_folder, say
from benchmarks.peer.scenario import Load

VERSION = "0.8.1"
INSTALL_TIMEOUT_S = 900
RUN_TIMEOUT_S = 300
ATTEMPTS = 3
"""py-libp2p now and then fails to connect ten peers at once; a run that failed is tried again."""

WORKER = Path(__file__).with_name("gossipsub_worker.py")


@dataclass(frozen=True)
class Setup:
    """How the ten peers are connected and what GossipSub is told to do."""

    name: str
    dials: int  # how many of the peers before it on a ring each peer dials
    protocol: str = "1.1"
    signed: bool = True

    def arguments(self) -> list[str]:
        unsigned = [] if self.signed else ["--unsigned"]
        return [f"--dials={self.dials}", f"--protocol={self.protocol}", *unsigned]


MAIN = Setup("full", dials=9)
"""Everyone connected to everyone, as in weft, where ten peers fit in every view of twenty."""
VARIANTS = (
    Setup("full_v1.2", dials=9, protocol="1.2"),
    Setup("full_unsigned", dials=9, signed=False),
    Setup("ring_of_degree_6", dials=3),
    Setup("ring_of_degree_4", dials=2),
)


class NotThere(Exception):
    """py-libp2p cannot be installed or run here; the text says why."""


def environment() -> Path:
    """The interpreter of the environment that holds py-libp2p, which is made if need be."""
    python = f"py{sys.version_info.major}.{sys.version_info.minor}"
    home = cache_folder() / f"libp2p-{VERSION}-{python}"
    interpreter = home / "bin" / "python"
    complete = home / "complete"
    if complete.exists():
        return interpreter
    say(f"making an environment with libp2p=={VERSION}, once")
    try:
        venv.create(home, with_pip=True, clear=True)
        subprocess.run(
            [interpreter, "-m", "pip", "install", "--quiet", f"libp2p=={VERSION}"],
            check=True,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
        )
    except subprocess.CalledProcessError as problem:
        lines = [line for line in str(problem.stderr).splitlines() if line.strip()]
        raise NotThere(f"libp2p=={VERSION} could not be installed: {lines[-1:]}") from problem
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise NotThere(f"libp2p=={VERSION} could not be installed: {problem}") from problem
    complete.touch()
    return interpreter


def run_once(interpreter: Path, load: Load, setup: Setup) -> dict[str, Any]:
    command = [str(interpreter), str(WORKER), *load.arguments(), *setup.arguments()]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
    )
    try:
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        result = {"error": (done.stderr.splitlines() or ["no output"])[-1]}
    return result


def measure(load: Load, setup: Setup = MAIN) -> dict[str, Any]:
    """One run of py-libp2p; {"error": …} when it is not there or does not work."""
    try:
        interpreter = environment()
        result: dict[str, Any] = {}
        for _ in range(ATTEMPTS):
            result = run_once(interpreter, load, setup)
            if "error" not in result:
                break
            say(f"libp2p ({setup.name}) failed: {result['error']}; trying again")
        return result
    except (NotThere, subprocess.TimeoutExpired) as problem:
        return {"error": str(problem)}
