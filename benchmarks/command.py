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
    sized: str = "",
    processes: int = 1,
) -> int:
    """Run measures of `benchmarks.NAME`, each in a process of its own, and print the figures. A
    measure of another benchmark is named with it, as in `peer.throughput`. Those `on_request` run
    only when they are named. Of the measure `sized`, size and number of runs can be chosen;
    its peers are spread evenly over so many `processes`."""
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
    if sized:
        parser.add_argument("--peers", type=_count, help=f"only so many, with --only {sized}")
        parser.add_argument("--runs", type=_count, help=f"so many, with --only {sized} --peers N")
    args = parser.parse_args(argv)
    chosen = {key: getattr(args, key) for key in ("peers", "runs") if getattr(args, key, None)}
    if chosen and [*(args.only or ()), *filter(None, [args.measure_here])] != [sized]:
        parser.error(f"--peers and --runs need --only {sized}, and nothing else")
    if "runs" in chosen and "peers" not in chosen:
        parser.error("--runs needs --peers: by itself, each size has its own number of runs")
    if chosen.get("peers", 0) % processes:
        parser.error(
            f"--peers is a multiple of {processes}: as many in each of {processes} processes"
        )
    if args.measure_here:
        here = args.measure_here
        module = importlib.import_module(f"benchmarks.{here if '.' in here else f'{name}.{here}'}")
        print(json.dumps(module.measure(args.quick, **chosen)))
        return 0
    options = [text for key, value in chosen.items() for text in (f"--{key}", str(value))]
    found = worker.measures(
        *(f"benchmarks.{name}.main", args.only or usual, args.quick),
        timeout_s * chosen.get("runs", 1),
        options,
    )
    result = summary(goals, found, args.quick)
    print(json.dumps(result, indent=2) if args.json else table(goals, result))
    failed = any("error" in figures for figures in result["measures"].values())
    return 1 if failed else 0


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no count of at least one")
    return int(text)
