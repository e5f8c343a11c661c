"""`weft test`: the whole test suite, or what pytest's own arguments choose of it."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from importlib import import_module

from weft.cli.checkout import checkout

HELP = "Run the tests"
DETAILS = """
Runs pytest over tests/ on all cores. Everything after 'test' goes to pytest.
"""
EXAMPLES = """
weft test                           everything
weft test tests/cli                 one folder
weft test -k cyclon -x              by name, stop at the first failure
weft test -n 0 --pdb                in one process, with the debugger
"""
PASSES_ON = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rest", nargs="*", metavar="ARGS", help="paths and options for pytest")


def command(arguments: list[str]) -> list[str]:
    """The pytest command line: on all cores unless told otherwise."""
    chosen = any(word.startswith(("-n", "--numprocesses")) for word in arguments)
    workers = [] if chosen else ["-n", str(os.cpu_count() or 1)]
    return [sys.executable, "-m", "pytest", *workers, *arguments]


def run(args: argparse.Namespace) -> int:
    import_module("pytest")  # says clearly that it is missing, before a process does

    return subprocess.run(command(args.rest), cwd=checkout(), check=False).returncode
