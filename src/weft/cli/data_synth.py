"""`weft data synth`: the synthetic grid as a lake."""

from __future__ import annotations

import argparse
import sys

from weft.cli.parser import whole_option
from weft.cli.problem import USAGE, Problem
from weft.cli.spark import master_option, session

HELP = "Make a lake of synthetic subscriptions"
DETAILS = """
Nodes stand at random places of a square. Each topic has identifiers at random places; a power law
gives their number. Each node subscribes to the topics within its radius of interest, which follows
a power law, too. So popularity and interest are as unequal as in real networks, and nodes that
stand close to each other share topics.

--like livejournal makes 267,230 nodes and 13,652 topics of at least 30 subscribers each.
"""
EXAMPLES = """
weft data synth --out grid                            100 nodes, 16 topics
weft data synth --nodes 5000 --topics 300 --out grid
weft data synth --like livejournal --out lj
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", required=True, metavar="LAKE", help="a new lake")
    whole_option(parser, "--nodes", 1, 10**8, "number of nodes (100)")
    whole_option(parser, "--topics", 1, 10**7, "number of topics (16)")
    parser.add_argument(
        "--like", choices=("grid", "livejournal"), default="grid", help="which power laws (grid)"
    )
    whole_option(parser, "--seed", 0, 2**63 - 1, "seed of all draws (1)", default=1)
    master_option(parser)


def run(args: argparse.Namespace) -> int:
    from dataclasses import replace

    from weft.engine.data.grid import LIVEJOURNAL_SIZED, Grid
    from weft.pipeline.lake import is_lake
    from weft.pipeline.location import Location
    from weft.pipeline.memberships import make_grid

    grid = LIVEJOURNAL_SIZED if args.like == "livejournal" else Grid()
    grid = replace(grid, nodes=args.nodes or grid.nodes, topics=args.topics or grid.topics)
    if is_lake(args.out):
        raise Problem(f"{args.out} is a lake already; name a new one with --out", USAGE)
    print("weft: starting Spark", file=sys.stderr)
    with session(args, "data synth") as spark:
        made = make_grid(spark, grid, args.seed, Location.of(args.out))
    for name in ("memberships", "users", "topics"):
        print(f"{name:<12} {made.rows[name]:>12,}")
    print(f"lake: {args.out}")
    return 0
