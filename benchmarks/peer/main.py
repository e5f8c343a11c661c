"""`./weft bench peer`: runs the measures, each in a process of its own, and prints the figures."""

from __future__ import annotations

import argparse
import importlib
import json
import sys

from benchmarks.goals import Goal, measures_of, summary, table
from benchmarks.peer import worker

TIMEOUT_S = 1_800


GOALS = (
    Goal("cpu_us_per_notification", "compare", "CPU µs per delivered notification, 10 peers"),
    Goal("libp2p_cpu_us_per_notification", "compare", "the same for py-libp2p's GossipSub"),
    Goal("libp2p_ratio", "compare", "how many times less", least=50),
    Goal("notifications_per_s", "throughput", "notifications a second, two peers", least=20_000),
    Goal("idle_peer_mb", "idle", "MB of an idle peer in three topics", most=6),
    Goal("idle_peer_cpu_percent", "idle", "% of a core of an idle peer", most=0.5),
    Goal("sim_messages_per_s", "simulator", "messages a second in the simulator", least=20_000),
    Goal("payload_copies_per_delivery", "copies", "payload copies per delivery", most=1.05),
    Goal("payload_copies_per_delivery_healing", "copies", "the same while healing", most=1.2),
)
MEASURES = measures_of(GOALS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--only", action="append", choices=MEASURES, help="run this measure (can be repeated)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="smaller and shorter; not for comparison"
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="weft bench peer", description=__doc__)
    add_arguments(parser)
    parser.add_argument("--measure-here", choices=MEASURES, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.measure_here:
        module = importlib.import_module(f"benchmarks.peer.{args.measure_here}")
        print(json.dumps(module.measure(args.quick)))
        return 0
    found = worker.measures("main", args.only or list(MEASURES), args.quick, TIMEOUT_S)
    result = summary(GOALS, found, args.quick)
    print(json.dumps(result, indent=2) if args.json else table(GOALS, result))
    failed = any("error" in figures for figures in result["measures"].values())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
