"""`weft sim`: play networks with faults in virtual time, and check what must hold.

One seed stands for one run: which peers subscribe and publish, what is lost, cut and crashed, when.
The same seed gives the same run, byte for byte.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from weft import private
from weft.cli.parser import duration, whole
from weft.cli.problem import FAILED, INTERRUPTED, USAGE, Problem
from weft.cli.settings import ROUTINGS

if TYPE_CHECKING:
    from weft.sim.campaign import Asked, Played
    from weft.sim.recorded import Recorded
    from weft.sim.scenario import Result, ScenarioSettings

HELP = "Play a network with faults in virtual time and check that nothing is broken"
DETAILS = """
Peers come up, faults drawn from the seed strike (loss, duplication, reordering, partitions,
crashes, stalls, wrong clocks, changing subscriptions), then the network heals, every event must
have been delivered, and separated parts of the network must have merged. Exit code 1 means that
such a rule was violated. Without --history, the routing flood repairs no losses, so its runs are
not judged by them.

A campaign plays runs that nobody has played before, until its time is over: 4 to 300 peers, 1 to 50
topics, all routings and schemes, calm and with faults and disasters, with and without history and
hierarchies. Most runs are small, since those find most for their time: four of five have at most
16 peers, two of a hundred more than 64. Half keep a history, a third have hostile peers, one of
seven is calm. Options that you give hold for all runs. A run that fails is shrunk to a smaller one
that fails, too; a file keeps the commands that play both again. When the time is over, runs that
have begun are played to their end, which takes minutes for the largest; Ctrl-C ends them at once
and keeps the results of the others, and failures that are not shrunk yet as they are.
"""
EXAMPLES = """
weft sim --seed 7                     one run, in words
weft sim --seed 7 --peers 50 --json   one run, as one JSON object
weft sim --seeds 1..200               many runs on all cores; prints how to replay those that failed
weft sim --seed 7 --trace run.jsonl   with a trace (see docs/trace.md)
weft sim --seed 7 --calm              without faults
weft sim --seed 7 --workload edits.jsonl   real users publish as they did ('weft data events')
weft sim --seed 7 --history           events are signed and stay; stores survive crashes
weft sim --seed 7 --routing flood     by another routing: see docs/protocols
weft sim --seed 7 --routing topic-dht --scheme full-gossip   … and another of its schemes
weft sim --seed 7 --disaster mass-crash   most peers crash at one moment, on top of the usual
weft sim --campaign 10                ten minutes of runs never played before, on all cores
weft sim --campaign 10 --routing pulsarcast --history   … all of them with these two
weft sim --seed 7 --hostile 30        30 % of all peers are hostile, by an attack that is drawn
weft sim --seeds 1..20 --hostile 10 --attack eclipse   … or given
weft sim --seed 7 --hierarchy         subscribers of a topic get its sub-topics' events, too
"""
SHOWN = 8
PEERS, TOPICS, EVENTS = 25, 8, 120
FAULTS = (
    *("loss", "duplication", "distance", "crashes", "partitions"),
    *("stalls", "slow", "clocks", "churn"),
)
DISASTERS = ("mass-crash", "power-loss", "long-partition", "flash-crowd", "slow-peers")
ATTACKS = (
    *("poison", "eclipse", "black-hole", "drop", "forge"),
    *("replay", "spam", "lie", "ground"),
)
HOSTILE_MAX = 90
KEEP = Path("out") / "campaign.jsonl"
TOLD_EVERY_S = 30.0  # how often a campaign without a terminal says how far it is
SCHEMES = (
    *("tree", "gossip", "flood"),  # tera's
    *("full-gossip", "forward-gossip", "full-treecast", "forward-treecast"),  # topic-dht's
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", type=whole(0, (1 << 63) - 1), metavar="S", help="the run to play")
    which.add_argument("--seeds", type=seed_range, metavar="A..B", help="all runs from A to B")
    which.add_argument(
        "--campaign",
        type=duration("minutes"),
        metavar="MINUTES",
        help="play runs with new seeds for so many minutes",
    )
    peers, topics, events = whole(3, 100_000), whole(1, 100_000), whole(0, 1_000_000)
    parser.add_argument("--peers", type=peers, metavar="N", help=f"number of peers ({PEERS})")
    parser.add_argument("--topics", type=topics, metavar="N", help=f"number of topics ({TOPICS})")
    parser.add_argument("--events", type=events, metavar="N", help=f"number of events ({EVENTS})")
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
        help="how events find their subscribers (tera)",
    )
    parser.add_argument("--calm", action="store_true", help="no faults at all")
    parser.add_argument(
        "--history",
        action="store_true",
        help="events are stored: a topic's stream must be the same at all members in the end",
    )
    parser.add_argument(
        "--brief",
        action="store_true",
        help="with --history: routing holds events for two minutes, as peers do by default, "
        "and not for the whole run",
    )
    parser.add_argument(
        "--hierarchy",
        action="store_true",
        help="some topics are sub-topics of others: events of half of them count above, too",
    )
    parser.add_argument(
        "--disaster",
        action="append",
        choices=DISASTERS,
        metavar="NAME",
        help=f"on top of the drawn faults (repeat for more): {', '.join(DISASTERS)}",
    )
    parser.add_argument(
        "--without",
        action="append",
        choices=FAULTS,
        metavar="NAME",
        help=f"leave out a class of the drawn faults (repeat for more): {', '.join(FAULTS)}",
    )
    parser.add_argument(
        "--hostile",
        type=whole(0, HOSTILE_MAX),
        metavar="SHARE",
        help="percent of all peers that are hostile, in addition to the honest ones of --peers; "
        "only what the honest peers got is judged (0)",
    )
    parser.add_argument(
        "--attack",
        choices=ATTACKS,
        metavar="KIND",
        help=f"what hostile peers do (else drawn from the seed): {', '.join(ATTACKS)}",
    )
    parser.add_argument(
        "--workload",
        type=Path,
        metavar="FILE",
        help="take peers, topics and events from a file of 'weft data events', not drawn ones",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write a trace of one run")
    parser.add_argument("--profile", action="store_true", help="say where the time of one run went")
    parser.add_argument(
        "--processes",
        type=whole(1, 64),
        metavar="N",
        help="processes for --seeds and --campaign (as many as there are cores)",
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FILE",
        help="file that a campaign adds a line of JSON to for every run (out/campaign.jsonl)",
    )


def seed_range(text: str) -> range:
    """`3..9` → 3 to 9, both included."""
    first, found, last = text.partition("..")
    if not found or not first.isdecimal() or not last.isdecimal() or int(first) > int(last):
        raise argparse.ArgumentTypeError(f"{text!r} is not a range of seeds like 1..200")
    return range(int(first), int(last) + 1)


def run(args: argparse.Namespace) -> int:
    if args.keep is not None and args.campaign is None:
        raise Problem("--keep goes with --campaign MINUTES", USAGE)
    if (args.seeds is not None or args.campaign is not None) and (args.trace or args.profile):
        raise Problem("--trace and --profile are for one run: give --seed S", USAGE)
    if args.workload is not None and args.campaign is not None:
        raise Problem("--workload is for --seed and --seeds, not for --campaign", USAGE)
    if args.workload is not None and (args.peers or args.topics):
        raise Problem("--workload names the peers and topics: leave out --peers, --topics", USAGE)
    if args.campaign is not None:
        return _run_campaign(args)
    if args.seeds is not None:
        recorded = _recorded(args)
        return _run_many([settings_of(args, seed, recorded) for seed in args.seeds], args)
    seed = args.seed if args.seed is not None else 1
    return _run_one(settings_of(args, seed, _recorded(args)), args)


def _recorded(args: argparse.Namespace) -> Recorded | None:
    from weft.sim.recorded import read_recorded

    return None if args.workload is None else read_recorded(args.workload)


def settings_of(
    args: argparse.Namespace, seed: int, recorded: Recorded | None = None
) -> ScenarioSettings:
    from weft.sim.scenario import ScenarioSettings

    peers, topics = PEERS, TOPICS
    if recorded is not None:
        peers, topics = len(recorded.interests), len(recorded.topics)
    try:
        return ScenarioSettings(
            seed=seed,
            peers=peers if args.peers is None else args.peers,
            topics=topics if args.topics is None else args.topics,
            events=EVENTS if args.events is None else args.events,
            scheme=args.scheme,
            routing=args.routing or "tera",
            calm=args.calm,
            history=args.history,
            brief=args.brief,
            hierarchy=args.hierarchy,
            disasters=tuple(dict.fromkeys(args.disaster or ())),
            without=tuple(dict.fromkeys(args.without or ())),
            hostile=args.hostile or 0,
            attack=args.attack,
            recorded=recorded,
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
            writer = Writer(stack.enter_context(private.begin_anew(args.trace)))
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
        f"{counts['control_per_delivery']} other messages per delivery, upkeep included"
    )
    if not result.violations:
        print("  no violations")
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
    hostile = faults.get("hostile")
    if isinstance(hostile, dict):
        attacks = ", ".join(dict.fromkeys(hostile["attacks"]))
        parts.append(f"{hostile['count']} hostile peers ({attacks})")
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
        for result in run_many(settings, args.processes or os.cpu_count() or 1):
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
    _print_kinds(failed)


def _print_kinds(failed: Sequence[Result]) -> None:
    from weft.sim.campaign import kind_of

    kinds = Counter(kind_of(text) for result in failed for text in result.violations)
    for kind, number in kinds.most_common():
        print(f"  {number} × {kind}")
    if failed:
        print(f"first replay: {failed[0].settings.command()}")


# --- a campaign -------------------------------------------------------------------------------


class _Tally:
    """The results of a campaign so far: kept in a file line by line, and printed meanwhile."""

    def __init__(self, keep: IO[str], until_s: float, quiet: bool) -> None:
        self._keep = keep
        self._until_s = until_s
        self._quiet = quiet
        self._live = sys.stderr.isatty() and not quiet
        self._started_s = time.monotonic()
        self._told_s = self._started_s
        self.runs = 0
        self.handled = 0
        self.delivered = 0
        self.cpu_s = 0.0
        self.failed: list[Played] = []

    def add(self, played: Played) -> None:
        result, shrunk = played.result, played.shrunk
        self.runs += 1
        self.handled += _total([result], "handled")
        self.delivered += _total([result], "delivered")
        self.cpu_s += played.spent_s
        line = {
            "replay": result.settings.command(),
            "delivered": result.counts["delivered"],
            "cpu_s": round(played.spent_s, 2),
            "violations": result.violations,
        }
        if result.violations:
            self.failed.append(played)
            line["shrunk"] = None if shrunk is None else shrunk.settings.command()
        if result.violations and not self._quiet:
            shown = shrunk or result
            print(f"\r{len(shown.violations)} violations, first: {shown.violations[0]}")
            print(f"  replay: {result.settings.command()}", flush=True)
            if shrunk is not None:
                print(f"  shrunk: {shrunk.settings.command()}", flush=True)
        print(json.dumps(line), file=self._keep, flush=True)

    def tell(self, playing: int, shrinking: int) -> None:
        """Say how far the campaign is: so many runs are being played, so many failures shrunk."""
        now_s = time.monotonic()
        if self._quiet or not (self._live or now_s >= self._told_s + TOLD_EVERY_S):
            return
        self._told_s = now_s
        left_s = self._until_s - now_s
        left = f"{left_s:.0f} s left" if left_s > 0 else f"time is over, {playing} still played"
        text = f"{self.runs} runs, {len(self.failed)} with violations, {left}"
        if shrinking:
            text += f", {shrinking} being shrunk"
        print(f"\r{text:<78}" if self._live else text, end="", file=sys.stderr)
        print(end="" if self._live else "\n", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._live:
            print(file=sys.stderr)

    def summary(self) -> dict[str, object]:
        return {
            "runs": self.runs,
            "failed": len(self.failed),
            "handled": self.handled,
            "delivered": self.delivered,
            "cpu_s": round(self.cpu_s, 1),
            "seconds": round(time.monotonic() - self._started_s, 1),
            "failures": [
                {
                    "replay": played.result.settings.command(),
                    "shrunk": played.shrunk and played.shrunk.settings.command(),
                    "violations": (played.shrunk or played.result).violations,
                }
                for played in self.failed
            ],
        }


def _run_campaign(args: argparse.Namespace) -> int:
    asked = _asked(args)
    until_s = time.monotonic() + 60 * args.campaign
    path = args.keep or KEEP
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        keep = io.TextIOWrapper(private.append_to(path, io.DEFAULT_BUFFER_SIZE), encoding="utf-8")
    except OSError as error:
        raise Problem(f"cannot write {path}: {error.strerror}") from error
    tally = _Tally(keep, until_s, quiet=args.json)
    try:
        with keep:
            interrupted = _play_campaign(args, asked, tally, until_s)
    except BrokenPipeError:  # of standard output
        raise
    except OSError as error:
        raise Problem(
            f"cannot write {path}: {error.strerror}; the last of {tally.runs} runs, "
            f"{len(tally.failed)} with violations, is not in it"
        ) from error
    tally.end()
    summary = tally.summary()
    if args.json:
        print(json.dumps({**summary, "kept": str(path)}))
    else:
        print(
            f"{tally.runs} runs{' (interrupted)' * interrupted}, {tally.delivered} deliveries, "
            f"{tally.handled} messages in {summary['seconds']} s ({summary['cpu_s']} s of CPU): "
            f"{len(tally.failed)} with violations; each run is in {path}"
        )
        _print_kinds([played.shrunk or played.result for played in tally.failed])
    if tally.failed:
        return FAILED
    return INTERRUPTED if interrupted else 0


def _play_campaign(args: argparse.Namespace, asked: Asked, tally: _Tally, until_s: float) -> bool:
    """Play until the time is over; returns whether it was interrupted."""
    from weft.sim.campaign import WorkerDied, campaign

    seeds, is_over = partial(secrets.randbelow, 1 << 48), partial(_is_past, until_s)
    try:
        for played in campaign(seeds, is_over, asked, args.processes, tally.tell):
            tally.add(played)
    except KeyboardInterrupt:
        return True
    except WorkerDied as error:
        under_way = "".join(f"\n  {settings.command()}" for settings in error.runs)
        raise Problem(
            f"a process died (out of memory?) after {tally.runs} runs, {len(tally.failed)} "
            f"with violations; these were under way:{under_way}"
        ) from error
    return False


def _is_past(at_s: float) -> bool:
    return time.monotonic() >= at_s


def _asked(args: argparse.Namespace) -> Asked:
    from weft.sim.campaign import Asked, draw_settings

    if args.without or args.brief:
        option = "--without" if args.without else "--brief"
        raise Problem(f"{option} is for replaying a run: give --seed S", USAGE)
    asked = Asked(
        args.peers,
        args.topics,
        args.events,
        args.routing,
        args.scheme,
        args.calm,
        args.history,
        args.hierarchy,
        tuple(dict.fromkeys(args.disaster or ())),
        args.hostile or 0,
        args.attack,
    )
    try:
        draw_settings(0, asked)
    except ValueError as error:
        raise Problem(str(error), USAGE) from error
    return asked
