"""The home of a peer of the command line, and its settings from a file and options."""

from __future__ import annotations

import argparse
import json
import os
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from weft import private
from weft.cli.output import Fields
from weft.cli.parser import addresses_in, hierarchy, host_port, multiaddr, repeated_option
from weft.cli.problem import USAGE, Problem

if TYPE_CHECKING:
    from weft.net.config import Config
    from weft.net.control_client import ControlClient

ROUTINGS = ("tera", "topic-dht", "pulsarcast", "flood")
"""Written out here, so that commands that start no peer need not load the routings."""

LOG_LEVELS = ("debug", "info", "warning", "error")


def home_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--home",
        type=Path,
        metavar="DIR",
        help="the peer's key and control socket (WEFT_HOME, else ~/.weft)",
    )


def home_of(args: argparse.Namespace) -> Path:
    if args.home is not None:
        return Path(args.home)
    return Path(os.environ.get("WEFT_HOME") or Path.home() / ".weft")


def own_home_of(args: argparse.Namespace) -> Path:
    """As `home_of`, for a peer that runs there. The usual home is weft's own, so it is closed to
    other users; a home that the user names may be shared on purpose, and is left as it is."""
    home = home_of(args)
    if home == Path.home() / ".weft":
        private.close_folder(home)
    return home


def socket_of(args: argparse.Namespace) -> Path:
    """Where a running peer listens to commands."""
    return home_of(args) / "control.sock"


@asynccontextmanager
async def running_peer(args: argparse.Namespace) -> AsyncIterator[ControlClient]:
    """The peer that runs with this home, for commands that could start their own instead."""
    from weft.net.control_client import ControlClient

    path = socket_of(args)
    for name in ("hierarchy", "routing"):
        if getattr(args, name, None) and hasattr(args, "join"):
            raise Problem(f"--{name} goes with --join: a running peer has its own settings", USAGE)
    if not path.exists():
        raise Problem(
            f"no peer runs with the home {path.parent}: start one with 'weft peer', "
            + ("name another " if hasattr(args, "join") else "or name another ")
            + "with --home"
            + (", or give --join ADDRESS to go without" if hasattr(args, "join") else "")
        )
    async with ControlClient(path) as client:
        yield client


def network_options(parser: argparse.ArgumentParser) -> None:
    """Options of commands that start a peer."""
    join = "enter the network through this peer (repeat for more)"
    repeated_option(parser, "--join", "ADDRESS", join, multiaddr)
    parser.add_argument(
        "--bootstrap",
        dest="join",
        action="extend",
        type=addresses_in,
        metavar="FILE",
        help="file of addresses to join by, one a line; waits while it is empty or missing",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML")
    one = "one setting, which wins over the file's, such as protocol.cyclon.cycle_ms=1000"
    repeated_option(parser, "--set", "KEY=VALUE", one)
    parser.add_argument(
        "--routing",
        choices=ROUTINGS,
        help="how events find their subscribers; must be the same at all peers (tera)",
    )
    above = (
        "subscribers of this topic get its sub-topics' events, too ('/': those of all topics); "
        "must be the same at all peers (repeat for more)"
    )
    repeated_option(parser, "--hierarchy", "TOPIC", above, hierarchy)
    parser.add_argument(
        "--log-level",
        choices=LOG_LEVELS,
        default="warning",
        help="how much the peer writes to stderr about itself (warning)",
    )


def listen_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen", type=host_port, metavar="HOST:PORT", help="where to listen (127.0.0.1:0)"
    )
    parser.add_argument(
        "--announce",
        metavar="HOST[:PORT]",
        help="address that other peers shall dial, if it is not that of --listen",
    )


def config_of(args: argparse.Namespace) -> Config:
    """The settings: defaults, then the file, then flags."""
    from weft.net import config
    from weft.net.config import Config

    table: Fields = {}
    if args.config is not None:
        Config.load(args.config)  # its errors name the file
        table = tomllib.loads(args.config.read_text())
    for assignment in args.set:
        put(table, assignment)
    for name in ("listen", "announce"):
        if getattr(args, name, None):
            table.setdefault("network", {})[name] = getattr(args, name)
    if args.routing:
        table.setdefault("protocol", {})["routing"] = args.routing
    if args.hierarchy:
        put(table, f"protocol.hierarchies={json.dumps(args.hierarchy, ensure_ascii=False)}")
    return config.from_table(table, Config, "command line", "")


def put(table: Fields, assignment: str) -> None:
    """Put an assignment such as `protocol.cyclon.cycle_ms=1000` into nested tables."""
    path, equals, text = assignment.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise Problem(f"--set {assignment!r}: expected KEY=VALUE with a dotted key", USAGE)
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise Problem(f"--set {assignment!r}: {key!r} is a value, not a table", USAGE)
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text  # a word without quotes
    table[keys[-1]] = value
