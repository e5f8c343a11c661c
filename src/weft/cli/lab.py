"""`weft lab`: the papers' claims as experiments, run on Spark and judged."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from weft.cli.parser import again_options, folder, whole_option
from weft.cli.problem import FAILED, USAGE, Problem
from weft.cli.spark import master_option, session
from weft.lab.experiments import UnknownExperiment, chosen, names

if TYPE_CHECKING:
    from weft.lab.experiment import AnyEntry, JobEntry

OUT = Path("out") / "lab"
AUDIT_OUT = Path("out") / "audit"
HELP = "Run the papers' experiments and judge their claims"
DETAILS = """
list       the experiments, one line each
run ID...  run experiments (patterns such as 'tera-*' work), write tables, verdicts and pictures
           below --out; what is finished there already is not run again
new NAME   make an experiment from a template, ready to run, and print the name of its file
report DIR write DIR/report.html from the verdicts in DIR, and print a summary
audit      plant defects in the code that experiments run (--only PATTERN: some experiments), and
           check that each counted verdict falls short under one of them; the exit code is 1 if one
           never does. After a verdict has fallen short no further defect is tried, unless --every

An experiment has a --quick size (seconds to a minute) and a --full size (the paper's). The exit
code of run is 1 if a claim falls short of its bound.

Experiments on subscriptions (stan-*) run on the synthetic grid and on each known trace in
the folder of data (--data, else WEFT_DATA, else shared/data beside the checkout); a trace that is
not there is named as skipped. With --trace LAKE they run on that lake alone.
"""
EXAMPLES = """
weft lab list
weft lab run tera-4a                           one experiment, quick size
weft lab run 'tera-*' --full --out out/full    all of a paper, at its sizes
weft lab run tera-4b --seeds 50                more runs, narrower intervals
weft lab run 'tera-*' --master spark://host:7077
weft lab run 'stan-*' --trace lakes/mine       on your own subscriptions ('weft data ingest')
weft lab report out/full
weft lab new my-question && weft lab run my-question   an experiment of your own
weft lab audit                                 can every verdict fail? goes on where it stopped
weft lab audit --only 'tera-*' --every         some experiments, with all of their defects
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = ("list", "new", "run", "report", "audit")
    parser.add_argument("action", choices=actions, help="what to do")
    parser.add_argument("names", nargs="*", metavar="ID", help="experiments, or DIR for report")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="the small size (the default)")
    size.add_argument("--full", action="store_true", help="the paper's size")
    parser.add_argument(
        "--out", type=folder, metavar="DIR", help="where results go (default: out/lab)"
    )
    whole_option(parser, "--seeds", 1, 10_000, "how many seeds (default: the entry's)")
    master_option(parser)
    parser.add_argument("--only", metavar="PATTERN", help="audit these experiments alone")
    parser.add_argument(
        "--every", action="store_true", help="audit with every defect, also after one was noticed"
    )
    again_options(parser)
    data = parser.add_mutually_exclusive_group()
    data.add_argument("--trace", metavar="LAKE", help="run on this lake alone")
    data.add_argument("--data", type=Path, metavar="DIR", help="folder of the known traces")


def check(args: argparse.Namespace) -> None:
    """Refuse wrong arguments before the packages of the lab are installed."""
    if args.only and args.action != "audit":
        raise Problem("--only is for audit; give run the names or patterns themselves", USAGE)
    if args.every and args.action != "audit":
        raise Problem("--every is for audit", USAGE)
    if args.action == "list" and args.names:
        raise Problem(f"list takes no name, but got {args.names[0]!r}", USAGE)
    if args.action == "new" and len(args.names) != 1:
        raise Problem("new needs one name: weft lab new NAME", USAGE)
    if args.action == "report" and len(args.names) != 1:
        raise Problem("report needs the folder that a run wrote to: weft lab report DIR", USAGE)
    if args.action == "run":
        if not args.names:
            what = "which experiments? 'weft lab list' names them; 'tera-*' is a pattern"
            raise Problem(what, USAGE)
        _known(args.names)
    if args.action == "audit":
        _check_audit(args)


def _check_audit(args: argparse.Namespace) -> None:
    if args.names:
        raise Problem("audit takes no names; choose experiments with --only PATTERN", USAGE)
    if args.full:
        raise Problem("audit takes no --full; it runs quick sizes", USAGE)
    for given, option in ((args.seeds, "--seeds"), (args.trace, "--trace"), (args.data, "--data")):
        if given:
            raise Problem(f"audit takes no {option}; it runs quick sizes on the grid", USAGE)
    if args.only:
        _known([args.only])


def _known(patterns: Sequence[str]) -> None:
    try:
        chosen(patterns, names())
    except UnknownExperiment as error:
        raise Problem(str(error), USAGE) from error


def run(args: argparse.Namespace) -> int:
    actions = {"list": _list, "new": _new, "run": _run, "report": _report, "audit": _audit}
    return actions[args.action](args)


def _list(args: argparse.Namespace) -> int:
    from weft.lab.experiment import SIZES
    from weft.lab.run import all_entries, plan_of
    from weft.lab.sources import find

    sources = find(args.out or OUT, data=args.data)
    print(f"{'':<14} {'points × seeds':<16}")
    print(f"{'id':<14} {'quick':>7} {'full':>8}  what")
    for entry in all_entries().values():
        quick, full = (len(plan_of(entry, size, sources=sources).tasks) for size in SIZES)
        print(f"{entry.id:<14} {quick:>7} {full:>8}  {entry.title}")
    return 0


def _new(args: argparse.Namespace) -> int:
    from weft.lab.template import make

    made = make(args.names[0], date.today())
    print(made)
    print(f"weft: 'weft lab run {args.names[0]}' runs it", file=sys.stderr)
    return 0


def _run(args: argparse.Namespace) -> int:
    from weft.lab import run as lab
    from weft.lab.execute import TaskFailed
    from weft.lab.experiment import JobEntry, Size
    from weft.lab.sources import find
    from weft.lab.verdict import table

    entries = lab.matching(args.names)
    size: Size = "full" if args.full else "quick"
    out = args.out or OUT
    sources = find(out, args.trace, args.data)
    jobs = [entry for entry in entries if isinstance(entry, JobEntry)]
    if args.trace:
        entries = _on_the_trace(entries, jobs)
    print(f"weft: {len(entries)} experiments, {size} size; starting Spark", file=sys.stderr)
    try:
        with session(args, "lab", small_tables=not jobs) as spark:
            verdicts = lab.run(
                spark,
                entries,
                size,
                out,
                seeds=args.seeds,
                fresh=args.fresh,
                changed=args.changed,
                sources=sources,
            )
    except TaskFailed as error:
        raise Problem(str(error)) from error
    idle = [entry.id for entry in entries if entry.id not in {each.id for each in verdicts}]
    if idle:
        print(f"weft: nothing to run on these data: {', '.join(idle)}", file=sys.stderr)
    print(table(verdicts))
    print(f"weft: results are in {out}; 'weft lab report {out}' makes a page", file=sys.stderr)
    return 0 if all(each.passed for each in verdicts) else FAILED


def _on_the_trace(entries: Sequence[AnyEntry], jobs: Sequence[JobEntry]) -> list[AnyEntry]:
    """With `--trace`, only the experiments that run on data; the others are named."""
    others = [entry.id for entry in entries if entry not in jobs]
    if not jobs:
        raise Problem(f"--trace: these experiments use no data: {', '.join(others)}", USAGE)
    if others:
        print(f"weft: left out, as they use no data: {', '.join(others)}", file=sys.stderr)
    return list(jobs)


def _report(args: argparse.Namespace) -> int:
    from weft.lab.report import summary, write
    from weft.lab.verdict import read_all

    out = Path(args.names[0])
    verdicts = read_all(out)
    if not verdicts:
        raise Problem(f"{out} has no verdicts; 'weft lab run --out {out}' writes them")
    print(summary(verdicts))
    print(f"weft: wrote {write(verdicts, out)}", file=sys.stderr)
    return 0


def _audit(args: argparse.Namespace) -> int:
    from weft.lab.audit import audit, summary, table, unmoved
    from weft.lab.execute import TaskFailed
    from weft.lab.run import matching

    entries = matching([args.only or "*"])
    out = args.out or AUDIT_OUT
    defects = sum(len(entry.defects) for entry in entries)
    print(
        f"weft: {len(entries)} experiments with {defects} defects; starting Spark", file=sys.stderr
    )
    try:
        with session(args, "lab", small_tables=True) as spark:
            found = audit(
                spark, entries, out, fresh=args.fresh, changed=args.changed, every=args.every
            )
    except TaskFailed as error:
        raise Problem(str(error)) from error
    print(table(found))
    print(summary(found))
    return FAILED if unmoved(found) else 0
