"""`weft topics`: what a running peer is subscribed to."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

from weft.cli.settings import home_option
from weft.cli.status import ask
from weft.cli.table import table

HELP = "List the topics a running peer is subscribed to"
EXAMPLES = """
weft topics
weft topics --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    home_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    topics: dict[str, dict[str, Any]] = asyncio.run(ask(args, "topics"))["topics"]
    if args.json:
        print(json.dumps(topics, indent=2))
    elif not topics:
        print("not subscribed to anything")
    else:
        rows = [
            [
                name,
                topic["scheme"],
                f"~{topic['members_estimate']}",
                str(topic["logical_links"]),
                str(topic["shared_links"]),
            ]
            for name, topic in sorted(topics.items())
        ]
        print(table(["topic", "scheme", "members", "links", "shared"], rows))
    return 0
