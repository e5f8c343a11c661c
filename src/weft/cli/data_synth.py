"""`weft data synth`: the synthetic grid as a lake."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from weft.cli.parser import whole
from weft.cli.problem import USAGE, Problem

HELP = "Make up subscriptions, as a lake"
DETAILS = """
Nodes stand at random places of a square; topics have identifiers at random places, their number by
a power law; each node subscribes to the topics within its radius of interest, by a power law, too.
So popularity and interest are as unequal as in real networks, and nodes that stand close share
topics.

--like livejournal makes 267,230 nodes and 13,652 topics of at least 30 subscribers each.
"""
EXAMPLES = """
weft data synth --out grid                            100 nodes, 16 topics
weft data synth --nodes 5000 --topics 300 --out grid
weft data synth --like livejournal --out lj
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, metavar="LAKE", help="a new lake")
    parser.add_argument("--nodes", type=whole(1, 10**8), metavar="N", help="(100)")
    parser.add_argument("--topics", type=whole(1, 10**7), metavar="N", help="(16)")
    parser.add_argument(
        "--like", choices=("grid", "livejournal"), default="grid", help="which power laws (grid)"
    )
    parser.add_argument("--seed", type=whole(0, 2**63 - 1), default=1, metavar="N", help="(1)")
    parser.add_argument(
        "--master", metavar="URL", help="a Spark master (default: local[*], this machine)"
    )


def run(args: argparse.Namespace) -> int:
    from dataclasses import replace

    from weft.engine.data.grid import LIVEJOURNAL_SIZED, Grid
    from weft.pipeline.java import NoJava
    from weft.pipeline.lake import POINTER, NotALake
    from weft.pipeline.memberships import make_grid
    from weft.pipeline.resources import Busy
    from weft.pipeline.session import SessionError, SessionSettings, opened

    grid = LIVEJOURNAL_SIZED if args.like == "livejournal" else Grid()
    grid = replace(grid, nodes=args.nodes or grid.nodes, topics=args.topics or grid.topics)
    if (args.out / POINTER).exists():
        raise Problem(f"{args.out}: a lake already; a grid is a lake of its own", USAGE)
    try:
        print("weft: starting Spark", file=sys.stderr)
        settings = SessionSettings(args.master or "local[*]", name="weft data synth")
        with opened(settings) as spark:
            made = make_grid(spark, grid, args.seed, args.out)
    except (Busy, NotALake, NoJava, SessionError) as error:
        raise Problem(str(error)) from error
    for name in ("memberships", "users", "topics"):
        print(f"{name:<12} {made.rows[name]:>12,}")
    print(f"lake: {args.out}")
    return 0
