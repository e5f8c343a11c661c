"""`weft check`: style, formatting, types and the import rule, each by its own tool."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from weft.cli.checkout import checkout
from weft.cli.problem import FAILED

HELP = "Check style, types and imports between packages"
DETAILS = """
Runs ruff (style and formatting), mypy (strict types) and import-linter (the
rooms of ARCHITECTURE.md) over the checkout, all of them even if one complains.
"""
EXAMPLES = """
weft check          all checks
weft check --fix    let ruff mend and format what it can, then check
"""

_LINT_IMPORTS = "from importlinter.cli import lint_imports_command as run; run()"
CHECKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("style", ("-m", "ruff", "check", ".")),
    ("format", ("-m", "ruff", "format", "--check", ".")),
    ("types", ("-m", "mypy")),
    ("imports", ("-c", _LINT_IMPORTS, "--config", "pyproject.toml")),
)
FIXES: tuple[tuple[str, ...], ...] = (
    ("-m", "ruff", "check", "--fix", "--quiet", "."),
    ("-m", "ruff", "format", "--quiet", "."),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fix", action="store_true", help="mend what can be mended first")


def run(args: argparse.Namespace) -> int:
    root = checkout()
    if args.fix:
        for command in FIXES:
            _run(root, command, quiet=True)
    failed = []
    for name, command in CHECKS:
        begun = time.monotonic()
        done = _run(root, command, quiet=False)
        passed = done.returncode == 0
        if not passed:
            failed.append(name)
            print(done.stdout.rstrip())
        verdict = "ok" if passed else "FAILED"
        print(f"{name:<8} {verdict:<7} {time.monotonic() - begun:5.1f} s", flush=True)
    if failed:
        print(f"weft: failed: {', '.join(failed)}", file=sys.stderr)
    return FAILED if failed else 0


def _run(root: Path, command: Sequence[str], *, quiet: bool) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=root,
        check=False,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if quiet else subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
