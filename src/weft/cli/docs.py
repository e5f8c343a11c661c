"""`weft docs`: the pages of docs/ as a site."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote

from weft.cli.checkout import checkout
from weft.cli.parser import folder
from weft.cli.problem import Problem

HELP = "Build the documentation as a site"
DETAILS = """
Makes a site of the checkout's docs/ with mkdocs, into out/site; open its index.html, or put the
folder on any web server. Nothing in it is loaded from elsewhere, and files of the checkout that
pages link to (examples, the dashboard) come along. A link that leads nowhere is an error.
"""
EXAMPLES = """
weft docs
weft docs --out ./site
"""
_LINK = re.compile(r'<[a-z]+ [^>]*?\b(?:href|src)="([^"]*)"')
_ELSEWHERE = re.compile(r"[a-z]+:|//")
"""Of another site, or no path at all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        type=folder,
        default=Path("out/site"),
        metavar="DIR",
        help="where to (out/site)",
    )


def run(args: argparse.Namespace) -> int:
    root = checkout()
    import_module("mkdocs")  # if it is missing, that is said by its name

    out = args.out.resolve()
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", out]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=root, env=quiet, check=False)
    if done.returncode == 0:
        if lost := complete(out, root):
            raise Problem("links that lead nowhere: " + ", ".join(lost))
        print(out / "index.html")
    return done.returncode


def complete(site: Path, root: Path) -> list[str]:
    """Bring into a site what its pages link to and the checkout has outside docs/, at the same
    place; the links that still lead nowhere."""
    lost: dict[str, None] = {}
    for page in sorted(site.rglob("*.html")):
        for link in _LINK.findall(page.read_text()):
            path = unquote(link.partition("#")[0].partition("?")[0])
            if not path or _ELSEWHERE.match(path):
                continue
            start = site / path.lstrip("/") if path[0] == "/" else page.parent / path
            target = Path(os.path.normpath(start))
            inside = target.is_relative_to(site)
            if inside and target.exists():
                continue
            kept = root / target.relative_to(site) if inside else None
            if kept is not None and kept.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(kept, target)
            else:
                lost[f"{page.relative_to(site)}: {link}"] = None
    return list(lost)
