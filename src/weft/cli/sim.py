"""`weft sim`: play networks with faults in virtual time, and check what must hold.

One seed stands for one run: which peers subscribe and publish, what is lost, cut and crashed, when.
The same seed gives the same run, byte for byte.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from weft.cli.parser import whole
from weft.cli.problem import FAILED, INTERRUPTED, USAGE, Problem
from weft.cli.settings import ROUTINGS

if TYPE_CHECKING:
    from weft.sim.scenario import Result, ScenarioSettings

HELP = "Play a network with faults in virtual time and check that nothing is broken"
DETAILS = """
Peers come up, faults drawn from the seed strike (loss, duplication, reordering, partitions,
crashes, stalls, wrong clocks, changing subscriptions), then the network heals and everything must
be delivered and merged. Exit code 1 means that something was violated. Without --history, flood
does not repair what faults lose, so that is not asked of it.
"""
EXAMPLES = """
weft sim --seed 7                     one run, in words
weft sim --seed 7 --peers 50 --json   one run, as one JSON object
weft sim --seeds 1..200               many runs on two cores; names what failed and how to replay it
weft sim --seed 7 --trace run.jsonl   with a trace (see docs/trace.md)
weft sim --seed 7 --calm              without faults
weft sim --seed 7 --history           events are signed and stay; stores survive crashes
weft sim --seed 7 --routing flood     by another routing: see docs/protocols
weft sim --seed 7 --routing topic-dht --scheme full-gossip   … and another of its schemes
weft sim --seed 7 --hierarchy         subscribers of a topic get its sub-topics' events, too
"""
SHOWN = 8
SCHEMES = (
    *("tree", "gossip", "flood"),  # tera's
    *("full-gossip", "forward-gossip", "full-treecast", "forward-treecast"),  # topic-dht's
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", type=whole(0, (1 << 63) - 1), metavar="S", help="the run to play")
    which.add_argument("--seeds", type=seed_range, metavar="A..B", help="all runs from A to B")
    parser.add_argument("--peers", type=whole(3, 100_000), default=25, metavar="N")
    parser.add_argument("--topics", type=whole(1, 100_000), default=8, metavar="N")
    parser.add_argument("--events", type=whole(0, 1_000_000), default=120, metavar="N")
    parser.add_argument(
        "--scheme",
        choices=SCHEMES,
        metavar="NAME",
        help="how events spread within a topic. With tera: tree (usual), gossip or flood; with "
        "topic-dht: forward-treecast (usual), full-treecast, forward-gossip or full-gossip",
    )
    parser.add_argument(
        "--routing",
        choices=ROUTINGS,
        default="tera",
        help="how events find their subscribers (tera)",
    )
    parser.add_argument("--calm", action="store_true", help="no faults at all")
    parser.add_argument(
        "--history", action="store_true", help="events stay: every stream must end the same"
    )
    parser.add_argument(
        "--hierarchy",
        action="store_true",
        help="topics lie above one another: events of half of them count in those above, too",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write a trace of one run")
    parser.add_argument("--profile", action="store_true", help="say where the time of one run went")
    parser.add_argument(
        "--processes", type=whole(1, 64), default=2, metavar="N", help="for --seeds (2)"
    )


def seed_range(text: str) -> range:
    """`3..9` → 3 to 9, both included."""
    first, found, last = text.partition("..")
    if not found or not first.isdecimal() or not last.isdecimal() or int(first) > int(last):
        raise argparse.ArgumentTypeError(f"{text!r} is not a range of seeds like 1..200")
    return range(int(first), int(last) + 1)


def run(args: argparse.Namespace) -> int:
    if args.seeds is not None:
        if args.trace or args.profile:
            raise Problem("--trace and --profile are about one run: give --seed S", USAGE)
        return _run_many([_settings(args, seed) for seed in args.seeds], args)
    return _run_one(_settings(args, args.seed if args.seed is not None else 1), args)


def _settings(args: argparse.Namespace, seed: int) -> ScenarioSettings:
    from weft.sim.scenario import ScenarioSettings

    try:
        return ScenarioSettings(
            seed=seed,
            peers=args.peers,
            topics=args.topics,
            events=args.events,
            scheme=args.scheme,
            routing=args.routing,
            calm=args.calm,
            history=args.history,
            hierarchy=args.hierarchy,
        )
    except ValueError as error:
        raise Problem(str(error), USAGE) from error


# --- one run ----------------------------------------------------------------------------------


def _run_one(settings: ScenarioSettings, args: argparse.Namespace) -> int:
    from weft.sim.runs import profiled
    from weft.sim.scenario import run
    from weft.trace import Writer

    started_s = time.process_time()
    with ExitStack() as stack:
        writer = None
        if args.trace is not None:
            writer = Writer(stack.enter_context(args.trace.open("wb")))
        if args.profile:
            result, report = profiled(lambda: run(settings, writer))
            print(report, file=sys.stderr)
        else:
            result = run(settings, writer)
    spent_s = time.process_time() - started_s
    if args.json:
        print(json.dumps(result.as_dict()))
    else:
        _print_result(result, spent_s)
    return FAILED if result.violations else 0


def _print_result(result: Result, spent_s: float) -> None:
    counts, faults = result.counts, result.faults
    print(f"seed {result.settings.seed}: {result.settings.peers} peers", end=", ")
    print(f"{counts['published']} events published, {counts['delivered']} deliveries")
    print(f"  faults    {_faults_text(faults)}")
    print(
        f"  messages  {counts['handled']} handled in {_seconds(counts['virtual_ms'])} of virtual "
        f"time ({_rate(counts['handled'], spent_s)}), {counts['lost']} lost, {counts['cut']} cut, "
        f"{counts['duplicated']} doubled"
    )
    print(
        f"  cost      {counts['payload_copies_per_delivery']} payload copies and "
        f"{counts['control_per_delivery']} control messages per delivery"
    )
    if not result.violations:
        print("  all holds")
        return
    print(f"  {len(result.violations)} violations")
    for text in result.violations[:SHOWN]:
        print(f"    - {text}")
    if len(result.violations) > SHOWN:
        print(f"    … and {len(result.violations) - SHOWN} more (--json shows all)")
    print(f"  replay: {result.settings.command()}")


def _faults_text(faults: dict[str, object]) -> str:
    def size(name: str) -> int:
        found = faults[name]
        return len(found) if isinstance(found, list) else 0

    latency = faults["latency"]
    assert isinstance(latency, dict)
    parts = [
        f"{latency['kind']} latency of {latency['typical_ms']} ms",
        f"{faults['loss_percent']} % loss",
        f"{faults['duplicate_percent']} % duplication",
        f"{size('partitions')} partitions",
        f"{size('crashes')} crashes",
        f"{size('stalls')} stalls",
        f"{faults['churn_percent']} % churn",
    ]
    return ", ".join(parts)


def _seconds(milliseconds: object) -> str:
    assert isinstance(milliseconds, int)
    return f"{milliseconds / 1000:.0f} s"


def _rate(handled: object, spent_s: float) -> str:
    assert isinstance(handled, int)
    return f"{handled / max(spent_s, 1e-9):,.0f}/s"


# --- many runs --------------------------------------------------------------------------------


def _run_many(settings: Sequence[ScenarioSettings], args: argparse.Namespace) -> int:
    from weft.sim.runs import run_many

    done: list[Result] = []
    interrupted = False
    started_s = time.monotonic()
    try:
        for result in run_many(settings, args.processes):
            done.append(result)
            if not args.json:
                _print_progress(result, len(done), len(settings))
    except KeyboardInterrupt:
        interrupted = True
    if not args.json and sys.stderr.isatty():
        print(file=sys.stderr)
    failed = [result for result in done if result.violations]
    if args.json:
        print(json.dumps(_summary(done, len(settings))))
    else:
        _print_summary(done, failed, len(settings), time.monotonic() - started_s)
    if failed:
        return FAILED
    return INTERRUPTED if interrupted else 0


def _print_progress(result: Result, done: int, of: int) -> None:
    if result.violations:
        seed, number = result.settings.seed, len(result.violations)
        print(f"\rseed {seed}: {number} violations, first: {result.violations[0]}", flush=True)
        if done == 1 or number:
            print(f"  replay: {result.settings.command()}", flush=True)
    if sys.stderr.isatty():
        print(f"\r{done} of {of} runs", end="", file=sys.stderr, flush=True)


def _total(results: Iterable[Result], name: str) -> int:
    return sum(value for result in results if isinstance(value := result.counts[name], int))


def _summary(done: Sequence[Result], asked: int) -> dict[str, object]:
    failed = [result for result in done if result.violations]
    return {
        "runs": len(done),
        "asked": asked,
        "failed": [result.settings.seed for result in failed],
        "handled": _total(done, "handled"),
        "published": _total(done, "published"),
        "delivered": _total(done, "delivered"),
        "violations": [
            {"seed": result.settings.seed, "violation": text, "replay": result.settings.command()}
            for result in failed
            for text in result.violations
        ],
        "replay": failed[0].settings.command() if failed else None,
    }


def _print_summary(
    done: Sequence[Result], failed: Sequence[Result], asked: int, spent_s: float
) -> None:
    short = "" if len(done) == asked else f" (of {asked}: interrupted)"
    print(
        f"{len(done)} runs{short}, {_total(done, 'published')} events, "
        f"{_total(done, 'delivered')} deliveries, {_total(done, 'handled')} messages "
        f"in {spent_s:.0f} s: {len(failed)} with violations"
    )
    if failed:
        kinds = Counter(_kind(text) for result in failed for text in result.violations)
        for kind, number in kinds.most_common():
            print(f"  {number} × {kind}")
        print(f"first replay: {failed[0].settings.command()}")


def _kind(violation: str) -> str:
    """The sentence without its numbers and names: violations of one kind look the same."""
    words = [word for word in violation.split() if not any(c.isdigit() for c in word)]
    return " ".join(words[:12])
