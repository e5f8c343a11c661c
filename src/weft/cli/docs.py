"""`weft docs`: builds a site of the pages in docs/."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from urllib.parse import quote, unquote

from weft.cli.checkout import checkout
from weft.cli.parser import folder
from weft.cli.problem import Problem

HELP = "Build the documentation as a site"
DETAILS = """
Makes a site of the checkout's docs/ with mkdocs, in out/site. Open its index.html, or put the
folder on any web server (the search needs one: python3 -m http.server -d out/site). The site loads
nothing from other places, and has copies of the files of the checkout that pages link to (examples,
the dashboard). A link that leads nowhere is an error.
"""
EXAMPLES = """
weft docs
weft docs --out ./site
"""
_LINK = re.compile(r'<[a-z]+ [^>]*?\b(?:href|src)="([^"]*)"')
_ELSEWHERE = re.compile(r"[a-z]+:|//")
"""The beginning of a link to another site, or of one that is no path."""
_COPIES = "checkout"
"""Folder of the site for files of the checkout that pages link to."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        type=folder,
        default=Path("out/site"),
        metavar="DIR",
        help="folder of the site (out/site)",
    )


def run(args: argparse.Namespace) -> int:
    root = checkout()
    import_module("mkdocs")  # if it is missing, the error names it

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
    """Copy into a site the files of the checkout outside docs/ that its pages link to, and lead the
    links there; the links that still lead nowhere, and what would be loaded from other sites."""
    lost: list[str] = []
    for page in sorted(site.rglob("*.html")):
        text = page.read_text()
        whole = _LINK.sub(partial(_led, page=page, site=site, root=root, lost=lost), text)
        if whole != text:
            page.write_text(whole)
    return lost


def _led(found: re.Match[str], page: Path, site: Path, root: Path, lost: list[str]) -> str:
    """A tag; if its link left the site, the link goes to a copy inside it now."""
    tag, link = found[0], found[1]
    path = unquote(link.partition("#")[0].partition("?")[0])
    if not path or (_ELSEWHERE.match(path) and not tag.startswith(("<script", "<img"))):
        return tag
    target = site / path.lstrip("/") if path[0] == "/" else page.parent / path
    if target.resolve().is_relative_to(site.resolve()) and target.exists():
        return tag
    # A page lies in the site as its source lies in docs/.
    kept = (root / "docs" / page.parent.relative_to(site) / path).resolve()
    if not kept.is_relative_to(root.resolve()) or not kept.is_file():
        name = f"{page.relative_to(site)}: {link}"
        if name not in lost:
            lost.append(name)
        return tag
    copy = site / _COPIES / kept.relative_to(root.resolve())
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(kept, copy)
    up = os.path.relpath(copy, page.parent)
    return tag.replace(f'"{link}"', f'"{quote(up)}{link[len(link.partition("#")[0]) :]}"')
