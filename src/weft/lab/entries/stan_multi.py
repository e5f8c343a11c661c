"""stan-multi: one event in several topics, with and without shared dissemination."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from weft.lab import stan_shared
from weft.lab.figures import colour, panels, table
from weft.lab.registry import Entry, Params, Size
from weft.pipeline.schemas import AT_LEAST, AT_MOST, NUMBER, SMALL, TRUTH, WHOLE, columns
from weft.pipeline.transforms import Bound, numbers, together

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import Column, DataFrame

COLUMNS = columns(
    nodes=SMALL,
    stan=TRUTH,
    together=TRUTH,
    parts=SMALL,
    published=WHOLE,
    topics_per_event=NUMBER,
    crossings=WHOLE,
    connections=WHOLE,
    crossings_most=WHOLE,
    crossed_again=WHOLE,
    references=WHOLE,
    deliveries=WHOLE,
    owed=WHOLE,
    delivered_twice=WHOLE,
)
ONCE = "shared: copies of an event per connection it crosses"
MISSED = "notifications missing or doubled"
SAVED = "copies saved by sharing, with StaN's links"
MORE = "copies with StaN's links over copies with random links, both shared"


def points(size: Size) -> list[Params]:
    same = {"topics": 16, "parts": 3}
    larger = {"nodes": 100, "events": 300} if size == "full" else {"nodes": 50, "events": 80}
    return [
        {"stan": stan, "together": shared, **larger, **same}
        for stan in (True, False)
        for shared in (True, False)
    ]


def compared(rows: DataFrame) -> DataFrame:
    """Per seed: what sharing saves, over the links that StaN chose and over random ones."""

    def copies(stan: bool, shared: bool) -> Column:
        which = (F.col("stan") == stan) & (F.col("together") == shared)
        return F.max(F.when(which, F.col("crossings")))

    per_link = F.col("crossings") / F.col("connections")
    return rows.groupBy("seed").agg(
        F.max(F.when(F.col("together") & F.col("stan"), per_link)).alias("once"),
        F.sum(F.col("owed") - F.col("deliveries") + F.col("delivered_twice")).alias("missed"),
        (1 - copies(True, True) / copies(True, False)).alias("saved"),
        (copies(True, True) / copies(False, True)).alias("more"),
    )


def measure(rows: DataFrame, size: Size) -> DataFrame:
    titles = {"once": ONCE, "missed": MISSED, "saved": SAVED, "more": MORE}
    asked: dict[str, Bound] = {
        "once": (AT_MOST, 1.001),
        "missed": (AT_MOST, 0.0),
        "saved": (AT_LEAST, 0.1),
        "more": (AT_MOST, 1.0),
    }
    told = {
        "per_link": "copies of an event per connection it crosses",
        "per_delivery": "copies per notification",
        "references": "references per notification",
    }
    links = F.when(F.col("stan"), "StaN's links, ").otherwise("random links, ")
    how = F.when(F.col("together"), "shared; ").otherwise("apart; ")
    wide = rows.select(
        "stan",
        "together",
        "seed",
        (F.col("crossings") / F.col("connections")).alias("per_link"),
        (F.col("crossings") / F.col("deliveries")).alias("per_delivery"),
        (F.col("references") / F.col("deliveries")).alias("references"),
    )
    return together(
        rows.transform(compared).transform(numbers(titles, asked)),
        wide.transform(numbers(told, by=("stan", "together"), prefix=F.concat(links, how))),
    )


def figure(rows: DataFrame) -> Figure:
    means = table(
        rows.groupBy("stan", "together").agg(
            F.avg(F.col("crossings") / F.col("deliveries")).alias("copies"),
            F.avg(F.col("crossings") / F.col("connections")).alias("per_link"),
        )
    )
    drawing, axes = panels(columns=2)
    names = {"copies": "copies per notification", "per_link": "copies per connection crossed"}
    for panel, (name, title) in zip(axes, names.items(), strict=True):
        for number, shared in enumerate((False, True)):
            some = means[means["together"] == shared].sort_values("stan")
            places = [place + 0.35 * number for place in range(len(some))]
            label = "one event in all topics" if shared else "one event for each topic"
            panel.bar(places, some[name], width=0.33, color=colour(number), label=label)
        panel.set_xticks([0.17, 1.17], ["random links", "StaN's links"])
        panel.set_title(title)
        panel.set_ylim(0, 1.3)
        panel.grid(visible=False, axis="x")
    axes[0].legend(loc="upper left", ncols=2)
    return drawing


ENTRIES = [
    Entry(
        id="stan-multi",
        title="An event in several topics crosses a connection once",
        claim="Logical links of different topics that share a physical one let an event that is "
        "published in several topics cross it once, and every subscription still gets it once. "
        "The paper gives no figures; we count copies with and without sharing.",
        simulation=f"{stan_shared.__name__}:run",
        points=points,
        seeds={"quick": 1, "full": 5},
        columns=COLUMNS,
        measure=measure,
        tolerances={
            ONCE: "A payload that two peers send each other at the same moment crosses twice; "
            "with an order of topics this needs a tree that is just healing, below one in 1,000.",
            MISSED: "Nothing is lost in a network without faults.",
            SAVED: "Of three topics of a peer its neighbour shares a good part; at least one copy "
            "in ten must go.",
            MORE: "Links on the same peers in all topics can only help.",
        },
        figure=figure,
        seconds=lambda params: 0.2 * params["nodes"],
    )
]
