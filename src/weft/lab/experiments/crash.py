"""crash-broken, crash-silent: what a network delivers after a share of its peers died at once.

Subscribers of one topic, and a tenth as many peers that only publish. At one instant a share of all
peers dies. In `crash-broken` connections break, as when processes are killed; in `crash-silent`
nobody is told, as when the power goes. Then events follow each other four times a second for a
minute, every fifth of them from outside of the topic. From the trace the pipeline's transforms
tell, for events published 0 to 5, 5 to 15, 15 to 30 and 30 to 60 s after the crash, how many of the
deliveries to the live subscribers (the publisher excepted) happened within 10 s, and how many at
all.

HyParView (Leitão, Pereira, Rodrigues 2007, Section 5.3) claims about 100 % up to 80 or 90 % failed
peers, and recovery within two cycles, over connections that break. Flooding the whole network is
the reference: without history it repairs nothing, so nothing is asked of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as F

from weft.lab import ground, pulsar
from weft.lab.defect import Defect, Function, late
from weft.lab.experiment import Columns, Entry, Params, Size
from weft.lab.figures import GREY, panels, table
from weft.lab.ground import Ground
from weft.lab.task import shape_of
from weft.lab.traced import PIECES, WindowWriter, recorded, runs_of, tables_of
from weft.pipeline.schemas import (
    AT_LEAST,
    AT_MOST,
    NUMBER,
    SMALL,
    TEXT,
    WHOLE,
    columns,
    joined,
    selected,
)
from weft.pipeline.transforms import Bound, numbers, together
from weft.protocol.config import Config
from weft.sim.builder import OneTopic
from weft.sim.checkers.state import components

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame

BUCKETS = ((0, 5), (5, 15), (15, 30), (30, 60))
"""Seconds after the crash."""
IN_TIME_MS = 10_000
REFERENCE = "flood"

Demand: TypeAlias = Mapping[int, tuple[float | None, ...]]
"""The least share of deliveries in time, in percent, by the share of peers that crashed and the
bucket; None where nothing is asked."""

# All of these numbers are asked.
BROKEN: Demand = {
    0: (100.0, 100.0, 100.0, 100.0),
    50: (100.0, 100.0, 100.0, 100.0),
    80: (99.0, 99.0, 99.0, 99.0),
    90: (None, None, None, None),
    95: (None, None, 90.0, 90.0),
}
SILENT: Demand = {
    10: (None, None, None, None),
    50: (95.0, 99.0, 100.0, 100.0),
    80: (80.0, 95.0, 99.0, 100.0),
    90: (None, None, None, None),
}


# --- points -----------------------------------------------------------------------------------


def _points(size: Size, asked: Demand, told: bool) -> list[Params]:
    return [
        {"routing": routing, "subscribers": subscribers, "crashed": crashed, "told": told}
        for routing in pulsar.ROUTINGS
        for subscribers in ((100, 300) if size == "full" else (40,))
        # A flood of the whole network costs messages by the square of the peers.
        if routing != REFERENCE or subscribers <= 100
        for crashed in asked
    ]


def seconds(params: Params) -> float:
    dear = {"tera": 0.1, "pulsarcast": 0.1, "topic-dht": 0.4, REFERENCE: 0.6}
    return dear[params["routing"]] * float(params["subscribers"])


# --- simulation -------------------------------------------------------------------------------

OUTSIDERS = 10
"""For so many subscribers there is one peer that only publishes."""
START_MS = 50
"""guess: between the starts of two peers."""
SUBSCRIBE_MS = 200
"""guess: between two subscriptions, so that a crowd of newcomers is not part of the experiment."""
SETTLE_MS = 100_000
"""guess: ten cycles."""
BEFORE = 20
"""guess: events before the crash, one a second, so that there is a tree."""
EVENTS = 240
EVERY_MS = 250
OUTSIDE_PERCENT = 20
END_MS = 130_000
"""Longer than `recent_ms` and `pending_ms_max`: an event that has not come then never comes."""


def run(params: Params, seed: int) -> Columns:
    """What the trace adds up to from the crash on, and what is known of the network besides."""
    known, found = recorded(partial(play, params, seed))
    return {**found, **known}


def play(params: Params, seed: int, writer: WindowWriter) -> Columns:
    subscribers = params["subscribers"]
    net = _settled(seed, params["routing"], subscribers, writer)
    dice, everybody = net.dice, range(len(net.nodes))
    dying = round(len(net.nodes) * params["crashed"] / 100)
    net.crash(*dice.some("lab.crash.who", everybody, dying), silent=not params["told"])
    writer.begin()
    crash_ms, sent = net.world.now_ms, sum(net.world.sent.values())
    members = net.alive(range(subscribers))
    outsiders = net.alive(range(subscribers, len(net.nodes)))
    for number in range(EVENTS):
        outside = outsiders and dice.percent("lab.crash.outside", OUTSIDE_PERCENT, number)
        publisher = dice.pick("lab.crash.from", outsiders if outside else members, number)
        net.publish(publisher, payload=b"after %d" % number, every_ms=EVERY_MS)
    sent = sum(net.world.sent.values()) - sent
    net.run(END_MS)
    live = len(net.alive())
    return {
        "crash_ns": crash_ms * 1_000_000,
        "live": live,
        "pieces": _pieces(net),
        "rate": sent / live / (EVENTS * EVERY_MS / 1_000),
    }


def _settled(seed: int, routing: str, subscribers: int, writer: WindowWriter) -> OneTopic:
    """A network that has had some events."""
    config = Config(routing=routing, trace=True)  # type: ignore[arg-type]
    net = OneTopic(seed, config, writer=writer)
    for number in range(subscribers + subscribers // OUTSIDERS):
        known = [net.dice.below("lab.crash.known", number, number)] if number else []
        net.enter(known, then_ms=START_MS)
    for number in range(subscribers):
        net.subscribe(number)
        net.run(SUBSCRIBE_MS)
    net.run(SETTLE_MS)
    for number in range(BEFORE):
        publisher = net.dice.below("lab.crash.before", subscribers, number)
        net.publish(publisher, payload=b"before %d" % number, every_ms=1_000)
    return net


def _pieces(net: OneTopic) -> int:
    """How many parts the general overlay has that know no peer of each other."""
    number = {peer.me.peer: place for place, peer in enumerate(net.peers())}
    views = {
        number[peer.me.peer]: [number[other] for other in peer.general.peers if other in number]
        for peer in net.peers()
    }
    return len(components(list(views), views))


# --- measures ---------------------------------------------------------------------------------

POINT = columns(routing=TEXT, subscribers=SMALL, crashed=SMALL)
OUTCOME = columns(live=SMALL, pieces=SMALL, rate=NUMBER)
COLUMNS = joined(POINT, OUTCOME, columns(crash_ns=WHOLE), PIECES)
SHARES = joined(POINT, columns(from_s=WHOLE, in_time=NUMBER, at_end=NUMBER), OUTCOME)
"""Of a run and a bucket: the percent of the wanted deliveries that were in time, and that happened
at all."""


@lru_cache(maxsize=1)
def shares(rows: DataFrame) -> DataFrame:
    """Rows of runs → SHARES, by the pipeline's tables of their traces. Verdict and picture both ask
    for them, so the few rows of the last answer are kept."""
    tables = tables_of(rows)
    known = runs_of(rows, *POINT.names, *OUTCOME.names, "crash_ns")
    waited = F.col("wanted") & F.col("remote")
    in_time = waited & (F.col("latency_ns") <= IN_TIME_MS * 1_000_000)
    given = tables.placed.groupBy("message").agg(
        F.count_if(F.col("wanted") & ~F.col("remote")).alias("own"),
        F.count_if(waited).alias("there"),
        F.count_if(in_time).alias("soon"),
    )
    events = tables.events.join(given, "message", "left").fillna(0, ["own", "there", "soon"])
    events = events.withColumn("owed", F.col("subscribers") - F.col("own")).drop("subscribers")
    since_s = (F.col("published_ns") - F.col("crash_ns")) / 1e9
    bucket = F.coalesce(
        *(F.when((since_s >= start) & (since_s < end), start) for start, end in BUCKETS)
    )
    placed = events.join(known, "run").withColumn("from_s", bucket).where("from_s is not null")
    owed = F.greatest(F.sum("owed"), F.lit(1))
    shape = shape_of(SHARES)
    same = [name for name in shape.names if name not in ("in_time", "at_end")]
    found = placed.groupBy(*same).agg(
        (100 * F.sum("soon") / owed).alias("in_time"),
        (100 * F.sum("there") / owed).alias("at_end"),
    )
    return rows.sparkSession.createDataFrame(selected(found, shape).collect(), shape)


OVERLAY = "parts of the general overlay at the end, at most"


def _title(crashed: int, bucket: int) -> str:
    start, end = BUCKETS[bucket]
    return f"{crashed} % crashed, {start} to {end} s after: delivered within 10 s, %"


def _cells(asked: Demand) -> Iterable[tuple[str, int, int]]:
    """Each cell of the table: the name of its column, the share that crashed, the bucket."""
    for crashed in asked:
        for bucket in range(len(BUCKETS)):
            yield f"c{crashed}_{bucket}", crashed, bucket


def cells_of(asked: Demand) -> Callable[[DataFrame], DataFrame]:
    """SHARES → the cells of the table, judged for all routings but the reference."""

    def measure(rows: DataFrame) -> DataFrame:
        found = {}
        for name, crashed, bucket in _cells(asked):
            here = (F.col("crashed") == crashed) & (F.col("from_s") == BUCKETS[bucket][0])
            found[name] = F.avg(F.when(here, F.col("in_time"))).alias(name)
        wide = rows.groupBy("routing", "subscribers", "seed").agg(
            *found.values(), F.max("pieces").alias("pieces"), F.avg("rate").alias("rate")
        )
        titles = {name: _title(crashed, bucket) for name, crashed, bucket in _cells(asked)}
        bounds: dict[str, Bound] = {
            name: (AT_LEAST, least)
            for name, crashed, bucket in _cells(asked)
            if (least := asked[crashed][bucket]) is not None
        }
        label = F.format_string("%s, %d: ", F.col("routing"), F.col("subscribers"))
        judged = F.col("routing") != REFERENCE
        groups = ("routing", "subscribers")
        told = {"rate": "messages sent per live peer and second, all shares together"}
        return together(
            wide.transform(
                numbers(
                    {**titles, "pieces": OVERLAY},
                    {**bounds, "pieces": (AT_MOST, 1.0)},
                    by=groups,
                    prefix=label,
                    judged_where=judged,
                )
            ),
            wide.transform(numbers(told, by=groups, prefix=label)),
        )

    return measure


# --- figure -----------------------------------------------------------------------------------

CLAIM_CRASHED = 90
"""paper (HyParView): with up to so many percent of the peers failed, nearly all messages arrive."""


def figure(rows: DataFrame) -> Figure:
    groups = ("subscribers", "from_s", "routing", "crashed")
    means = table(
        shares(rows).groupBy(*groups).agg(F.avg("in_time").alias("in_time")).orderBy(*groups)
    )
    sizes = sorted(set(means["subscribers"]))
    drawing, axes = panels(columns=len(BUCKETS), rows=len(sizes))
    for place, panel in enumerate(axes):
        size, (start, end) = sizes[place // len(BUCKETS)], BUCKETS[place % len(BUCKETS)]
        here = means[(means["subscribers"] == size) & (means["from_s"] == start)]
        panel.plot([0, CLAIM_CRASHED], [100, 100], color=GREY, ls="--", label="HyParView's claim")
        for routing in pulsar.ROUTINGS:
            some = here[here["routing"] == routing]
            if len(some):
                style = {**pulsar.style(routing), "label": pulsar.NAMES[routing]}
                panel.plot(some["crashed"], some["in_time"], **style)
        panel.set_title(f"{size} subscribers, {start} to {end} s after the crash")
        panel.set_xlabel("peers crashed, %")
        panel.set_ylabel("delivered within 10 s, %")
        panel.set_ylim(0, 104)
    axes[0].legend(loc="lower left")
    return drawing


# --- entries ----------------------------------------------------------------------------------


def one_by_one(components: Function) -> Function:
    """A planted defect: peers know of nobody."""
    return lambda names, views: components(names, {name: [] for name in views})


def _tolerances(asked: Demand) -> dict[str, Ground]:
    why = ground.asked(
        "2026-11-16", "A network that lost half of its peers goes on as if nothing had happened."
    )
    cells = {
        _title(crashed, bucket): why
        for _, crashed, bucket in _cells(asked)
        if asked[crashed][bucket] is not None
    }
    return {**cells, OVERLAY: ground.asked("2026-11-16", "The general overlay stays in one piece.")}


DEFECTS = (
    Defect(
        "events are passed on half a minute late",
        late("Payload", "Cast", "Graft", "Repair", by_ms=30_000, after_ms=SETTLE_MS),
        where=lambda params: params["routing"] == "tera",
    ),
    Defect(
        "views of the general overlay are forgotten",
        {"weft.lab.experiments.crash:components": one_by_one},
        where=lambda params: params["routing"] == "tera" and params["crashed"] == 50,
    ),
)


def _entry(id: str, title: str, claim: str, asked: Demand, told: bool) -> Entry:
    return Entry(
        id=id,
        title=title,
        claim=claim,
        simulation=f"{__name__}:run",
        points=lambda size: _points(size, asked, told),
        seeds={"quick": 1, "full": 3},
        columns=COLUMNS,
        measure=lambda rows, size: shares(rows).transform(cells_of(asked)),
        tolerances=_tolerances(asked),
        figure=figure,
        seconds=seconds,
        defects=DEFECTS,
    )


ENTRIES = [
    _entry(
        "crash-broken",
        "Many peers die at once, and their connections break",
        "With nothing crashed and with half of all peers killed at one instant, every event "
        "published from then on reaches all live subscribers within 10 s; with 80 % killed, 99 % "
        "of the deliveries are in time; with 95 %, 90 % from 15 s on. HyParView claims about "
        "100 % up to 80 or 90 % failures, and recovery within two cycles.",
        BROKEN,
        told=True,
    ),
    _entry(
        "crash-silent",
        "Many peers die at once, and nobody is told",
        "With half of all peers gone at one instant without a word, 95, 99, 100 and 100 % of "
        "the deliveries happen within 10 s, for events published 0 to 5, 5 to 15, 15 to 30 and 30 "
        "to 60 s after; with 80 % gone, 80, 95, 99 and 100 %.",
        SILENT,
        told=False,
    ),
]
