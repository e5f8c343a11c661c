"""`weft demo`: a real swarm on this machine, checked, with a report to look at."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from weft.cli.parser import folder, whole_option
from weft.cli.problem import FAILED, INTERRUPTED
from weft.cli.web import needs_web, swarm_window, web_option

if TYPE_CHECKING:
    from weft.demo.output import Output, Summary
    from weft.demo.show import Outcome
    from weft.lab.processes import Swarm
    from weft.lab.progress import Phases

_LOOK_S = 20.0
"""guess: long enough to click on an address."""

HELP = "See it work: a real swarm on this machine, checked, with a report"
DETAILS = """
Starts peers on loopback, each with its own identity and TLS listener, subscribes
them to topics, publishes events from inside and outside the topics, and checks
that every subscriber got every event. Then the peers' traces are measured by the
pipeline (on Spark, see 'weft trace'), whose figures must agree with what was
counted meanwhile. Takes about a minute. Writes summary.json, report.html, the
traces and the pipeline's tables. Exit code 1 means that an event did not arrive,
that figures disagree, or that the pipeline could not run; the output says which.
"""
EXAMPLES = """
weft demo                      25 peers, 300 events, results in out/demo
weft demo --out ./look         results in another folder
weft demo --peers 60 --seed 7  a larger swarm, other interests
weft demo --web --seconds 60   with a page to watch it by
weft demo --no-measure         without the pipeline, so without Spark
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=folder, default=Path("out/demo"), metavar="DIR", help="results (out/demo)"
    )
    whole_option(parser, "--peers", 2, 500, "number of peers (25)", default=25)
    whole_option(parser, "--processes", 1, 64, "processes for the peers (4)", default=4)
    whole_option(parser, "--topics", 1, 200, "number of topics (12)", default=12)
    whole_option(parser, "--events", 1, 100_000, "events to publish (300)", default=300)
    whole_option(parser, "--seconds", 1, 600, "seconds to publish them in (10)", default=10)
    seed = "seed of subscriptions and events (1)"
    whole_option(parser, "--seed", 0, 2**63 - 1, seed, default=1, metavar="S")
    parser.add_argument(
        "--no-measure", action="store_true", help="do not measure the traces with the pipeline"
    )
    web_option(parser)


def run(args: argparse.Namespace) -> int:
    from weft.demo import report  # noqa: F401  (a missing package is reported before anything runs)
    from weft.demo.output import Output
    from weft.demo.show import Plan, Show
    from weft.errors import WeftError
    from weft.lab.progress import Phases

    if args.web:
        needs_web()
    output = Output(args.out)
    output.prepare()
    plan = Plan(args.peers, args.processes, args.topics, args.events, args.seconds, args.seed)
    progress = Phases()
    beside = partial(_beside, args) if args.web else None
    show = Show(plan, output.trace, progress, beside)
    try:
        asyncio.run(show.run())
    except KeyboardInterrupt:
        write(output, show.outcome)
        print(f"weft: interrupted; {output.summary} says how far it came", file=sys.stderr)
        return INTERRUPTED
    except WeftError:
        write(output, show.outcome)
        raise
    summary = write(output, show.outcome)
    if not args.no_measure:
        summary = measure(output, show.outcome, summary, progress)
    return conclude(output, show.outcome, summary)


@asynccontextmanager
async def _beside(args: argparse.Namespace, swarm: Swarm) -> AsyncIterator[None]:
    """Open the page of the demonstration, and wait a while for a browser to open it."""
    from weft.demo.show import CONFIG
    from weft.net import config
    from weft.net.config import Config

    settings = config.from_table(CONFIG, Config, "demo", "")
    async with swarm_window(swarm, args, settings, [swarm.addresses[0]]) as web:
        print(f"weft: waiting up to {_LOOK_S:g} s for the page to be opened", file=sys.stderr)
        await web.looked_at(_LOOK_S)
        yield


def write(output: Output, outcome: Outcome, measured: dict[str, object] | None = None) -> Summary:
    """Write the results, with what the pipeline measured if it did; returns the summary."""
    from weft.demo import report, traffic
    from weft.demo.output import summarise

    start_ns, end_ns = outcome.publishing_ns
    whole_run = traffic.read(output.traces(), start_ns, end_ns)
    settled = traffic.read(output.traces(), (start_ns + end_ns) // 2, end_ns)
    summary = summarise(outcome, whole_run, settled) | (measured or {})
    output.write_summary(summary)
    output.report.write_text(report.page(outcome, whole_run, summary))
    if outcome.status:
        output.picture.write_text(report.overlay(outcome, whole_run).render(alone=True) + "\n")
    return summary


def measure(output: Output, outcome: Outcome, summary: Summary, progress: Phases) -> Summary:
    """Let the pipeline measure the traces and compare; returns the summary with what it found."""
    from weft.demo import measured, traffic

    try:
        figures = measured.measure(output.traces(), output.tables, progress)
    except measured.NotMeasured as error:
        progress.clear()
        return summary | {"not_measured": str(error)}
    all_time = traffic.read(output.traces(), 0, 1 << 63)
    differences = measured.compare(figures, outcome, all_time)
    progress.end(f"{len(output.traces())} traces, by the pipeline")
    return write(
        output, outcome, {"measured": dict(figures), "measured_differences": list(differences)}
    )


def conclude(output: Output, outcome: Outcome, summary: Summary) -> int:
    """Say the most important results; returns the exit code."""
    from weft.demo.verdict import explain

    latency = summary["latency_ms"]
    print(
        f"{summary['notifications_delivered']} of {summary['notifications_expected']} "
        f"notifications delivered, half within {latency['p50']} ms, 99 % within "
        f"{latency['p99']} ms; {summary['payload_copies_per_delivery']} copies per delivery, "
        f"{summary['messages_per_notification']} messages per notification"
    )
    failed = [] if summary["all_delivered"] else explain(outcome.verdict, outcome.workload)
    if "measured" in summary:
        from weft.pipeline.traces.figures import said

        agree = "disagree with" if summary["measured_differences"] else "agree with"
        print(
            "\nMeasured from the traces, over the whole run with joining and weaving, so with more"
            "\nmessages than above; times end at the peer, before its application has the event;"
        )
        print(f"where both count, figures {agree} what was counted:")
        print("\n".join(f"  {line}" for line in said(summary["measured"])) + "\n")
        failed += [f"the figures differ: {line}" for line in summary["measured_differences"]]
    if "not_measured" in summary:
        failed.append(f"the traces could not be measured: {summary['not_measured']}")
    print(f"{output.report}\n{output.summary}")
    for line in failed:
        print(f"weft: {line}", file=sys.stderr)
    return FAILED if failed or not summary["complete"] else 0
