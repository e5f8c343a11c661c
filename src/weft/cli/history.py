"""`weft history`: shows the events of a topic in a peer's store."""

from __future__ import annotations

import argparse
import json
import sys
from itertools import islice
from typing import TYPE_CHECKING

from weft.cli import output
from weft.cli.output import Fields, table
from weft.cli.parser import topic, whole
from weft.cli.problem import USAGE, Problem
from weft.cli.settings import home_option
from weft.cli.store import opened, read_option, reading_since, since_option
from weft.terminal import printable

if TYPE_CHECKING:
    from weft.documents.descriptor import SealedEvent
    from weft.store.interface import Store

HELP = "Show the events that are stored of a topic"
DETAILS = """
Reads the peer's store, whether the peer runs or not. Events come in the order
of the topic's stream, which is the same at every peer. Without TOPIC: how much
is stored of each topic. If a topic was made from another one ('weft topic
create --from'), that one's events come first, as far as they are stored here.
"""
EXAMPLES = """
weft history                                     which topics, and how much
weft history /sports/football
weft history /sports/football --since 2h --json
weft history /sports/football --since bafyrei... --limit 100
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", nargs="?", type=topic, metavar="TOPIC", help="such as /chat")
    home_option(parser)
    read_option(parser)
    since_option(parser)
    parser.add_argument("--limit", type=whole(1, 1 << 62), metavar="N", help="at most N events")
    parser.add_argument("--json", action="store_true", help="print JSON objects, one a line")
    output.raw_option(parser)


def run(args: argparse.Namespace) -> int:
    with opened(args) as store:
        if args.topic is None:
            show_topics(store, args.json)
        else:
            show_events(store, args)
    return 0


def show_topics(store: Store, as_json: bool) -> None:
    found = store.topics()
    if as_json:
        for name, held in found.items():
            print(json.dumps({"topic": name, "events": held.events, "bytes": held.bytes}))
    elif not found:
        print("nothing is stored")
    else:
        rows = [
            [name, f"{held.events:,}", f"{held.bytes:,}", str(len(store.heads(name)))]
            for name, held in found.items()
        ]
        print(table(["topic", "events", "bytes", "heads"], rows))


def show_events(store: Store, args: argparse.Namespace) -> None:
    from weft.store.interface import NotHeld
    from weft.store.reader import origin_of, read_through

    origin = origin_of(store, args.topic)
    if origin is None and args.topic not in store.topics():
        print(f"weft: nothing is stored of {printable(args.topic)}", file=sys.stderr)
    if origin is not None and not all(map(store.has, origin.heads)):
        name = printable(origin.topic)
        lacks = f"{args.topic} was made from {name}, and not all of {name} is stored here"
        print(f"weft: {lacks}: 'weft sub {name} --since beginning' gets it", file=sys.stderr)
    try:
        for event in islice(read_through(store, args.topic, reading_since(args.since)), args.limit):
            output.show(
                fields_of(event), as_json=args.json, with_topic=origin is not None, raw=args.raw
            )
    except NotHeld as error:
        raise Problem(str(error), USAGE) from error


def fields_of(event: SealedEvent) -> Fields:
    from weft.documents.headers import in_metadata
    from weft.ids import cid_text, peer_text
    from weft.rules.hierarchy import claimed_origin

    return {
        "cid": cid_text(event.cid),
        "topic": event.topic,
        "published_in": claimed_origin(event.topic, event.metadata),
        "payload": event.payload,
        "headers": in_metadata(event.metadata),
        "publisher": peer_text(event.publisher),
        "height": event.height,
        "parents": [cid_text(parent) for parent in event.parents],
        "published_at": event.created_ms / 1_000,
    }
