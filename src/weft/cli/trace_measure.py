"""`weft trace measure`: measures a network from its traces, on Spark."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from weft.cli.parser import folder, seconds, version_options
from weft.cli.problem import INTERRUPTED, USAGE, Problem
from weft.cli.spark import interrupted, master_option, session
from weft.terminal import printable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HELP = "Measure a network from its traces"
DETAILS = """
Reads the traces of peers, of the simulator, of the engine or of go-libp2p-pubsub: files of JSON
lines or of protobuf (.pb), packed with gzip or not, a folder of them, or a lake with an ingested
trace.
Says how much was delivered, at what cost in messages and bytes, how fast, and how evenly the load
was spread. Tables (Parquet) and pictures go to --out. docs/trace.md says how figures are counted.

With --follow, the tables are kept up to date while a swarm writes its traces. It can be stopped and
started again at any time: every record counts once.
"""
EXAMPLES = """
weft trace measure out/demo                            the trace of a demonstration
weft trace measure run.jsonl more.jsonl.gz --json      some files, figures for machines
weft trace measure go.pb                               a trace of go-libp2p-pubsub's PBTracer
weft trace measure traces --out out/now --follow       while a swarm runs, until Ctrl-C
weft trace measure traces --follow --idle 60           until nothing has come for a minute
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="DIR", help="files, a folder or a lake")
    parser.add_argument(
        "--out",
        type=folder,
        default=Path("out/trace"),
        metavar="DIR",
        help="tables and pictures (out/trace)",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    parser.add_argument("--follow", action="store_true", help="go on while the trace grows")
    parser.add_argument(
        "--every", type=seconds, default=5.0, metavar="S", help="seconds between updates (5)"
    )
    parser.add_argument(
        "--idle", type=seconds, metavar="S", help="with --follow: end after so long without news"
    )
    parser.add_argument(
        "--delay",
        type=seconds,
        metavar="S",
        help="with --follow: how late records may be before an event is settled (120)",
    )
    version_options(parser)
    master_option(parser)


def run(args: argparse.Namespace) -> int:
    if not args.follow and (args.idle or args.delay):
        raise Problem("--idle and --delay go with --follow", USAGE)
    return _follow(args) if args.follow else _measure(args)


def _measure(args: argparse.Namespace) -> int:
    from weft.lab.progress import Steps
    from weft.pipeline.location import Location
    from weft.pipeline.traces.measure import WEIGHTS, measure
    from weft.pipeline.traces.source import find

    source = find([Location.of(path) for path in args.paths], args.version, args.as_of)
    begun = time.monotonic()
    print(
        f"weft: measuring {len(source.paths)} files, {source.size / 1e6:,.1f} MB", file=sys.stderr
    )
    with session(args, "trace", small_tables=source.size < 64 << 20) as spark:
        with Steps(spark, WEIGHTS) as steps:
            numbers = iter(range(1, len(WEIGHTS)))
            steps.begin(0, "reading")
            figures = measure(
                spark,
                source,
                args.out,
                lambda: steps.begin(next(numbers, len(WEIGHTS) - 1), "making tables"),
            )
        rejected = _rejected(spark, args.out)
    _show(figures, args)
    for line in rejected:
        print(f"weft: {printable(line)}", file=sys.stderr)
    spent = time.monotonic() - begun
    print(f"weft: tables and pictures are in {args.out} ({spent:.0f} s)", file=sys.stderr)
    return 0


def _follow(args: argparse.Namespace) -> int:
    from pyspark.errors import PySparkException

    from weft.pipeline.location import Location
    from weft.pipeline.traces.follower import DELAY_S, Follower
    from weft.pipeline.traces.source import FOLDER, NoTrace

    [given, *more] = args.paths
    if more:
        raise Problem("--follow takes one folder or file", USAGE)
    if args.version or args.as_of:
        raise Problem("--follow reads a growing trace, not a version of a lake", USAGE)
    path = Location.of(given).local
    if not path.exists():
        raise NoTrace(f"{path}: no such file or folder")
    folder = path / FOLDER if (path / FOLDER).is_dir() else path
    # Spark hands batches to this process, one after the other, which Spark Connect cannot do.
    with session(args, "trace measure --follow", small_tables=True, own=True) as spark:
        follower = Follower(
            spark, folder, args.out, args.delay or DELAY_S, lambda figures: _show(figures, args)
        )
        print(f"weft: following {folder}; Ctrl-C ends it", file=sys.stderr)
        try:
            with interrupted(follower.end) as was_interrupted:
                follower.run(args.every, args.idle)
        except PySparkException as error:
            raise Problem(f"following ended: {str(error).splitlines()[0]}") from error
        code = INTERRUPTED if was_interrupted.is_set() else 0
    print(
        f"weft: tables and pictures are in {args.out}; the same command goes on from there",
        file=sys.stderr,
    )
    return code


def _show(figures: dict[str, float | None], args: argparse.Namespace) -> None:
    from weft.demo.measured import draw
    from weft.pipeline.traces.figures import said

    draw(args.out)
    if args.json:
        print(json.dumps(figures), flush=True)
    else:
        print("\n".join(said(figures)), flush=True)


def _rejected(spark: SparkSession, out: Path) -> list[str]:
    """A message about lines that could not be read, if there were any."""
    from weft.pipeline.schemas import REJECT
    from weft.pipeline.tables import read

    rejects = read(spark, out / "rejects", REJECT)
    number = rejects.count()
    if not number:
        return []
    first = rejects.orderBy("file", "line").first()
    assert first is not None
    return [
        f"{number} lines could not be read, the first: {first.file} line {first.line}: "
        f"{first.reason} (all are in {out / 'rejects'})"
    ]
