"""tera-4a: how many visits a lookup needs (TERA 4.2.2, Fig. 4a)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from weft.engine.experiments import tera_4a as engine
from weft.lab.figures import colour, panels, plain_log, table
from weft.lab.registry import Entry, Size
from weft.pipeline.schemas import AT_MOST, NUMBER, SMALL, columns
from weft.pipeline.transforms import (
    largest,
    magnitude,
    measured,
    numbers,
    over_seeds,
    together,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame

LARGE_TABLE = 50
SMALL_TABLE = 10
LARGE = "largest gap, tables of 50 and more"
TEN = "largest gap, tables of 10"
COLUMNS = columns(
    table_size=SMALL,
    visits=SMALL,
    success=NUMBER,
    predicted=NUMBER,
    active=SMALL,
    entries_mean=NUMBER,
)


def gaps(rows: DataFrame) -> DataFrame:
    """Per size of table: the largest gap between measured and predicted success, over all K."""
    signed = rows.withColumn("value", F.col("success") - F.col("predicted"))
    means = signed.transform(over_seeds("table_size", "visits")).transform(magnitude)
    return means.transform(largest("value", "table_size"))


def measure(rows: DataFrame, size: Size) -> DataFrame:
    worst = rows.transform(gaps)
    large = worst.where(F.col("table_size") >= LARGE_TABLE).transform(largest("value"))
    ten = worst.where(F.col("table_size") == SMALL_TABLE)
    filled = (F.col("entries_mean") / F.col("table_size")).alias("filled")
    return together(
        large.transform(measured(LARGE, AT_MOST, 0.02)),
        ten.transform(measured(TEN, AT_MOST, 0.03)),
        worst.transform(measured(F.concat(F.lit("gap with tables of "), "table_size"))),
        rows.where(F.col("visits") == 1)
        .select("table_size", "seed", filled)
        .transform(
            numbers(
                {"filled": "share of entries in use"},
                by=("table_size",),
                prefix=F.concat(F.lit("tables of "), F.col("table_size"), F.lit(": ")),
            )
        ),
    )


def figure(rows: DataFrame) -> Figure:
    drawing, [panel] = panels()
    found = rows.groupBy("table_size", "visits").agg(
        F.avg("success").alias("success"), F.avg("predicted").alias("predicted")
    )
    points = table(found.orderBy("table_size", "visits"))
    for number, (size, line) in enumerate(points.groupby("table_size")):
        panel.plot(line["visits"], line["success"], color=colour(number), label=f"APT {size}")
        panel.plot(line["visits"], line["predicted"], "--", color="black", lw=0.9)
    panel.plot([], [], "--", color="black", lw=0.9, label="1 − (1 − APT/active)^K")
    plain_log(panel, (1, 3, 10, 30, 100, 300))
    panel.set_xlim(1, points["visits"].max())
    panel.set_ylim(0, 1.02)
    panel.set_xlabel("visits K, over four walks")
    panel.set_ylabel("lookups that succeed")
    panel.legend(loc="lower right")
    return drawing


ENTRIES = [
    Entry(
        id="tera-4a",
        title="Lookups succeed as often as the formula says",
        claim="A lookup that visits K peers finds an access point with probability "
        "1 − (1 − APT/active)^K, with four walks sharing the visits.",
        simulation=f"{engine.__name__}:run",
        points=engine.points,
        seeds=engine.SEEDS,
        columns=COLUMNS,
        measure=measure,
        tolerances={
            LARGE: "Tables of 50 and more hold nearly uniform samples and walks are short against "
            "the network; what is left is the noise of the lookups made.",
            TEN: "A topic is in 10 ± 3 of the 1000 tables, and failing is convex in that number; "
            "walks are long and revisit peers. Both cost success, up to 0.03 together.",
        },
        figure=figure,
        seconds=engine.seconds,
    )
]
