"""tadht-hier: events climb topic hierarchies (paper 002, Sections 4.5 and 5.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from weft.lab.experiment import Entry, Size
from weft.lab.experiments import _tadht as tadht
from weft.lab.figures import colour, panels, table
from weft.lab.tadht import hier as machines
from weft.pipeline.schemas import AT_MOST, TEXT, WHOLE, columns
from weft.pipeline.transforms import Bound, numbers, together

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame


COLUMNS = columns(
    scheme=TEXT,
    mode=TEXT,
    loss_percent=WHOLE,
    peers=WHOLE,
    event=WHOLE,
    topic=TEXT,
    expected=WHOLE,
    missing=WHOLE,
    extra=WHOLE,
    twice=WHOLE,
    misnamed=WHOLE,
    parasites=WHOLE,
)
JUDGED = {
    "missing": "subscribers of the topic and those above it that lack an event",
    "extra": "deliveries to anybody else",
    "twice": "subscriptions that were handed an event twice",
    "misnamed": "deliveries that do not name the topic it was published in",
    "parasites": "copies and lookups to peers that are not subscribed",
}


def reached(rows: DataFrame) -> DataFrame:
    """Per scheme and seed: deliveries that should have been, and what was wrong with them."""
    sums = [
        F.sum(name).alias(name) for name in ("expected", "missing", "extra", "twice", "misnamed")
    ]
    per_run = rows.withColumn("way", tadht.named()).groupBy("way", "loss_percent", "seed")
    found = per_run.agg(*sums, F.first("parasites").alias("parasites"))
    every = ("expected", *JUDGED)
    return found.groupBy("way", "seed").agg(*(F.sum(name).alias(name) for name in every))


def measure(rows: DataFrame, size: Size) -> DataFrame:
    found = rows.transform(reached)
    asked: dict[str, Bound] = dict.fromkeys(JUDGED, (AT_MOST, 0.0))
    whole = found.groupBy("seed").agg(*(F.sum(name).alias(name) for name in ("expected", *JUDGED)))
    prefix = F.concat("way", F.lit(": "))
    return together(
        whole.transform(numbers({**JUDGED, "expected": "deliveries due"}, asked)),
        found.transform(
            numbers({"expected": "deliveries due", **JUDGED}, by=("way",), prefix=prefix)
        ),
    )


def figure(rows: DataFrame) -> Figure:
    """Deliveries per topic of publication: those that were due, and what differs."""
    points = table(
        rows.groupBy("topic")
        .agg(
            F.avg(F.col("expected") - F.col("missing")).alias("delivered"),
            F.avg("missing").alias("missing"),
            F.avg("extra").alias("to others"),
        )
        .orderBy("topic")
    )
    drawing, [panel] = panels()
    left = 0
    for number, name in enumerate(("delivered", "missing", "to others")):
        panel.barh(points["topic"], points[name], left=left, color=colour(number), label=name)
        left = left + points[name]
    panel.invert_yaxis()
    panel.set_xlabel("deliveries per event, in its topic and those above it")
    panel.set_ylabel("published in")
    panel.legend()
    return drawing


ENTRIES = [
    Entry(
        id="tadht-hier",
        title="Events reach the topics above theirs, and nobody else",
        claim="In a hierarchy an event reaches exactly the subscribers of its topic and of the "
        "topics above it, once per subscription, in all four schemes.",
        simulation=f"{machines.__name__}:run",
        points=machines.points,
        seeds=machines.SEEDS,
        columns=COLUMNS,
        measure=measure,
        tolerances=dict.fromkeys(JUDGED.values(), "None: exactly these."),
        figure=figure,
        seconds=machines.seconds,
    )
]
