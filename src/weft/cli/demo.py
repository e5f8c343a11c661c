"""`weft demo`: a real swarm on this machine, checked, with a report to look at."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from weft.cli.parser import whole
from weft.cli.problem import FAILED, INTERRUPTED

if TYPE_CHECKING:
    from weft.demo.output import Output
    from weft.demo.show import Outcome

HELP = "See it work: a real swarm on this machine, checked, with a report"
DETAILS = """
Starts peers on loopback, each with its own identity and TLS listener, subscribes
them to topics, publishes events from inside and outside the topics, and checks
that every subscriber got every event. Takes about half a minute. Writes
summary.json, report.html and the peers' traces. Exit code 1 means that
something did not arrive; the output says what.
"""
EXAMPLES = """
weft demo                      25 peers, 300 events, results in out/demo
weft demo --out ./look     results elsewhere
weft demo --peers 60 --seed 7  a larger swarm, other interests
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    number = whole(2, 500)
    parser.add_argument(
        "--out", type=Path, default=Path("out/demo"), metavar="DIR", help="results (out/demo)"
    )
    parser.add_argument("--peers", type=number, default=25, metavar="N", help="peers (25)")
    parser.add_argument(
        "--processes", type=whole(1, 64), default=4, metavar="N", help="to spread them over (4)"
    )
    parser.add_argument("--topics", type=whole(1, 200), default=12, metavar="N", help="topics (12)")
    parser.add_argument(
        "--events", type=whole(1, 100_000), default=300, metavar="N", help="events (300)"
    )
    parser.add_argument(
        "--seconds", type=whole(1, 600), default=10, metavar="N", help="to publish them in (10)"
    )
    parser.add_argument(
        "--seed", type=whole(0, 2**63 - 1), default=1, metavar="S", help="of the workload (1)"
    )


def run(args: argparse.Namespace) -> int:
    from weft.demo.output import Output
    from weft.demo.progress import Progress
    from weft.demo.show import Plan, Show
    from weft.net.errors import WeftError

    output = Output(args.out)
    output.prepare()
    plan = Plan(args.peers, args.processes, args.topics, args.events, args.seconds, args.seed)
    show = Show(plan, output.trace, Progress())
    try:
        asyncio.run(show.run())
    except KeyboardInterrupt:
        write(output, show.outcome)
        print(f"weft: interrupted; {output.summary} says how far it came", file=sys.stderr)
        return INTERRUPTED
    except WeftError:
        write(output, show.outcome)
        raise
    return write(output, show.outcome)


def write(output: Output, outcome: Outcome) -> int:
    """Write the results and say the most important of them; returns the exit code."""
    from weft.demo import report, traffic
    from weft.demo.summary import summarise
    from weft.demo.verdict import explain

    start_ns, end_ns = outcome.publishing_ns
    whole_run = traffic.read(output.traces(), start_ns, end_ns)
    settled = traffic.read(output.traces(), (start_ns + end_ns) // 2, end_ns)
    summary = summarise(outcome, whole_run, settled)
    output.write_summary(summary)
    output.report.write_text(report.page(outcome, whole_run, summary))
    if outcome.status:
        output.picture.write_text(report.overlay(outcome, whole_run).render(alone=True) + "\n")
    if not outcome.complete:
        return FAILED
    latency = summary["latency_ms"]
    assert isinstance(latency, dict)
    print(
        f"{summary['notifications_delivered']} of {summary['notifications_expected']} "
        f"notifications delivered, half within {latency['p50']} ms, 99 % within "
        f"{latency['p99']} ms; {summary['payload_copies_per_delivery']} copies per delivery, "
        f"{summary['messages_per_notification']} messages per notification"
    )
    print(f"{output.report}\n{output.summary}")
    if summary["all_delivered"]:
        return 0
    for line in explain(outcome.verdict, outcome.workload):
        print(f"weft: {line}", file=sys.stderr)
    return FAILED
