"""references: each reference system reproduces a figure of its own paper.

Each module of `weft.references` says at its head which figure, and how far off it may be; these
bounds were chosen on 2026-11-16, before the first run; the reasons of those that were judged
otherwise for a time say so. All peers subscribe to one topic, and a tenth as many to none; for
SpiderCast, whose figure is about many topics, peers have the interests of a synthetic grid.

Deliveries and copies are what the pipeline makes of the runs' traces (`lab/traced.py`). Degrees
of meshes, entries of views and steps of routes stand in no trace: the task reads them from the
machines at the end.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import fmean

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from weft.engine.data.grid import draw_grid
from weft.ids import Contact, Topic
from weft.lab import ground
from weft.lab.defect import ARRIVE, Defect, Function, again, kind_of, sent_also, to_a_stranger
from weft.lab.experiment import Columns, Entry, Params, Size
from weft.lab.figures import GREY, Figure, colour, panels, table
from weft.lab.ground import Ground
from weft.lab.measures import at_least, at_most, reals, reasons, smalls, texts, wholes
from weft.lab.traced import PIECES, WindowWriter, overview, recorded
from weft.lab.universes import grid_of
from weft.lab.versus.crowd import Publications, Universe, draw_universe
from weft.lab.versus.network import WINDOW_MS, Fault, VersusRun
from weft.lab.versus.systems import REFERENCES, SYSTEMS
from weft.pipeline.schemas import joined, selected
from weft.pipeline.transforms import Bound, numbers, together
from weft.references import epidemic, gossipsub, poldercast, scribe, spidercast
from weft.references.epidemic import Flooding
from weft.references.gossipsub import GossipSub
from weft.references.scribe import Scribe, apart, id_of
from weft.sim.node import Node
from weft.sim.world import World

PEERS = {"quick": 60, "full": 300}
EVENTS = 60
FLOODING, GOSSIPSUB = "ref-flooding", "ref-gossipsub"
SPIDERCAST, DAMULTICAST = "ref-spidercast", "ref-damulticast"
SEEDS = {"quick": 10, "full": 3}
"""measured: SpiderCast's figure hangs on how many topics a peer has, which differs from one small
grid to the next: with 60 peers ten grids have 2.8 to 4.0, and 0.39 to 0.61 of the links that are
wanted at most 0.55. One grid says nothing of the mean; with 150 peers all ten lie below 0.30."""
COLUMNS = joined(texts("system"), smalls("peers", "members"), PIECES, reals("figure", "wanted"))
"""`figure` is null where the paper's figure is one of copies: then the trace tells it."""


def points(size: Size) -> list[Params]:
    return [{"system": each.name, "peers": PEERS[size]} for each in REFERENCES]


def most_seeds(params: Params) -> int:
    """In the quick size one seed for the systems other than SpiderCast, whose peers have the same
    interests in every seed."""
    many = params["system"] == SPIDERCAST or params["peers"] > PEERS["quick"]
    return 1_000 if many else 1


def seconds(params: Params) -> float:
    return (4.0 if params["system"] == "ref-flooding" else 1.0) * float(params["peers"]) / 60


# --- simulation -----------------------------------------------------------------------------------


def run(params: Params, seed: int) -> Columns:
    """How events spread in a calm network, and the paper's figure."""
    name, peers = params["system"], params["peers"]
    universe = _universe(name, peers, seed)
    events = Publications(universe, seed, EVENTS, WINDOW_MS)

    def play(writer: WindowWriter) -> VersusRun:
        run = VersusRun(seed, SYSTEMS[name], universe, events, Fault(), writer)
        run.play()
        return run

    played, found = recorded(play)
    members = len(universe.by_topic[next(iter(universe.by_topic))])
    figure, wanted = _figure(name, played, universe, members)
    return {**found, "members": members, "figure": figure, "wanted": wanted}


def _universe(name: str, peers: int, seed: int) -> Universe:
    if name == SPIDERCAST:
        drawn = draw_grid(grid_of(peers), seed)
        return draw_universe(drawn.topic_of, drawn.members, peers, seed)
    return Universe(((Topic("/t"),),) * peers + ((),) * (peers // 10))


def _figure(
    name: str, played: VersusRun, universe: Universe, members: int
) -> tuple[float | None, float]:
    """The number of the paper as the machines have it in the end, if they do; and as the paper has
    it."""
    machines = [node.machine for node in played.net.nodes if node.machine is not None]
    if name == FLOODING:
        views = [len(one.view) for one in machines if isinstance(one, Flooding)]
        return None, float(sum(views) - (len(views) - 1))
    if name == "ref-scribe":
        steps = [step for one in machines if isinstance(one, Scribe) for step in one.routes]
        return fmean(steps or [0]), float(math.ceil(math.log2(len(machines)) / scribe.B))
    if name == GOSSIPSUB:
        meshes = [len(m) for o in machines if isinstance(o, GossipSub) for m in o.mesh.values()]
        return fmean(meshes), float(gossipsub.D)
    if name == "ref-poldercast":
        return None, float(poldercast.F)
    if name == SPIDERCAST:
        degrees = [len(o.ends) for o in machines if isinstance(o, spidercast.SpiderCast)]
        links = spidercast.K_GREEDY + spidercast.K_RANDOM
        return fmean(degrees), links * len(universe.memberships()) / universe.peers
    return None, float(round(math.log(members) + epidemic.C))


# --- measures -------------------------------------------------------------------------------------

TITLES = {
    "delivery": "delivered",
    "parasites": "copies at peers that are not subscribed, per delivery",
    "copies": "copies per delivery",
    "copies_least": "copies per delivery, not too few",
    "wanted_copies": "copies per delivery, without those at peers that are not subscribed",
    "gap": "the paper's figure: off by",
    "ratio": "the paper's figure: measured over the paper's",
    "figure": "the paper's figure, not too large",
    "figure_least": "the paper's figure, not too small",
}
LEAST_DELIVERY = {DAMULTICAST: 0.983}
ASKED: dict[str, dict[str, Bound]] = {
    FLOODING: at_most(0.02, "gap"),
    "ref-scribe": {**at_most(1.05, "wanted_copies"), **at_most(1.0, "ratio")},
    GOSSIPSUB: {
        **at_least(float(gossipsub.D_LO), "figure_least"),
        **at_most(float(gossipsub.D_HI), "figure", "copies"),
        **at_least(gossipsub.D_LO - 1.0, "copies_least"),
    },
    "ref-poldercast": {**at_most(0.15, "gap"), **at_most(0.0, "parasites")},
    SPIDERCAST: {**at_most(0.55, "ratio"), **at_most(0.0, "parasites")},
    DAMULTICAST: {**at_most(0.15, "gap"), **at_most(0.0, "parasites")},
}


FIGURES = joined(texts("system"), wholes("seed"), reals("wanted", *TITLES))


@lru_cache(maxsize=1)
def figures_of(rows: DataFrame) -> DataFrame:
    """Rows of runs → one row for each, with what is measured of it. Verdict and picture both ask
    for it, so the few rows of the last answer are kept."""
    found = selected(_figures(rows), FIGURES)
    return rows.sparkSession.createDataFrame(found.collect(), FIGURES)


def _figures(rows: DataFrame) -> DataFrame:
    found = overview(rows, "system", "members", "figure", "wanted")
    copies = F.col("copies_per_delivery")
    of_event = copies * (F.col("members") - 1)
    counted = F.when(F.col("system") == FLOODING, of_event).otherwise(copies)
    figure = F.coalesce("figure", counted)
    parasites = F.col("parasites") / F.col("remote_deliveries")
    return found.select(
        *("system", "seed", "wanted", figure.alias("figure"), figure.alias("figure_least")),
        (F.col("delivered") / F.col("expected")).alias("delivery"),
        parasites.alias("parasites"),
        *(copies.alias(name) for name in ("copies", "copies_least")),
        (copies - parasites).alias("wanted_copies"),
        (figure / F.col("wanted")).alias("ratio"),
        F.abs(figure / F.col("wanted") - 1).alias("gap"),
    )


def measure(rows: DataFrame, size: Size) -> DataFrame:
    wide = figures_of(rows)
    parts = []
    for name, bounds in ASKED.items():
        asked = {**at_least(LEAST_DELIVERY.get(name, 1.0), "delivery"), **bounds}
        here = wide.where(F.col("system") == name)
        titles = numbers(TITLES, asked, by=("system",), prefix=F.lit(f"{name}: "))
        parts.append(here.transform(titles))
    return together(*parts)


def figure(rows: DataFrame) -> Figure:
    means = figures_of(rows).groupBy("system").agg(F.avg("figure"), F.avg("wanted"))
    found = table(means.orderBy("system"))
    drawing, [panel] = panels()
    places = range(len(found))
    ratios = found["avg(figure)"] / found["avg(wanted)"]
    panel.barh(list(places), list(ratios), color=colour(0))
    panel.axvline(1.0, color=GREY, ls="--")
    panel.set_yticks(list(places), [name.removeprefix("ref-") for name in found["system"]])
    panel.set_xlabel("the paper's figure: measured over the paper's")
    return drawing


# --- entry ----------------------------------------------------------------------------------------

DAY = "2026-11-16"
_ALL = "In a calm network events reach all subscribers: the paper loses none there."
_ALONE = "Subscribers alone handle an event."
GROUNDS: dict[str, dict[str, Ground]] = {
    FLOODING: {
        "delivery": ground.asked(DAY, "Nothing fails here."),
        "gap": ground.asked(
            DAY,
            "The figure is TERA's: as many messages as view entries, less one for each peer that "
            "got the event from another; the 2 % are ours, chosen before the first run, which was "
            "2.7 to 3.3 % above. From then to 2026-11-19 one entry of each view less or none was "
            "asked, which that run was known to keep to.",
        ),
    },
    "ref-scribe": {
        "delivery": ground.asked(DAY, "Nothing fails here."),
        "wanted_copies": ground.asked(
            DAY, "One copy for each link of the tree; trees that heal may send a few more."
        ),
        "ratio": ground.paper(DAY, "Less than the logarithm, to base 2^b, of the number of peers."),
    },
    GOSSIPSUB: {
        "delivery": ground.paper(DAY, _ALL),
        **dict.fromkeys(
            ("figure", "figure_least"),
            ground.paper(
                DAY,
                "Meshes are kept between D_lo and D_hi. Until 2026-11-19 the code asked for a "
                "degree from 4 to 12.",
            ),
        ),
        "copies": ground.derived(DAY, "A link of the mesh carries an event once each way at most."),
        "copies_least": ground.derived(
            DAY,
            "All links of a mesh but the one that the event came by bring a copy, or take one. Not "
            "judged until 2026-11-19.",
        ),
    },
    "ref-poldercast": {
        "delivery": ground.paper(DAY, _ALL),
        "gap": ground.asked(DAY, "F copies, by the paper's rule; the 15 % are ours."),
        "parasites": ground.paper(DAY, _ALONE),
    },
    SPIDERCAST: {
        "delivery": ground.paper(DAY, _ALL),
        "ratio": ground.paper(
            DAY,
            "45 % below overlays that are built apart, in the paper's abstract; four links for "
            "each topic there are our setting. Since 2026-11-18 it is the mean of ten grids: until "
            "then one grid was judged, and three of ten go beyond the bound.",
        ),
        "parasites": ground.paper(DAY, _ALONE),
    },
    DAMULTICAST: {
        "delivery": ground.asked(
            DAY, "The paper's chance to reach a member is 0.993; one in a hundred less is ours."
        ),
        "gap": ground.asked(DAY, "ln S + c copies, by the paper's rule; the 15 % are ours."),
        "parasites": ground.paper(DAY, _ALONE),
    },
}


def deaf(push: Function) -> Function:
    """A planted defect: a peer in five gets no event. (Floods and meshes make up for single copies
    that are lost.)"""

    def pushed(world: World, time_ms: int, node: Node, fact: object) -> None:
        if kind_of(fact) != "Payload" or node.index % 5:
            push(world, time_ms, node, fact)

    return pushed


def by_small_steps(next_step: Function) -> Function:
    """A planted defect: a route goes on to the peer that is closer to the key by the least."""

    def instead(machine: Scribe, key: int) -> Contact | None:
        here = apart(id_of(machine.me.peer), key)
        closer = [one for one in machine.known.values() if apart(id_of(one.peer), key) < here]
        return max(closer, key=lambda one: apart(id_of(one.peer), key), default=None)

    return instead


def two(links: int) -> int:
    """A planted defect: so many links in place of these."""
    return 2


def never_too_many(surplus: int) -> int:
    """A planted defect: links are kept, however many more than needed they are."""
    return 1_000


DEFECTS = (
    Defect("a peer in five gets no event", {ARRIVE: deaf}),
    Defect("an event in three is sent twice", sent_also("Payload", to=again, one_in=3)),
    Defect("an event in five goes astray", sent_also("Payload", to=to_a_stranger, one_in=5)),
    Defect(
        "Scribe's routes take the smallest steps",
        {"weft.references.scribe:Scribe.next_step": by_small_steps},
        where=lambda params: params["system"] == "ref-scribe",
    ),
    Defect(
        "GossipSub's meshes are not pruned",
        {"weft.references.gossipsub:D_HI": lambda most: 1_000},
        where=lambda params: params["system"] == GOSSIPSUB,
    ),
    Defect(
        "GossipSub's meshes are filled up to two links",
        {"weft.references.gossipsub:D": two, "weft.references.gossipsub:D_LO": two},
        where=lambda params: params["system"] == GOSSIPSUB,
    ),
    Defect(
        "SpiderCast drops no link that none of its topics needs",
        {"weft.references.spidercast:SURPLUS": never_too_many},
        where=lambda params: params["system"] == SPIDERCAST,
    ),
)

ENTRY = Entry.of(
    __name__,
    title="Each reference reproduces a figure of its own paper",
    claim="Flooding costs as many copies as there are view entries, less one for each peer; "
    "Scribe's routes take at most ⌈log₁₆ N⌉ steps and its tree carries each event once; "
    "GossipSub's mesh keeps to D_lo … D_hi and loses nothing; PolderCast sends F copies, to "
    "subscribers alone; SpiderCast's links are at most 0.55 of those of overlays kept apart; "
    "daMulticast reaches e^(−e^(−c)) of a group.",
    tolerances={
        title: why
        for name, grounds in GROUNDS.items()
        for title, why in reasons(TITLES, (f"{name}: ",), **grounds).items()
    },
)
