"""`weft data ingest`: reads files into a lake."""

from __future__ import annotations

import argparse
import json
import sys
from fractions import Fraction
from typing import TYPE_CHECKING

from weft.cli.parser import folder
from weft.cli.problem import USAGE, Problem
from weft.cli.spark import Stopping, master_option, session, stoppable, terminable
from weft.terminal import printable

if TYPE_CHECKING:
    from weft.pipeline.ingest.job import Summary
    from weft.pipeline.ingest.options import Options

HELP = "Bring files into a lake"
DETAILS = """
Reads from files which users subscribe to which topics since when, and adds that to a lake. Files
may be packed with gzip or bzip2; a folder stands for all files in it. Rows that cannot be read go
to the lake's table of rejects, with file, line and reason. If a file is not of its format, is
incomplete, or the command is interrupted, the lake stays as it was. Files whose content is in the
lake already are passed over.

Formats:
  auto               guess from each file's beginning and name, and say what was guessed
  csv, tsv           columns for user, topic and perhaps time, with a header or without
  jsonl              a JSON object per line with such fields
  parquet            a table with such columns
  snap-edges         an edge list of SNAP: a user and one it follows
  snap-communities   a community per line, its members in it (com-lj.all.cmty.txt)
  mediawiki-xml      MediaWiki's dumps: users and the pages they edited
  mediawiki-history  Wikimedia's table of events in 70 columns
  weft-trace         weft's own traces (peer --trace, sim --trace)
  gossipsub-trace    traces of go-libp2p-pubsub's JSON tracer
"""
EXAMPLES = """
weft data ingest subs.csv.gz --out lake
weft data ingest likes.csv --user fan --topic band --time since --time-unit ms --out lake
weft data ingest com-lj.all.cmty.txt.gz --out lj
weft data ingest com-lj.ungraph.txt.gz --format snap-edges --both-ways --out lj
weft data ingest dumps/*.xml.bz2 --format mediawiki-xml --out wiki
weft data ingest out/demo/trace --out traced
"""
FORMATS = (
    "auto",
    "csv",
    "tsv",
    "jsonl",
    "parquet",
    "snap-edges",
    "snap-communities",
    "mediawiki-xml",
    "mediawiki-history",
    "weft-trace",
    "gossipsub-trace",
)
UNITS = ("s", "ms", "us", "ns")
WEIGHTS = (1.0, 4.0, 0.5, 1.0, 1.0, 4.0)
"""measured: about how the time is divided among the steps"""

QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC"}
"""measured: where there is little to read, Java's optimising compiler costs more than it saves; a
quarter less CPU time for a million rows"""

REJECTED = 3
"""The exit code if more rows are bad than --rejects-max allows."""
USUAL = "utf-8"
_REASONS_SHOWN = 5
_FILES_SHOWN = 12
_BEGINNING_SHOWN = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", type=folder, metavar="FILE", help="files or folders")
    parser.add_argument(
        "--out",
        required=True,
        metavar="LAKE",
        help="the lake's folder or address; made if it is not there",
    )
    parser.add_argument("--format", choices=FORMATS, default="auto", help="of all files (auto)")
    parser.add_argument("--user", metavar="COLUMN", help="name or number (from 1) of the users'")
    parser.add_argument("--topic", metavar="COLUMN", help="name or number (from 1) of the topics'")
    parser.add_argument("--time", metavar="COLUMN", help="name or number (from 1) of the times'")
    parser.add_argument(
        "--time-unit",
        choices=UNITS,
        help="unit of numeric times (as the column's name ends, else s); ISO dates need none",
    )
    header = parser.add_mutually_exclusive_group()
    header.add_argument(
        "--header", action="store_true", default=None, help="the first line names the columns"
    )
    header.add_argument(
        "--no-header",
        dest="header",
        action="store_false",
        help="the first line is data (default: weft looks whether it is)",
    )
    parser.add_argument(
        "--separator", metavar="CHAR", help="between columns, if not the format's own ('tab': tab)"
    )
    parser.add_argument(
        "--both-ways", action="store_true", help="snap-edges: users of an edge follow each other"
    )
    parser.add_argument("--user-prefix", default="", metavar="TEXT", help="put before users' names")
    parser.add_argument(
        "--topic-prefix", default="", metavar="TEXT", help="put before topics' names"
    )
    parser.add_argument(
        "--rejects-max",
        type=most,
        metavar="N",
        help=f"add nothing (exit code {REJECTED}) if more rows are bad: a number, or 1%%",
    )
    parser.add_argument(
        "--no-events",
        dest="events",
        action="store_false",
        help="keep only users' topics, not every row with its time and other columns",
    )
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
    master_option(parser)


def most(text: str) -> tuple[int | None, Fraction | None]:
    """How many rejects are allowed: rows, or a share of them."""
    try:
        rows = None if text.endswith("%") else int(text)
        share = Fraction(text.removesuffix("%")) / 100 if rows is None else None
    except (ValueError, ZeroDivisionError):
        rows, share = -1, None
    if (rows is not None and rows < 0) or (share is not None and not 0 <= share <= 1):
        raise argparse.ArgumentTypeError(
            f"expected a number of rows or a share such as 1%, not {text!r}"
        )
    return rows, share


def run(args: argparse.Namespace) -> int:
    from weft.lab.progress import Steps
    from weft.pipeline.ingest.files import SMALL_BYTES, listed
    from weft.pipeline.ingest.job import Most, TooManyRejects, ingest
    from weft.pipeline.location import Location

    options = _options(args)
    place = Location.of(args.out)  # a mistake is told before anything is begun
    try:
        lake = place.local if place.is_local else None
        files = listed(args.paths, lake)  # before Spark is waited for
        print(f"weft: {_many(len(files), 'file')}; starting Spark", file=sys.stderr)
        small = sum(path.stat().st_size for path in files) <= SMALL_BYTES
        options_of_spark = QUICK if small else {}
        with (
            terminable(),
            session(args, "data ingest", options=options_of_spark) as spark,
            Steps(spark, WEIGHTS) as steps,
        ):

            def work(stopping: Stopping) -> Summary:
                def watch(step: int, text: str) -> None:
                    stopping.check()
                    steps.begin(step, text)

                limit = Most(*(args.rejects_max or (None, None)))
                return ingest(
                    spark,
                    args.paths,
                    args.out,
                    args.format,
                    options,
                    watch,
                    limit,
                    events=args.events,
                )

            summary = stoppable(spark, work)
    except KeyboardInterrupt:
        print(f"weft: interrupted; {args.out} is as it was", file=sys.stderr)
        raise
    except TooManyRejects as error:
        raise Problem(str(error), REJECTED) from error
    if args.json:
        print(json.dumps(report(summary)))
        return 0
    for line in told(summary):
        print(printable(line))
    return 0


def _options(args: argparse.Namespace) -> Options:
    from weft.pipeline.ingest.options import Options

    separator = args.separator
    if separator is not None:
        separator = {"\\t": "\t", "tab": "\t"}.get(separator, separator)
        if len(separator) != 1:
            raise Problem("--separator must be one character ('tab' for a tab)", USAGE)
    for prefix in (args.user_prefix, args.topic_prefix):
        if not prefix.isascii() and prefix != prefix.encode(errors="replace").decode():
            raise Problem("a prefix must be text in UTF-8", USAGE)
    return Options(
        user=args.user,
        topic=args.topic,
        time=args.time,
        unit=args.time_unit,
        header=args.header,
        separator=separator,
        both_ways=args.both_ways,
        user_prefix=args.user_prefix,
        topic_prefix=args.topic_prefix,
    )


def told(summary: Summary) -> list[str]:
    """A summary for people."""
    lines = []
    for read in summary.read[:_FILES_SHOWN]:
        how = f" ({read.reading.described})" if read.reading.described else ""
        lines.append(f"{read.file.path}: {read.reading.format}{how}")
        lines.append(f"  {_many(read.rows, 'row')}, {_many(read.rejects, 'reject')}")
    if len(summary.read) > _FILES_SHOWN:
        rows = sum(read.rows for read in summary.read)
        bad = sum(read.rejects for read in summary.read)
        lines.append(f"… {_many(len(summary.read), 'file')} in all: {rows:,} rows, {bad:,} rejects")
    lines += [f"{path}: in the lake already" for path in summary.known[:_FILES_SHOWN]]
    if len(summary.known) > _FILES_SHOWN:
        lines.append(f"… {_many(len(summary.known), 'file')} in all were in the lake already")
    bare = summary.quality.without_rows
    lines += [f"{path}: no rows in it" for path in bare[:_FILES_SHOWN]]
    if len(bare) > _FILES_SHOWN:
        lines.append(f"… {_many(len(bare), 'file')} in all have no rows")
    doubts = summary.quality.doubts
    lines += [
        f"{path}: the first line {first[:_BEGINNING_SHOWN]!r} was read as a row; "
        "is it a header? --header or --no-header says it"
        for path, first in doubts[:_FILES_SHOWN]
    ]
    if len(doubts) > _FILES_SHOWN:
        lines.append(f"… {_many(len(doubts), 'file')} in all may begin with a header")
    for reason, times, where in summary.quality.reasons[:_REASONS_SHOWN]:
        lines.append(f"rejected {times:,}: {reason} (first at {where})")
    if summary.read:
        found = summary.quality
        lines.append(
            f"{_many(found.rows_in, 'row')} in: {found.kept:,} kept, {found.rejected:,} rejected; "
            f"{_many(found.duplicates, 'duplicate')}"
        )
        unusual = [each for each in found.encodings if each[0] != USUAL]
        lines += [f"{_many(files, 'file')} read as {name}" for name, files in unusual]
    for table in ("memberships", "events", "users", "topics", "trace", "rejects"):
        total, new = summary.after[table], summary.after[table] - summary.before[table]
        if total:
            lines.append(f"{table:<12} {total:>12,}" + (f"  (+{new:,})" if new else ""))
    state = "" if summary.read else ", which is as it was"
    lines.append(f"lake: {summary.lake}{state}")
    return lines


def report(summary: Summary) -> dict[str, object]:
    """A summary for machines."""
    found = summary.quality
    return {
        "lake": str(summary.lake),
        "files": [
            {
                "file": read.file.path,
                "format": read.reading.format,
                "reading": read.reading.described,
                "encoding": read.file.encoding or None,
                "rows": read.rows,
                "rejects": read.rejects,
            }
            for read in summary.read
        ],
        "known": summary.known,
        "rows_in": found.rows_in,
        "kept": found.kept,
        "rejected": found.rejected,
        "reasons": {reason: {"rows": rows, "first": at} for reason, rows, at in found.reasons},
        "duplicates": found.duplicates,
        "encodings": dict(found.encodings),
        "without_rows": list(found.without_rows),
        "doubts": [{"file": path, "first": first} for path, first in found.doubts],
        "new": {name: summary.after[name] - summary.before[name] for name in summary.after},
        "tables": summary.after,
    }


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
