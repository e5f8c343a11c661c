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
view are counted, larger ones estimated by Sample & Collide, by one member for all of its topic,
averaged over runs and scaled (see `shared_size` and `to_advertise` in `rules.collide`); `unscaled`,
the same without the scaling; and two that estimate everything from ideal samples, by maximum
likelihood (`likely`) or by C²/2l (`textbook`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from weft.engine.core.arrays import Array, Numbers
from weft.engine.data.memberships import Memberships
from weft.engine.tera.access_points import Tables
from weft.engine.tera.collide import RUN_EVERY, SharedSizes, ideal_estimates
from weft.engine.tera.world import World, WorldSettings, build
from weft.lab import ground
from weft.lab.defect import Defect
from weft.lab.experiment import Columns, Entry, Params, Size, every
from weft.lab.figures import BLACK, GREY, Axes, Figure, Table, colour, panels, table
from weft.lab.ground import Ground
from weft.lab.measures import at_least, at_most, each, reals, reasons, texts, wholes
from weft.lab.memberships import memberships_of
from weft.pipeline.schemas import joined
from weft.pipeline.transforms import magnitude, numbers, ranked, together

SEEDS = {"quick": 10, "full": 10}  # three would allow a rank correlation of 0.2 in tera-3c
KINDS = ("true", "counted", "unscaled", "likely", "textbook")
_ZIPF = {"a": 0.0, "b": 0.7, "c": 2.0}
_SETTLE = 6  # lifetimes of an entry before the first snapshot: e⁻⁶ of the start is left
_SNAPSHOTS = {0.0: 16, 0.7: 16, 2.0: 4}  # fewer where an entry lives 1300 cycles
_REPEATS = 10  # l
_WALK_STEPS = 8


def points(letter: str, size: Size) -> list[Params]:
    shape = {"peers": 10_000, "topics": 1_000, "subscriptions": 5_000}
    if size == "quick":
        shape = {"peers": 2_000, "topics": 1_000 if letter == "c" else 200, "subscriptions": 1_000}
    kinds = ("true", "counted", "unscaled", "textbook") if size == "quick" else KINDS
    return every({**shape, "zipf": _ZIPF[letter], "table_size": 10}, kind=kinds)


def lifetime(peers: int, active: int, table_size: int, settings: WorldSettings) -> float:
    """τ: how many cycles an entry stays in a table, on average."""
    share = min(1.0, table_size / active)
    return peers * share * settings.advertise_every / settings.advertise_to


def floor(sizes: Numbers, peers: int, table_size: int) -> float:
    """The least std/mean over topics that chance lets one snapshot have (see the module's head)."""
    share = min(1.0, table_size / len(sizes))
    regular = float(np.mean(1.0 - 1.0 / (2.0 * sizes)))
    return math.sqrt((1.0 - share) * regular / (peers * share))


def floor_of_average(single: float, snapshots: int, correlation: float) -> float:
    """The floor for an average of snapshots, each with this correlation to the next."""
    lags = np.arange(1, snapshots)
    terms = snapshots + 2.0 * float(((snapshots - lags) * correlation**lags).sum())
    return single * math.sqrt(terms) / snapshots


def run(params: Params, seed: int) -> Columns:
    """Rows: one per active topic; single numbers describe the whole point."""
    held = memberships_of(params, seed, all_active=False)
    settings = WorldSettings(
        table_size=params["table_size"],
        exchange_in_topics=params["kind"] in ("counted", "unscaled"),
    )
    world = build(settings, held, seed)
    tau = lifetime(params["peers"], held.topics, params["table_size"], settings)
    popularity = _Popularity(world, params["kind"])
    for _ in range(round(_SETTLE * tau)):
        popularity.step()
    total = np.zeros(held.topics)
    between = max(1, round(tau))
    snapshots = _SNAPSHOTS[params["zipf"]]
    for _ in range(snapshots):
        for _ in range(between):
            popularity.step()
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
        "spread_floor": single,
        "spread_average_floor": floor_of_average(
            single, _SNAPSHOTS[params["zipf"]], math.exp(-apart)
        ),
        "rank_correlation_noise": 1.0 / math.sqrt(held.topics - 1),
    }


class _Popularity:
    """What members advertise as the popularity of their topics, by the kind of a point."""

    def __init__(self, world: World, kind: str) -> None:
        self._world, self._kind = world, kind
        self._shared = SharedSizes(world.topics, _REPEATS, _WALK_STEPS)
        self._renew(0, 1)

    def step(self) -> None:
        """One cycle. In each cycle a part of the topics is estimated, every topic each RUN_EVERY
        cycles."""
        self._world.step()
        self._renew(self._world.cycle % RUN_EVERY, RUN_EVERY)

    def _renew(self, first: int, every: int) -> None:
        world, kind = self._world, self._kind
        due = np.arange(first, world.memberships.topics, every)
        if kind == "true" or not len(due):
            return
        if kind in ("counted", "unscaled"):
            members, found = self._shared.renew(due, world.cycle)
            sizes = found.sizes if kind == "unscaled" else found.to_advertise(_REPEATS)
        else:
            members = np.flatnonzero(np.isin(world.memberships.topic_of, due))
            textbook = kind == "textbook"
            found = ideal_estimates(world.topics, members, _REPEATS, world.cycle, textbook=textbook)
            sizes = found.sizes
        world.note_estimates(members, sizes, found.messages)


def most_seeds(params: Params) -> int:
    """The kinds that are told differ from those that are judged by far more than seeds do."""
    return 10 if params["kind"] in JUDGED else 3


def seconds(params: Params) -> float:
    active = 77 if params["zipf"] == 2.0 else params["topics"]
    lifetimes = _SETTLE + _SNAPSHOTS[params["zipf"]]
    cycles = lifetimes * params["peers"] * params["table_size"] / active
    return float(
        cycles * params["peers"] * (8e-8 if params["kind"] in ("true", "textbook") else 2e-7)
    )


JUDGED = ("true", "counted")
"""The kinds of popularity that are judged: the true one, and the one that weft's peers estimate."""
NAMES = {
    "true": "true popularity",
    "counted": "weft's estimate",
    "unscaled": "weft's estimate, unscaled",
    "likely": "maximum likelihood",
    "textbook": "C²/2l",
}
PAPER_SPREAD = 0.05
COLUMNS = joined(
    texts("kind"),
    wholes("topic", "popularity", "held"),
    reals("held_average"),
    wholes("active", "cycles"),
    reals("mean_expected", "spread_floor", "spread_average_floor"),
    reals("rank_correlation_noise"),
)


def unevenness(rows: DataFrame) -> DataFrame:
    """Per kind and seed: how even tables are, and how even chance lets them be."""
    grouped = rows.transform(ranked("popularity", "held", by=("kind", "seed"))).groupBy(
        "kind", "seed"
    )
    spread = F.stddev_pop("held") / F.avg("held")
    average = F.stddev_pop("held_average") / F.avg("held_average")
    return grouped.agg(
        (F.avg("held") / F.first("mean_expected")).alias("filled"),
        spread.alias("spread"),
        (spread / F.first("spread_floor")).alias("spread_to_floor"),
        average.alias("spread_average"),
        (average / F.first("spread_average_floor")).alias("average_to_floor"),
        F.corr("popularity_rank", "held_rank").alias("ranks"),
        F.first("rank_correlation_noise").alias("rank_noise"),
        (1 / F.sqrt(2 * (F.first("active") - 1))).alias("spread_noise"),
    )


MEASURES = {
    "filled": "mean over N·APT/active",
    "spread": "std/mean of a snapshot",
    "spread_to_floor": "std/mean of a snapshot over its floor",
    "spread_average": "std/mean of the average of snapshots",
    "average_to_floor": "std/mean of the average over its floor",
    "ranks": "rank correlation with popularity",
}


def small_spread(letter: str) -> str:
    """Which number the paper's 5 % is about: a snapshot can only be so even with few topics."""
    return "spread" if letter == "c" else "spread_average"


def measure(letter: str, rows: DataFrame, size: Size) -> DataFrame:
    asked = at_least(0.999, "filled") | at_most(PAPER_SPREAD, small_spread(letter))
    asked |= at_most(1 + 3 * F.col("spread_noise") / F.sqrt("seeds"), "spread_to_floor")
    asked |= at_most(3 * F.col("rank_noise") / F.sqrt("seeds"), "ranks")
    found = unevenness(rows).transform(
        numbers(
            MEASURES,
            asked,
            by=("kind",),
            prefix=each("kind"),
            judged_where=F.col("kind").isin(*JUDGED),
            keep=("rank_noise", "spread_noise"),
        )
    )
    signed = F.col("measure").endswith(MEASURES["ranks"])
    return together(found.where(~signed), found.where(signed).transform(magnitude))


def tolerances(letter: str) -> dict[str, Ground]:
    why = {
        "filled": ground.derived(
            "2026-11-15",
            "Tables are full in the long run, so the mean is exact; a thousandth allows for peers "
            "that no advertisement has reached yet.",
        ),
        "spread_to_floor": ground.derived(
            "2026-11-15",
            "The floor is the spread that regular, independent advertisements leave (derived "
            "beside the simulation). A standard deviation over A topics and S seeds has a relative "
            "error of 1/√(2(A−1)S); three of them.",
        ),
        "ranks": ground.derived(
            "2026-11-15",
            "Spearman's coefficient of unrelated columns of length A has standard deviation "
            "1/√(A−1), over S seeds 1/√(S(A−1)); three of them.",
        ),
        small_spread(letter): ground.paper("2026-11-15", "The paper's 5 %."),
    }
    return reasons(MEASURES, [f"{kind}: " for kind in JUDGED], **why)


# --- planted defects ------------------------------------------------------------------------------


def is_judged(params: Params) -> bool:
    return params["kind"] in JUDGED


def blind_to_popularity(receive: Callable[..., None]) -> Callable[..., None]:
    """A planted defect: tables admit topics as if each had one subscriber."""

    def instead(sent: Array, held: Memberships, popularity: Array, tables: Tables) -> None:
        receive(sent, held, np.ones_like(popularity), tables)

    return instead


def halved(made: Callable[..., Tables]) -> Callable[..., Tables]:
    """A planted defect: tables have half of the entries."""
    return lambda peers, size, *others: made(peers, max(1, size // 2), *others)


# --- the picture ----------------------------------------------------------------------------------


def figure(rows: DataFrame) -> Figure:
    """Dots as in the paper, for the true popularity, weft's estimate and the textbook's."""
    kinds = ("true", "counted", "textbook")
    drawing, axes = panels(columns=len(kinds))
    first = table(rows.where((F.col("seed") == 1) & F.col("kind").isin(*kinds)))
    for panel, kind in zip(axes, kinds, strict=True):
        _panel(panel, first[first["kind"] == kind].sort_values("topic"))
        panel.set_title(f"admitted by {NAMES[kind]}")
    top = max(panel.get_ylim()[1] for panel in axes)
    for panel in axes:
        panel.set_ylim(0, top)
    axes[0].set_ylabel("tables that hold the topic")
    axes[0].legend(loc="upper right")
    return drawing


def _panel(panel: Axes, topics: Table) -> None:
    expected, floor = topics["mean_expected"].iloc[0], topics["spread_floor"].iloc[0]
    panel.plot(topics["topic"], topics["popularity"], ".", color=GREY, ms=3.5, label="subscribers")
    panel.plot(topics["topic"], topics["held"], ".", color=BLACK, ms=3.5, label="tables")
    panel.axhline(expected, color=colour(1), ls="--", label="N·APT/active")
    low, high = expected * (1 - 2 * floor), expected * (1 + 2 * floor)
    panel.axhspan(low, high, color=colour(1), alpha=0.15, lw=0, label="± 2 × the floor")
    panel.set_xlabel("topic")


def _entry(letter: str, workload: str) -> Entry:
    return Entry.of(
        __name__,
        id=f"tera-3{letter}",
        title=f"Topics are spread evenly over tables, {workload}",
        claim="Whatever the popularity of topics, each active topic is in about the same number of "
        "access point tables, N·APT/active; what differs is chance alone and not related to "
        "popularity. The paper saw a standard deviation below 5 %: a snapshot can show that for "
        "Zipf 2.0, an average of snapshots for the others. It must hold for the popularity that "
        "peers estimate, too.",
        points=partial(points, letter),
        measure=partial(measure, letter),
        tolerances=tolerances(letter),
        defects=(
            Defect(
                "every topic admitted alike, whatever its popularity",
                {"weft.engine.tera.world:receive_adverts": blind_to_popularity},
                where=is_judged,
            ),
            Defect(
                "tables of half the size",
                {"weft.engine.tera.world:empty_tables": halved},
                where=is_judged,
            ),
        ),
        version=2,
    )


ENTRIES = [
    _entry("a", "uniform popularity"),
    _entry("b", "Zipf 0.7"),
    _entry("c", "Zipf 2.0"),
]
