"""tera-6a … 6d: messages per notification, TERA against flooding (TERA 4.3.2, Fig. 6).

In each point a system is simulated with all its overlays, tables, advertisements, walks and
floods, every message is counted by kind, and the total is divided by the notifications. The
baseline floods each event over the general overlay. Beside the measured costs stand those of
the closed form (`weft.rules.sizing`).

K is chosen by the closed form for a lookup success of 0.999; a lookup that fails loses its
event, which is counted. Tables start in their long-run state (see `tera_3`).

Events do not change overlays or tables, so costs are additive (see `weft.engine.tera.costs`): where
more events would be published than are worth simulating, a sample of them is, and weighted.
Every row says by `simulated` what of it was simulated: "all"; "general" (the general overlay,
while peers' tables are drawn when asked); or "formula".
"""

from __future__ import annotations

import numpy as np

from weft.engine.data.workload import uniform_sizes
from weft.engine.experiments.common import Columns, Params, Point, Size, workload
from weft.engine.tera.collide import estimate
from weft.engine.tera.costs import Costs, LargeWorld, measure
from weft.engine.tera.topics import Topics
from weft.engine.tera.world import Settings, build
from weft.rules.sizing import (
    Deployment,
    flooding_costs,
    per_notification,
    tera_costs,
    visits_for,
)

SEEDS = {"quick": 2, "full": 10}
_SUCCESS = 0.999
_TABLE = 10  # paper (Fig. 3)
_KINDS = (
    "exchange_general",
    "exchange_topic",
    "advert",
    "lookup",
    "route",
    "dissemination",
)
_UPKEEP = _KINDS[:3]
_EVENTS_MOST = 200
"""guess: events published in a cycle of a simulation; more are weighted."""
_SIZE_EVERY = 30
"""weft's default: an estimate of a topic's size is passed on for 30 cycles."""


def points_a(size: Size) -> list[Point]:
    """Subscriptions grow, topics fixed."""
    peers, cycles = (10_000, 10) if size == "full" else (1_000, 10)
    most = 100 * peers
    subscriptions = [n for n in _decades(2, 6, half=size == "full") if n <= most]
    return [_point(peers=peers, topics=100, subscriptions=n, cycles=cycles) for n in subscriptions]


def points_b(size: Size) -> list[Point]:
    """Topics grow, subscriptions fixed; tables fixed, or a tenth of the topics."""
    peers, most = (10_000, 4) if size == "full" else (1_000, 3)
    subscriptions = 10**most
    return [
        _point(
            peers=peers,
            topics=topics,
            subscriptions=subscriptions,
            cycles=5,
            table_size=_TABLE if tables == "fixed" else max(1, topics // 10),
            tables=tables,
        )
        for tables in ("fixed", "growing")
        for topics in _decades(0, most, half=size == "full")
    ]


def points_c(size: Size) -> list[Point]:
    """The rate of publishing varies; three rates are published as they are, to check the rest."""
    peers, subscriptions = (10_000, 10_000) if size == "full" else (1_000, 1_000)
    system = {"peers": peers, "topics": 100, "subscriptions": subscriptions}
    checked = [_point(**system, cycles=round(20 / rate), rate=rate) for rate in (0.1, 1.0)]
    return [*checked, _point(**system, cycles=10, rate=0.0)]


def points_d(size: Size) -> list[Point]:
    """Peers grow, subscriptions fixed."""
    most = 8 if size == "full" else 5
    return [
        _point(
            peers=peers,
            topics=100,
            subscriptions=10_000,
            cycles=10 if peers < 10**7 else 3,
            simulated="all" if peers <= 10**6 else "general" if peers <= 10**most else "formula",
        )
        for peers in [10**n for n in range(2, 10)]
    ]


def _point(**given: object) -> Point:
    standard: Point = {"table_size": _TABLE, "tables": "fixed", "rate": 1.0, "simulated": "all"}
    return {**standard, **given}


def _decades(first: int, last: int, half: bool) -> list[int]:
    found = [10**n for n in range(first, last + 1)]
    return sorted(found + [3 * 10**n for n in range(first, last)]) if half else found


def run(params: Params, seed: int) -> Columns:
    """One row, or for rate 0 one row for each rate from 10⁻⁵ to 10⁵."""
    if params["simulated"] == "formula":
        return _by_formula(params)
    if params["simulated"] == "general":
        costs, sizes = _measure_general(params, seed)
    else:
        costs, sizes = _measure_all(params, seed)
    rates = np.logspace(-5, 5, 21) if params["rate"] == 0.0 else np.array([params["rate"]])
    rows = [_row(params, costs, float(rate), sizes) for rate in rates]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _visits(params: Params, topics: int) -> int:
    return visits_for(_SUCCESS, params["table_size"], topics)


def _measure_all(params: Params, seed: int) -> tuple[Costs, float]:
    held = workload(params, seed)
    settings = Settings(
        table_size=params["table_size"], visits=_visits(params, held.topics), settled=True
    )
    world = build(settings, held, seed)
    world.run(2)  # advertisements are under way when counting begins
    floods = 2 if params["peers"] <= 10**5 else 1
    costs = measure(world, params["cycles"], _events_per_cycle(params), floods)
    return costs, _size_messages(world.topics)


def _measure_general(params: Params, seed: int) -> tuple[Costs, float]:
    sizes = uniform_sizes(params["topics"], params["subscriptions"], params["peers"], seed)
    large = LargeWorld(
        params["peers"], sizes, params["table_size"], _visits(params, params["topics"]), seed
    )
    costs = large.measure(params["cycles"], params["topics"])
    return costs, _size_messages(large.topics)


def _events_per_cycle(params: Params) -> int:
    """As many as the rate says, but no more than are worth simulating."""
    wanted = round((params["rate"] or 1.0) * params["topics"])
    return int(max(1, min(wanted, _EVENTS_MOST)))


def _size_messages(topics: Topics) -> float:
    """Messages per cycle if one member of each topic estimates its size now and then."""
    asking = topics.memberships.offsets[:-1]
    found = estimate(topics, asking, repeats=10, steps=8, tick=0)
    return found.messages / _SIZE_EVERY


def _row(params: Params, costs: Costs, rate: float, size_messages: float) -> Columns:
    events = rate * params["topics"]
    notified = costs.notified_per_event() * events
    by_kind = {
        f"tera_{kind}": (
            costs.per_cycle(kind) if kind in _UPKEEP else costs.per_event(kind) * events
        )
        / notified
        for kind in _KINDS
    }
    return {
        "rate_shown": rate,
        "tera": costs.per_notification(events),
        "flooding": costs.flooding_per_notification(events),
        **by_kind,
        **_formula(params, rate),
        "size_estimation": size_messages / notified,
        "flood_per_event": costs.flood_per_event,
        "flood_reached": costs.flood_reached,
        "visits": _visits(params, params["topics"]),
        "events": costs.totals.published,
        "events_lost": costs.totals.lost,
        "lookups": costs.totals.lookups,
        "missed": costs.totals.expected - costs.notified,
        "notified": costs.notified,
    }


def _formula(params: Params, rate: float) -> Columns:
    system = Deployment(
        params["peers"],
        params["topics"],
        params["subscriptions"],
        rate,
        table_size=params["table_size"],
        visits=_visits(params, params["topics"]),
    )
    return {
        "tera_formula": per_notification(tera_costs(system), system),
        "flooding_formula": per_notification(flooding_costs(system), system),
    }


def _by_formula(params: Params) -> Columns:
    system = Deployment(
        params["peers"],
        params["topics"],
        params["subscriptions"],
        params["rate"],
        table_size=params["table_size"],
        visits=_visits(params, params["topics"]),
    )
    tera, flooding = tera_costs(system), flooding_costs(system)
    predicted = _formula(params, params["rate"])
    row = {
        "rate_shown": params["rate"],
        "tera": predicted["tera_formula"],
        "flooding": predicted["flooding_formula"],
        **{f"tera_{kind}": getattr(tera, kind) / system.notifications for kind in _KINDS},
        **predicted,
        "size_estimation": float("nan"),
        "flood_per_event": flooding.dissemination / (params["rate"] * params["topics"]),
        "flood_reached": 1.0,
        "visits": _visits(params, params["topics"]),
        **dict.fromkeys(("events", "events_lost", "lookups", "missed", "notified"), 0),
    }
    return {name: np.array([value]) for name, value in row.items()}


def gigabytes(params: Params) -> float:
    if params["simulated"] == "formula":
        return 0.0
    return float(0.3 + params["peers"] * (135e-9 if params["simulated"] == "general" else 4e-7))


def most_seeds(params: Params) -> int:
    if params["simulated"] == "formula":
        return 1
    return 1 if params["peers"] >= 10**7 else 2 if params["peers"] >= 10**6 else 10


def seconds(params: Params) -> float:
    if params["simulated"] == "formula":
        return 0.01
    flooded = params["cycles"] * _events_per_cycle(params) * params["subscriptions"]
    walked = _visits(params, params["topics"]) / 4 * (params["peers"] + params["subscriptions"])
    upkeep = params["cycles"] * (params["peers"] * 1.5 + params["subscriptions"])
    return float(1.0 + flooded / params["topics"] * 1e-7 + (walked + upkeep) * 1e-7)
