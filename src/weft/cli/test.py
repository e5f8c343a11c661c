"""`weft test`: runs all tests, the fast ones, or those that pytest's own arguments choose."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module

from weft.cli.checkout import checkout

HELP = "Run the tests"
DETAILS = """
Runs pytest over tests/ on all cores, in one process more than there are cores, since tests often
wait. With --fast, the tests marked as slow are left out (all that need Spark, processes or
long simulations); the rest takes about a minute on two cores. Everything else after 'test' goes to
pytest. Bytecode is kept beside the sources, also where PYTHONDONTWRITEBYTECODE is set.
"""
EXAMPLES = """
weft test                           everything
weft test --fast                    those that take about a minute together
weft test tests/cli                 one folder
weft test -k cyclon -x              by name, stop at the first failure
weft test -n 0 --pdb                in one process, with the debugger
"""
PASSES_ON = True
FAST = "--fast"
GROUPED = ("--dist", "loadgroup", "--no-loadscope-reorder")
"""pytest-xdist's options to run tests by the groups of tests/conftest.py, in their order."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rest", nargs="*", metavar="ARGS", help="--fast, and arguments of pytest")


def command(arguments: list[str]) -> list[str]:
    """The pytest command line: on all cores unless told otherwise; `--fast` chooses by mark."""
    chosen = any(word.startswith(("-n", "--numprocesses")) for word in arguments)
    # Tests that wait for processes and timers leave a core idle. measured: of what the fast ones
    # take in one process, half is waiting.
    workers = [] if chosen else ["-n", str((os.cpu_count() or 1) + 1)]
    fast = ["-m", "not slow"] if FAST in arguments else []
    others = [word for word in arguments if word != FAST]
    return [sys.executable, "-m", "pytest", *GROUPED, *workers, *fast, *others]


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """The environment of pytest and of the processes that tests start. They keep bytecode: else
    every run compiles weft and all tests anew (measured: 5 of 8 s of CPU in each process before the
    first fast test)."""
    return {name: value for name, value in given.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run(args: argparse.Namespace) -> int:
    root = checkout()
    import_module("pytest")  # if it is missing, the error names it

    told, kept = command(args.rest), environment(os.environ)
    return subprocess.run(told, cwd=root, env=kept, check=False).returncode
