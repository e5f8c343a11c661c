"""`weft web`: runs a peer with a page that shows the network; also `--web` of other commands."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from weft.cli.parser import maybe_host_port, network, plain_topic, repeated_option
from weft.cli.settings import config_of, listen_options, network_options
from weft.cli.stop import stop_on_signals
from weft.cli.store import IN_MEMORY, keep_option, kept

if TYPE_CHECKING:
    from weft.lab.processes import Swarm
    from weft.net.config import Config
    from weft.web.server import Web
    from weft.web.source import Source

HELP = "Show a network in the browser, and speak plain HTTP with it"
DETAILS = """
Starts a peer of its own, which joins the network given by --join, and serves a
page that shows the network, on loopback unless --at says otherwise. At the same
address programs publish and subscribe over plain HTTP; /openapi.json describes how.

Without the token only reading is allowed. A new token is drawn at each start and
printed as part of the page's address; WEFT_WEB_TOKEN in the environment sets it.
"""
EXAMPLES = """
weft web                                          a page on 127.0.0.1:8700
weft web --join /ip4/127.0.0.1/tcp/4001/p2p/12D3KooW... --subscribe /chat
weft swarm --peers 50 --subscribe /chat --web     all peers of a swarm
weft web --proxy 127.0.0.1 --set 'network.metrics_hosts=["page.example.org"]'
curl -N 'http://127.0.0.1:8700/api/events?topic=/chat'
curl -H "Authorization: Bearer $TOKEN" -d 'hello' 'http://127.0.0.1:8700/api/publish?topic=/chat'
"""
AT = "127.0.0.1:8700"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--at",
        type=maybe_host_port,
        default=AT,
        metavar="[HOST:]PORT",
        help=f"where to serve the page ({AT})",
    )
    listen_options(parser)
    network_options(parser)
    keep_option(parser)
    repeated_option(
        parser, "--subscribe", "TOPIC", "stay subscribed (repeat for more)", plain_topic
    )
    _page_options(parser)


def web_option(parser: argparse.ArgumentParser) -> None:
    """The options of commands that can show their peers on a page."""
    parser.add_argument(
        "--web",
        type=maybe_host_port,
        nargs="?",
        const=AT,
        metavar="[HOST:]PORT",
        help=f"serve a page to watch it by, and HTTP ({AT})",
    )
    _page_options(parser)


def _page_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lab",
        type=Path,
        default=Path("out/lab"),
        metavar="DIR",
        help="the lab's results, for the page (out/lab)",
    )
    believed = "a proxy before the page, trusted to name the client (repeat for more)"
    repeated_option(parser, "--proxy", "ADDRESS", believed, network)


def needs_web() -> None:
    """Fail now if a package for the page is missing, before anything runs."""
    import weft.web.server  # noqa: F401


def run(args: argparse.Namespace) -> int:
    needs_web()
    return asyncio.run(_run(args, config_of(args)))


async def _run(args: argparse.Namespace, config: Config) -> int:
    from weft.net.api import Peer
    from weft.web.source import Single

    with stop_on_signals() as stop:
        async with AsyncExitStack() as stack:
            args.store = args.store or IN_MEMORY
            opened = Peer.open(join=args.join, config=config, store=kept(args))
            peer = await stack.enter_async_context(opened)
            print(peer.address, flush=True)
            subscribed = [peer.subscribe(name, callback=_count) for name in args.subscribe]
            await stack.enter_async_context(
                window(Single(peer), args.at, args, config.network.metrics_hosts)
            )
            for subscription in subscribed:
                await subscription
            await stop.wait()
            print("weft: leaving", file=sys.stderr)
    return stop.code


def _count(note: object) -> None:
    """Take a notification; the peer counts it, and the page shows the count."""


@asynccontextmanager
async def window(
    source: Source, where: str, args: argparse.Namespace, hosts: tuple[str, ...] = ()
) -> AsyncIterator[Web]:
    """Serve the page of a source, and print its address."""
    from weft.web.server import Web

    async with Web(source, where, lab=args.lab, hosts=hosts, proxies=args.proxy) as web:
        print(f"weft: the page is at {web.url_with_token}", file=sys.stderr, flush=True)
        if web.open_to_others:
            print(
                "weft: other machines can read all that the page shows, without the token and "
                "unencrypted; put a proxy with TLS and a password before it",
                file=sys.stderr,
            )
        yield web


@asynccontextmanager
async def swarm_window(
    swarm: Swarm, args: argparse.Namespace, config: Config, join: list[str]
) -> AsyncIterator[Web]:
    """The page of a swarm, with a peer that joins it by these addresses to speak for users. That
    peer keeps events in memory, so that subscribers over HTTP can go on where they were."""
    from weft.net.api import Peer
    from weft.web.source import Crowd

    async with Peer.open(join=join, config=config, store=IN_MEMORY) as speaker:
        hosts = config.network.metrics_hosts
        async with window(Crowd(swarm, speaker), args.web, args, hosts) as web:
            yield web
