"""tera-mem: what an access point table takes in memory (TERA 4.2.2).

The table of a live peer, filled by advertisements of 400 topics with names of 256 bytes, each by
another peer: the sizes of all objects that hang on it, each counted once. Beside it the engine's
tables of the same size, written down as records of a topic's name and a peer's number: the paper's
own count.
"""

from __future__ import annotations

import sys

import numpy as np
from msgspec import Struct
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from weft.engine.tera.world import WorldSettings, build
from weft.ids import Topic
from weft.lab import ground
from weft.lab.defect import Defect
from weft.lab.experiment import Columns, Entry, Params, Size
from weft.lab.figures import Figure, colour, panels, table
from weft.lab.measures import at_most, reasons, smalls, wholes
from weft.lab.memberships import memberships_of
from weft.pipeline.schemas import joined
from weft.pipeline.transforms import numbers
from weft.protocol.config import Config, Tera
from weft.protocol.context import Context
from weft.protocol.membership import Advert
from weft.protocol.peer import Peer
from weft.protocol.seam import Received
from weft.protocol.tera.access_points import AccessPoints, Advertisement
from weft.rules.deployment import table_bytes
from weft.sim.builder import SimNet
from weft.sim.node import keyed

SEEDS = {"quick": 1, "full": 1}


def points(size: Size) -> list[Params]:
    peers = 1_000 if size == "full" else 200
    shape = {"peers": peers, "topics": 1_000, "subscriptions": 5_000, "cycles": 1_000}
    return [{**shape, "table_size": 400, "topic_bytes": 256}]


def run(params: Params, seed: int) -> Columns:
    """One row per peer."""
    held = memberships_of(params, seed)
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
        "live_bytes": live_bytes(params["table_size"], width, seed),
        "peer": np.arange(held.peers),
        "entries": world.tables.counts.astype(np.int64),
        "bytes": sizes,
        "bytes_by_formula": table_bytes(params["table_size"], params["topic_bytes"]),
    }


def live_bytes(entries: int, topic_bytes: int, seed: int) -> int:
    """What the table of a peer's state machine takes, its topics and contacts included."""
    net = SimNet(seed, Config(tera=Tera(table_size=entries)))
    net.enter(then_ms=1)
    [peer] = net.peers()
    _advertise(peer, 0, entries, topic_bytes, seed)
    return held_bytes(peer.tera.table)


def held_bytes(table: AccessPoints) -> int:
    """The size of all objects that a table reaches, those that it shares with the peer left out.
    `tracemalloc` would also count what other code allocates meanwhile, and results must follow from
    the seed alone."""
    waiting: list[object] = [one for one in vars(table).values() if not isinstance(one, Context)]
    seen: set[int] = set()
    total = 0
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        if isinstance(one, dict):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple):
            waiting += one
        elif isinstance(one, Struct):
            waiting += [getattr(one, name) for name in one.__struct_fields__]
    return total


def _advertise(peer: Peer, first: int, end: int, topic_bytes: int, seed: int) -> None:
    for number in range(first, end):
        topic = Topic(f"/{number:0{topic_bytes - 1}d}")
        sender = keyed(seed, 1 + number)[0]
        peer.handle(Received(sender, Advertisement([Advert(topic, number, 1)])), 1)


TITLES = {
    "live": "bytes of a live peer's table",
    "most": "bytes of the largest table, as records",
    "filled": "share of entries in use",
    "gap": "largest relative gap to the closed form",
}
COLUMNS = joined(
    smalls("peer", "table_size", "topic_bytes"),
    wholes("entries", "bytes", "bytes_by_formula", "live_bytes"),
)


def measure(rows: DataFrame, size: Size) -> DataFrame:
    per_seed = rows.groupBy("seed").agg(
        F.max("live_bytes").alias("live"),
        F.max("bytes").alias("most"),
        F.avg(F.col("entries") / F.col("table_size")).alias("filled"),
        F.max(F.abs(F.col("bytes") / F.col("bytes_by_formula") - 1)).alias("gap"),
    )
    return per_seed.transform(numbers(TITLES, at_most(104_000.0, "live", "most")))


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
        live=ground.paper("2026-11-16", "The paper's 104 kB, for the table that a peer keeps."),
        most=ground.by_construction(
            "2026-11-16", "400 records of 256 bytes and a four-byte address are 104,000 bytes."
        ),
    ),
    defects=(Defect("tables of four times the entries", params={"table_size": 1_600}),),
    seconds=lambda params: 2.0,
)
