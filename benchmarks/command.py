"""The command line that benchmarks with goals share: which measures, how large, as what."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Sequence

from benchmarks.goals import Goal, measures_of, summary, table
from benchmarks.peer import worker


def run(
    name: str,
    goals: Sequence[Goal],
    timeout_s: float,
    text: str,
    argv: list[str] | None,
    on_request: Sequence[str] = (),
) -> int:
    """Run measures of `benchmarks.NAME`, each in a process of its own, and print the figures. A
    measure of another benchmark is named with it, as in `peer.throughput`. Those `on_request` run
    only when they are named."""
    known = measures_of(goals)
    usual = [each for each in known if each not in on_request]

    def some_of(listed: str) -> list[str]:
        """Names of measures with commas between them."""
        names = listed.split(",")
        for each in names:
            if each not in known:
                raise argparse.ArgumentTypeError(f"{each!r} is none of {', '.join(known)}")
        return names

    parser = argparse.ArgumentParser(prog=f"weft bench {name}", description=text)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--only",
        type=some_of,
        action="extend",
        metavar="NAMES",
        help=f"run these measures: {','.join(known)} (without it: {','.join(usual)})",
    )
    parser.add_argument(
        "--quick", action="store_true", help="smaller and shorter; not for comparison"
    )
    parser.add_argument("--measure-here", choices=known, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.measure_here:
        here = args.measure_here
        module = importlib.import_module(f"benchmarks.{here if '.' in here else f'{name}.{here}'}")
        print(json.dumps(module.measure(args.quick)))
        return 0
    found = worker.measures(f"benchmarks.{name}.main", args.only or usual, args.quick, timeout_s)
    result = summary(goals, found, args.quick)
    print(json.dumps(result, indent=2) if args.json else table(goals, result))
    failed = any("error" in figures for figures in result["measures"].values())
    return 1 if failed else 0
