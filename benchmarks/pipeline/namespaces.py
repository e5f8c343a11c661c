"""Four workers in network namespaces of their own, one killed in the middle of an ingest: the lake
is the one that this machine makes alone.

The namespaces hang on one bridge. Master, driver and the first worker are in the first, each of the
others has one worker, which joins through the cluster's folder. The second namespace is emptied by
SIGKILL (worker, executor and Python) once the ingest has staged its first files. What is compared
is every row of every table but `quality` and `sources`, which name the run.

Needs the rights to make namespaces; without them it says so and measures nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.peer import machine
from benchmarks.pipeline.ratios import written

from weft.pipeline.lake import Lake

ROWS = 300_000
SPACES = 4
BRIDGE = "weftbr0"
TABLES = ("memberships", "events", "users", "topics", "rejects")
WAIT_S = 900.0
WEFT = [sys.executable, "-m", "weft.cli.main"]


def address(place: int) -> str:
    return f"10.233.77.{place + 1}"


def space(place: int) -> str:
    return f"weft{place}"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def namespaces() -> Iterator[None]:
    """So many namespaces on a bridge, each with an address."""
    try:
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("link", "set", BRIDGE, "up")
        for place in range(SPACES):
            ip("netns", "add", space(place))
            ip("link", "add", f"weftv{place}", "type", "veth", "peer", "name", "weftin")
            ip("link", "set", "weftin", "netns", space(place))
            ip("link", "set", f"weftv{place}", "master", BRIDGE, "up")
            inside = ("-n", space(place))
            ip(*inside, "addr", "add", f"{address(place)}/24", "dev", "weftin")
            ip(*inside, "link", "set", "weftin", "up")
            ip(*inside, "link", "set", "lo", "up")
        yield
    finally:
        for place in range(SPACES):
            with suppress(subprocess.CalledProcessError):
                ip("netns", "del", space(place))
            with suppress(subprocess.CalledProcessError):
                ip("link", "del", f"weftv{place}")
        with suppress(subprocess.CalledProcessError):
            ip("link", "del", BRIDGE)


def inside(place: int, *words: str, folder: Path) -> list[str]:
    """A command of weft in one of the namespaces."""
    where = ["ip", "netns", "exec", space(place), "env", f"WEFT_CLUSTER={folder}"]
    return [*where, *WEFT, *words]


def measure(quick: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as aside:
        folder = Path(aside)
        csv = written(folder / "rows.csv", ROWS // (3 if quick else 1))
        try:
            with namespaces():
                return compared(folder, csv)
        except (subprocess.CalledProcessError, FileNotFoundError) as error:
            if "ip" not in str(error):
                raise
            said = getattr(error, "stderr", None) or str(error)
            machine.say(f"namespaces: skipped, they cannot be made here: {said}")
            return {"namespaces": "skipped: no rights to make network namespaces"}


def compared(folder: Path, csv: Path) -> dict[str, Any]:
    home = folder / "cluster"
    size = ("--workers", "1", "--memory", "512m")
    alone = [*WEFT, "data", "ingest", str(csv), "--out", str(folder / "alone"), "--json"]
    subprocess.run(alone, check=True, stdout=subprocess.DEVNULL)
    begun = time.monotonic()
    try:
        up = inside(0, "cluster", "up", "--listen", address(0), *size, folder=home)
        said = subprocess.run(up, check=True, stdout=subprocess.PIPE, text=True).stdout
        master = next(word for word in said.split() if word.startswith("spark://"))
        for place in range(1, SPACES):
            join = inside(place, "cluster", "join", "--listen", address(place), *size, folder=home)
            subprocess.run(join, check=True, stdout=subprocess.DEVNULL)
        machine.say(f"namespaces: {SPACES} workers, {time.monotonic() - begun:.0f} s")
        job = ("data", "ingest", str(csv), "--out", str(folder / "lake"), "--master", master)
        with subprocess.Popen(inside(0, *job, folder=home), stdout=subprocess.DEVNULL) as process:
            while process.poll() is None and not any((folder / "lake").glob(".staging-*/read-*")):
                time.sleep(0.05)
            killed = kill(1)
            machine.say(f"namespaces: killed {killed} processes of worker 2")
            if process.wait(WAIT_S):
                raise RuntimeError("the ingest failed")
    finally:
        subprocess.run(inside(0, "cluster", "down", folder=home), check=False, capture_output=True)
    same = all(content(folder / "lake", name) == content(folder / "alone", name) for name in TABLES)
    return {
        "namespaces_same": int(same),
        "namespaces_workers": SPACES,
        "namespaces_killed_processes": killed,
        "namespaces_s": round(time.monotonic() - begun, 1),
    }


def kill(place: int) -> int:
    """End everything in a namespace."""
    listed = subprocess.run(
        ["ip", "netns", "pids", space(place)], check=True, capture_output=True, text=True
    )
    pids = [int(pid) for pid in listed.stdout.split()]
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)


def content(lake: Path, table: str) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in Lake(lake).few(table))
