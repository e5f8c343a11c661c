"""tadht-fail: what crashed forwarders and crashed roots cost (paper 002, 4.4 and Section 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from weft.lab.experiment import Entry, Size
from weft.lab.figures import BLACK, colour, marker, panels, table
from weft.lab.tadht import fail as machines
from weft.pipeline.schemas import AT_MOST, TEXT, WHOLE, columns
from weft.pipeline.transforms import Bound, numbers, together

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame


COLUMNS = columns(
    kind=TEXT,
    peers=WHOLE,
    percent=WHOLE,
    loss_percent=WHOLE,
    scheme=TEXT,
    roots=WHOLE,
    events=WHOLE,
    k=WHOLE,
    crashed=WHOLE,
    lost=WHOLE,
    periods=WHOLE,
    missed_by_trees=WHOLE,
    missed=WHOLE,
    parasites=WHOLE,
)
PERIODS = "most periods until every child is at its closest forwarder"
LOST = "children lost, over k for each crashed forwarder"
MISSED = "live subscribers that lack an event after f of f + 1 roots crashed"
BEYOND = "live subscribers missed beyond k for each crashed root"
TREES = "share of events that the trees alone brought to everybody"


def recovery(rows: DataFrame) -> DataFrame:
    """Per kind and seed: how many periods, and how many children were lost at first."""
    crashes = rows.where(F.col("kind").startswith(machines.STABILISE))
    return crashes.groupBy("kind", "seed").agg(
        F.max("periods").alias("periods"),
        F.max(F.col("lost") / (F.col("k") * F.col("crashed"))).alias("lost"),
        F.avg("periods").alias("periods_mean"),
    )


def losses(rows: DataFrame) -> DataFrame:
    """Per kind and seed: what events missed whose other roots crashed."""
    events = rows.where(F.col("kind").startswith(machines.ROOTS))
    beyond = F.greatest(F.lit(0), F.col("missed") - F.col("k") * F.col("crashed"))
    return events.groupBy("kind", "seed").agg(
        F.sum("missed").alias("missed"),
        F.sum(beyond).alias("beyond"),
        F.avg((F.col("missed_by_trees") == 0).cast("double")).alias("by_trees"),
        F.avg("missed_by_trees").alias("by_trees_mean"),
    )


def measure(rows: DataFrame, size: Size) -> DataFrame:
    machine = F.col("kind") == machines.ROOTS
    prefix = F.concat("kind", F.lit(": "))
    crashes: dict[str, Bound] = {
        "periods": (AT_MOST, float(machines.PERIODS_MAX)),
        "lost": (AT_MOST, 1.0),
    }
    stabilised = {
        "periods": PERIODS,
        "lost": LOST,
        "periods_mean": "mean periods until then",
    }
    roots = {"by_trees": TREES, "by_trees_mean": "live subscribers that the trees alone missed"}
    lost = rows.transform(losses)
    none: Bound = (AT_MOST, 0.0)
    return together(
        rows.transform(recovery).transform(
            numbers(stabilised, crashes, by=("kind",), prefix=prefix)
        ),
        lost.transform(
            numbers(
                {"missed": MISSED, **roots},
                {"missed": none},
                by=("kind",),
                prefix=prefix,
                judged_where=machine,
            )
        ),
        lost.transform(numbers({"beyond": BEYOND}, {"beyond": none}, by=("kind",), prefix=prefix)),
    )


def figure(rows: DataFrame) -> Figure:
    drawing, (left, right) = panels(columns=2)
    crashes = table(rows.where(F.col("kind").startswith(machines.STABILISE)))
    for number, (kind, some) in enumerate(crashes.groupby("kind")):
        style = {"color": colour(number), "marker": marker(number), "ls": "none", "label": kind}
        beside = some["percent"] + some["loss_percent"] / 5 - number  # not one over the other
        left.plot(beside, some["periods"], **style)
    left.axhline(machines.PERIODS_MAX, color=BLACK, ls="--", lw=0.9, label="asked for")
    left.set_ylim(bottom=0)
    left.set_xlabel("peers crashed, % (to the right: with loss; to the left: arrays)")
    left.set_ylabel("periods until Lemma 4.2 holds")
    left.legend()
    events = rows.where(F.col("kind").startswith(machines.ROOTS)).groupBy("kind", "scheme")
    points = table(
        events.agg(
            F.avg("missed_by_trees").alias("by trees alone"), F.avg("missed").alias("in the end")
        ).orderBy("kind", "scheme")
    )
    names = [f"{row.scheme}\n({row.kind})" for row in points.itertuples()]
    for number, column in enumerate(("by trees alone", "in the end")):
        places = [place + 0.4 * number for place in range(len(names))]
        right.barh(places, points[column], height=0.38, color=colour(number), label=column)
    right.set_yticks([place + 0.2 for place in range(len(names))], names)
    right.set_xlabel("live subscribers missed per event, f roots crashed")
    right.legend()
    return drawing


ENTRIES = [
    Entry(
        id="tadht-fail",
        title="Crashed forwarders and crashed roots",
        claim="Crashed forwarders cost at most k children each, and Algorithm 1 brings every live "
        "child back to its closest live forwarder within ten periods. With f + 1 roots an event is "
        "lost to nobody when f of them crash. With the real machines, and over arrays at 10⁴ "
        "peers; there nothing serves a dead root's own children, which k for each bounds.",
        simulation=f"{machines.__name__}:run",
        points=machines.points,
        seeds=machines.SEEDS,
        columns=COLUMNS,
        measure=measure,
        tolerances={
            **{
                f"{kind}: {name}": why
                for kind in (machines.STABILISE, machines.STABILISE_ARRAYS)
                for name, why in (
                    (PERIODS, "Ten periods are asked for."),
                    (LOST, "A forwarder has at most k children."),
                )
            },
            f"{machines.ROOTS}: {MISSED}": "None, three periods after it was published.",
            **{
                f"{kind}: {BEYOND}": "A dead root's own children at most, of which it has k."
                for kind in (machines.ROOTS, machines.ROOTS_ARRAYS)
            },
        },
        figure=figure,
        seconds=machines.seconds,
    )
]
