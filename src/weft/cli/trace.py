"""`weft trace`: measures and converts the traces of a network.

Each action is a module of this package, like a command: `trace_measure` and so on.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from types import ModuleType

from weft.cli.parser import add_actions

HELP = "Measure a network from its traces, and convert traces"
DETAILS = """
Traces of peers, of the simulator and of the engine are in the vocabulary of libp2p's pubsub tracer,
so traces of go-libp2p-pubsub are read as well. 'weft trace ACTION --help' explains an action;
docs/trace.md explains records, forms and figures.
"""
EXAMPLES = """
weft trace measure out/demo                    the trace of a demonstration
weft trace measure traces --follow             while a swarm runs, until Ctrl-C
weft trace convert go.pb lines.jsonl           a trace of go-libp2p-pubsub, to weft's JSON lines
weft trace convert lines.jsonl go.pb           … and back
"""
ACTIONS = ("measure", "convert")


def module_of(action: str) -> ModuleType:
    """The module that implements an action."""
    return import_module(f"weft.cli.trace_{action}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_actions(parser, "trace", {action: module_of(action) for action in ACTIONS})


def run(args: argparse.Namespace) -> int:
    code: int = module_of(args.action).run(args)
    return code
