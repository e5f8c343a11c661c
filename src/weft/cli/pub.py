"""`weft pub`: publish one event, or one for each line of input."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import CancelledError
from contextlib import suppress

from weft.cli.output import Fields
from weft.cli.parser import plain_topic, repeated_option, seconds, whole
from weft.cli.problem import FAILED, USAGE, Problem
from weft.cli.settings import config_of, home_option, network_options, running_peer
from weft.cli.store import keep_option, kept
from weft.terminal import printable

HELP = "Publish to a topic"
DETAILS = """
Publishes through the peer that runs with the same --home; with --join, through
a short-lived peer of its own. DATA is one event; without it, or with '-', each
line of standard input is one. Prints what became of each. Exit code 1 means
that an event reached nobody, neither in its topic nor (in a hierarchy) above it.

With --confirm exit code 1 means that within --timeout an event was not
accepted (the peer, or a subscriber that it found, has it), taken (--copies other
peers say that they have it) or stored (they say that it is on their disk; the
publishing peer needs a store, too: with --join, give --store).
"""
EXAMPLES = """
weft pub /sports/football 'goal!'
tail -f log | weft pub /logs/web -
weft pub /sports/football --also /news/sports 'goal!'     one event in two topics
weft pub --header kind=goal --header minute=12 /sports/football 'goal!'
weft pub --confirm stored --copies 2 --timeout 10 /orders '7 apples'
weft pub --join ADDRESS --hierarchy /sports /sports/football 'goal!'
weft pub --join ADDRESS --store :memory: /chat hi         if the topic's peers keep events
weft pub --join /ip4/127.0.0.1/tcp/4001/p2p/12D3KooW... /sports/football 'goal!'
"""

_GOES_ON = ("taken", "sent", "queued", "alone")
"""Good outcomes; an event that is "alone" has reached this peer's own subscriptions."""

Publish = Callable[[bytes], Awaitable[list[Fields]]]
"""Publishes one event; returns a receipt for each of its topics."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", type=plain_topic, metavar="TOPIC", help="such as /sports/football")
    parser.add_argument("data", nargs="?", metavar="DATA", help="the event, or - for input lines")
    home_option(parser)
    network_options(parser)
    keep_option(parser)
    also = "publish the same event in this topic, too; may be given again"
    repeated_option(parser, "--also", "TOPIC", also, plain_topic)
    beside = "a header of the event, signed with it; may be given again"
    repeated_option(parser, "--header", "NAME=VALUE", beside, header)
    parser.add_argument("--json", action="store_true", help="print receipts as JSON")
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=30.0,
        metavar="S",
        help="seconds that an event may wait for a network or for confirmation (30)",
    )
    parser.add_argument(
        "--confirm",
        choices=("accepted", "taken", "stored"),
        help="wait for this, see above; exit code 1 if the event gets less far",
    )
    parser.add_argument(
        "--copies",
        type=whole(1, 1_000),
        default=1,
        metavar="N",
        help="with --confirm taken or stored: how many other peers must confirm (1)",
    )


def header(text: str) -> tuple[str, str]:
    """A header as it is given on the command line."""
    from weft.documents.headers import problem

    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    wrong = problem({name: value})
    if wrong:
        raise argparse.ArgumentTypeError(wrong)
    return name, value


def run(args: argparse.Namespace) -> int:
    if args.data is None and sys.stdin.isatty():
        raise Problem("nothing to publish: give DATA, or - to type lines", USAGE)
    if args.copies != 1 and args.confirm not in ("taken", "stored"):
        raise Problem("--copies goes with --confirm taken or --confirm stored", USAGE)
    if args.confirm == "stored" and args.join and args.store is None:
        raise Problem("--confirm stored needs a store: give --store FILE, too", USAGE)
    return asyncio.run(_run(args))


async def _run(args: argparse.Namespace) -> int:
    named, headers = [args.topic, *args.also], dict(args.header)
    sure: Fields = {}
    if args.confirm is not None:
        sure = {"confirm": args.confirm, "copies": args.copies, "timeout": args.timeout}
    if args.join:
        from weft.net.api import Peer
        from weft.net.errors import NotConfirmed
        from weft.net.receipt import unconfirmed

        async with Peer.open(join=args.join, config=config_of(args), store=kept(args)) as peer:

            async def publish(data: bytes) -> list[Fields]:
                try:
                    receipts = await peer.publish(named, data, headers=headers, **sure)
                except NotConfirmed as error:
                    return [unconfirmed(topic, error) for topic in named]
                finals = asyncio.gather(*(receipt.final() for receipt in receipts))
                try:
                    receipts = await asyncio.wait_for(finals, args.timeout)
                except TimeoutError:
                    raise Problem(
                        f"no other peer took the event within {args.timeout:g} s\n"
                        + "\n".join(f"{one}: {why}" for one, why in peer.unanswered.items())
                    ) from None
                return [await receipt.report() for receipt in receipts]

            return await publish_all(args, publish)

    async with running_peer(args) as client:

        async def ask(data: bytes) -> list[Fields]:
            return await client.publish_together(named, data, headers, **sure)

        return await publish_all(args, ask)


async def publish_all(args: argparse.Namespace, publish: Publish) -> int:
    """Publish everything, in order; returns the exit code."""
    code = 0
    typed = args.data if args.data != "-" else None
    async for data in input_lines() if typed is None else _once(os.fsencode(typed)):
        for receipt in await publish(data):
            print(json.dumps(receipt) if args.json else printable(in_words(receipt)), flush=True)
            if not goes_on(receipt) and reached_above(receipt) is None:
                code = FAILED
    return code


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data  # as it was typed, whether it is UTF-8 or not


async def input_lines() -> AsyncIterator[bytes]:
    """The lines of standard input. A daemon thread reads them, through a buffer of its own, so that
    the process can end while that thread waits for a line."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes | OSError | None] = asyncio.Queue(1)

    def put(line: bytes | OSError | None) -> None:
        asyncio.run_coroutine_threadsafe(lines.put(line), loop).result()

    def read() -> None:
        with suppress(RuntimeError, CancelledError):  # the loop has ended
            try:
                with open(sys.stdin.fileno(), "rb", closefd=False) as source:
                    for line in source:
                        put(line.rstrip(b"\r\n"))
            except OSError as error:
                put(error)
            put(None)

    threading.Thread(target=read, name="weft-input", daemon=True).start()
    while (line := await lines.get()) is not None:
        if isinstance(line, OSError):
            raise line
        yield line


def goes_on(receipt: Fields) -> bool:
    """Whether an event was published, and confirmed if that was asked for."""
    return receipt["outcome"] in _GOES_ON and receipt.get("confirmed", True)


def reached_above(receipt: Fields) -> Fields | None:
    """If a topic has no subscribers: the receipt of the nearest topic above it that has some."""
    above: list[Fields] = receipt.get("above", [])
    return next((level for level in above if goes_on(level)), None)


def in_words(receipt: Fields) -> str:
    """A receipt for people."""
    if not receipt.get("confirmed", True):
        return f"not confirmed: {receipt['reason']}"
    if receipt["copies"]:
        count = len(receipt["copies"])
        said = "another peer says that it has it" if count == 1 else f"{count} others have it"
        return f"{said}: {', '.join(receipt['copies'])}"
    above = reached_above(receipt)
    if above is not None:
        return f"no subscriber of {receipt['topic']}; above it, {above['topic']}: {in_words(above)}"
    return {
        "taken": f"taken by {receipt['access_point']}",
        "sent": f"sent to {receipt['peers']} peers of {receipt['topic']}",
        "alone": f"kept: the peer is subscribed, and knows no other peer of {receipt['topic']}",
        "queued": f"queued: no peer of {receipt['topic']} has taken it yet; the peer keeps trying",
        "no_subscriber": f"no subscriber of {receipt['topic']} was found",
        "dropped": f"dropped: {receipt['reason'] or 'the peer closed'}",
        "failed": f"failed: {receipt['reason']}",
        "refused": f"refused: {receipt['reason']}",
    }[receipt["outcome"]]
