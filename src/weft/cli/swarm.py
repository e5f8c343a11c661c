"""`weft swarm`: many peers on this machine, to try things against."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from weft.cli.output import table
from weft.cli.parser import repeated_option, seconds, topic, whole_option
from weft.cli.problem import USAGE, Problem
from weft.cli.settings import config_of, network_options
from weft.cli.stop import Stop, stop_on_signals

if TYPE_CHECKING:
    from weft.lab.processes import Status, Swarm
    from weft.net.config import Config

HELP = "Run many peers on this machine"
DETAILS = """
Starts peers on loopback, spread over some processes, prints their addresses and
shows how they do until Ctrl-C, when all of them leave. On a terminal the table
is redrawn in place; otherwise one line is printed each time.
"""
EXAMPLES = """
weft swarm --peers 10
weft swarm --peers 50 --processes 4 --subscribe /chat
weft sub --join ADDRESS /chat          in another terminal, with any of the addresses
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    whole_option(parser, "--peers", 1, 1_000, "(10)", default=10)
    whole_option(parser, "--processes", 1, 64, "(2)", default=2)
    subscribe = "subscribe every peer (repeat for more)"
    repeated_option(parser, "--subscribe", "TOPIC", subscribe, topic)
    network_options(parser)
    parser.add_argument(
        "--every", type=seconds, default=2.0, metavar="S", help="seconds between looks (2)"
    )


def run(args: argparse.Namespace) -> int:
    config = config_of(args)
    if config.network.listen != type(config.network)().listen:
        raise Problem("a swarm's peers listen on free ports of 127.0.0.1; leave listen out", USAGE)
    return asyncio.run(_run(args, config))


async def _run(args: argparse.Namespace, config: Config) -> int:
    from dataclasses import asdict

    from weft.lab.processes import Swarm

    with stop_on_signals() as stop:
        swarm = Swarm(args.peers, args.processes, config=asdict(config), join=args.join)
        async with swarm:
            await swarm.open(0, 1)
            await swarm.open(1, args.peers)
            for address in swarm.addresses:
                print(address, flush=True)
            await swarm.subscribe(dict.fromkeys(range(args.peers), args.subscribe))
            await _watch(swarm, args.every, stop)
            print("weft: leaving", file=sys.stderr)
    return stop.code


async def _watch(swarm: Swarm, every_s: float, stop: Stop) -> None:
    """Show the swarm until something asks for the end."""
    waiting = asyncio.ensure_future(stop.wait())
    live = sys.stderr.isatty()
    height = 0
    while not waiting.done():
        status = await swarm.status()
        text = _table(status) if live else _line(status)
        up = f"\x1b[{height}A\x1b[J" if live and height else ""
        print(up + text, file=sys.stderr, flush=True)
        height = text.count("\n") + 1
        await asyncio.wait([waiting], timeout=every_s)


def _line(status: Mapping[int, Status]) -> str:
    joined = sum(not peer["isolated"] for peer in status.values())
    links = sum(peer["linked_peers"] for peer in status.values()) // 2
    delivered = sum(peer["counters"].get("net_delivered", 0) for peer in status.values())
    return f"{len(status)} peers, {joined} joined, {links} linked pairs, {delivered} notifications"


def _table(status: Mapping[int, Status], rows_max: int = 20) -> str:
    rows = [
        [
            str(index),
            peer["peer"][-8:],
            str(len(peer["view"])),
            str(peer["linked_peers"]),
            str(len(peer["connections"])),
            str(len(peer["topics"])),
            str(peer["counters"].get("net_delivered", 0)),
        ]
        for index, peer in list(status.items())[:rows_max]
    ]
    head = ["peer", "id", "view", "linked", "connections", "topics", "notifications"]
    more = len(status) - len(rows)
    rest = [f"… and {more} more"] if more else []
    return "\n".join(["", table(head, rows), *rest, _line(status), "Ctrl-C: all leave"])
