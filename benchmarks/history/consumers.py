"""kill -9 of a consumer and its publisher: nothing receipted is lost, nothing is handled twice.

    ./weft bench history --only consumers
    PYTHONPATH=src:. python -m benchmarks.history.consumers --kills 200 --seed 1

A publisher with a store publishes some hundred events a second and prints each receipt. The worker
of `examples/worker.py` handles what comes and keeps its place with its results. One of them or both
are killed by SIGKILL at random points, at times while they start, and started again. In the end
both live, without further events, until the worker has everything; then every receipted event must
be among the results, once, in the order of its publisher's life.
"""

from __future__ import annotations

import os
import select
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.history.kills import main, measured

from weft.lab.progress import Progress

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIFE_S_MAX = 3.0
"""After a start, and what that takes on this machine; long enough to join and to hand over some
events."""
PATIENCE_S = 300.0


class Process:
    """One of the two programs, which is killed and started again."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._read = b""

    def start(self, *more: str) -> None:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, *self._arguments, *more],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
                stdout=subprocess.PIPE,
            )

    def kill(self) -> list[str]:
        """Kill it; the whole lines that it has printed since."""
        if self._process is None:
            return []
        self._process.kill()
        code = self._process.wait()
        lines = self.lines()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process, self._read = None, b""
        if code != -9:
            raise RuntimeError(f"{self._arguments[0]} ended by itself with {code}")
        return lines

    def lines(self, wait: bool = False) -> list[str]:
        """What it has printed since the last call."""
        assert self._process is not None and self._process.stdout is not None
        output = self._process.stdout
        while select.select([output], [], [], PATIENCE_S if wait and not self._read else 0)[0]:
            more = os.read(output.fileno(), 1 << 16)
            if not more:
                break
            self._read += more
        *whole, self._read = self._read.split(b"\n")
        return [line.decode() for line in whole]


def run(
    kills: int,
    seed: int,
    place: Path = HERE,
    progress: Progress | None = None,
    life_s: float = LIFE_S_MAX,
) -> dict[str, Any]:
    random = Random(seed)
    receipted: list[str] = []
    with tempfile.TemporaryDirectory(dir=place, prefix=".kills-") as name:
        folder = Path(name)
        publisher = Process(
            *("-m", "benchmarks.history.consumers_worker"),
            *(str(folder / "shop.db"), str(free_port())),
        )
        began = time.monotonic()
        publisher.start()
        [first, *lines] = publisher.lines(wait=True)
        start_s = time.monotonic() - began
        receipted += lines
        results = folder / "results.db"
        worker = Process(str(ROOT / "examples" / "worker.py"), str(results), first.split()[1])
        try:
            for number in range(kills):
                publisher.start()
                worker.start()
                time.sleep(random.random() * (life_s + start_s))
                for process in random.choice([[publisher], [worker], [publisher, worker]]):
                    receipted += process.kill()
                if progress is not None:
                    progress.show(number + 1, number + 1, "kills")
            receipted += publisher.kill()
            receipted = [line for line in receipted if not line.startswith("at ")]
            publisher.start("quiet")
            worker.start()
            handled = wait_for(results, set(receipted))
        finally:
            publisher.kill()
            worker.kill()
    return {"consumer_kills": kills, "seed": seed, **judge(receipted, handled)}


def judge(receipted: list[str], handled: list[str]) -> dict[str, Any]:
    """What was lost, came twice or out of order."""
    unique = set(handled)
    numbers: dict[str, int] = {}
    disordered = 0
    for one in handled:
        life, _, number = one.partition("-")
        disordered += int(number) != numbers.get(life, -1) + 1
        numbers[life] = int(number)
    return {
        "consumer_receipted": len(receipted),
        "consumer_lost": sum(one not in unique for one in receipted),
        "consumer_repeated": len(handled) - len(unique),
        "consumer_disordered": disordered,
    }


def wait_for(results: Path, wanted: set[str]) -> list[str]:
    """The results, once they are complete or nothing has been added for long: each one is synced to
    disk by itself, which takes its time where others write, too."""
    handled: list[str] = []
    deadline = time.monotonic() + PATIENCE_S
    while not wanted <= set(handled) and time.monotonic() < deadline:
        time.sleep(0.1)
        before, handled = handled, read_results(results)
        if len(handled) > len(before):
            deadline = time.monotonic() + PATIENCE_S
    return handled


def read_results(results: Path) -> list[str]:
    database = sqlite3.connect(results)
    try:
        return [row[0] for row in database.execute("SELECT what FROM handled ORDER BY rowid")]
    except sqlite3.OperationalError:  # no table yet
        return []
    finally:
        database.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


measure = partial(measured, run)


if __name__ == "__main__":
    wrong = ("consumer_lost", "consumer_repeated", "consumer_disordered")
    sys.exit(main(run, __doc__ or "", wrong))
