"""A reader that is behind a busy stream catches up while publishing goes on.

    ./weft bench history --only behind
    PYTHONPATH=src:. python -m benchmarks.history.behind --backlog 100000

A publisher has a backlog of stored events. A reader with an empty store reads it, first while
nothing is published: that is the replay rate of this machine. Then another reader does, while 2,000
events a second are published. It is level once it has everything that had been published half a
second before. That may take 1.5 × backlog ÷ (replay rate − 2,000).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.history.dag_worker import config
from benchmarks.history.events import TOPIC

import weft

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BACKLOG = 100_000
RATE = 2_000
ALLOWED = 1.5
LEVEL_S = 0.5
PATIENCE_S = 600.0


class Worker:
    """The publisher's process."""

    def __init__(self, store: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.history.behind_worker", str(store)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address: str = self._line()["address"]

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    async def ask(self, **request: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return await asyncio.to_thread(self._line)

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


class Caught(NamedTuple):
    """What a reader needed until it was level, or gave up."""

    seconds: float  # from its first event on
    events: int
    cpu_s: float
    left_to_pages: int  # new events that it passed on unopened
    level: bool


async def read(worker: Worker, store: Path, show: bool, patience_s: float) -> Caught:
    """A new reader, until it is level."""
    cpu_s = time.process_time()
    async with weft.Peer.open(join=worker.address, config=config(), store=store) as peer:
        sub = peer.subscribe(TOPIC, since="beginning")
        got = 0
        first_at = 0.0

        async def follow() -> None:
            nonlocal got, first_at
            async for _ in sub:
                got += 1
                first_at = first_at or time.monotonic()

        following = asyncio.create_task(follow())
        seen: list[tuple[float, int]] = []  # when the publisher had published how many
        level = False
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            asked_at = time.monotonic()
            seen.append((asked_at, (await worker.ask(count=1))["count"]))
            if show:
                print(f"{asked_at - (first_at or asked_at):6.1f} s {got} of {seen[-1][1]}")
            past = [count for at, count in seen if at <= time.monotonic() - LEVEL_S]
            if past and got >= past[-1]:
                level = True
                break
            await asyncio.sleep(0.1)
        following.cancel()
        left = peer.counters.get("history_left_to_pages", 0)
        cpu_s = time.process_time() - cpu_s
        return Caught(time.monotonic() - first_at, got, cpu_s, left, level)


async def run(
    backlog: int, rate: int, show: bool = False, patience_s: float = PATIENCE_S
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=ROOT, prefix=".behind-") as name:
        folder = Path(name)
        worker = Worker(folder / "publisher.db")
        try:
            await worker.ask(publish=backlog)
            quiet = await read(worker, folder / "quiet.db", show, patience_s)
            # Half a second of it waited for the word that it is level.
            replay = quiet.events / max(quiet.seconds - LEVEL_S, 0.001)
            await worker.ask(pace=rate)
            before = (await worker.ask(count=1))["count"]
            busy = await read(worker, folder / "busy.db", show, patience_s)
            await worker.ask(pace=0)
        finally:
            worker.end()
    allowed_s = ALLOWED * before / (replay - rate) if replay > rate else 0.0
    times = round((busy.seconds - LEVEL_S) / allowed_s, 2) if allowed_s else 99.0
    return {
        "behind_backlog": before,
        "behind_replay_per_s": round(replay),
        "behind_level": busy.level,
        "behind_level_s": round(busy.seconds - LEVEL_S, 2),
        "behind_allowed_s": round(allowed_s, 2),
        "behind_times_allowed": times if busy.level and allowed_s else 99.0,
        "behind_events": busy.events,
        "behind_left_to_pages": busy.left_to_pages,
        "behind_quiet_cpu_us_per_event": round(1e6 * quiet.cpu_s / max(quiet.events, 1)),
        "behind_busy_cpu_us_per_event": round(1e6 * busy.cpu_s / max(busy.events, 1)),
    }


def measure(quick: bool, backlog: int = BACKLOG, rate: int = RATE) -> dict[str, Any]:
    return asyncio.run(run(min(backlog, 10_000) if quick else backlog, rate))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--backlog", type=int, default=BACKLOG)
    parser.add_argument("--rate", type=int, default=RATE)
    parser.add_argument("--patience", type=float, default=PATIENCE_S, help="seconds")
    parser.add_argument("--show", action="store_true", help="how it goes on, ten times a second")
    args = parser.parse_args()
    result = asyncio.run(run(args.backlog, args.rate, args.show, args.patience))
    print(json.dumps(result, indent=2))
    return 0 if result["behind_times_allowed"] <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
