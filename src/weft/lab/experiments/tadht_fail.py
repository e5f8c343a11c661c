"""tadht-fail: what crashed forwarders and crashed roots cost (paper 002, 4.4 and Section 6).

With the real state machines in virtual time:

*stabilise*: some of the peers go down at once and without a word. Counted are the live children
that are not at their closest live forwarder right after it, and the periods of Algorithm 1 until
Lemma 4.2 and the bound on children hold for every peer again.

*roots* and *members*: events go out by f + 1 trees. The moment an event is published, f members go
down without a word, before anything reaches them: the roots that it is handed to beside its
publisher (a child's parent is the first root), or any f forwarders but the publisher. Judged are
the live subscribers that the trees alone miss, since that is what f + 1 trees are for. Live
subscribers that still lack the event after the links' repair are told: repair would make up for the
losses of a single root as well. Children of dead forwarders are counted apart: with f failures the
paper gives up at most kf of them.

The same over arrays at 10⁴ peers. There lookups find the live peers at once (`stabilise, arrays`),
and senders notice dead links (`roots, arrays`, `members, arrays`); what the children of a dead
forwarder lack is not repaired, so f crashed members may cost k·f children.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from weft.engine.topic_dht.crash import Crash, survivors
from weft.engine.topic_dht.roles import settled
from weft.engine.topic_dht.schemes import Crashed, Events, Outcome
from weft.engine.topic_dht.space import places_of
from weft.lab import ground
from weft.lab.defect import Defect, Function, left_out, lost
from weft.lab.experiment import Columns, Entry, Params, Size
from weft.lab.figures import BLACK, Figure, colour, look, means, panels, table
from weft.lab.measures import at_least, at_most, each, reasons, texts, wholes
from weft.lab.memberships import memberships_of
from weft.lab.tadht import Net, lose_members, lose_roots, settled_net
from weft.pipeline.schemas import joined
from weft.pipeline.transforms import numbers, together
from weft.protocol.config import TopicDhtSettings
from weft.rules.treecast import delegates
from weft.sim.checkers.dht import check_topic, seats_of

SEEDS = {"quick": 1, "full": 2}
STABILISE, ROOTS, MEMBERS = "stabilise", "roots", "members"
ARRAYS = ", arrays"
LOSING = (ROOTS, MEMBERS, ROOTS + ARRAYS, MEMBERS + ARRAYS)


def points(size: Size) -> list[Params]:
    full = size == "full"
    machines: Params = {"peers": 40, "topics": 4, "subscriptions": 80, "zipf": 0.7}
    arrays: Params = {"peers": 1_000, "topics": 100, "subscriptions": 10_000, "zipf": 0.7}
    if full:
        machines = {"peers": 80, "topics": 8, "subscriptions": 260, "zipf": 0.7}
        arrays = {"peers": 10_000, "topics": 1_000, "subscriptions": 200_000, "zipf": 0.7}

    def crash(shape: Params, kind: str, percent: int, loss: int) -> Params:
        return {**shape, "kind": kind, "percent": percent, "loss_percent": loss, "roots": 1}

    def lose(shape: Params, kind: str, roots: int, events: int) -> list[Params]:
        point = {**shape, "kind": kind, "percent": 0, "loss_percent": 0, "roots": roots}
        schemes = ("full-treecast", "forward-treecast")
        return [{**point, "scheme": scheme, "events": events} for scheme in schemes]

    crashes, counts = (((30, 0), (30, 5), (50, 0)), (2, 4)) if full else (((30, 0),), (3,))
    return [
        *(crash(machines, STABILISE, percent, loss) for percent, loss in crashes),
        *(
            point
            for kind in (ROOTS, MEMBERS)
            for n in counts
            for point in lose(machines, kind, n, 8 if full else 4)
        ),
        *(crash(arrays, STABILISE + ARRAYS, percent, 0) for percent in (30, 50)),
        *lose(arrays, ROOTS + ARRAYS, 3, arrays["topics"]),
        *lose(arrays, MEMBERS + ARRAYS, 3, arrays["topics"]),
    ]


def seconds(params: Params) -> float:
    if params["kind"].endswith(ARRAYS):
        return 2.0 + float(params["subscriptions"]) * 1e-5
    return float(params["subscriptions"]) * 0.1


PERIODS_MAX = 10


def run(params: Params, seed: int) -> Columns:
    ways: dict[str, Callable[[Params, int], Columns]] = {
        STABILISE: stabilise,
        ROOTS: lose_roots,
        MEMBERS: lose_members,
        STABILISE + ARRAYS: stabilise_arrays,
        ROOTS + ARRAYS: partial(lose_arrays, crashed="roots"),
        MEMBERS + ARRAYS: partial(lose_arrays, crashed="members"),
    }
    return ways[params["kind"]](params, seed)


def stabilise(params: Params, seed: int) -> Columns:
    """Peers crash at once; how many periods pass until all roles are right again."""
    net = settled_net(params, seed, TopicDhtSettings())
    forwarders = _forwarders(net)
    count = params["peers"] * params["percent"] // 100
    net.crash(*net.dice.some("tadht-fail.crash", range(params["peers"]), count))
    left, lost = _forwarders(net), _misplaced(net)
    periods = net.settle(2 * PERIODS_MAX)
    found = {"crashed": forwarders - left, "lost": lost, "parasites": net.parasites}
    return {**_stabilised(periods), **found}


def _stabilised(periods: int | None) -> Columns:
    """The columns that both ways of crashing forwarders, machines and arrays, fill alike."""
    none = dict.fromkeys(("events", "missed_by_trees", "missed", "orphans", "parasites"), 0)
    taken = 2 * PERIODS_MAX + 1 if periods is None else periods
    return {
        **none,
        "scheme": TopicDhtSettings().scheme,
        "k": TopicDhtSettings().k,
        "periods": taken,
    }


def _forwarders(net: Net) -> int:
    return sum(
        role.forwarder is not None
        for machine in net.machines().values()
        for role in machine.roles.by_topic.values()
    )


def _misplaced(net: Net) -> int:
    """Live children that are not at their closest live forwarder."""
    seats = seats_of(net.machines(), net.wanted)
    return sum(
        len(check_topic(topic, some, net.settings.k).parents) for topic, some in seats.items()
    )


# --- simulation over arrays -------------------------------------------------------------------


def stabilise_arrays(params: Params, seed: int) -> Columns:
    """Roles from the memberships alone, a crash, and the periods until all are right again."""
    held = memberships_of(params, seed)
    held_roles = settled(held, places_of(held.peers, seed), TopicDhtSettings().k, seed)
    crash = Crash(held_roles, survivors(held.peers, params["percent"], seed), seed)
    periods = crash.periods_until_right(2 * PERIODS_MAX)
    return {**_stabilised(periods), "crashed": crash.crashed_forwarders, "lost": crash.lost}


def lose_arrays(params: Params, seed: int, crashed: Crashed) -> Columns:
    """One row per event."""
    held = memberships_of(params, seed)
    held_roles = settled(held, places_of(held.peers, seed), TopicDhtSettings().k, seed)
    found: dict[bool, list[Outcome]] = {}
    for mended in (False, True):
        events = Events(held_roles, params["scheme"], seed, mended=mended)
        found[mended] = [
            events.publish(topic, events.random_member(topic), params["roots"], crashed)
            for topic in range(params["events"])
        ]
    return {
        **dict.fromkeys(("lost", "periods", "parasites"), 0),
        "k": TopicDhtSettings(scheme=params["scheme"]).k,
        "crashed": params["roots"] - 1,
        "missed_by_trees": [one.missed - one.orphans for one in found[False]],
        "missed": [one.missed for one in found[True]],
        "orphans": [one.orphans for one in found[False]],
    }


COLUMNS = joined(
    texts("kind"),
    wholes("peers", "percent", "loss_percent"),
    texts("scheme"),
    wholes("roots", "events", "k", "crashed", "lost", "periods", "missed_by_trees", "missed"),
    wholes("orphans", "parasites"),
)
STABILISED = {
    "periods": "most periods until every child is at its closest forwarder",
    "lost": "children lost, over k for each crashed forwarder",
    "periods_mean": "mean periods until then",
}
LOST_EVENTS = {
    "by_trees": "share of events that the trees alone brought to all but children of the dead",
    "missed": "live subscribers that lack an event three periods after f members crashed",
    "beyond": "live subscribers missed beyond k for each crashed member",
    "by_trees_mean": "live subscribers that the trees alone missed, children of the dead excepted",
    "orphans_mean": "children of the dead that the trees alone missed",
}


def recovery(rows: DataFrame) -> DataFrame:
    """Per kind and seed: how many periods, and how many children were lost at first."""
    crashes = rows.where(F.col("kind").startswith(STABILISE))
    return crashes.groupBy("kind", "seed").agg(
        F.max("periods").alias("periods"),
        F.max(F.col("lost") / (F.col("k") * F.col("crashed"))).alias("lost"),
        F.avg("periods").alias("periods_mean"),
    )


def losses(rows: DataFrame) -> DataFrame:
    """Per kind and seed: what events missed while f members crashed."""
    events = rows.where(F.col("kind").isin(*LOSING))
    beyond = F.greatest(F.lit(0), F.col("missed") - F.col("k") * F.col("crashed"))
    return events.groupBy("kind", "seed").agg(
        F.sum("missed").alias("missed"),
        F.sum(beyond).alias("beyond"),
        F.avg((F.col("missed_by_trees") == 0).cast("double")).alias("by_trees"),
        F.avg("missed_by_trees").alias("by_trees_mean"),
        F.avg("orphans").alias("orphans_mean"),
    )


def measure(rows: DataFrame, size: Size) -> DataFrame:
    by, prefix = ("kind",), each("kind")
    asked = at_most(float(PERIODS_MAX), "periods") | at_most(1.0, "lost")
    whole = at_least(1.0, "by_trees") | at_most(0.0, "beyond")
    return together(
        rows.transform(recovery).transform(numbers(STABILISED, asked, by=by, prefix=prefix)),
        rows.transform(losses).transform(numbers(LOST_EVENTS, whole, by=by, prefix=prefix)),
    )


def inside_of_all(forest_delegates: Function) -> Function:
    """A planted defect: every member may be inside of every tree, so only the roots differ."""
    return lambda own, charge, known, key, bits, *forest: delegates(own, charge, known, key, bits)


def inside_of_all_arrays(spread_forest: Function) -> Function:
    """A planted defect: over arrays, too, every member may be inside of every tree."""
    return lambda crowd, root, inside, *others: spread_forest(
        crowd, root, np.arange(len(crowd.places)), *others
    )


def figure(rows: DataFrame) -> Figure:
    drawing, (left, right) = panels(columns=2)
    crashes = table(rows.where(F.col("kind").startswith(STABILISE)))
    for number, (kind, some) in enumerate(crashes.groupby("kind")):
        beside = some["percent"] + some["loss_percent"] / 5 - number  # not one over the other
        left.plot(beside, some["periods"], ls="none", label=kind, **look(number))
    left.axhline(PERIODS_MAX, color=BLACK, ls="--", lw=0.9, label="asked for")
    left.set_ylim(bottom=0)
    left.set_xlabel("peers crashed, % (to the right: with loss; to the left: arrays)")
    left.set_ylabel("periods until Lemma 4.2 holds")
    left.legend()
    events = rows.where(F.col("kind").isin(*LOSING))
    drawn = means(events, ("kind", "scheme"), "missed_by_trees", "missed")
    names = [f"{row.scheme}\n({row.kind})" for row in drawn.itertuples()]
    when = {"missed_by_trees": "by trees alone", "missed": "in the end"}
    for number, (column, label) in enumerate(when.items()):
        places = [place + 0.4 * number for place in range(len(names))]
        right.barh(places, drawn[column], height=0.38, color=colour(number), label=label)
    right.set_yticks([place + 0.2 for place in range(len(names))], names)
    right.set_xlabel("live subscribers missed per event, f members crashed")
    right.legend()
    return drawing


ENTRY = Entry.of(
    __name__,
    title="Crashed forwarders and crashed roots",
    claim="Crashed forwarders cost at most k children each, and Algorithm 1 brings every live "
    "child back to its closest live forwarder within ten periods. With f + 1 trees an event is "
    "lost to nobody but children of the dead when f members crash: by the trees themselves, before "
    "any repair. With the real machines, and over arrays at 10⁴ peers.",
    tolerances=reasons(
        STABILISED,
        (f"{STABILISE}: ", f"{STABILISE}{ARRAYS}: "),
        periods=ground.asked("2026-11-15", "Children look for their parent in every period."),
        lost=ground.by_construction(
            "2026-11-16", "A forwarder has at most k children: others are not taken."
        ),
    )
    | reasons(
        LOST_EVENTS,
        [f"{kind}: " for kind in LOSING],
        by_trees=ground.paper(
            "2026-11-16", "f + 1 roots survive f failures, but for kf children (Section 6)."
        ),
        beyond=ground.by_construction(
            "2026-11-16",
            "What is lost in the end are a dead member's own children, of which it has k at most.",
        ),
    ),
    defects=(
        Defect(
            "children do not look for another parent",
            {
                **lost("RouteParent", "IsParent", "IsChild"),
                "weft.engine.topic_dht.crash:_run_period": left_out,
            },
            where=lambda params: params["kind"].startswith(STABILISE),
        ),
        Defect(
            "trees with different roots and the same members inside",
            {
                "weft.rules.treecast:forest_delegates": inside_of_all,
                "weft.engine.topic_dht.schemes:spread_forest": inside_of_all_arrays,
            },
            where=lambda params: params["kind"] in LOSING,
        ),
    ),
)
