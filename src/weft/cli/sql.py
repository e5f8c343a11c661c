"""`weft sql`: answers questions about a lake, in SQL."""

from __future__ import annotations

import argparse
import json
import sys

from weft.cli.output import table
from weft.cli.parser import version_options, whole_option
from weft.cli.problem import Problem
from weft.cli.spark import master_option, session

HELP = "Ask a lake in SQL"
DETAILS = """
The query is in Spark's SQL. The tables are memberships, events, users, topics, rejects, sources,
quality and trace, and universe_NAME for each universe (a '-' in the name becomes '_'); the table
'columns' says what their columns mean. Prints a table, or with --json a list of objects. Without a
query: the tables with their columns. Statements that would change something are refused.
"""
EXAMPLES = """
weft sql lake
weft sql lake "select name, count(*) n from memberships join topics using (topic) group by name"
weft sql lake "select reason, count(*) n from rejects group by reason" --json
weft sql s3://bucket/lake "select max(time) from memberships" --version 3
"""
_ALL = "select table, column, type, meaning, rows from columns"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lake", metavar="LAKE", help="a folder or an address")
    parser.add_argument("query", nargs="?", default=_ALL, metavar="QUERY", help="one statement")
    parser.add_argument("--json", action="store_true", help="print a list of objects")
    most = "print so many rows at most (1000; with --json all)"
    whole_option(parser, "--limit", 1, 10**9, most)
    version_options(parser)
    master_option(parser)


def run(args: argparse.Namespace) -> int:
    from weft.pipeline.catalog import asked, plain, registered
    from weft.pipeline.lake import Lake

    lake = Lake(args.lake, args.version, args.as_of)
    limit = args.limit or (None if args.json else 1_000)
    with session(args, "sql", small_tables=not args.master) as spark:
        registered(spark, lake)
        answer = asked(spark, args.query)
        names = answer.columns
        twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
        if args.json and twice is not None:
            raise Problem(f"two columns are called {twice!r}; rename one of them with AS")
        rows = (answer if limit is None else answer.limit(limit + 1)).collect()
    kept = rows if limit is None else rows[:limit]
    if args.json:
        print(json.dumps([dict(zip(names, map(plain, row), strict=True)) for row in kept]))
    else:
        print(table(names, [[_shown(each, plain(each)) for each in row] for row in kept]))
    if len(kept) < len(rows):
        print(f"weft: the first {limit:,} rows; --limit N for more", file=sys.stderr)
    return 0


def _shown(value: object, as_json: object) -> str:
    """A value in a table for people; NaN and infinite numbers, which JSON lacks, are shown, too."""
    if value is None:
        return ""
    return str(value if as_json is None else as_json)
