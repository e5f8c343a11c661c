"""`weft bench`: what a peer, the engine and the pipeline cost on this machine.

The benchmarks live beside the package, in the repository's `benchmarks/`, so this command only
finds and starts them; the arguments after the name of a benchmark are that benchmark's own.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from weft.cli.checkout import checkout
from weft.cli.problem import Problem

HELP = "Measure what a peer, the engine or the pipeline costs on this machine"
DETAILS = """
Runs the benchmarks of the checkout. Progress goes to stderr, the figures to stdout. What is
measured and how to read it: docs/benchmarks.md.
"""
EXAMPLES = """
weft bench peer                     all figures of a peer, as a table (about 15 minutes)
weft bench peer --json              the same as one JSON object, with all details
weft bench peer --only throughput   one of the measures
weft bench peer --help              measures and options of this benchmark
weft bench engine --help            … and of the engine's
weft bench dht --peers 300          what the DHT finds, at what cost, with and without faults
weft bench topic-dht --json         the topic-aware DHT's promises, over arrays and with machines
weft bench rivals --json            weft beside NATS, Zenoh, ZeroMQ, MQTT and Redis
weft bench page                     500 peers in a browser
weft bench exchange                 curl, a browser and ten peers: a thousand events, none lost
weft bench history --json           verifying, storing, reading, kill -9
weft bench pipeline --json          all figures of the pipeline, as one JSON object
weft bench pipeline --only prune    one of its measures: prune, stan or traces
"""
_BENCHMARKS = {
    "peer": "benchmarks.peer.main",
    "engine": "benchmarks.engine",
    "pipeline": "benchmarks.pipeline.main",
    "history": "benchmarks.history.main",
    "dht": "benchmarks.dht",
    "topic-dht": "benchmarks.topic_dht",
    "rivals": "benchmarks.rivals.main",
    "page": "benchmarks.page",
    "exchange": "benchmarks.exchange",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("benchmark", choices=sorted(_BENCHMARKS), help="what to measure")
    parser.add_argument(
        "rest",
        nargs=argparse.REMAINDER,
        metavar="ARGS",
        help="arguments of the benchmark, such as --json",
    )


def run(args: argparse.Namespace) -> int:
    root = checkout()
    if not (root / "benchmarks" / "peer").is_dir():
        raise Problem("this checkout of weft has no benchmarks/ folder")
    sys.path.insert(0, str(root))
    code: int = import_module(_BENCHMARKS[args.benchmark]).main(args.rest)
    return code
