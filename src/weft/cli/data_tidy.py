"""`weft data tidy`: small files put together, old versions removed."""

from __future__ import annotations

import argparse

from weft.cli.parser import whole_option

HELP = "Compact a lake and remove its old versions"
DETAILS = """
Every ingest adds files and makes a version of the lake. This command puts small files together. It
removes all versions but the last --keep, the files that only they use, and files that killed runs
left. At an address (s3://…) files of the last --spare hours stay: other machines may be writing.
"""
EXAMPLES = """
weft data tidy lake
weft data tidy lake --keep 5
weft data tidy s3://bucket/lake --spare 48
"""
_SPARE_HOURS = 24  # guess: no ingest takes longer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lake", metavar="LAKE", help="a folder or an address")
    whole_option(parser, "--keep", 1, 10**6, "how many versions to keep (1)", default=1)
    spare = "keep files that are no older, in hours (0; 24 at an address)"
    whole_option(parser, "--spare", 0, 10**6, spare)


def run(args: argparse.Namespace) -> int:
    from weft.pipeline.lake import tidied
    from weft.pipeline.location import Location

    place = Location.of(args.lake)
    spare = args.spare if args.spare is not None else 0 if place.is_local else _SPARE_HOURS
    done = tidied(place, args.keep, spare)
    print(f"files put together  {done.compacted:>8,}")
    print(f"versions removed    {done.forgotten:>8,}")
    print(f"files removed       {done.removed:>8,}")
    print(f"lake: {args.lake}, version {done.version.number}")
    return 0
