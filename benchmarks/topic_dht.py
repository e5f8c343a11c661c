"""What the topic-aware DHT keeps of its promises, and how fast it mends.

    ./weft bench topic-dht --json

It measures in two ways. *arrays*: 10⁴ peers, 10³ topics of Zipf 0.7 and 2·10⁵ subscriptions in the
engine, whose kernels decide as the rules do. *machines*: the peers' own state machines in virtual
time. They are fewer, but only they show whether a peer is sent an event it did not ask for. Where
both ways have a figure, the one at the top is the worse of the two; `arrays` and `machines` hold
the figures of each.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.goals import Goal

from weft.engine.core.arrays import jain
from weft.engine.topic_dht.crash import Crash, survivors
from weft.engine.topic_dht.roles import Roles, settled
from weft.engine.topic_dht.schemes import SCHEMES, Events
from weft.engine.topic_dht.space import places_of
from weft.lab.memberships import memberships_of
from weft.lab.progress import Progress
from weft.lab.tadht import Net, lose_roots, topic_of
from weft.protocol.rooms import TopicDhtSettings as Settings

PERIODS_MAX = 30
_K = Settings().k
_CRASH_PERCENT = 30
_FAIR_EVENTS = 30
_ROOTS = 3
_BETWEEN_MS = 2_000
_ZIPF, _TOPICS_EACH = 0.7, 20

GOALS = (
    Goal("parasite_messages", "machines", "parasite messages", most=0),
    Goal("tree_payload_excess", "both", "payload messages of trees beyond N_t − 1", most=0),
    Goal("jain", "arrays", "Jain's index, trees with random roots", least=0.95),
    Goal("rounds_over_bound", "both", "most rounds over 1.5·log₂ N_t + 3", most=0),
    Goal("stabilise_periods", "both", "periods until children are back in place", most=10),
    Goal("lost_events", "both", "events lost to f crashed roots of f + 1", most=0),
)

Shape = dict[str, Any]


def bound_of(members: int) -> float:
    """The most rounds that an event may take in a topic of so many members."""
    return 1.5 * math.log2(members) + 3


class Rounds:
    """The most rounds of any event, with the bound of its topic; and the closest to its bound."""

    def __init__(self) -> None:
        self.most, self.bound, self.over = 0, 0.0, -math.inf

    def note(self, rounds: int, members: int) -> None:
        if rounds > self.most:
            self.most, self.bound = rounds, bound_of(members)
        self.over = max(self.over, rounds - bound_of(members))

    def figures(self) -> dict[str, float]:
        return {
            "rounds_max": self.most,
            "rounds_bound": round(self.bound, 2),
            "rounds_over_bound": round(self.over, 2),
        }


# --- arrays ---------------------------------------------------------------------------------------


def spread_over_arrays(roles: Roles, seed: int) -> dict[str, Any]:
    """An event in every topic by every scheme; many by the trees whose fairness is asked for."""
    held, rounds, excess = roles.held, Rounds(), 0
    result: dict[str, Any] = {}
    for scheme in SCHEMES:
        events = Events(roles, scheme, seed)
        trees = scheme.endswith("treecast")
        missed = payloads = 0
        for topic in range(held.topics):
            for _ in range(_FAIR_EVENTS if trees else 1):
                outcome = events.publish(topic, events.random_member(topic))
                rounds.note(outcome.rounds, outcome.members)
                missed += outcome.missed
                payloads += outcome.payloads
                if trees:
                    excess = max(excess, abs(outcome.payloads - outcome.members + 1))
        sent = np.bincount(held.members, weights=events.sent, minlength=held.peers)
        received = np.bincount(held.members, weights=events.received, minlength=held.peers)
        share = sent[received > 0] / received[received > 0]
        result[scheme] = {
            "jain": round(jain(share), 4),
            "payloads_per_delivery": round(payloads / float(received.sum()), 3),
            "missed": missed,
        }
    return {
        "tree_payload_excess": excess,
        "jain": result["full-treecast"]["jain"],
        **rounds.figures(),
        "schemes": result,
    }


def crash_over_arrays(roles: Roles, seed: int) -> dict[str, Any]:
    """First roots, whose loss changes nothing, then three peers in ten."""
    held = roles.held
    lost = {}
    for mended in (False, True):
        events = Events(roles, "full-treecast", seed, mended=mended)
        outcomes = [
            events.publish(topic, events.random_member(topic), _ROOTS, crashed="roots")
            for topic in range(held.topics)
        ]
        lost[mended] = sum(outcome.missed > 0 for outcome in outcomes)
    crash = Crash(roles, survivors(held.peers, _CRASH_PERCENT, seed), seed)
    return {
        "lost_events": lost[True],
        "lost_events_unnoticed_links": lost[False],
        "crashed_forwarders": crash.crashed_forwarders,
        "lost_children": crash.lost,
        "stabilise_periods": crash.periods_until_right(PERIODS_MAX),
    }


def over_arrays(shape: Shape, seed: int) -> dict[str, Any]:
    held = memberships_of(shape, seed)
    begun = time.process_time()
    roles = settled(held, places_of(held.peers, seed), _K, seed)
    figures = {
        "peers": held.peers,
        "topics": held.topics,
        "subscriptions": held.total,
        "locations_mean": round(float(roles.locations.mean()), 3),
        **spread_over_arrays(roles, seed),
        **crash_over_arrays(roles, seed),
    }
    return {**figures, "cpu_s": round(time.process_time() - begun, 1)}


# --- machines -------------------------------------------------------------------------------------


def with_machines(shape: Shape, seed: int) -> dict[str, Any]:
    """Events in every topic, then three peers in ten go down without a word."""
    begun = time.process_time()
    settings = Settings()
    net = Net(seed, shape["peers"], settings)
    net.subscribe_all(memberships_of(shape, seed))
    net.run(2 * settings.period_ms)
    joined = net.settle()
    rounds, excess, missed = Rounds(), 0, 0
    for number in range(shape["topics"]):
        topic = topic_of(number)
        members = net.subscribers(topic)
        publisher = net.dice.pick("bench.publisher", members, number)
        publication = net.publish(publisher, topic)
        net.run(_BETWEEN_MS)
        spread = net.spread_of(publication, members, topic)
        rounds.note(spread.rounds, spread.members)
        excess = max(excess, abs(spread.copies - spread.members + 1))
        missed += spread.missed
    count = shape["peers"] * _CRASH_PERCENT // 100
    net.crash(*net.dice.some("bench.crash", range(shape["peers"]), count))
    return {
        **{name: shape[name] for name in ("peers", "topics", "subscriptions")},
        "scheme": settings.scheme,
        "joining_periods": joined,
        "tree_payload_excess": excess,
        **rounds.figures(),
        "missed": missed,
        "stabilise_periods": net.settle(PERIODS_MAX),
        "parasite_messages": net.parasites,
        "lookups_inside_topics": net.lookups.inside,
        "copies": net.copies.all,
        "messages": net.world.handled,
        "cpu_s": round(time.process_time() - begun, 1),
    }


def crash_roots(shape: Shape, seed: int) -> dict[str, Any]:
    """Events by f + 1 trees whose other roots go down before the event reaches them."""
    lost = by_trees = events = crashed = parasites = 0
    for scheme in ("full-treecast", "forward-treecast"):
        params = {**shape, "scheme": scheme, "roots": _ROOTS, "loss_percent": 0}
        found = lose_roots(params, seed)
        lost += sum(one > 0 for one in found["missed"])
        by_trees += sum(one > 0 for one in found["missed_by_trees"])
        crashed += sum(found["crashed"])
        events += len(found["missed"])
        parasites += found["parasites"]
    return {
        "peers": shape["peers"],
        "events": events,
        "crashed_roots": crashed,
        "lost_events": lost,
        "events_the_trees_alone_lost_somewhere": by_trees,
        "parasite_messages": parasites,
    }


# --- all of it ------------------------------------------------------------------------------------


def summary(arrays: dict[str, Any], machines: dict[str, Any], roots: dict[str, Any]) -> Shape:
    """For each figure the worse of the two ways."""
    wider = max(arrays, machines, key=lambda one: one["rounds_max"])
    periods = [arrays["stabilise_periods"], machines["stabilise_periods"]]
    figures: dict[str, Any] = {
        "parasite_messages": machines["parasite_messages"] + roots["parasite_messages"],
        "tree_payload_excess": max(arrays["tree_payload_excess"], machines["tree_payload_excess"]),
        "jain": arrays["jain"],
        "rounds_max": wider["rounds_max"],
        "rounds_bound": wider["rounds_bound"],
        "rounds_over_bound": max(arrays["rounds_over_bound"], machines["rounds_over_bound"]),
        "stabilise_periods": None if None in periods else max(periods),
        "lost_events": arrays["lost_events"] + roots["lost_events"],
    }
    met = {goal.key: goal.met(figures[goal.key]) or False for goal in GOALS}
    by = {goal.key: goal.measure for goal in GOALS}
    return {
        **figures,
        "goals_met": met,
        "measured_by": by | {"rounds_max": "both", "rounds_bound": "both"},
        "arrays": arrays,
        "machines": machines,
        "machines_roots": roots,
    }


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="weft bench topic-dht",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--peers", type=int, default=10_000, metavar="N", help="over arrays")
    parser.add_argument("--machines", type=int, default=300, metavar="N", help="with machines")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    if args.peers < 100 or args.machines < 40:
        parser.error("--peers must be at least 100 and --machines at least 40")
    large, small = shape_of(args.peers), shape_of(args.machines)
    few = {**shape_of(max(40, args.machines // 3)), "events": 10}
    steps: list[tuple[str, float, Callable[[], dict[str, Any]]]] = [
        ("arrays", 20 + args.peers / 250, lambda: over_arrays(large, args.seed)),
        ("machines", args.machines * 0.6, lambda: with_machines(small, args.seed)),
        ("roots", few["peers"] * 0.6, lambda: crash_roots(few, args.seed)),
    ]
    progress = Progress(len(steps), sum(weight for _, weight, _ in steps))
    found, done = {}, 0.0
    for number, (name, weight, measure) in enumerate(steps):
        progress.show(number, done, f"steps: {name}")
        found[name] = measure()
        done += weight
        progress.say(f"{name} done")
    result = summary(found["arrays"], found["machines"], found["roots"])
    print(json.dumps(result, indent=2) if args.json else table(result))
    return 0 if all(result["goals_met"].values()) else 1


def shape_of(peers: int) -> Shape:
    """A topic for every ten peers, by Zipf 0.7, and 20 topics each, or as many as let the largest
    topic have nine tenths of the peers."""
    topics = peers // 10
    most = sum(rank**-_ZIPF for rank in range(1, topics + 1)) * 9 / 10
    each = min(_TOPICS_EACH, int(most))
    return {"peers": peers, "topics": topics, "subscriptions": peers * each, "zipf": _ZIPF}


def table(result: dict[str, Any]) -> str:
    lines = []
    for goal in GOALS:
        met = "yes" if result["goals_met"][goal.key] else "NO"
        value = result[goal.key]
        shown = "not reached" if value is None else f"{value:,g}"
        lines.append(f"{goal.text:<44}{shown:>12}  {goal.wanted():<16}{met:<4}({goal.measure})")
    lines.append(
        f"{'most rounds':<44}{result['rounds_max']:>12}  of {result['rounds_bound']} there"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
