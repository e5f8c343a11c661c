"""`weft data versions`: lists the versions of a lake."""

from __future__ import annotations

import argparse
import json

from weft.cli.output import table

HELP = "List the versions of a lake"
DETAILS = """
Every ingest makes a version. The versions in the list can still be read: 'weft data universe',
'weft data profile' and 'weft trace measure' take --version or --as-of; other programs open each
table as a Delta table, at the table's version that --json prints.
"""
EXAMPLES = """
weft data versions lake
weft data versions lake --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lake", metavar="LAKE", help="a folder or an address")
    parser.add_argument("--json", action="store_true", help="print a list of objects")


def run(args: argparse.Namespace) -> int:
    from weft.pipeline.lake import history

    known, _ = history(args.lake)
    if args.json:
        rows = [
            {
                "version": each.number,
                "at": each.at.isoformat(),
                "content": each.content,
                "tables": {
                    name: {"version": number, "rows": each.rows.get(name, 0)}
                    for name, number in each.tables.items()
                },
            }
            for each in known
        ]
        print(json.dumps(rows))
        return 0
    head = ["version", "at (UTC)", "memberships", "users", "topics", "trace"]
    print(
        table(
            head,
            [
                [
                    str(each.number),
                    f"{each.at:%Y-%m-%d %H:%M:%S}",
                    *(f"{each.rows.get(name, 0):,}" for name in head[2:]),
                ]
                for each in known
            ],
        )
    )
    return 0
