"""`weft config`: all settings with their defaults, as a TOML file to start from."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

HELP = "Print all settings with their defaults, or check a settings file"
DETAILS = """
Every line is commented out and shows the default; the comment says where the
default comes from (a paper, a measurement or a guess). Change what you need
and give the file to 'weft peer --config'. Flags win over the file.
"""
EXAMPLES = """
weft config > weft.toml
weft config --check weft.toml
"""
_COMMENTED = re.compile(r"^ {4}(\w+): .*?#\s*(.+)$", re.MULTILINE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", type=Path, metavar="FILE", help="say whether a file is usable")


def run(args: argparse.Namespace) -> int:
    from weft.net.config import Config

    if args.check is not None:
        Config.load(args.check)
        print(f"{args.check} is fine")
    else:
        print("# Settings of weft: remove the # before what you change.")
        print("\n".join(lines(Config())))
    return 0


def lines(config: DataclassInstance, path: str = "") -> Iterator[str]:
    """A settings object as commented TOML, its own values first, then its tables."""
    fields = dataclasses.fields(config)
    tables = [field for field in fields if dataclasses.is_dataclass(getattr(config, field.name))]
    values = [field for field in fields if field not in tables]
    comments = dict(_COMMENTED.findall(inspect.getsource(type(config))))
    if values:
        yield ""
        yield f"[{path}]" if path else ""
    for field in values:
        value = getattr(config, field.name)
        # JSON's form is TOML's for all kinds of values that settings have.
        text = json.dumps(list(value) if isinstance(value, tuple) else value)
        line = f"# {field.name} = {text}"
        comment = comments.get(field.name)
        yield f"{line:<40} # {comment}" if comment else line
    for field in tables:
        yield from lines(getattr(config, field.name), f"{path}.{field.name}".lstrip("."))
