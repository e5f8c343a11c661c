"""`weft data events`: the events of a lake's users, as a workload for simulated networks."""

from __future__ import annotations

import argparse
import sys

from weft import private
from weft.cli.parser import folder, version_options, whole_option
from weft.cli.spark import master_option, session

HELP = "Write what users did, as a workload that networks can be played with"
DETAILS = """
Takes the lake's events (edits, check-ins: every row of a file with times) in the busiest topics, by
the most active users there, and writes them as JSON lines in the order of time. With 'weft sim
--workload FILE' simulated peers publish these events, in the same order and with the same bursts.
"""
EXAMPLES = """
weft data events wiki --peers 50 --topics 8 --out edits.jsonl
weft sim --seed 7 --workload edits.jsonl
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lake", metavar="LAKE", help="made by 'weft data ingest'")
    whole_option(parser, "--peers", 3, 1_000_000, "number of users (50)", default=50)
    whole_option(parser, "--topics", 1, 1_000_000, "number of topics (8)", default=8)
    parser.add_argument("--out", type=folder, required=True, metavar="FILE", help="file to write")
    version_options(parser)
    master_option(parser)


def run(args: argparse.Namespace) -> int:
    from weft.pipeline.activity import lines, named
    from weft.pipeline.lake import Lake

    lake = Lake(args.lake, args.version, args.as_of)
    print("weft: starting Spark", file=sys.stderr)
    number = 0
    with session(args, "data events") as spark, private.draft_of(args.out, replace=True) as file:
        for line in lines(named(lake, spark, args.peers, args.topics)):
            number += '"at_ms"' in line
            file.write(f"{line}\n".encode())
    print(f"{args.out}: {number:,} events of {args.peers} users in {args.topics} topics")
    return 0
