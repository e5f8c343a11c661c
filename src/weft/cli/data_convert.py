"""`weft data convert`: turns a lake of an older weft into one of today's form."""

from __future__ import annotations

import argparse
import sys

from weft.cli.parser import folder
from weft.cli.spark import master_option, session

HELP = "Convert a lake that an older weft made"
DETAILS = """
Lakes used to be folders of Parquet parts, with a file lake.json that named the valid parts. This
command turns their tables into Delta tables in the same folder: the same users and topics under the
same numbers, times as timestamps, and universes, too. Profiles stay as they are. After an
interruption, the same command goes on.
"""
EXAMPLES = """
weft data convert lake
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "lake", type=folder, metavar="LAKE", help="the lake's folder, with a lake.json in it"
    )
    master_option(parser)


def run(args: argparse.Namespace) -> int:
    from weft.pipeline.conversion import converted

    print("weft: starting Spark", file=sys.stderr)
    with session(args, "data convert") as spark:
        made = converted(spark, args.lake)
    for name, rows in made.rows.items():
        print(f"{name:<12} {rows:>12,}")
    print(f"lake: {args.lake}")
    return 0
