"""Durable readers, killed at every step of their work, over simulated networks never played before.

    ./weft bench history --only readers
    PYTHONPATH=src:. python -m benchmarks.history.readers --runs 2000

Each run has a seed of its own (`benchmarks/history/reader_runs.py` says what happens in it); a run
that fails is named, and is played again by `--first SEED --runs 1`.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from multiprocessing import get_context
from typing import Any

from benchmarks.history.reader_runs import Verdict, play

from weft.lab.progress import Progress
from weft.sim.runs import begin_worker

RUNS = 2_000


def measure(
    quick: bool, runs: int = RUNS, first: int | None = None, processes: int = 2
) -> dict[str, Any]:
    """What so many runs showed, all together."""
    runs = min(runs, 50) if quick else runs
    first = secrets.randbelow(1 << 48) if first is None else first
    seeds = range(first, first + runs)
    progress = Progress(runs, runs)
    verdicts: list[Verdict] = []
    with get_context("spawn").Pool(processes, begin_worker) as pool:
        for verdict in pool.imap(play, seeds, chunksize=4):
            verdicts.append(verdict)
            progress.show(len(verdicts), len(verdicts), "runs")
        pool.close()
        pool.join()
    progress.clear()
    pairs = zip(seeds, verdicts, strict=True)
    return {
        "reader_runs": len(verdicts),
        "reader_first_seed": first,
        "reader_events": sum(one.events for one in verdicts),
        "reader_kills": sum(one.kills for one in verdicts),
        "reader_disks_lost": sum(one.disks_lost for one in verdicts),
        "reader_lost": sum(one.lost for one in verdicts),
        "reader_repeated": sum(one.repeated for one in verdicts),
        "reader_disordered": sum(one.disordered for one in verdicts),
        "reader_old": sum(one.old for one in verdicts),
        "reader_failed_seeds": [seed for seed, one in pairs if not one.holds][:20],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--first", type=int, help="the seed of the first run (drawn)")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    result = measure(False, args.runs, args.first, args.processes)
    print(json.dumps(result, indent=2))
    return 1 if result["reader_failed_seeds"] else 0


if __name__ == "__main__":
    sys.exit(main())
