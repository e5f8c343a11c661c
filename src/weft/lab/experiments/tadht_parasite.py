"""tadht-parasite: nobody is sent what it did not ask for (paper 002, Lemma 4.1 and Section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from weft.lab.experiment import Entry, Size
from weft.lab.experiments import _tadht as tadht
from weft.lab.figures import panels, table
from weft.lab.tadht import parasite as machines
from weft.pipeline.schemas import AT_MOST, SMALL, TEXT, TRUTH, WHOLE, columns
from weft.pipeline.transforms import Bound, numbers, together

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import Column, DataFrame


COLUMNS = columns(
    scheme=TEXT,
    mode=TEXT,
    condition=TEXT,
    peers=WHOLE,
    event=WHOLE,
    outside=TRUTH,
    members=WHOLE,
    copies=WHOLE,
    rounds=WHOLE,
    missed=WHOLE,
    settled_periods=SMALL,
    lookups=WHOLE,
    lookups_parasite=WHOLE,
    copies_all=WHOLE,
    copies_parasite=WHOLE,
)
COPIES = "copies of events to peers that are not subscribed"
LOOKUPS = "requests inside a topic to peers that are not subscribed"
EXACT = "largest difference from N_t − 1 copies, nothing failing, a handover from outside taken off"
MISSED = "live subscribers that an event never reached"
STALE = "churn: copies to peers that had unsubscribed, per thousand copies"
STALE_LOOKUPS = "churn: requests to peers that had unsubscribed, per thousand requests"


def sent(rows: DataFrame) -> DataFrame:
    """Per scheme, condition and seed: parasites, misses, and how far trees are from exact."""
    handed = F.when(F.col("outside"), 1).otherwise(0)
    difference = F.abs(F.col("copies") - F.col("members") + 1 - handed)
    found = rows.withColumns({"way": tadht.named(), "difference": difference})
    return found.groupBy("way", "condition", "seed").agg(
        F.first("copies_parasite").alias("copies_parasite"),
        F.first("lookups_parasite").alias("lookups_parasite"),
        F.first("copies_all").alias("copies_all"),
        F.first("lookups").alias("lookups"),
        F.max("difference").alias("difference"),
        F.sum("missed").alias("missed"),
        F.max("rounds").alias("rounds"),
    )


def totals(found: DataFrame) -> DataFrame:
    """Per seed: everything summed over schemes and over conditions without unsubscriptions."""
    calm_trees = (F.col("condition") == "calm") & F.col("way").isin(*tadht.TREES)
    churn = F.col("condition") == "churn"
    kept = F.col("condition") != "churn"

    def of(column: str) -> Column:
        return F.sum(F.when(kept, F.col(column)))

    def stale(column: str, of_all: str) -> Column:
        """In a thousand, where peers unsubscribe."""
        return 1000 * F.sum(F.when(churn, F.col(column))) / F.sum(F.when(churn, F.col(of_all)))

    return found.groupBy("seed").agg(
        of("copies_parasite").alias("copies_parasite"),
        of("lookups_parasite").alias("lookups_parasite"),
        F.max(F.when(calm_trees, F.col("difference"))).alias("difference"),
        F.sum("missed").alias("missed"),
        stale("copies_parasite", "copies_all").alias("stale"),
        stale("lookups_parasite", "lookups").alias("stale_lookups"),
        of("copies_all").alias("copies_all"),
        of("lookups").alias("lookups"),
    )


def measure(rows: DataFrame, size: Size) -> DataFrame:
    found = rows.transform(sent)
    titles = {
        "copies_parasite": COPIES,
        "lookups_parasite": LOOKUPS,
        "difference": EXACT,
        "missed": MISSED,
        "stale": STALE,
        "stale_lookups": STALE_LOOKUPS,
        "copies_all": "copies of events sent",
        "lookups": "requests inside topics",
    }
    asked: dict[str, Bound] = dict.fromkeys(
        ("copies_parasite", "lookups_parasite", "difference", "missed"), (AT_MOST, 0.0)
    )
    prefix = F.concat("way", F.lit(", "), "condition", F.lit(": "))
    told = {"copies_parasite": "parasite copies", "missed": "missed", "rounds": "most rounds"}
    return together(
        found.transform(totals).transform(numbers(titles, asked)),
        found.transform(numbers(told, by=("way", "condition"), prefix=prefix)),
    )


def figure(rows: DataFrame) -> Figure:
    """Copies sent, by scheme and condition; in the title, how many of them were parasites."""
    points = table(
        rows.transform(sent)
        .groupBy("way", "condition")
        .agg(F.avg("copies_all").alias("copies"), F.avg("copies_parasite").alias("parasites"))
    )
    drawing, axes = panels(columns=2, rows=2)
    for panel, condition in zip(axes, machines.CONDITIONS, strict=True):
        some = points[points["condition"] == condition].set_index("way").reindex(tadht.ORDER)
        colours = [tadht.style(way)["color"] for way in tadht.ORDER]
        panel.barh(list(tadht.ORDER), some["copies"].fillna(0), color=colours)
        panel.invert_yaxis()
        panel.set_title(f"{condition}: {some['parasites'].sum():g} parasites")
        panel.set_xlabel("copies of events sent")
    return drawing


ENTRIES = [
    Entry(
        id="tadht-parasite",
        title="No parasite messages, with the real machines",
        claim="No event and no lookup inside a topic reaches a peer that is not subscribed, in any "
        "of the four schemes, whether messages are lost or peers crash. Trees send exactly "
        "N_t − 1 copies where nothing fails, one more for a publisher outside. Where peers "
        "unsubscribe, others know them as forwarders for a while; that is reported.",
        simulation=f"{machines.__name__}:run",
        points=machines.points,
        seeds=machines.SEEDS,
        columns=COLUMNS,
        measure=measure,
        tolerances={
            COPIES: "None: it is what the scheme is for.",
            LOOKUPS: "None, by Lemma 4.1.",
            EXACT: "None: each member is sent the event once.",
            MISSED: "None: what trees and gossip miss is repaired within some periods.",
        },
        figure=figure,
        seconds=machines.seconds,
    )
]
