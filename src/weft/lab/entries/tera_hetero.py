"""tera-hetero: peers of very different capacity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from weft.engine.experiments import tera_hetero as engine
from weft.lab.figures import colour, marker, panels, plain_log, table
from weft.lab.registry import Entry, Size
from weft.pipeline.schemas import AT_LEAST, AT_MOST, NUMBER, TEXT, WHOLE, columns
from weft.pipeline.transforms import Bound, numbers, ranked, together
from weft.rules.fairness import jain

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import Column, DataFrame

CHOICES = {
    "paper": "to the whole view",
    "flat": "to half of the view",
    "aware": "by capacity, half on average",
}
FORWARDED = "rank correlation of events forwarded and capacity, capacity-aware"
GAIN = "rank correlation of load and capacity, gained by the capacity-aware choice"
WEAK = "load per capacity of the weakest tenth, capacity-aware over flat"
DELIVERY = "deliveries with the capacity-aware choice"
COLUMNS = columns(
    choice=TEXT,
    peer=WHOLE,
    capacity=NUMBER,
    subscriptions_held=WHOLE,
    general=WHOLE,
    topic=WHOLE,
    forwarded=WHOLE,
    access_point_for=WHOLE,
    delivery=NUMBER,
    events_lost=WHOLE,
    messages=WHOLE,
)


def busy(rows: DataFrame) -> DataFrame:
    """Per peer: its load, its load per capacity, its tenth by capacity (1 is the weakest)."""
    by_capacity = Window.partitionBy("choice", "seed").orderBy("capacity", "peer")
    load = F.col("general") + F.col("topic")
    return rows.withColumns(
        {"load": load, "busy": load / F.col("capacity"), "tenth": F.ntile(10).over(by_capacity)}
    )


def fairness(rows: DataFrame) -> DataFrame:
    """Per choice and seed: how well load follows capacity."""
    names = ("capacity", "load", "forwarded")
    peers = rows.transform(busy).transform(ranked(*names, by=("choice", "seed")))
    weakest = F.avg(F.when(F.col("tenth") == 1, F.col("busy")))
    squares = F.sum(F.col("busy") * F.col("busy"))
    return peers.groupBy("choice", "seed").agg(
        F.corr("capacity_rank", "load_rank").alias("ranks"),
        F.corr("capacity_rank", "forwarded_rank").alias("sent"),
        jain(F.sum("busy"), squares, F.count("busy")).alias("jain"),
        weakest.alias("weakest"),
        (weakest / F.avg("busy")).alias("weakest_share"),
        F.first("delivery").alias("delivery"),
        F.first("messages").alias("messages"),
        F.sqrt(2 / (F.count("peer") - 1)).alias("noise"),
    )


def gains(found: DataFrame) -> DataFrame:
    """Per seed: the capacity-aware choice against the flat one, which sends as many messages."""

    def of(choice: str, name: str) -> Column:
        return F.max(F.when(F.col("choice") == choice, F.col(name)))

    return found.groupBy("seed").agg(
        (of("aware", "ranks") - of("flat", "ranks")).alias("gain"),
        of("aware", "sent").alias("sent"),
        (of("aware", "weakest") / of("flat", "weakest")).alias("weakest"),
        of("aware", "delivery").alias("delivery"),
        F.max("noise").alias("noise"),
    )


TOLD = {
    "ranks": "rank correlation of load and capacity",
    "sent": "rank correlation of events forwarded and capacity",
    "jain": "Jain's index of load per capacity",
    "weakest_share": "load per capacity of the weakest tenth, over the mean",
    "delivery": "deliveries",
    "messages": "messages",
}


def measure(rows: DataFrame, size: Size) -> DataFrame:
    found = rows.transform(fairness)
    titles = {"gain": GAIN, "sent": FORWARDED, "weakest": WEAK, "delivery": DELIVERY}
    asked: dict[str, Bound] = {
        "gain": (AT_LEAST, 3 * F.col("noise") / F.sqrt("seeds")),
        "sent": (AT_LEAST, 0.5),
        "weakest": (AT_MOST, 1.0),
        "delivery": (AT_LEAST, 0.999),
    }
    return together(
        found.transform(gains).transform(numbers(titles, asked, keep=("noise",))),
        found.transform(numbers(TOLD, by=("choice",), prefix=F.concat("choice", F.lit(": ")))),
    )


def figure(rows: DataFrame) -> Figure:
    tenths = rows.transform(busy).groupBy("choice", "tenth")
    points = table(
        tenths.agg(
            F.avg("capacity").alias("capacity"),
            F.avg("load").alias("load"),
            F.avg("busy").alias("busy"),
            F.avg("forwarded").alias("forwarded"),
            F.avg("access_point_for").alias("points"),
        ).orderBy("tenth")
    )
    drawing, axes = panels(columns=2, rows=2)
    labels = {
        "load": "messages handled",
        "busy": "messages handled per capacity",
        "forwarded": "events forwarded",
        "points": "table entries that name the peer",
    }
    for panel, (name, label) in zip(axes, labels.items(), strict=True):
        for number, (choice, how) in enumerate(CHOICES.items()):
            some = points[points["choice"] == choice]
            style: Any = {"color": colour(number), "marker": marker(number)}
            panel.plot(some["capacity"], some[name], label=f"{choice}: {how}", **style)
        plain_log(panel, (1, 2, 3, 4, 6))
        panel.set_ylim(bottom=0)
        panel.set_xlabel("capacity, means of tenths of the peers")
        panel.set_ylabel(label)
    axes[1].legend(loc="upper right")
    return drawing


ENTRIES = [
    Entry(
        id="tera-hetero",
        title="Load against capacity",
        claim="The paper leaves peers of different capacity to future work: all carry the same "
        "load for the same subscriptions. With a capacity-aware choice (strong peers advertise and "
        "forward more, and so serve as access points more often) load moves from weak peers to "
        "strong ones, and events still arrive.",
        simulation=f"{engine.__name__}:run",
        points=engine.points,
        seeds=engine.SEEDS,
        columns=COLUMNS,
        measure=measure,
        tolerances={
            GAIN: "Two rank correlations over N peers differ by chance by √(2/(N−1)), over S seeds "
            "by √(2/(N−1)/S); more than three of them.",
            FORWARDED: "What a peer forwards is its own choice and must follow capacity; half the "
            "way to a perfect order, as subscriptions differ too.",
            WEAK: "Moved away from the weak means: less than before, per capacity.",
            DELIVERY: "A fan-out of ten on average and at least four reaches all but a thousandth.",
        },
        figure=figure,
        seconds=engine.seconds,
    )
]
