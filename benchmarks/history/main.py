"""`./weft bench history`: runs the measures, each in a process of its own, prints the figures."""

from __future__ import annotations

import argparse
import importlib
import json
import sys

from benchmarks.goals import Goal, measures_of, summary, table
from benchmarks.peer import worker

TIMEOUT_S = 3_600

GOALS = (
    Goal("verify_per_s", "verify", "events verified a second on one core", least=10_000),
    Goal("durable_publishes_per_s", "durable", "durable publishes a second", least=3_000),
    Goal("store_reads_per_s", "durable", "events read a second from the store", least=20_000),
    Goal("identical_dags", "dag", "all ten peers end with the identical DAG", least=1),
    Goal("replay_events_per_s", "dag", "events a second to a latecomer, verified", least=5_000),
    Goal("replay_cpu_us_per_event", "dag", "µs of the latecomer's CPU per event", most=200),
    Goal("kill_runs", "kills", "kill -9 at random points", least=200),
    Goal("receipted_lost", "kills", "receipted events lost", most=0),
    Goal("corrupted", "kills", "kills after which the store was damaged", most=0),
)
MEASURES = measures_of(GOALS)


def some_of(text: str) -> list[str]:
    """Names of measures with commas between them."""
    names = text.split(",")
    for name in names:
        if name not in MEASURES:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(MEASURES)}")
    return names


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="weft bench history", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--only", type=some_of, default=list(MEASURES), metavar="NAMES", help=",".join(MEASURES)
    )
    parser.add_argument(
        "--quick", action="store_true", help="smaller and shorter; not for comparison"
    )
    parser.add_argument("--measure-here", choices=MEASURES, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.measure_here:
        module = importlib.import_module(f"benchmarks.history.{args.measure_here}")
        print(json.dumps(module.measure(args.quick)))
        return 0
    found = worker.measures("benchmarks.history.main", args.only, args.quick, TIMEOUT_S)
    result = summary(GOALS, found, args.quick)
    print(json.dumps(result, indent=2) if args.json else table(GOALS, result))
    failed = any("error" in figures for figures in result["measures"].values())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
