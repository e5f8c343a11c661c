"""`weft data`: from files of subscriptions to tables, universes and profiles.

Each action is a module of this package, like a command: `data_ingest` and so on.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from types import ModuleType

from weft.cli.parser import add_actions

HELP = "Bring in subscriptions of users to topics, and look at them"
DETAILS = """
Everything is kept in a lake: Delta tables in a folder or at an address (s3://bucket/lake), made by
the first ingest. 'weft data ACTION --help' explains an action; docs/data.md explains formats and
tables.
"""
EXAMPLES = """
weft data ingest subs.csv.gz --out lake
weft data ingest enwiki-stub-meta-history*.xml.gz --format mediawiki-xml --out lake
weft data synth --nodes 5000 --topics 300 --out grid
weft data universe lake --seeds 100 500
weft data profile lake
weft data events lake --peers 50 --topics 8 --out edits.jsonl
weft data tidy lake --keep 3
"""
ACTIONS = ("ingest", "synth", "universe", "profile", "events", "versions", "tidy", "convert")


def module_of(action: str) -> ModuleType:
    """The module that implements an action."""
    return import_module(f"weft.cli.data_{action}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_actions(parser, "data", {action: module_of(action) for action in ACTIONS})


def run(args: argparse.Namespace) -> int:
    code: int = module_of(args.action).run(args)
    return code
