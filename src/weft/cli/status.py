"""`weft status`: shows the state of a running peer."""

from __future__ import annotations

import argparse
import asyncio
import json

from weft.cli.output import Fields, rows_in_words
from weft.cli.settings import home_option, socket_of

HELP = "Show the state of a running peer"
DETAILS = """
address        the address that other peers join by
neighbours     peers in its view of the whole network, and peers that it has links to
links          links over all topics (logical), and the peers that they go to (physical)
access points  subscribers of topics that it knows, to publish there without subscribing
cycle          periods of upkeep since it started
"""
EXAMPLES = """
weft status
weft status --home ./b --json
weft status --metrics            what Prometheus would read
"""
_TOPICS_SHOWN = 12
"""guess: `weft topics` lists them all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    home_option(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print everything as one JSON object")
    how.add_argument("--metrics", action="store_true", help="print Prometheus metrics")


def run(args: argparse.Namespace) -> int:
    if args.metrics:
        print(asyncio.run(ask(args, "metrics"))["text"], end="")
        return 0
    status = asyncio.run(ask(args, "status"))["status"]
    print(json.dumps(status, indent=2) if args.json else in_words(status))
    return 0


async def ask(args: argparse.Namespace, op: str, **fields: str) -> Fields:
    """Ask the peer that runs with this home one question."""
    from weft.net.control_client import ControlClient

    async with ControlClient(socket_of(args)) as client:
        return await client.ask(op, **fields)


def in_words(status: Fields) -> str:
    network, links = status["network"], status["links"]
    rows = [
        ("address", status["address"]),
        ("network", network["name"] + (", alone so far" if status["isolated"] else "")),
        ("neighbours", f"{len(status['view'])} in its view, {status['linked_peers']} linked"),
        ("links", f"{links['logical']} logical over {links['physical']} physical"),
        ("connections", f"{len(status['connections'])} open"),
        ("topics", f"{len(status['topics'])} subscribed{_estimate(status)}"),
        ("access points", f"{status['access_points']} known, to publish in their topics"),
        ("cycle", f"{status['cycle']} (periods of upkeep so far)"),
    ]
    if network["key_clashes"]:
        rows.append(("warning", "another process uses this peer's key: stop one of the two"))
    if "history" in status:
        rows.append(("history", _history(status["history"])))
    for topic, state in list(status["topics"].items())[:_TOPICS_SHOWN]:
        linked, shared = state["logical_links"], state["shared_links"]
        rows.append(("", f"{topic}: {linked} links, {shared} shared with other topics"))
    return rows_in_words(rows, 14)


def _history(history: Fields) -> str:
    """How many events of subscribed topics are stored, missing, and refused by which reason."""
    events = sum(topic["events"] for topic in history["topics"].values())
    text = f"{events:,} events stored"
    if history["missing"]:
        text += f", {history['missing']:,} missing"
    refused = ", ".join(f"{count:,} {reason}" for reason, count in history["refused"].items())
    return f"{text}, refused: {refused}" if refused else text


def _estimate(status: Fields) -> str:
    """How many topics the network has, once the peer has an estimate."""
    estimate = status["topics_active_estimate"]
    return f", about {estimate:.0f} active in the network" if estimate else ""
