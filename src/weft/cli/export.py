"""`weft export`: writes a topic's stream to a CAR file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from weft import private
from weft.cli.parser import topic
from weft.cli.problem import USAGE, Problem
from weft.cli.settings import home_option
from weft.cli.store import opened, read_option, reading_since, since_option

HELP = "Write a topic's stored events to a CAR file"
DETAILS = """
CAR is IPLD's archive format: other tools can read it. The file holds the topic
versions that events link to and the events in their order; 'weft import' reads
it again. The file appears under its name only when it is complete.
"""
EXAMPLES = """
weft export /sports/football football.car
weft export /sports/football week.car --since 7d
weft export /chat chat.car --store old/store.db
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", type=topic, metavar="TOPIC", help="such as /sports/football")
    parser.add_argument("file", type=Path, metavar="FILE", help="to write; must not exist yet")
    home_option(parser)
    read_option(parser)
    since_option(parser)


def run(args: argparse.Namespace) -> int:
    from weft.lab.progress import Progress
    from weft.store import car
    from weft.store.interface import NotHeld

    if args.file.exists():
        raise Problem(f"{args.file} exists already", USAGE)
    with opened(args) as store:
        events = store.summary(args.topic).events
        if not events:
            raise Problem(f"nothing is stored of {args.topic}")
        progress = Progress(events, events)
        pieces = size = 0
        try:
            with private.draft_of(args.file, replace=True) as file:
                archive = car.export(store, args.topic, reading_since(args.since))
                for pieces, piece in enumerate(archive):  # the first one is the header
                    size += file.write(piece)
                    if pieces % 500 == 0:
                        progress.show(pieces, pieces, "blocks")
        except NotHeld as error:
            raise Problem(str(error), USAGE) from error
        finally:
            progress.clear()
    print(f"{pieces:,} blocks, {size:,} bytes in {args.file}", file=sys.stderr)
    return 0
