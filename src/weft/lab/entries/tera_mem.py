"""tera-mem: what an access point table takes in memory (TERA 4.2.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import functions as F

from weft.engine.experiments import tera_mem as engine
from weft.lab.figures import colour, panels, table
from weft.lab.registry import Entry, Size
from weft.pipeline.schemas import AT_MOST, SMALL, WHOLE, columns
from weft.pipeline.transforms import numbers
from weft.rules.sizing import table_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame

BYTES = "bytes of the largest table"
COLUMNS = columns(
    peer=SMALL,
    table_size=SMALL,
    topic_bytes=SMALL,
    entries=WHOLE,
    bytes=WHOLE,
    bytes_by_formula=WHOLE,
)


def measure(rows: DataFrame, size: Size) -> DataFrame:
    per_seed = rows.groupBy("seed").agg(
        F.max("bytes").alias("most"),
        F.avg(F.col("entries") / F.col("table_size")).alias("filled"),
        F.max(F.abs(F.col("bytes") / F.col("bytes_by_formula") - 1)).alias("gap"),
    )
    titles = {
        "most": BYTES,
        "filled": "share of entries in use",
        "gap": "largest relative gap to the closed form",
    }
    return per_seed.transform(numbers(titles, {"most": (AT_MOST, 104_000.0)}))


def figure(rows: DataFrame) -> Figure:
    found = table(
        rows.groupBy("entries").agg(F.avg("bytes").alias("bytes"), F.first("topic_bytes"))
    )
    topic_bytes = int(found.iloc[0, 2])
    drawing, [panel] = panels()
    sizes = np.arange(1, 1 + int(found["entries"].max()))
    closed = [table_bytes(int(size), topic_bytes) / 1e3 for size in sizes]
    panel.plot(sizes, closed, "--", color="black", lw=0.9, label="APT · (topic + address)")
    panel.plot(found["entries"], found["bytes"] / 1e3, "o", color=colour(0), label="measured")
    panel.axhline(104, color="#666666", lw=0.8, ls=":", label="104 kB")
    panel.set_ylim(bottom=0)
    panel.set_xlabel("entries of a table")
    panel.set_ylabel(f"kB, topics of {topic_bytes} bytes")
    panel.legend()
    return drawing


ENTRIES = [
    Entry(
        id="tera-mem",
        title="A large table takes about 104 kB",
        claim="An access point table of 400 entries with topics of 256 bytes takes about 104 kB "
        "at each peer.",
        simulation=f"{engine.__name__}:run",
        points=engine.points,
        seeds=engine.SEEDS,
        columns=COLUMNS,
        measure=measure,
        tolerances={BYTES: "400 entries of 256 bytes and a four-byte address: 104,000 bytes."},
        figure=figure,
        seconds=engine.seconds,
    )
]
