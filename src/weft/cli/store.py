"""The store of a peer of the command line: where it is, how it is opened, what `--since` means."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from weft.cli.problem import USAGE, Problem
from weft.cli.settings import home_of

if TYPE_CHECKING:
    from weft.store.interface import Since
    from weft.store.sqlite import SqliteStore

IN_MEMORY = ":memory:"
"""The name by which `Peer.open` makes a store in memory."""
_AGO = re.compile(r"(\d{1,9})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def keep_option(parser: argparse.ArgumentParser, at_home: bool = False) -> None:
    """The option of commands that start a peer; `at_home`: without FILE the store is in the home
    folder."""
    if at_home:
        text = "keep events in a file (store.db in the home), or with ':memory:' while it runs"
        parser.add_argument("--store", metavar="FILE", nargs="?", const="", help=text)
    else:
        text = "keep events in this file, or with ':memory:' while it runs"
        parser.add_argument("--store", metavar="FILE", help=text)


def read_option(parser: argparse.ArgumentParser) -> None:
    """The option of commands that read or fill a store without a peer."""
    parser.add_argument(
        "--store", type=Path, metavar="FILE", help="the peer's store (store.db in the home)"
    )


def since_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--since",
        type=since,
        metavar="WHEN",
        help="'beginning', an event's CID, a time such as 2026-03-01T12:00, or how long ago: 30m",
    )


def since(text: str) -> str | datetime:
    """`beginning`, a CID, or a time."""
    if text == "beginning":
        return text
    ago = _AGO.fullmatch(text)
    if ago:
        return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        pass
    else:
        return when.astimezone()  # without a zone: this machine's
    from weft.ids import BadId, parse_cid

    try:
        parse_cid(text)
    except BadId as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither 'beginning', nor a time, nor an event's CID ({error})"
        ) from error
    return text


def milliseconds(when: datetime) -> int:
    return max(0, round(when.timestamp() * 1_000))


def reading_since(when: str | datetime | None) -> Since:
    """A `--since` as the store's reader takes it."""
    from weft.ids import parse_cid

    if when is None or when == "beginning":
        return "beginning"
    return milliseconds(when) if isinstance(when, datetime) else parse_cid(when)


def kept(args: argparse.Namespace) -> Path | str | None:
    """The store of a peer that is started, as `Peer.open` takes it."""
    given: str | None = args.store
    if given is None or given == IN_MEMORY:
        return given
    return Path(given) if given else path_in(home_of(args))


def path_in(home: Path) -> Path:
    return home / "store.db"


@contextmanager
def opened(args: argparse.Namespace, make: bool = False) -> Iterator[SqliteStore]:
    """The store that a command reads or fills; a running peer's store may be read, too."""
    from weft.store.interface import StoreError
    from weft.store.sqlite import SqliteStore

    path = args.store or path_in(home_of(args))
    if not make and not path.exists():
        raise Problem(
            f"there is no store at {path}: run a peer with 'weft peer --store', or name a file "
            "with --store",
            USAGE,
        )
    try:
        store = SqliteStore(path)
        try:
            yield store
        finally:
            store.close()
    except StoreError as error:
        raise Problem(str(error)) from error
