"""`weft peer`: run one peer until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from weft import private
from weft.cli import output
from weft.cli.parser import maybe_host_port, plain_topic, repeated_option
from weft.cli.settings import (
    config_of,
    home_option,
    listen_options,
    network_options,
    own_home_of,
    socket_of,
)
from weft.cli.stop import stop_on_signals
from weft.cli.store import keep_option, kept
from weft.cli.web import needs_web, web_option, window

if TYPE_CHECKING:
    from weft.net.config import Config
    from weft.net.subscription import Subscription

HELP = "Run a peer"
DETAILS = """
Listens, enters the network through the peers given by --join, and runs until
Ctrl-C, when it says goodbye to its neighbours. The first line it prints is its
address, which other peers can give to --join. Its key is in the home folder, so
it keeps its peer id; 'weft pub', 'sub', 'status' and 'topics' with the same
--home talk to it. Two peers on one machine need two homes.
"""
EXAMPLES = """
weft peer --listen 127.0.0.1:4001
weft peer --home ./b --join /ip4/127.0.0.1/tcp/4001/p2p/12D3KooW...
weft peer --home ./b --bootstrap peers.txt      joins by the addresses in a file
weft peer --mdns                                joins by peers on the local network
weft peer --subscribe /sports/football          print its notifications
weft peer --hierarchy /sports --subscribe /sports   events of /sports/football, too
weft peer --routing topic-dht --subscribe /a    with another routing than TERA
weft peer --metrics 9100                        Prometheus metrics, on loopback
weft peer --web 8700                            a page to watch it by, and HTTP
weft peer --store --subscribe /chat             keeps events, see 'weft history'
weft peer --config weft.toml --set network.idle_ms=60000
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    listen_options(parser)
    network_options(parser)
    home_option(parser)
    keep_option(parser, at_home=True)
    subscribe = "subscribe and print the events that come (repeat for more)"
    repeated_option(parser, "--subscribe", "TOPIC", subscribe, plain_topic)
    parser.add_argument("--json", action="store_true", help="print notifications as JSON")
    output.raw_option(parser)
    parser.add_argument(
        "--tell", type=Path, metavar="FILE", help="write the address to a file, for --bootstrap"
    )
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write a trace (JSON lines)")
    parser.add_argument(
        "--metrics",
        type=maybe_host_port,
        metavar="[HOST:]PORT",
        help="serve Prometheus metrics here",
    )
    parser.add_argument(
        "--mdns", action="store_true", help="find peers on the local network, and be found there"
    )
    web_option(parser)


def run(args: argparse.Namespace) -> int:
    if args.web:
        needs_web()
    if args.mdns:
        import zeroconf  # noqa: F401  (a missing package is reported before anything runs)
    return asyncio.run(_run(args, config_of(args)))


async def _run(args: argparse.Namespace, config: Config) -> int:
    from weft.net.api import Peer
    from weft.net.control import ControlServer

    with stop_on_signals() as stop:
        async with AsyncExitStack() as stack:
            peer = await stack.enter_async_context(
                Peer.open(
                    join=args.join,
                    key=own_home_of(args) / "key.pem",
                    config=config,
                    trace=args.trace,
                    store=kept(args),
                )
            )
            if args.metrics:
                where = await peer.serve_metrics(args.metrics)
                print(f"weft: metrics at http://{where}/metrics", file=sys.stderr)
            if args.mdns:
                from weft.net.local import LocalNetwork

                await stack.enter_async_context(LocalNetwork(peer))
            if args.web:
                from weft.web.source import Single

                hosts = config.network.metrics_hosts
                await stack.enter_async_context(window(Single(peer), args.web, args, hosts))
            control = ControlServer(peer, socket_of(args), stop.ask)
            stack.push_async_callback(control.close)
            await control.open()
            print(peer.address, flush=True)
            if args.tell is not None:
                _tell(args.tell, peer.address)
            readers = [
                asyncio.create_task(_read(peer.subscribe(name), args)) for name in args.subscribe
            ]
            await stop.wait_beside(readers)
            print("weft: leaving", file=sys.stderr)
    return stop.code


def _tell(path: Path, address: str) -> None:
    """Write the address whole or not at all: another peer may be waiting for the file."""
    private.write(path, f"{address}\n".encode(), replace=True, mode=private.FOR_OTHERS)


async def _read(subscription: Subscription, args: argparse.Namespace) -> None:
    from weft.net.control import fields_of

    await subscription
    output.say_subscribed(subscription.topic, subscription.outcome)
    async for note in subscription:
        several = len(args.subscribe) > 1 or bool(args.hierarchy)
        output.show(fields_of(note), as_json=args.json, with_topic=several, raw=args.raw)
