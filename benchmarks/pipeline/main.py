"""`./weft bench pipeline`: runs the measures, each in a process of its own, prints the figures."""

from __future__ import annotations

import argparse
import importlib
import json
import sys

from benchmarks.goals import Goal, measures_of, summary, table
from benchmarks.peer import worker

TIMEOUT_S = 5_400

GOALS = (
    Goal("prune_cpu_s", "prune", "CPU s to prune 2·10⁷ memberships on Spark"),
    Goal("duckdb_prune_cpu_s", "prune", "the same on DuckDB"),
    Goal("duckdb_ratio", "prune", "how many times more", most=5),
    Goal("stan_gowalla_s", "stan", "s for StaN on the gowalla trace, 8 rounds", most=180),
    Goal("stan_gowalla_peak_gb", "stan", "GB of memory for it", most=8),
    Goal("stan_exponent", "stan", "how time grows with memberships", most=1.1),
    Goal("trace_json_records_per_s", "traces", "JSON-lines records a second", least=200_000),
    Goal("trace_parquet_records_per_s", "traces", "Parquet records a second", least=1_000_000),
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
    parser = argparse.ArgumentParser(prog="weft bench pipeline", description=__doc__)
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
        module = importlib.import_module(f"benchmarks.pipeline.{args.measure_here}")
        print(json.dumps(module.measure(args.quick)))
        return 0
    found = worker.measures("benchmarks.pipeline.main", args.only, args.quick, TIMEOUT_S)
    result = summary(GOALS, found, args.quick)
    print(json.dumps(result, indent=2) if args.json else table(GOALS, result))
    failed = any("error" in figures for figures in result["measures"].values())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
