"""`./weft bench peer`: runs the measures, each in a process of its own, and prints the figures."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from dataclasses import dataclass
from typing import Any

from benchmarks.peer import machine, worker

TIMEOUT_S = 1_800


@dataclass(frozen=True)
class Goal:
    """A figure of the result, and what it should be."""

    key: str
    measure: str  # the module that takes it
    text: str
    least: float | None = None
    most: float | None = None

    def met(self, value: float | None) -> bool | None:
        """None where there is no goal, or no figure."""
        if value is None or (self.least is None and self.most is None):
            return None
        return (self.least is None or value >= self.least) and (
            self.most is None or value <= self.most
        )

    def wanted(self) -> str:
        if self.least is not None:
            return f"at least {self.least:g}"
        return "" if self.most is None else f"at most {self.most:g}"


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
MEASURES = tuple(dict.fromkeys(goal.measure for goal in GOALS))


def run_measures(names: list[str], quick: bool) -> dict[str, Any]:
    """Every measure in a fresh process, one after the other; a failure costs only its figures."""
    found: dict[str, Any] = {}
    for name in names:
        machine.say(f"{name}: starts")
        arguments = ["--measure-here", name, *(["--quick"] if quick else [])]
        try:
            found[name] = worker.run("main", arguments, TIMEOUT_S)
        except worker.WorkerFailed as problem:
            machine.say(f"{name}: {problem}")
            found[name] = {"error": str(problem)}
    return found


def summary(found: dict[str, Any], quick: bool) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for goal in GOALS:
        if goal.measure in found:
            result[goal.key] = found[goal.measure].get(goal.key)
    result["goals_met"] = {
        goal.key: goal.met(result[goal.key])
        for goal in GOALS
        if goal.key in result and goal.wanted()
    }
    return result | {"quick": quick, "machine": machine.describe(), "measures": found}


def table(result: dict[str, Any]) -> str:
    lines = []
    for goal in GOALS:
        if goal.key in result:
            value = result[goal.key]
            shown = "not there" if value is None else f"{value:,.3f}"
            met = {True: "yes", False: "NO", None: ""}[goal.met(value)]
            lines.append(f"{goal.text:<48}{shown:>14}  {goal.wanted():<16}{met}")
    for name, figures in result["measures"].items():
        for key, value in figures.get("reference", {}).items():
            lines.append(f"  for comparison, {name}: {key:<28}{value:>14,.3f}")
    return "\n".join(lines)


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
    result = summary(run_measures(args.only or list(MEASURES), args.quick), args.quick)
    print(json.dumps(result, indent=2) if args.json else table(result))
    failed = any("error" in figures for figures in result["measures"].values())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
