"""CPU per delivered notification, weft's push tree against py-libp2p's GossipSub.

Both carry the load of `scenario`, each in one process of its own, in turns in the same run. What
other work on the machine does to a run can only add to its CPU time, so the least of the turns
counts, for both sides. GossipSub's cost depends much on how many peers it is connected to, so
besides the main figure (everyone connected to everyone, GossipSub 1.1 as the library has it)
there are variants, each with its own ratio; the sparse ones are compared with weft peers that
want as few links.
"""

from __future__ import annotations

from typing import Any

from benchmarks.peer import gossipsub, reference, worker
from benchmarks.peer.machine import say
from benchmarks.peer.scenario import Load

TURNS = 3
VARIANT_TURNS = 2
RUN_TIMEOUT_S = 300
WEFT_ROUNDS = 200
"""Weft needs more rounds than py-libp2p for a measurable time."""
WEFT_LINKS = {"ring_of_degree_6": 3, "ring_of_degree_4": 2}
"""Links that weft's peers want in the sparse variants; at most twice as many, as on the ring."""


def run_weft(load: Load, links: int | None = None) -> dict[str, Any]:
    chosen = [] if links is None else [f"--links={links}"]
    result = worker.run("push_tree_worker", [*load.arguments(), *chosen], RUN_TIMEOUT_S)
    say(f"weft: {result['cpu_us_per_notification']:.1f} µs a notification")
    return result


def run_libp2p(load: Load, setup: gossipsub.Setup) -> dict[str, Any]:
    result = gossipsub.measure(load, setup)
    if "error" in result:
        say(f"libp2p ({setup.name}): {result['error']}")
    else:
        say(f"libp2p ({setup.name}): {result['cpu_us_per_notification']:.1f} µs a notification")
    return result


def least(runs: list[dict[str, Any]]) -> float | None:
    """The least over the runs that worked."""
    return min((run["cpu_us_per_notification"] for run in runs if "error" not in run), default=None)


def ratio(theirs: float | None, ours: float | None) -> float | None:
    return theirs / ours if theirs and ours else None


def variants(weft_load: Load, load: Load, weft_us: float | None) -> dict[str, Any]:
    result = {}
    for setup in gossipsub.VARIANTS:
        theirs = [run_libp2p(load, setup) for _ in range(VARIANT_TURNS)]
        links = WEFT_LINKS.get(setup.name)
        ours = weft_us
        if links is not None:
            ours = least([run_weft(weft_load, links) for _ in range(VARIANT_TURNS)])
        result[setup.name] = {
            "libp2p_cpu_us_per_notification": least(theirs),
            "cpu_us_per_notification": ours,
            "libp2p_ratio": ratio(least(theirs), ours),
            "weft_links_wanted": links,
            "libp2p_runs": theirs,
        }
    return result


def measure(quick: bool) -> dict[str, Any]:
    load = Load(rounds=3 if quick else 10)
    weft_load = Load(warmup_rounds=20, rounds=20 if quick else WEFT_ROUNDS)
    ours: list[dict[str, Any]] = []
    theirs: list[dict[str, Any]] = []
    for _ in range(1 if quick else TURNS):
        ours.append(run_weft(weft_load))
        theirs.append(run_libp2p(load, gossipsub.MAIN))
    weft_us, libp2p_us = least(ours), least(theirs)
    return {
        "cpu_us_per_notification": weft_us,
        "libp2p_cpu_us_per_notification": libp2p_us,
        "libp2p_ratio": ratio(libp2p_us, weft_us),
        "weft_runs": ours,
        "libp2p_runs": theirs,
        "libp2p_error": theirs[-1].get("error"),
        "variants": {} if quick else variants(weft_load, load, weft_us),
        "reference": reference.messages(),
    }
