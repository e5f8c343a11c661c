"""tera-4a: how many visits a lookup needs (TERA 4.2.2, Fig. 4a).

After 1000 cycles, lookups for random active topics start at random peers, four walks each. The
origin's own table is not asked. The number of the first successful visit of each lookup gives
the share of lookups that succeed within K visits, for every K at once; against it stands
1 − (1 − |APT|/|T|)^K.

Where the two differ: a topic is not in exactly N·|APT|/|T| tables but in a random number of them
around that, and failing is a convex function of that number, so failures are more frequent than
at its mean. With tables of 10 a topic is in 10 ± 3 of 1000 tables at any moment, which alone
would cost 0.02 near K = 160. But an entry of so small a table lives only 10 cycles and a lookup
of 160 visits takes 40, so about half of it averages out while the lookup is on its way. With
tables of 50 and more nothing of it is left. Revisits of the same peer matter still less, for
the same reason: by the time a walk comes back the table is another one.
"""

from __future__ import annotations

import numpy as np

from weft.engine.core.draws import random_peers
from weft.engine.experiments.common import Columns, Params, Point, Size, workload
from weft.engine.tera.lookup import Lookups
from weft.engine.tera.world import Settings, build
from weft.rules.sizing import lookup_success
from weft.rules.tera import steps_of_each

SEEDS = {"quick": 3, "full": 10}
_WALKS = 4  # paper


def points(size: Size) -> list[Point]:
    shape = {"peers": 1_000, "topics": 1_000, "subscriptions": 5_000}
    if size == "full":
        tables, lookups = [10, 20, 50, 100, 200, 400], 4_000
    else:
        tables, lookups = [10, 50, 400], 2_000
    return [
        {**shape, "table_size": table, "lookups": lookups, "cycles": 1_000, "visits_max": 500}
        for table in tables
    ]


def run(params: Params, seed: int) -> Columns:
    """Rows: one per K."""
    held = workload(params, seed, all_active=False)
    settings = Settings(table_size=params["table_size"], walks=_WALKS, exchange_in_topics=False)
    world = build(settings, held, seed)
    world.run(params["cycles"])
    lookups = Lookups(
        random_peers(params["lookups"], held.peers, seed, "tera-4a.origin", 0),
        random_peers(params["lookups"], held.topics, seed, "tera-4a.topic", 0),
        seed,
        _WALKS,
        steps_of_each(params["visits_max"], _WALKS),
        batch=0,
    )
    while not lookups.is_over:
        world.step()
        lookups.advance(world.ground())
    visits = np.arange(1, params["visits_max"] + 1)
    first = lookups.found_visit[lookups.found_visit > 0]
    found = np.searchsorted(np.sort(first), visits, side="right")
    predicted = [lookup_success(params["table_size"], held.topics, int(k)) for k in visits]
    return {
        "visits": visits,
        "success": found / params["lookups"],
        "predicted": np.array(predicted),
        "active": held.topics,
        "entries_mean": float(world.tables.counts.mean()),
    }


def seconds(params: Params) -> float:
    return 1.0 + float(params["table_size"]) / 200
