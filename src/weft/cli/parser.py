"""Argument parsers that guess what the user meant, and the kinds of values that they read."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from textwrap import indent
from types import ModuleType
from typing import Any, NoReturn
from urllib.parse import unquote

from weft.cli.problem import USAGE, did_you_mean
from weft.terminal import printable

_BOOTSTRAP_S = 60.0
"""guess: longer than the peers of a machine take to start."""


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` with short errors and a guess at what was meant."""

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None
    ) -> argparse.Namespace:
        # Options may stand between positional arguments, which argparse leaves to its callers.
        mixes = not any(
            each.nargs in (argparse.PARSER, argparse.REMAINDER) for each in self._actions
        )
        parse = self.parse_known_intermixed_args if mixes else self.parse_known_args
        found, unknown = parse(args)
        for word in unknown:
            if word.startswith("-"):
                option = word.partition("=")[0]
                hint = did_you_mean(option, self._known_options())
                self.error(f"unknown option {option!r}{hint}")
        if unknown:
            self.error(f"unexpected argument {unknown[0]!r}")
        return found

    def _known_options(self) -> list[str]:
        """The options of this parser and of those of its actions."""
        nested = [each for actions in actions_of(self) for each in actions.choices.values()]
        return [option for parser in (self, *nested) for option in parser._option_string_actions]

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {printable(message)}", file=sys.stderr)
        print(f"{self.prog}: see '{self.prog} --help'", file=sys.stderr)
        raise SystemExit(USAGE)


def parser_for(command: str, module: ModuleType) -> Parser:
    """The parser of one command."""
    parser = Parser(**_looks(command, module))
    module.add_arguments(parser)
    return parser


def add_actions(
    parser: argparse.ArgumentParser, command: str, modules: Mapping[str, ModuleType]
) -> None:
    """Make a parser one of several actions (`args.action`), each a module like a command."""
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="ACTION", parser_class=Parser
    )
    for name, module in modules.items():
        action = actions.add_parser(name, help=module.HELP, **_looks(f"{command} {name}", module))
        module.add_arguments(action)


def actions_of(parser: argparse.ArgumentParser) -> Iterator[argparse._SubParsersAction[Parser]]:
    """The sub-parsers of a parser that chooses among actions."""
    for each in parser._actions:
        if isinstance(each, argparse._SubParsersAction):
            yield each


def _looks(command: str, module: ModuleType) -> dict[str, Any]:
    """The arguments by which a parser shows a module's help."""
    help_line: str = module.HELP
    examples: str | None = getattr(module, "EXAMPLES", None)
    details: str | None = getattr(module, "DETAILS", None)
    return {
        "prog": f"weft {command}",
        "description": f"{help_line}.\n\n{details.strip()}" if details else f"{help_line}.",
        "epilog": f"examples:\n{indent(examples.strip(), '  ')}" if examples else None,
        "formatter_class": argparse.RawDescriptionHelpFormatter,
        "allow_abbrev": False,
    }


# --- kinds of options and values --------------------------------------------------------------


def folder(text: str) -> Path:
    """A file or folder of this machine, by its path or as file:///…. Any other address is refused,
    so that it does not become a folder's name."""
    if not text:  # perhaps a variable that is not set; Path would take it for this folder
        raise argparse.ArgumentTypeError("the path is empty; '.' is this folder")
    scheme, separator, rest = text.partition("://")
    if not separator:
        return Path(text)
    if scheme.lower() != "file" or not rest.strip("/"):
        raise argparse.ArgumentTypeError(f"a folder of this machine is needed, not {text!r}")
    return Path("/" + unquote(rest.lstrip("/")))  # as pipeline/location.py reads it


def moment(text: str) -> datetime:
    """A time in ISO's form, UTC unless it says otherwise."""
    try:
        known = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"a time such as 2026-11-16T08:00 is needed, not {text!r}"
        ) from None
    return known.replace(tzinfo=known.tzinfo or UTC)


def version_options(parser: argparse.ArgumentParser) -> None:
    """Which version of a lake to read: --version or --as-of."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--version",
        type=whole(1, 2**31),
        metavar="N",
        help="read this version of the lake, not the last ('weft data versions' lists them)",
    )
    which.add_argument(
        "--as-of", type=moment, metavar="TIME", help="read the lake as it was then (ISO, UTC)"
    )


def whole_option(
    parser: argparse.ArgumentParser,
    name: str,
    low: int,
    high: int,
    help: str | None = None,
    *,
    default: int | Sequence[int] | None = None,
    metavar: str = "N",
    nargs: str | None = None,
    required: bool = False,
) -> None:
    """An option for a whole number within these bounds, or with `nargs` for several."""
    kind = whole(low, high)
    parser.add_argument(
        name,
        type=kind,
        default=default,
        metavar=metavar,
        nargs=nargs,
        required=required,
        help=help,
    )


def again_options(parser: argparse.ArgumentParser) -> None:
    """Options to run points again although their results are there."""
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--fresh", action="store_true", help="run finished points again, too")
    again.add_argument(
        "--changed", action="store_true", help="run finished points again if their code has changed"
    )


def repeated_option(
    parser: argparse.ArgumentParser,
    name: str,
    metavar: str,
    help: str,
    kind: Callable[[str], object] = str,
) -> None:
    """An option that may be given again: a list, empty without it."""
    parser.add_argument(name, action="append", type=kind, default=[], metavar=metavar, help=help)


def whole(low: int, high: int) -> Callable[[str], int]:
    """A whole number within these bounds."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
        return number

    return read


def duration(unit: str) -> Callable[[str], float]:
    """A number above zero, of a unit of time."""

    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = 0.0
        if not 0 < number < 1e9:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of {unit} above 0")
        return number

    return read


seconds = duration("seconds")


def hours(text: str) -> float:
    """A duration in hours, of a few seconds at least."""
    return max(seconds(text), 0.005)


def host_port(text: str) -> str:
    """HOST:PORT, where the port may be 0 for any free one."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not int(port) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:4001")
    return text


def maybe_host_port(text: str) -> str:
    """HOST:PORT, or only a port, which means loopback."""
    try:
        return host_port(text if ":" in text else f"127.0.0.1:{text}")
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither PORT nor HOST:PORT, such as 9100 or 127.0.0.1:9100"
        ) from None


def network(text: str) -> str:
    """An IP address, or a network of them such as 10.0.0.0/8."""
    import ipaddress

    try:
        ipaddress.ip_network(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"an IP address or a network such as 10.0.0.0/8 is needed, not {text!r}"
        ) from None
    return text


def multiaddr(text: str) -> str:
    """The address of a peer to join by."""
    from weft.ids import parse_contact

    return _checked(text, parse_contact)


def _checked(text: str, parse: Callable[[str], object]) -> str:
    from weft.ids import BadId

    try:
        parse(text)
    except BadId as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def addresses_in(text: str) -> list[str]:
    """The addresses in a file, one a line; empty lines and lines that begin with # are skipped. If
    the file has none, this waits: another peer may be about to write its address there."""
    path, give_up = folder(text), time.monotonic() + _BOOTSTRAP_S
    waits = False
    while not (found := _lines_of(path)):
        if not waits:
            waits = True
            print(f"weft: waiting for an address in {printable(text)}", file=sys.stderr)
        if time.monotonic() > give_up:
            raise argparse.ArgumentTypeError(f"{text!r} has no address of a peer in it")
        time.sleep(0.2)
    try:
        return [multiaddr(line) for line in found]
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error}") from error


def _lines_of(path: Path) -> list[str]:
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise argparse.ArgumentTypeError(f"cannot read {str(path)!r}: {why}") from error
    return [line for line in lines if line and not line.startswith("#")]


def topic(text: str) -> str:
    """A topic path."""
    from weft.ids import parse_topic

    return _checked(text, parse_topic)


def plain_topic(text: str) -> str:
    """A topic to publish in or to subscribe to, without wildcards."""
    from weft.ids import parse_plain_topic

    return _checked(text, parse_plain_topic)


def hierarchy(text: str) -> str:
    """The root of a hierarchy of topics: a topic, or / for all."""
    return text if text == "/" else topic(text)
