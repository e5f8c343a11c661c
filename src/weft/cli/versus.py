"""`weft versus`: compares all systems on the same subscriptions, and recommends one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from weft.cli.parser import again_options, folder, whole_option
from weft.cli.problem import Problem
from weft.cli.spark import master_option, session

OUT = Path("out") / "versus"
HELP = "Compare all systems on the same subscriptions, and recommend one"
DETAILS = """
Plays weft's routings, with each useful way to spread events and to share links, and six other
systems (flooding, Scribe, GossipSub, PolderCast, SpiderCast, daMulticast) on the same
subscriptions, calm and under faults, and measures all of them alike, from their traces.

It runs on the synthetic grid and on each known trace in the folder of data (--data, else WEFT_DATA,
else shared/data beside the checkout); it names traces that are not there. With --trace LAKE it
runs on your own subscriptions alone ('weft data ingest' makes a lake of a CSV file).

Results in --out: versus/page.html with pictures, versus/versus.csv and .json with every number and
its interval, versus/recommended.toml with settings for 'weft peer --config'. After an interruption
the same command goes on. It is the experiment 'versus' of 'weft lab'.
"""
EXAMPLES = """
weft versus                                    quick: minutes on two cores
weft versus --full --out out/full              100 peers, three seeds: hours
weft data ingest subs.csv --out lakes/mine && weft versus --trace lakes/mine
weft peer --config out/versus/versus/recommended.toml
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="40 peers (the default)")
    size.add_argument("--full", action="store_true", help="100 peers, more faults, three seeds")
    parser.add_argument(
        "--out", type=folder, default=OUT, metavar="DIR", help="results (out/versus)"
    )
    whole_option(parser, "--seeds", 1, 10_000, "how many seeds (2, with --full 3)")
    master_option(parser)
    again_options(parser)
    data = parser.add_mutually_exclusive_group()
    data.add_argument("--trace", metavar="LAKE", help="run on this lake alone")
    data.add_argument("--data", type=Path, metavar="DIR", help="folder of the known traces")


def run(args: argparse.Namespace) -> int:
    from weft.lab import run as lab
    from weft.lab.execute import TaskFailed
    from weft.lab.experiments.versus import ENTRY
    from weft.lab.sources import find
    from weft.lab.versus import page

    sources = find(args.out, args.trace, args.data)
    for name, why in sources.skipped.items():
        print(f"weft: without {name}: {why}", file=sys.stderr)
    print("weft: starting Spark", file=sys.stderr)
    try:
        with session(args, "versus") as spark:
            lab.run(
                *(spark, [ENTRY], "full" if args.full else "quick", args.out),
                seeds=args.seeds,
                fresh=args.fresh,
                changed=args.changed,
                sources=sources,
            )
    except TaskFailed as error:
        raise Problem(str(error)) from error
    folder = args.out / ENTRY.id
    print(page.summary(folder))
    print(f"weft: the page is {folder / page.PAGE}, the numbers are beside it", file=sys.stderr)
    print(f"weft: weft peer --config {folder / page.SETTINGS}", file=sys.stderr)
    return 0
