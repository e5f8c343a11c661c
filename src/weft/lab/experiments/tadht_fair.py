"""tadht-fair: copies forwarded per event received, peer by peer (paper 002, Section 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import functions as F

from weft.engine.experiments import tadht_fair as engine
from weft.engine.topic_dht.events import LINKS
from weft.lab.experiment import Entry, Size
from weft.lab.experiments import _tadht as tadht
from weft.lab.figures import colour, panels, table
from weft.pipeline.schemas import AT_LEAST, TEXT, WHOLE, columns
from weft.pipeline.transforms import Bound, numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import Column, DataFrame


COLUMNS = columns(
    scheme=TEXT,
    mode=TEXT,
    links=WHOLE,
    peer=WHOLE,
    topics_held=WHOLE,
    locations=WHOLE,
    sent=WHOLE,
    received=WHOLE,
    missed=WHOLE,
)
JAIN = "Jain's index of forwarded over received"
ONE_LINK = ", one link per level"


def named_by_links(rows: DataFrame) -> DataFrame:
    """The scheme's name; trees with the paper's single link per level by a name of their own."""
    name = F.when(F.col("links") == 1, F.concat(tadht.named(), F.lit(ONE_LINK)))
    return rows.withColumn("way", F.coalesce(name, tadht.named()))


def fairness(rows: DataFrame) -> DataFrame:
    """Per scheme and seed: how equal forwarded/received is."""
    share = F.col("sent") / F.col("received")
    location_share = F.col("locations") / F.col("topics_held")

    def jain(name: str) -> Column:
        return F.pow(F.sum(name), 2) / F.count(name) / F.sum(F.col(name) * F.col(name))

    shares = rows.transform(named_by_links).withColumns(
        {"share": share, "location_share": location_share}
    )
    return shares.groupBy("way", "seed").agg(
        jain("share").alias("jain"),
        jain("location_share").alias("jain_roles"),
        F.avg("share").alias("mean"),
        F.max("share").alias("most"),
        (F.sum("sent") / F.sum("received")).alias("copies"),
    )


def measure(rows: DataFrame, size: Size) -> DataFrame:
    titles = {
        "jain": JAIN,
        "jain_roles": "Jain's index of locations over topics",
        "mean": "mean of forwarded over received",
        "most": "largest forwarded over received",
        "copies": "copies per event received",
    }
    asked: dict[str, Bound] = {"jain": (AT_LEAST, 0.95)}
    return rows.transform(fairness).transform(
        numbers(
            titles,
            asked,
            by=("way",),
            prefix=F.concat("way", F.lit(": ")),
            judged_where=F.col("way").isin(*tadht.TREES),
        )
    )


def figure(rows: DataFrame) -> Figure:
    shares = rows.where(F.col("links") == LINKS).select(
        tadht.named().alias("way"), (F.col("sent") / F.col("received")).alias("share")
    )
    points = table(shares)
    drawing, [panel] = panels()
    for number, name in enumerate(tadht.ORDER):
        values = np.sort(points[points["way"] == name]["share"].to_numpy())
        if len(values):
            scaled = values / values.mean()
            index = values.sum() ** 2 / (len(values) * (values**2).sum())
            above = np.arange(1, len(values) + 1) / len(values)
            panel.plot(scaled, above, color=colour(number), label=f"{name}: {index:.3f}")
    panel.set_xlim(0, 3)
    panel.set_xlabel("forwarded over received, relative to the scheme's mean")
    panel.set_ylabel("share of peers with at most so much")
    panel.legend(title="Jain's index")
    return drawing


_WHY = (
    "With a random root for each event every member does the same work in the long run; 0.95 "
    "leaves room for the noise of so many events and for unlike places."
)

ENTRIES = [
    Entry(
        id="tadht-fair",
        title="Work is shared fairly",
        claim="What a peer forwards is in proportion to what it receives: Jain's index of "
        "their ratio over all peers, for each scheme; by trees with random roots at least 0.95.",
        simulation=f"{engine.__name__}:run",
        points=engine.points,
        seeds=engine.SEEDS,
        columns=COLUMNS,
        measure=measure,
        tolerances={f"{name}: {JAIN}": _WHY for name in tadht.TREES},
        figure=figure,
        seconds=engine.seconds,
    )
]
