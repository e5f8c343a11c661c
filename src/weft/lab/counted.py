"""Counts of what an engine's run sent, in the schema of the pipeline's traces.

The engine has up to 10⁸ peers, so it counts messages in place of writing a record of each. Its
counts are rows of the pipeline's own piece (TRAFFIC in `pipeline/traces/pieces.py`), by peer or for
all peers together. What is judged of cost and load is computed from these rows by the transforms
that measure the traces of peers (`pipeline/traces/figures.py`). So a message, a copy and a load
mean the same in the engine, in the simulator and among real peers.

Beside that piece a row has the `part` of the run that was counted, as the experiment divides it,
and a `weight`: how many messages each counted one stands for, where a sample was run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from weft.engine.core.arrays import RECEIVED, SENT, Array, Loads
from weft.lab.experiment import Columns
from weft.lab.measures import reals, texts
from weft.pipeline.schemas import joined
from weft.pipeline.traces import figures
from weft.pipeline.traces.pieces import TRAFFIC
from weft.protocol.delivery import RECV_RPC, SEND_RPC

COUNTS = joined(texts("part"), TRAFFIC, reals("weight"))
GENERAL, TOPIC = "general overlay", "topic overlays"
"""Parts of every run of TERA."""


class Count(NamedTuple):
    """Messages of one kind: how many, for all peers together or one number for each."""

    part: str
    messages: float | Array
    rpc: str | None = None  # the name of the message in a trace; None: of several
    kind: str = SEND_RPC  # of the records that would tell of them
    weight: float = 1.0


def both_ways(part: str, loads: Loads) -> list[Count]:
    """What each peer sent and received."""
    return [
        Count(part, loads[:, SENT]),
        Count(part, loads[:, RECEIVED], kind=RECV_RPC),
    ]


def rows_of(counts: Sequence[Count], **of_peers: Array) -> Columns:
    """The columns of COUNTS, and the columns `of_peers`, which hold a value for each peer."""
    peers = np.size(counts[0].messages)
    named = np.ndim(counts[0].messages) > 0
    spread = {
        name: [value for count in counts for value in [getattr(count, name)] * peers]
        for name in ("part", "kind", "rpc", "weight")
    }
    return {
        **spread,
        "peer": [str(peer) for peer in range(peers)] * len(counts) if named else None,
        "messages": np.concatenate([np.atleast_1d(count.messages) for count in counts]),
        "bytes": None,
        **{name: np.tile(values, len(counts)) for name, values in of_peers.items()},
    }


def traffic(rows: DataFrame) -> DataFrame:
    """Counts as the pipeline takes them: multiplied by their weights."""
    return rows.withColumn("messages", F.col("messages") * F.col("weight"))


def loads_of(rows: DataFrame, parts: Mapping[str, str], *by: str) -> DataFrame:
    """Counts → one row per peer, as `figures.loads` has it, and of each part (by the name of its
    column) what was sent and received; `by` names what is known of a peer and its run."""
    key = (*by, "peer")
    handled = F.col("sent") + F.col("received")
    found = traffic(rows).transform(figures.loads, *key, "part")
    whole = ("sent", "received", "payload_sent", "deliveries")
    return found.groupBy(*key).agg(
        *(F.sum(name).alias(name) for name in whole),
        *(
            F.coalesce(F.sum(F.when(F.col("part") == part, handled)), F.lit(0)).alias(name)
            for name, part in parts.items()
        ),
    )
