"""Rows of a run of the comparison: what its trace adds up to, as in any experiment that records one
(`lab/traced.py`), and what is known of the run beside it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from types import FunctionType, ModuleType

from pyspark.sql.types import StructType

from weft.lab.experiment import Columns, Params
from weft.lab.overlaid import Overlaid
from weft.lab.traced import PIECES, WindowWriter, recorded
from weft.lab.versus.crowd import Publications, draw_universe
from weft.lab.versus.network import WINDOW_MS, Fault, VersusRun
from weft.lab.versus.systems import SYSTEMS
from weft.pipeline.schemas import NUMBER, SMALL, TEXT, WHOLE, columns, joined
from weft.protocol.seam import Machine

# What every row says of its run; `driven_by` is what its publications came from (`crowd.TRACE` or
# RATE), `state_bytes` the mean memory of a peer's machine at the end, the one figure that no trace
# has.
RUN = columns(
    source=TEXT,
    system=TEXT,
    fault=TEXT,
    level=SMALL,
    peers=SMALL,
    topics=SMALL,
    driven_by=TEXT,
    from_ns=WHOLE,
    state_bytes=NUMBER,
)
ROWS = joined(RUN, PIECES)
"""Every row is a piece of one run's trace, with all that is known of the run: so a row needs no
other table, and rows of several machines can be laid over each other."""


def played(params: Params, seed: int, over: Overlaid) -> Columns:
    """Play the run of a point and add its trace up."""
    topics, users = over.memberships()
    universe = draw_universe(topics, users, params["most"], seed)
    events = Publications(universe, seed, params["events"], WINDOW_MS, over.happened())
    fault = Fault(params["fault"], params["level"])

    def play(writer: WindowWriter) -> VersusRun:
        run = VersusRun(seed, SYSTEMS[params["system"]], universe, events, fault, writer)
        run.play()
        return run

    run, found = recorded(play)
    live = [node.machine for node in run.net.nodes if node.machine is not None]
    return {
        **found,
        "peers": universe.peers,
        "topics": len(universe.by_topic),
        "driven_by": events.driven_by,
        "from_ns": run.from_ms * 1_000_000,
        "state_bytes": state_bytes(live),
    }


def state_bytes(machines: Iterable[Machine]) -> float:
    """The mean memory of some machines: all objects that they reach, each counted once, so that an
    object that several reach is divided among them."""
    held = list(machines)
    seen: set[int] = set()
    total = 0
    ahead: list[object] = list(held)
    skipped = (type, ModuleType, FunctionType, StructType)
    while ahead:
        one = ahead.pop()
        if id(one) in seen or isinstance(one, skipped):
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        ahead += gc.get_referents(one)
    return total / max(1, len(held))
