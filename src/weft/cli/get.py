"""`weft get`: shows a block, or a field of one, by its CID."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

from weft.cli.problem import FAILED, USAGE, Problem
from weft.cli.settings import home_option, socket_of
from weft.cli.status import ask
from weft.cli.store import opened, read_option

HELP = "Show an event, a topic version, or a field of one, by its CID"
DETAILS = """
A path leads from a CID to any field, over links to other blocks: 'parent' is
the version before (or an event's first parent), '#' holds sub-topics. Blocks
come from the store; a running peer with the DHT switched on also asks other
peers. Every block is checked. Links and bytes are printed as in dag-json.
"""
EXAMPLES = """
weft get bafyrei...                        the whole document
weft get bafyrei.../payload --raw          an event's payload as it is
weft get bafyrei.../parents/0/publisher
weft get bafyrei.../#/football             a sub-topic
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="CID[/PATH]", help="CID of a block, and a path from there")
    home_option(parser)
    read_option(parser)
    parser.add_argument("--raw", action="store_true", help="print bytes and text as they are")


def run(args: argparse.Namespace) -> int:
    from weft.documents.merkle import parse_path
    from weft.ids import BadId
    from weft.net.control_client import answers

    try:
        parse_path(args.path)  # before anything is looked for
    except BadId as error:
        raise Problem(str(error), USAGE) from error
    if args.store is None and answers(socket_of(args)):
        value = asyncio.run(ask(args, "get", path=args.path))["value"]
    else:
        value = _resolve(args)
    if args.raw:
        sys.stdout.buffer.write(raw(value))
    else:
        print(json.dumps(value, indent=2))
    return 0


def _resolve(args: argparse.Namespace) -> object:
    from weft.documents.merkle import Unresolved, resolve
    from weft.documents.refusal import Refused
    from weft.net.control import plain

    with opened(args) as store:
        try:
            return plain(resolve(args.path, store.get))
        except Unresolved as error:
            raise Problem(str(error)) from error
        except Refused as error:
            raise Problem(f"a block on the path is not valid: {error}") from error


def raw(value: object) -> bytes:
    """The bytes of a value that is bytes or text."""
    import base64

    if isinstance(value, str):
        return value.encode()
    found = value.get("/") if isinstance(value, dict) and len(value) == 1 else None
    if isinstance(found, dict) and isinstance(found.get("bytes"), str):
        text = found["bytes"]
        return base64.b64decode(text + "=" * (-len(text) % 4))
    raise Problem("--raw is for bytes and text: this is neither", USAGE if value else FAILED)
