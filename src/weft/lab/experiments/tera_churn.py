"""tera-churn: what coming and going does to lookups, tables and delivery.

TERA names this as future work. Peers crash and newcomers join, subscriptions end and begin, at
0.1 %, 1 % or 5 % per cycle. After some cycles, in several rounds:

- `stale_entries`: the share of table entries whose access point is gone; `stale_predicted` is
  the closed form, which holds while lookups still succeed and so nearly all members advertise
  in the topic's overlay;
- `lookup_any`, `lookup_live`: lookups by walks that find an access point, and one that is there;
- `lookup_retried`: those that find one that is there within four attempts;
- `delivery`: of the members of a topic that are there when an event enters it and still are when
  its flood has ended, the share that got it; `delivery_joined` leaves out members that are in an
  overlay of their own because their lookup failed, which advertisements will merge;
- `stale_views`: the share of entries in views of the general overlay that name peers that are gone.

Plain TERA loses a walk at a peer that is gone, and a table keeps an entry until it is replaced.
Tables and views are restored after the lookups that measure. In a mended world lookups drop stale
entries that they find, so more measuring would look like a better network.

With `mended`, peers use what the transport tells of failures: a walk that cannot go on drops that
neighbour and takes another, and a table drops an entry once a lookup has found its access point
gone. A newcomer starts with a copy of the table of the peer it enters by; peers answer from their
subscriptions, too; and advertisements ride on view exchanges.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from weft.engine.core.arrays import Array, Numbers
from weft.engine.core.draws import random_peers
from weft.engine.core.layout import Rows
from weft.engine.tera.access_points import NOT_FOUND
from weft.engine.tera.flood import Flood
from weft.engine.tera.world import ChurnWorld, Rates, WorldSettings, build_churning
from weft.lab import ground
from weft.lab.defect import Defect, Function, given
from weft.lab.experiment import Columns, Entry, Params, Size
from weft.lab.figures import Figure, look, means, panels
from weft.lab.measures import at_least, at_most, reals, reasons, texts, truths, wholes
from weft.lab.memberships import memberships_of
from weft.pipeline.schemas import joined
from weft.pipeline.transforms import numbers, together
from weft.rules.deployment import stale_share, visits_for

SEEDS = {"quick": 2, "full": 10}
_RATES = (0.0, 0.001, 0.01, 0.05)
_ATTEMPTS = 4  # weft's default: access points tried before giving up
_ROUNDS = 10


def points(size: Size) -> list[Params]:
    if size == "full":
        shape = {"peers": 10_000, "topics": 100, "subscriptions": 10_000, "cycles": 200}
    else:
        shape = {"peers": 1_000, "topics": 50, "subscriptions": 2_000, "cycles": 100}
    what = [("none", 0.0)]
    what += [(kind, rate) for kind in ("peers", "subscriptions", "both") for rate in _RATES[1:]]
    common = {**shape, "zipf": 0.0, "table_size": 10, "lookups": 500}
    return [
        *({**common, "churn": kind, "rate": rate, "mended": False} for kind, rate in what),
        *({**common, "churn": "both", "rate": rate, "mended": True} for rate in _RATES[1:]),
    ]


def run(params: Params, seed: int) -> Columns:
    """One row per round of measuring."""
    held = memberships_of(params, seed)
    settings = WorldSettings(
        table_size=params["table_size"],
        visits=visits_for(0.999, params["table_size"], held.topics),
    )
    rates = Rates(
        peers=params["rate"] if params["churn"] in ("peers", "both") else 0.0,
        subscriptions=params["rate"] if params["churn"] in ("subscriptions", "both") else 0.0,
        mended=params["mended"],
    )
    world = build_churning(settings, rates, held, params["cycles"] + 20 * _ROUNDS, seed)
    for _ in range(params["cycles"]):
        world.step()
    rounds = [_measure(world, params, number) for number in range(_ROUNDS)]
    size = params["subscriptions"] / params["topics"]
    going = rates.peers + rates.subscriptions
    every, to = settings.advertise_every, settings.advertise_to
    return {
        **{name: np.array([found[name] for found in rounds]) for name in rounds[0]},
        "stale_predicted": stale_share(going, params["peers"], size, every, to),
    }


def _measure(world: ChurnWorld, params: Params, number: int) -> dict[str, float]:
    there = np.flatnonzero(world.peer_there[: world.peers])
    draws = random_peers(params["lookups"], len(there), world.seed, "tera-churn.who", number)
    origins = there[draws]
    topics = random_peers(params["lookups"], world.topics, world.seed, "tera-churn.what", number)
    with _untouched(world):
        any_point, live, retried = _look_up(world, origins, topics, number)
    delivery, delivery_joined = _deliver(world, number)
    return {
        "round": float(number),
        "stale_entries": _stale_entries(world, there),
        "stale_views": _stale_views(world, there),
        "lookup_any": any_point,
        "lookup_live": live,
        "lookup_retried": retried,
        "delivery": delivery,
        "delivery_joined": delivery_joined,
        "members": float(world.member_there.sum(dtype=np.int64)),
        "joins_failed": float(world.lookups_failed),
        "messages_per_peer_cycle": world.counts.total() / world.cycle / len(there),
    }


@contextmanager
def _untouched(world: ChurnWorld) -> Iterator[None]:
    """Lookups made inside change no table and no view."""
    tables = world.tables
    columns: list[Array] = [tables.topics, tables.points, tables.counts, world.rows.octets]
    before = [column.copy() for column in columns]
    try:
        yield
    finally:
        for column, kept in zip(columns, before, strict=True):
            column[:] = kept


def _stale_entries(world: ChurnWorld, there: Array) -> float:
    used = np.arange(world.tables.size) < world.tables.counts[there][:, None]
    points = world.tables.points[there][used]
    return float((world.member_there[points] == 0).mean())


def _stale_views(world: ChurnWorld, there: Array) -> float:
    used = np.arange(world.rows.view_size) < world.rows.counts()[there][:, None]
    known = world.rows.ids()[there][:, : world.rows.view_size][used]
    return float((world.peer_there[known] == 0).mean())


def _look_up(
    world: ChurnWorld, origins: Array, topics: Array, number: int
) -> tuple[float, float, float]:
    """Shares that find any access point, a live one, and a live one with more attempts."""
    reached = np.zeros(len(origins), bool)
    shares = (0.0, 0.0)
    for attempt in range(_ATTEMPTS):
        wanting = ~reached
        batch = -1 - (number * _ATTEMPTS + attempt)
        points = world.find_points(origins[wanting], topics[wanting], batch, own=False)
        found = points != NOT_FOUND
        live = found & (world.member_there[points] != 0)
        reached[np.flatnonzero(wanting)[live]] = True
        if attempt == 0:
            shares = float(found.mean()), float(live.mean())
    return *shares, float(reached.mean())


def _deliver(world: ChurnWorld, number: int) -> tuple[float, float]:
    """Flood one event in each of some topics while the world goes on."""
    wanted = random_peers(10, world.topics, world.seed, "tera-churn.topics", number)
    flood = Flood(
        world.topic_rows,
        np.array([0, len(world.member_there)], np.int64),
        members_alive=world.member_there,
        keep_seen=True,
    )
    before = world.member_there.copy()
    started = []
    for item, topic in enumerate(np.unique(wanted)):
        inside = np.flatnonzero((world.member_topic == topic) & (before != 0))
        main = inside[world.overlays[inside] == world.overlays[inside].min()]
        pick = random_peers(1, len(main), world.seed, "tera-churn.entry", 16 * number + item)
        started.append((flood.start(0, int(main[pick[0]])), inside, main))
    flood.advance()
    while not flood.is_over:
        world.step()
        flood.advance()
    got = joined_got = wanted_total = joined_total = 0
    for event, inside, main in started:
        staying = inside[world.member_there[inside] != 0]
        joined = main[world.member_there[main] != 0]
        got += int(flood.seen(event)[staying].sum(dtype=np.int64))
        joined_got += int(flood.seen(event)[joined].sum(dtype=np.int64))
        wanted_total += len(staying)
        joined_total += len(joined)
    return got / max(1, wanted_total), joined_got / max(1, joined_total)


def seconds(params: Params) -> float:
    rate = params["rate"]
    turns = params["cycles"] * (params["peers"] + params["subscriptions"])
    return float(turns * 5e-7 * (1 + 10 * rate))


NUMBERS = {
    "stale_entries": "table entries whose access point is gone",
    "lookup_live": "lookups that find a live access point",
    "lookup_retried": "lookups that find a live access point in four attempts",
    "delivery": "members that get an event",
    "delivery_joined": "members that get an event, those not yet merged left out",
    "stale_views": "entries of views that name peers that are gone",
}
TITLES = {
    "quiet_lookups": "no churn: lookups that succeed",
    "quiet_delivery": "no churn: members that get an event",
    "slow_lookups": "0.1 % of both: lookups that find a live access point within four attempts",
    "slow_delivery": "0.1 % of both: members that get an event",
    "joined": "1 % of both: merged members that get an event",
    "mended_lookups": "1 % of both, mended: lookups that find a live access point in four attempts",
    "mended_delivery": "1 % of both, mended: members that get an event",
    "fresher": "1 % of both: stale entries, mended over plain",
}
COLUMNS = joined(
    texts("churn"),
    reals("rate"),
    truths("mended"),
    wholes("lookups"),
    reals("round", "lookup_any"),
    reals(*NUMBERS),
    reals("members", "joins_failed", "messages_per_peer_cycle"),
)


def resistance(rows: DataFrame) -> DataFrame:
    """Per seed: the judged numbers, each from the kinds and rates of churn that it is judged at."""
    quiet = F.col("churn") == "none"
    both = F.col("churn") == "both"
    slow = both & (F.col("rate") == 0.001) & ~F.col("mended")
    middle = both & (F.col("rate") == 0.01) & ~F.col("mended")
    mended = both & (F.col("rate") == 0.01) & F.col("mended")

    def mean(name: str, which: Column) -> Column:
        return F.avg(F.when(which, F.col(name)))

    return rows.groupBy("seed").agg(
        mean("lookup_any", quiet).alias("quiet_lookups"),
        mean("delivery", quiet).alias("quiet_delivery"),
        mean("lookup_retried", slow).alias("slow_lookups"),
        mean("delivery", slow).alias("slow_delivery"),
        mean("delivery_joined", middle).alias("joined"),
        mean("lookup_retried", mended).alias("mended_lookups"),
        mean("delivery", mended).alias("mended_delivery"),
        (mean("stale_entries", mended) / mean("stale_entries", middle)).alias("fresher"),
        F.sum(F.when(quiet, F.col("lookups"))).alias("made"),
    )


def measure(rows: DataFrame, size: Size) -> DataFrame:
    noise = F.sqrt(0.001 / (F.col("made") * F.col("seeds")))
    asked = at_least(0.999 - 3 * noise, "quiet_lookups") | at_least(1.0, "quiet_delivery")
    asked |= at_least(0.999, "slow_lookups") | at_least(0.99, "slow_delivery", "joined")
    asked |= at_least(0.99, "mended_lookups", "mended_delivery") | at_most(0.9, "fresher")
    what = F.format_string("%.1f %% of %s", F.col("rate") * 100, F.col("churn"))
    how = F.when(F.col("mended"), ", mended; ").otherwise("; ")
    groups = ("churn", "rate", "mended")
    return together(
        rows.transform(resistance).transform(numbers(TITLES, asked, keep=("made",))),
        rows.transform(numbers(NUMBERS, by=groups, prefix=F.concat(what, how))),
    )


# --- planted defects ------------------------------------------------------------------------------


def one_overlay_alone(cycle: Function) -> Function:
    """A planted defect: only the general overlay exchanges views; its calls name no overlay ids."""
    return lambda *args, **named: (0, 0) if "overlays" in named else cycle(*args, **named)


def quartered(visits: Function) -> Function:
    return lambda *args: max(1, visits(*args) // 4)


def narrow(made: Function) -> Function:
    """A planted defect: members pass an event on to one neighbour."""

    def instead(rows: Rows, offsets: Numbers, **named: object) -> object:
        return made(rows, offsets, fanout=np.ones(len(rows.counts()), np.int32), **named)

    return instead


def figure(rows: DataFrame) -> Figure:
    names = ("stale_entries", "lookup_live", "lookup_retried", "delivery")
    drawn = means(rows, ("churn", "rate", "mended"), *names)
    quiet = drawn[drawn["churn"] == "none"].iloc[0]
    places = {0.001: 1, 0.01: 2, 0.05: 3}
    drawing, axes = panels(columns=2, rows=2)
    lines = [("peers", False), ("subscriptions", False), ("both", False), ("both", True)]
    for panel, name in zip(axes, names, strict=True):
        for number, (churn, mended) in enumerate(lines):
            some = drawn[(drawn["churn"] == churn) & (drawn["mended"] == mended)]
            x = [0, *(places[rate] for rate in some["rate"])]
            label = f"{churn}, mended" if mended else churn
            y = [quiet[name], *some[name]]
            panel.plot(x, y, ls="--" if mended else "-", label=label, **look(number))
        panel.set_xticks([0, *places.values()], ["none", "0.1 %", "1 %", "5 %"])
        panel.set(ylim=(-0.03, 1.05), title=NUMBERS[name], xlabel="come and go, per cycle")
    axes[0].legend(loc="upper left")
    return drawing


ENTRY = Entry.of(
    __name__,
    title="What coming and going does",
    claim="The paper leaves churn of peers and subscriptions to future work and expects TERA "
    "to resist it. We ask: that nothing is lost without churn; that at 0.1 % of both per cycle "
    "lookups with retries and deliveries hardly suffer; that at 1 % an event still reaches the "
    "members that are merged with the others; and that peers that heed failures (mended: a "
    "walk takes another neighbour, a table drops what proved stale, a newcomer starts with a "
    "copy of a table; and advertisements ride on view exchanges) keep lookups and deliveries up at "
    "1 %. What 5 % does is told.",
    tolerances=reasons(
        TITLES,
        quiet_lookups=ground.derived(
            "2026-11-15",
            "K is chosen for a success of 0.999; three standard errors of the lookups made.",
        ),
        quiet_delivery=ground.derived(
            "2026-11-15", "A flood over a connected overlay reaches everyone."
        ),
        slow_lookups=ground.asked(
            "2026-11-15",
            "Lookups hardly suffer. By the form a sixth of the entries is stale at this rate; four "
            "in a row would be one in a thousand if attempts were independent.",
        ),
        slow_delivery=ground.asked(
            "2026-11-15",
            "Missing are members that have just joined and whose lookup failed; at "
            "this rate fewer than one in a hundred.",
        ),
        joined=ground.derived(
            "2026-11-15",
            "A member has twenty neighbours, of which a tenth is gone. That none of the members "
            "that know it forwards the event is rarer than one in a hundred.",
        ),
        mended_lookups=ground.asked(
            "2026-11-15",
            "Of a hundred lookups one may fail. By the form two thirds of the entries are stale "
            "where nothing is mended, so that four in a row would be one in five: it takes more "
            "than trying again.",
        ),
        mended_delivery=ground.asked(
            "2026-11-15",
            "Joins hardly fail any more, so fewer than one member in a hundred is not merged.",
        ),
        fresher=ground.asked(
            "2026-11-16",
            "Fresher means: a tenth fewer stale entries. The bound was 1 until then, and peers "
            "that ignore failures keep that, too.",
        ),
    ),
    defects=(
        Defect(
            "failures are not heeded",
            {"weft.lab.experiments.tera_churn:Rates": given(mended=False)},
            where=lambda params: params["churn"] == "both" and params["rate"] == 0.01,
        ),
        Defect(
            "views of topic overlays are not exchanged",
            {"weft.engine.tera.world:cycle_any": one_overlay_alone},
            where=lambda params: params["churn"] in ("none", "both") and params["rate"] <= 0.01,
        ),
        Defect(
            "walks of a quarter of the visits",
            {"weft.lab.experiments.tera_churn:visits_for": quartered},
            where=lambda params: params["churn"] == "none",
        ),
        Defect(
            "a lookup is made once",
            {"weft.lab.experiments.tera_churn:_ATTEMPTS": lambda attempts: 1},
            where=lambda params: params["churn"] == "both" and params["rate"] == 0.001,
        ),
        Defect(
            "members pass an event on to one neighbour",
            {"weft.lab.experiments.tera_churn:Flood": narrow},
            where=lambda params: params["churn"] in ("none", "both") and params["rate"] <= 0.01,
        ),
    ),
)
