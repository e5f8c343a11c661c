"""`weft size`: computes how large tables and how long walks must be, by TERA's closed forms."""

from __future__ import annotations

import argparse
import json

from weft.cli.output import table
from weft.cli.parser import whole_option

HELP = "Size access point tables and lookups for a number of topics"
DETAILS = """
This is about the routing TERA. An access point is a subscriber through which peers publish in its
topic without subscribing; each peer has a table of access points to some topics. A lookup visits K
peers over r random walks, and succeeds if one of their tables holds the topic; a table of A entries
holds each of T topics with probability A/T. Larger tables need fewer visits for the same success. A
row says:

  A         entries of a table
  memory    size of a table, at --topic-bytes per topic
  K         visits for the wanted success
  r=1 ...   with so many walks: most cycles that a lookup takes, and messages on average
"""
EXAMPLES = """
weft size --topics 1000 --success 0.999
weft size --topics 50000 --success 0.99 --walks 4 16
weft size --topics 1000 --success 0.999 --tables 100 400 --json
weft size --topics 1000 --success 0.999 --visits 40     how large tables must be for K = 40
"""
_TABLES = (10, 20, 50, 100, 200, 400, 1_000, 2_000, 5_000, 10_000)
_MANY = 1_000_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    whole_option(parser, "--topics", 1, _MANY, "active topics", required=True)
    parser.add_argument(
        "--success",
        type=_probability,
        default=0.999,
        metavar="P",
        help="share of lookups that must find an access point (default: 0.999)",
    )
    tables = "table sizes to show (default: 10 to 10000, as far as there are topics)"
    whole_option(parser, "--tables", 1, _MANY, tables, nargs="+", metavar="A")
    visits = "show the table size that K visits need"
    whole_option(parser, "--visits", 1, _MANY, visits, metavar="K")
    walks = "numbers of walks to show (default: 1 4 8)"
    whole_option(parser, "--walks", 1, 1_000, walks, default=[1, 4, 8], nargs="+", metavar="R")
    length = "length of a topic's name (default: 256, the longest)"
    whole_option(parser, "--topic-bytes", 1, 256, length, default=256, metavar="B")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _probability(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.0 < number < 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} does not lie between 0 and 1")
    return number


def run(args: argparse.Namespace) -> int:
    rows = [_row(args, size) for size in _sizes(args)]
    if args.json:
        print(json.dumps({"topics": args.topics, "success": args.success, "rows": rows}))
        return 0
    head = ["A", "memory", "K", *(f"r={walks}: cycles, messages" for walks in args.walks)]
    print(f"{args.topics} topics, lookups that succeed with probability {args.success:g}:\n")
    print(table(head, list(map(_cells, rows))))
    return 0


def _sizes(args: argparse.Namespace) -> list[int]:
    from weft.rules.deployment import table_size_for

    if args.visits:
        return [table_size_for(args.success, args.visits, args.topics)]
    if args.tables:
        return sorted(set(args.tables))
    return [size for size in _TABLES if size < args.topics] or [args.topics]


def _row(args: argparse.Namespace, size: int) -> dict[str, object]:
    from weft.rules.deployment import lookup_success, table_bytes, visits_expected, visits_for
    from weft.rules.tera import steps_of_each

    visits = visits_for(args.success, size, args.topics)
    return {
        "table_size": size,
        "table_bytes": table_bytes(size, args.topic_bytes),
        "visits": visits,
        "success": lookup_success(size, args.topics, visits),
        "walks": [
            {
                "walks": walks,
                "cycles_most": steps_of_each(visits, walks),
                "messages_mean": round(visits_expected(size, args.topics, visits, walks), 2),
            }
            for walks in args.walks
        ],
    }


def _cells(row: dict[str, object]) -> list[str]:
    walks = row["walks"]
    assert isinstance(walks, list)
    each = [f"{item['cycles_most']}, {item['messages_mean']:.1f}" for item in walks]
    return [str(row["table_size"]), _bytes(row["table_bytes"]), str(row["visits"]), *each]


def _bytes(count: object) -> str:
    assert isinstance(count, int)
    return f"{count} B" if count < 1_000 else f"{count / 1_000:.1f} kB"
