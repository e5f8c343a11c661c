"""`weft sub`: print the notifications of one or more topics."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import datetime
from typing import TYPE_CHECKING

from weft.cli import output
from weft.cli.output import Fields, say_subscribed
from weft.cli.parser import plain_topic, seconds, whole
from weft.cli.problem import FAILED, USAGE, Problem
from weft.cli.settings import config_of, home_option, network_options, running_peer
from weft.cli.stop import Stop, stop_on_signals
from weft.cli.store import IN_MEMORY, keep_option, kept, milliseconds, since_option

if TYPE_CHECKING:
    from weft.net.api import Peer

HELP = "Subscribe to topics and print their events"
DETAILS = """
Subscribes through the peer that runs with the same --home; with --join, as a
peer of its own. Prints each payload as a line, after the topic it was published
in if there are several or --hierarchy is given. Ends on Ctrl-C, after --count
notifications, or after --timeout (exit code 1 if fewer than --count had come by
then). With --since the past comes first, in order, each event once.
"""
EXAMPLES = """
weft sub /sports/football
weft sub /sports/football /sports/tennis --json
weft sub /chat --count 1 --timeout 10
weft sub /chat --since beginning         the past first; needs 'weft peer --store'
weft sub /chat --since 2h
weft sub --join /ip4/127.0.0.1/tcp/4001/p2p/12D3KooW... /chat
weft sub --join ADDRESS --hierarchy /sports /sports   sub-topics' events, too
"""

Notes = AsyncIterator[Fields]
"""First how the topic was entered (`outcome`), then notifications."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "topics", nargs="+", type=plain_topic, metavar="TOPIC", help="such as /sports/football"
    )
    home_option(parser)
    network_options(parser)
    keep_option(parser)
    since_option(parser)
    parser.add_argument("--json", action="store_true", help="print JSON objects, one a line")
    output.raw_option(parser)
    parser.add_argument("--count", type=whole(1, 2**31), metavar="N", help="end after N events")
    parser.add_argument("--timeout", type=seconds, metavar="S", help="end after S seconds")


def run(args: argparse.Namespace) -> int:
    return asyncio.run(_run(args))


async def _run(args: argparse.Namespace) -> int:
    with stop_on_signals() as stop:
        async with AsyncExitStack() as stack:
            sources = await open_sources(args, stack)
            if args.timeout is not None:
                code = FAILED if args.count else 0
                asyncio.get_running_loop().call_later(args.timeout, stop.ask, code)
            printer = Printer(args, stop)
            readers = [
                asyncio.create_task(printer.follow(name, source))
                for name, source in zip(args.topics, sources, strict=True)
            ]
            await stop.wait_beside(readers)
    return stop.code


async def open_sources(args: argparse.Namespace, stack: AsyncExitStack) -> list[Notes]:
    """One source for each topic, from a running peer or from a peer that this command starts."""
    if args.join:
        from weft.net.api import Peer

        if args.since is not None and args.store is None:
            args.store = IN_MEMORY  # reading the past needs a store
        peer = await stack.enter_async_context(
            Peer.open(join=args.join, config=config_of(args), store=kept(args))
        )
        return [_own(peer, name, args.since) for name in args.topics]
    if args.store is not None:
        raise Problem("--store goes with --join: a running peer has its own", USAGE)
    clients = [await stack.enter_async_context(running_peer(args)) for _ in args.topics]
    since = since_fields(args.since)
    return [
        client.subscribe(name, **since) for client, name in zip(clients, args.topics, strict=True)
    ]


def since_fields(when: str | datetime | None) -> Fields:
    """A `--since` as the control socket takes it."""
    if when is None:
        return {}
    return {"since_ms": milliseconds(when)} if isinstance(when, datetime) else {"since": when}


async def _own(peer: Peer, name: str, since: str | datetime | None) -> Notes:
    from weft.net.control import fields_of

    subscription = await peer.subscribe(name, since=since)
    yield {"outcome": subscription.outcome}
    async for note in subscription:
        yield fields_of(note)


class Printer:
    """Prints notifications of all sources until there were enough."""

    def __init__(self, args: argparse.Namespace, stop: Stop) -> None:
        self._args = args
        self._stop = stop
        self._left: int | None = args.count

    async def follow(self, name: str, source: Notes) -> None:
        answer = await anext(aiter(source))
        say_subscribed(name, answer["outcome"])
        several = len(self._args.topics) > 1 or bool(self._args.hierarchy)
        async for note in source:
            output.show(note, as_json=self._args.json, with_topic=several, raw=self._args.raw)
            if self._left is not None:
                self._left -= 1
                if self._left == 0:
                    self._stop.ask()
                    return
        raise Problem("the peer has stopped")
