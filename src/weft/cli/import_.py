"""`weft import`: stores the events of a CAR file."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from weft.cli.problem import FAILED, Problem
from weft.cli.settings import home_option
from weft.cli.store import opened, read_option
from weft.terminal import printable

HELP = "Store the events of a CAR file"
DETAILS = """
Every block is checked like one that a stranger sent: that it fits its CID, that
its signature is right, and that its publisher may publish. Refused blocks are
counted by reason. The peer must not run meanwhile; the store is made if there
is none.
"""
EXAMPLES = """
weft import football.car
weft import football.car --store archive.db --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="a CAR file")
    home_option(parser)
    read_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    from weft.lab.progress import Progress
    from weft.store.car import BadArchive, load
    from weft.store.interface import StoreBusy

    size = args.file.stat().st_size
    with opened(args, make=True) as store, args.file.open("rb") as file:
        try:
            store.hold()
        except StoreBusy as error:
            raise Problem(f"a peer runs with the store {store.path}: stop it first") from error
        progress = Progress(size, size)

        def show(blocks: int) -> None:
            progress.show(file.tell(), file.tell(), "bytes")

        try:
            loaded = load(store, file, time.time_ns() // 1_000_000, show)
        except BadArchive as error:
            raise Problem(f"{args.file}: {error}") from error
        finally:
            progress.clear()
    refused = {str(reason): count for reason, count in sorted(loaded.refused.items())}
    if args.json:
        print(
            json.dumps(
                {
                    "events": loaded.events,
                    "known": loaded.known,
                    "topics": loaded.topics,
                    "waiting": loaded.waiting,
                    "foreign": loaded.foreign,
                    "refused": refused,
                }
            )
        )
    else:
        print(f"{loaded.events:,} events stored, {loaded.known:,} were there before")
        if loaded.waiting:
            print(f"{loaded.waiting:,} left out: their parents are neither here nor in the file")
        if loaded.foreign:
            print(f"{loaded.foreign:,} skipped: they are no blocks of weft")
        for reason, count in refused.items():
            print(f"{count:,} refused: {printable(reason)}")
    return FAILED if refused or loaded.waiting else 0
