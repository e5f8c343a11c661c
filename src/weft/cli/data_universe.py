"""`weft data universe`: smaller worlds from a lake, each complete in itself."""

from __future__ import annotations

import argparse
import sys

from weft.cli.output import table
from weft.cli.parser import version_options, whole_option
from weft.cli.problem import USAGE, Problem
from weft.cli.spark import master_option, session

HELP = "Draw self-contained universes from a lake"
DETAILS = """
A universe begins with N random topics. Each of their users adds one topic to the set: a random one
of its topics, or, with --own-topics, the one that bears its name (a journal). All users that
subscribe to a topic of this larger set are the universe's nodes. With --reading closed they keep
only their subscriptions to topics of the set, with open all of them. Topics with too few
subscribers are left out.

Of --draws universes of each size the one with the median ratio of topics to nodes is kept, below
LAKE/universes; the same command draws the same universes again.
"""
EXAMPLES = """
weft data universe lake --seeds 100
weft data universe lake --seeds 100 500 1000 --reading open
weft data universe lake --seeds 50 --draws 20 --least 10 --name small
weft data universe lj --seeds 1000 --own-topics
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lake", metavar="LAKE", help="made by 'weft data ingest'")
    seeds = "how many topics to begin with; several numbers make several universes"
    whole_option(parser, "--seeds", 1, 10**9, seeds, nargs="+", required=True)
    whole_option(parser, "--draws", 1, 100_000, "universes to draw of each size (100)", default=100)
    parser.add_argument(
        "--reading",
        choices=("closed", "open"),
        default="closed",
        help="which subscriptions the nodes keep (closed)",
    )
    least = "topics with fewer subscribers are left out (30)"
    whole_option(parser, "--least", 1, 10**9, least, default=30)
    parser.add_argument(
        "--own-topics", action="store_true", help="users add the topic that bears their name"
    )
    whole_option(parser, "--seed", 0, 2**63 - 1, "seed of all draws (1)", default=1)
    parser.add_argument("--name", help="name of the universe (seeds-N or seeds-N-open)")
    version_options(parser)
    master_option(parser)


def run(args: argparse.Namespace) -> int:
    from dataclasses import asdict

    from weft.lab.progress import Steps
    from weft.pipeline.lake import Lake
    from weft.pipeline.universe import Recipe, make

    sizes = sorted(set(args.seeds))
    if args.name and len(sizes) > 1:
        raise Problem("--name is for one universe; leave it out to make several", USAGE)
    recipe = Recipe(args.draws, args.least, args.seed)
    try:
        lake = Lake(args.lake, args.version, args.as_of)
        if args.name:
            lake.universe_folder(args.name)
        if sizes[-1] > lake.rows("topics"):
            raise Problem(f"{sizes[-1]} seeds, but {args.lake} has {lake.rows('topics')} topics")
        print("weft: starting Spark", file=sys.stderr)
        weights = [2.0, 3.0, *([2.0] * len(sizes))]  # guess: of the steps, for the bar
        with session(args, "data universe") as spark, Steps(spark, weights) as steps:
            made = make(
                spark,
                lake,
                sizes,
                args.reading,
                recipe=recipe,
                own=args.own_topics,
                name=args.name,
                watch=steps.begin,
            )
    except ValueError as error:
        raise Problem(str(error), USAGE) from error
    rows = [[str(value) for value in asdict(each).values()] for each in made]
    print(table(["universe", "seeds", "draw", "topics", "nodes", "memberships"], rows))
    return 0
