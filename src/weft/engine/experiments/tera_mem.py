"""tera-mem: what an access point table takes in memory (TERA 4.2.2).

Tables of 400 entries, filled by advertisements, with topic names of 256 bytes; each table is
written down as records of a topic's name and a peer's number, and its bytes are counted.
"""

from __future__ import annotations

import numpy as np

from weft.engine.experiments.common import Columns, Params, Point, Size, workload
from weft.engine.tera.world import Settings, build
from weft.rules.sizing import table_bytes

SEEDS = {"quick": 1, "full": 1}


def points(size: Size) -> list[Point]:
    peers = 1_000 if size == "full" else 200
    return [
        {
            "peers": peers,
            "topics": 1_000,
            "subscriptions": 5_000,
            "table_size": 400,
            "topic_bytes": 256,
            "cycles": 1_000,
        }
    ]


def run(params: Params, seed: int) -> Columns:
    """One row per peer."""
    held = workload(params, seed)
    world = build(Settings(table_size=params["table_size"], exchange_in_topics=False), held, seed)
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


def seconds(params: Params) -> float:
    return 2.0
