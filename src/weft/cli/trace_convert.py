"""`weft trace convert`: writes a trace in the form of another tool."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from weft.cli.parser import folder
from weft.cli.problem import USAGE, Problem
from weft.terminal import printable

HELP = "Convert a trace between weft's lines and go-libp2p-pubsub's JSON and protobuf"
DETAILS = """
Reads a file of weft's own lines, of go-libp2p-pubsub's JSON tracer (0.15, or 0.16, which renamed
addPeer and removePeer) or, if its name ends in .pb, of its protobuf tracer. All may be packed
(.gz). Peer ids, message ids, topics and times stay the same in every form. Fields that
go-libp2p-pubsub does not have, such as hops and sizes, are left out, and named at the end.

Without --to, an OUT that ends in .pb becomes protobuf, and any other weft's own lines. Protobuf is
the same in 0.15 and 0.16. The file appears under its name only when it is complete.
"""
EXAMPLES = """
weft trace convert go.pb lines.jsonl                      from PBTracer's protobuf to weft's lines
weft trace convert out/demo/trace/peer-000.jsonl a.pb.gz  for tools that read GossipSub's traces
weft trace convert old.json new.json --to json-0.16       from go-libp2p-pubsub 0.15 to 0.16
weft trace convert go.pb go.json --to json-0.15           from protobuf to JSON
"""
FORMS = ("weft", "json-0.15", "json-0.16", "pb")
"""The forms of `weft.pipeline.traces.forms`, written out so that --help need not load it."""
_LEFT_OUT_SHOWN = 16  # guess: fields; weft itself has ten or so that go-libp2p-pubsub has not
_SHOWN_EVERY = 1_000  # guess: records between two looks at the clock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=folder, metavar="IN", help="the trace to read, a file")
    parser.add_argument("target", type=folder, metavar="OUT", help="to write; must not exist yet")
    parser.add_argument("--to", choices=FORMS, help="form of OUT (default: by its name)")


def run(args: argparse.Namespace) -> int:
    from weft.lab.progress import Progress
    from weft.pipeline.traces.forms import Form, convert, is_protobuf

    source, target = args.source, args.target
    _check(source, target)
    form = Form(args.to or ("pb" if is_protobuf(target.name) else "weft"))
    if (form is Form.PROTOBUF) != is_protobuf(target.name):
        told = "ends in .pb or .pb.gz" if form is Form.PROTOBUF else "does not end in .pb"
        raise Problem(f"{target}: the name of a file in the form {form} {told}", USAGE)
    size = source.stat().st_size
    progress = Progress(size >> 20, size)

    def show(records: int, done: int) -> None:
        if records % _SHOWN_EVERY == 0:
            progress.show(done >> 20, done, "MiB")

    try:
        done = convert(source, target, form, show)
    except OSError as error:  # of writing; an error of reading is reported as a bad record
        raise Problem(f"{target}: {error.strerror or error}") from error
    finally:
        progress.clear()
    for name, count in done.left_out.most_common(_LEFT_OUT_SHOWN):
        print(f"weft: left out: {printable(name)} ({count:,} times)", file=sys.stderr)
    more = len(done.left_out) - _LEFT_OUT_SHOWN
    if more > 0:
        print(f"weft: left out: {more:,} more fields", file=sys.stderr)
    print(f"{done.records:,} records, {done.bytes:,} bytes in {target}", file=sys.stderr)
    return 0


def _check(source: Path, target: Path) -> None:
    if not source.exists():
        raise Problem(f"{source}: no such file", USAGE)
    if not source.is_file():
        raise Problem(f"{source} is not a file; convert the files of a folder one by one", USAGE)
    if target.exists():
        raise Problem(f"{target} exists already", USAGE)
    if not target.parent.is_dir():
        raise Problem(f"{target.parent}: no such folder", USAGE)
