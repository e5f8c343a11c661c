"""tera-mem: what an access point table takes in memory (TERA 4.2.2).

Tables of 400 entries, filled by advertisements, with topic names of 256 bytes; each table is
written down as records of a topic's name and a peer's number, and its bytes are counted.
"""

from __future__ import annotations

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from weft.engine.tera.world import WorldSettings, build
from weft.lab.experiment import Columns, Entry, Params, Size
from weft.lab.figures import Figure, colour, panels, table
from weft.lab.measures import at_most, reasons, smalls, wholes
from weft.lab.simulation import workload
from weft.pipeline.schemas import joined
from weft.pipeline.transforms import numbers
from weft.rules.deployment import table_bytes

SEEDS = {"quick": 1, "full": 1}


def points(size: Size) -> list[Params]:
    peers = 1_000 if size == "full" else 200
    shape = {"peers": peers, "topics": 1_000, "subscriptions": 5_000, "cycles": 1_000}
    return [{**shape, "table_size": 400, "topic_bytes": 256}]


def run(params: Params, seed: int) -> Columns:
    """One row per peer."""
    held = workload(params, seed)
    world = build(
        WorldSettings(table_size=params["table_size"], exchange_in_topics=False), held, seed
    )
    world.run(params["cycles"])
    entry = np.dtype([("topic", f"S{params['topic_bytes']}"), ("peer", np.int32)])
    width = params["topic_bytes"]
    names = np.array([b"/" + b"%0*d" % (width - 1, topic) for topic in range(held.topics)])
    sizes = np.empty(held.peers, np.int64)
    for peer in range(held.peers):
        count = world.tables.counts[peer]
        table = np.empty(count, entry)
        table["topic"] = names[world.tables.topics[peer, :count]]
        table["peer"] = held.members[world.tables.points[peer, :count]]
        sizes[peer] = len(table.tobytes())
    return {
        "peer": np.arange(held.peers),
        "entries": world.tables.counts.astype(np.int64),
        "bytes": sizes,
        "bytes_by_formula": table_bytes(params["table_size"], params["topic_bytes"]),
    }


TITLES = {
    "most": "bytes of the largest table",
    "filled": "share of entries in use",
    "gap": "largest relative gap to the closed form",
}
COLUMNS = joined(
    smalls("peer", "table_size", "topic_bytes"),
    wholes("entries", "bytes", "bytes_by_formula"),
)


def measure(rows: DataFrame, size: Size) -> DataFrame:
    per_seed = rows.groupBy("seed").agg(
        F.max("bytes").alias("most"),
        F.avg(F.col("entries") / F.col("table_size")).alias("filled"),
        F.max(F.abs(F.col("bytes") / F.col("bytes_by_formula") - 1)).alias("gap"),
    )
    return per_seed.transform(numbers(TITLES, at_most(104_000.0, "most")))


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
    panel.set(ylim=(0, None), xlabel="entries of a table")
    panel.set_ylabel(f"kB, topics of {topic_bytes} bytes")
    panel.legend()
    return drawing


ENTRY = Entry.of(
    __name__,
    title="A large table takes about 104 kB",
    claim="An access point table of 400 entries with topics of 256 bytes takes about 104 kB "
    "at each peer.",
    tolerances=reasons(
        TITLES,
        most="400 entries of 256 bytes and a four-byte address: 104,000 bytes.",
    ),
    seconds=lambda params: 2.0,
)
