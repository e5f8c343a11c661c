"""tera-3a, 3b, 3c: topics are spread evenly over access point tables (TERA 4.2.1, Fig. 3).

Peers advertise every T cycles to D neighbours; a table admits a topic with probability one over
its popularity. In the long run each of A active topics should be in N·|APT|/A tables, whatever
its popularity.

How even can one snapshot be? Say a topic of popularity P is in n tables, m on average, a share
p = |APT|/A of all. An entry lives about τ = N·p·T/D cycles. If tables filled independently, n
would be binomial: variance m(1−p). But advertisements are sent at regular times: each of the
P·D/T per cycle is admitted and still there after a time a with probability e^(−a/τ)/P, and a sum
of such independent trials has variance m(1 − 1/2P) where independent arrivals would have m. Both
together give

    std/mean = sqrt( (1−p) · mean over topics of (1 − 1/2P) / m )

the `floor` below; a snapshot that reaches it is as even as chance allows: about 0.09 for 1000
topics, so the paper's "below 5 %" can only be about Zipf 2.0, where it is 0.022. Snapshots a time
d apart are correlated by e^(−d/τ), which gives the floor of an average of snapshots.

The popularity that is advertised comes in five kinds: `true`; `counted`, weft's: groups that fit a
view are counted, larger ones estimated by Sample & Collide and scaled (see `to_advertise` in
`rules.collide`); `unscaled`, the same without the scaling; and two that estimate everything from
ideal samples, by maximum likelihood (`likely`) or by C²/2l (`textbook`).
"""

from __future__ import annotations

import math

import numpy as np

from weft.engine.core.arrays import Array, Numbers
from weft.engine.data.workload import Memberships
from weft.engine.experiments.common import Columns, Params, Point, Size, rank_correlation, workload
from weft.engine.tera.collide import estimate, ideal_estimates
from weft.engine.tera.world import Settings, World, build

SEEDS = {"quick": 3, "full": 10}
KINDS = ("true", "counted", "unscaled", "likely", "textbook")
_ZIPF = {"a": 0.0, "b": 0.7, "c": 2.0}
_SETTLE = 6  # lifetimes of an entry before the first snapshot: e⁻⁶ of the start is left
_SNAPSHOTS = {0.0: 16, 0.7: 16, 2.0: 4}  # fewer where an entry lives 1300 cycles
_REPEATS = 10  # l
_WALK_STEPS = 8
_REFRESH_CYCLES = 100  # each member estimates anew once in so many cycles


def _points(letter: str, size: Size) -> list[Point]:
    full = {"peers": 10_000, "topics": 1_000, "subscriptions": 5_000}
    quick = {"peers": 2_000, "topics": 200, "subscriptions": 1_000}
    if letter == "c":
        quick["topics"] = 1_000
    shape = full if size == "full" else quick
    kinds = KINDS if size == "full" else ("true", "counted", "textbook")
    return [{**shape, "zipf": _ZIPF[letter], "table_size": 10, "kind": kind} for kind in kinds]


def points_a(size: Size) -> list[Point]:
    return _points("a", size)


def points_b(size: Size) -> list[Point]:
    return _points("b", size)


def points_c(size: Size) -> list[Point]:
    return _points("c", size)


def lifetime(peers: int, active: int, table_size: int, settings: Settings) -> float:
    """τ: how many cycles an entry stays in a table, on average."""
    share = min(1.0, table_size / active)
    return peers * share * settings.advertise_every / settings.advertise_to


def floor(sizes: Numbers, peers: int, table_size: int) -> float:
    """The least std/mean over topics that one snapshot can show; see above."""
    share = min(1.0, table_size / len(sizes))
    regular = float(np.mean(1.0 - 1.0 / (2.0 * sizes)))
    return math.sqrt((1.0 - share) * regular / (peers * share))


def floor_of_average(single: float, snapshots: int, correlation: float) -> float:
    """The same for an average of snapshots, each correlated so much with the next."""
    lags = np.arange(1, snapshots)
    terms = snapshots + 2.0 * float(((snapshots - lags) * correlation**lags).sum())
    return single * math.sqrt(terms) / snapshots


def run(params: Params, seed: int) -> Columns:
    """Rows: one per active topic; single numbers describe the whole point."""
    held = workload(params, seed, all_active=False)
    settings = Settings(
        table_size=params["table_size"],
        exchange_in_topics=params["kind"] in ("counted", "unscaled"),
    )
    world = build(settings, held, seed)
    tau = lifetime(params["peers"], held.topics, params["table_size"], settings)
    _advertise_estimates(world, params["kind"], range(held.total), 0)
    for _ in range(round(_SETTLE * tau)):
        _step(world, params["kind"])
    total = np.zeros(held.topics)
    between = max(1, round(tau))
    snapshots = _SNAPSHOTS[params["zipf"]]
    for _ in range(snapshots):
        for _ in range(between):
            _step(world, params["kind"])
        snapshot = world.tables.times_held(held.topics)
        total += snapshot
    return _columns(params, held, world, snapshot, total / snapshots, between / tau)


def _columns(
    params: Params,
    held: Memberships,
    world: World,
    snapshot: Array,
    average: Array,
    apart: float,
) -> Columns:
    sizes = held.sizes()
    single = floor(sizes, params["peers"], params["table_size"])
    return {
        "topic": np.arange(held.topics),
        "popularity": sizes,
        "held": snapshot,
        "held_average": average,
        "active": held.topics,
        "cycles": world.cycle,
        "mean_expected": params["peers"] * min(params["table_size"], held.topics) / held.topics,
        "mean": float(snapshot.mean()),
        "spread": float(snapshot.std() / snapshot.mean()),
        "spread_floor": single,
        "spread_average": float(average.std() / average.mean()),
        "spread_average_floor": floor_of_average(
            single, _SNAPSHOTS[params["zipf"]], math.exp(-apart)
        ),
        "rank_correlation": rank_correlation(snapshot, sizes),
        "rank_correlation_noise": 1.0 / math.sqrt(held.topics - 1),
        "size_messages": world.counts.size,
    }


def _step(world: World, kind: str) -> None:
    world.step()
    if kind != "true":
        turn = range(world.cycle % _REFRESH_CYCLES, world.memberships.total, _REFRESH_CYCLES)
        _advertise_estimates(world, kind, turn, world.cycle)


def _advertise_estimates(world: World, kind: str, who: range, tick: int) -> None:
    """Let some members estimate their topic's size and advertise what they found."""
    if kind == "true" or len(who) == 0:
        return
    asking = np.arange(who.start, who.stop, who.step)
    if kind in ("counted", "unscaled"):
        found = estimate(world.topics, asking, _REPEATS, _WALK_STEPS, tick)
        sizes = found.sizes if kind == "unscaled" else found.to_advertise(_REPEATS)
    else:
        found = ideal_estimates(world.topics, asking, _REPEATS, tick, textbook=kind == "textbook")
        sizes = found.sizes
    world.popularity[asking] = sizes
    world.counts.size += found.messages


def most_seeds(params: Params) -> int:
    """The kinds of estimate differ by far more than seeds do."""
    return 10 if params["kind"] == "true" else 3


def seconds(params: Params) -> float:
    active = 77 if params["zipf"] == 2.0 else params["topics"]
    lifetimes = _SETTLE + _SNAPSHOTS[params["zipf"]]
    cycles = lifetimes * params["peers"] * params["table_size"] / active
    return float(
        cycles * params["peers"] * (8e-8 if params["kind"] in ("true", "textbook") else 2e-7)
    )
