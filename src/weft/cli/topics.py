"""`weft topics`: lists the topics that a running peer is subscribed to."""

from __future__ import annotations

import argparse
import asyncio
import json

from weft.cli.output import Fields, table
from weft.cli.settings import home_option
from weft.cli.status import ask

DETAILS = """
"scheme" is how the topic's events spread. "members" is an estimate of its subscribers, "?" if the
routing makes none. "links" counts the links that carry the topic's events, "shared" those of them
that lead to peers linked in other topics, too.
"""
HELP = "List the topics a running peer is subscribed to"
EXAMPLES = """
weft topics
weft topics --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    home_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    topics: dict[str, Fields] = asyncio.run(ask(args, "topics"))["topics"]
    if args.json:
        print(json.dumps(topics, indent=2))
    else:
        print(in_words(topics))
    return 0


def in_words(topics: dict[str, Fields]) -> str:
    if not topics:
        return "not subscribed to anything"
    rows = [
        [
            name,
            topic["scheme"],
            "?" if topic["members_estimate"] is None else f"~{topic['members_estimate']}",
            str(topic["logical_links"]),
            str(topic["shared_links"]),
        ]
        for name, topic in sorted(topics.items())
    ]
    return table(["topic", "scheme", "members", "links", "shared"], rows)
