"""kill -9 at random points: no receipted event lost, no stream corrupted.

    PYTHONPATH=src:. python -m benchmarks.history.kills --kills 200

A process stores events and prints a receipt for each; it is killed by SIGKILL at a random point (at
its start, amid a commit, amid pruning), started again on the same file, killed again. After every
kill the store is opened and everything about it is checked: the file, every block, the heads, the
order, the signatures of what is new, and that every receipt ever given is honoured.

A kill loses what the process had in memory, not what the system has in its own; that a receipt
comes after the sync to disk is a matter of `synchronous=FULL` (tests/store).
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.history.events import TOPIC
from benchmarks.history.kills_worker import PRUNED, UNPRUNED_MAX

from weft.documents.descriptor import open_event
from weft.documents.position import START, Position
from weft.ids import Cid
from weft.lab.progress import Progress
from weft.store.interface import StoreError
from weft.store.sqlite import SqliteStore

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIFE_S_MAX = 0.4
"""After its first receipt; long enough for several commits."""
EARLY = 0.15
"""The share of kills that hit the start instead."""
START_S_MAX = 0.3
PATIENCE_S = 60.0


class Corrupt(Exception):
    """The store is not as it must be; the text says how."""


def live_and_die(path: Path, random: Random) -> list[Cid]:
    """One life of the process; the receipts it gave."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.history.kills_worker", str(path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        stdout=subprocess.PIPE,
    )
    if process.stdout is None:
        raise RuntimeError("no pipe")
    try:
        if random.random() < EARLY:
            time.sleep(random.random() * START_S_MAX)
        else:
            ready, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
            if not ready:
                raise RuntimeError("the process gave no receipt in time")
            time.sleep(random.random() * LIFE_S_MAX)
    finally:
        process.kill()
    output = process.stdout.read()
    process.stdout.close()
    code = process.wait()
    if code != -9:
        raise RuntimeError(f"the process ended by itself with {code}")
    lines = output.split(b"\n")[:-1]  # the last one may be cut short
    return [Cid(bytes.fromhex(line.decode())) for line in lines]


def check(path: Path, receipts: list[Cid], above: Position) -> tuple[int, Position]:
    """How many receipts are not honoured, and where the stream ends; `Corrupt` if it is damaged.
    What lies up to `above` was checked in full before."""
    store = SqliteStore(path)
    try:
        store.verify()
        for topic in (TOPIC, PRUNED):
            if store.missing(topic):
                raise Corrupt(f"{topic} has gaps")
            last = check_stream(store, topic, above if topic == TOPIC else START)
            if topic == TOPIC:
                end = last
        if store.summary(PRUNED).events > UNPRUNED_MAX:
            raise Corrupt("pruning does not work")
        return sum(not store.has(cid) for cid in receipts), end
    finally:
        store.close()


def check_stream(store: SqliteStore, topic: str, above: Position) -> Position:
    """That events are in order, come after their parents and verify; that the heads are right."""
    floor = store.summary(topic).floor
    unnamed: dict[Cid, int] = {}
    last = above
    while events := store.events(topic, last):
        for event in events:
            open_event(event.block, event.cid)
            here = Position(event.height, event.cid)
            if here <= last:
                raise Corrupt(f"{topic} is out of order")
            last = here
            for parent in event.parents:
                unnamed.pop(parent, None)
                if not store.has(parent) and Position(event.height - 1, parent) > floor:
                    raise Corrupt(f"{topic} lacks a parent and does not know it")
            unnamed[event.cid] = event.height
    heads = store.heads(topic)
    if any(cid not in heads for cid in unnamed):
        raise Corrupt(f"{topic} has lost a head")
    if any(Position(height, cid) > above and cid not in unnamed for cid, height in heads.items()):
        raise Corrupt(f"{topic} has a head that is none")
    return last


def run(
    kills: int, seed: int, place: Path = HERE, progress: Progress | None = None
) -> dict[str, Any]:
    """Kill so many times, with the store below `place`; what came of it."""
    random = Random(seed)
    receipts: list[Cid] = []
    lost = corrupted = 0
    problems: list[str] = []
    with tempfile.TemporaryDirectory(dir=place, prefix=".kills-") as name:
        path = Path(name) / "store.db"
        above = START
        for number in range(kills):
            receipts += live_and_die(path, random)
            try:
                missing, above = check(path, receipts, above)
                if missing:
                    problems.append(f"after kill {number + 1}: {missing} receipted events lost")
                lost = max(lost, missing)
            except (Corrupt, StoreError) as error:
                corrupted += 1
                problems.append(f"after kill {number + 1}: {error}")
            if progress is not None:
                progress.show(number + 1, number + 1, "kills")
        check(path, receipts, START)  # once more from the beginning
    return {
        "kill_runs": kills,
        "receipted": len(receipts),
        "receipted_lost": lost,
        "corrupted": corrupted,
        "seed": seed,
        "problems": problems[:20],
    }


def measured(
    run: Callable[..., dict[str, Any]], quick: bool, kills: int = 200, seed: int = 1
) -> dict[str, Any]:
    """What `run` says of so many kills, shown as they go on."""
    kills = min(kills, 20) if quick else kills
    progress = Progress(kills, kills)
    result = run(kills, seed=seed, progress=progress)
    progress.clear()
    return result


measure = partial(measured, run)


def main(run: Callable[..., dict[str, Any]], about: str, wrong: tuple[str, ...]) -> int:
    """So many kills from the command line; exit code 1 if any of the figures in `wrong` is not
    zero."""
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    result = measured(run, False, args.kills, args.seed)
    print(json.dumps(result, indent=2))
    return 1 if any(result[name] for name in wrong) else 0


if __name__ == "__main__":
    sys.exit(main(run, __doc__ or "", ("receipted_lost", "corrupted")))
