"""`weft docs`: the pages of docs/ as a site."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from weft.cli.checkout import checkout
from weft.cli.parser import folder

HELP = "Build the documentation as a site"
DETAILS = """
Makes a site of the checkout's docs/ with mkdocs, into out/site; open its index.html, or put the
folder on any web server. Nothing in it is loaded from elsewhere.
"""
EXAMPLES = """
weft docs
weft docs --out ./site
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        type=folder,
        default=Path("out/site"),
        metavar="DIR",
        help="where to (out/site)",
    )


def run(args: argparse.Namespace) -> int:
    import_module("mkdocs")  # if it is missing, that is said by its name

    out = args.out.resolve()
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", out]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=checkout(), env=quiet, check=False)
    if done.returncode == 0:
        print(out / "index.html")
    return done.returncode
