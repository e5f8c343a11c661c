"""tera-4a: how many visits a lookup needs (TERA 4.2.2, Fig. 4a).

After 1000 cycles, lookups for random active topics start at random peers, four walks each. The
origin's own table is not asked. The number of the first successful visit of each lookup gives
the share of lookups that succeed within K visits, for every K at once; against it stands
1 − (1 − |APT|/|T|)^K.

Where the two differ: a topic is not in exactly N·|APT|/|T| tables but in a random number of them
around that, and failing is a convex function of that number, so failures are more frequent than
at its mean. With tables of 10 a topic is in 10 ± 3 of 1000 tables at any moment, which alone
would cost 0.02 near K = 160. But an entry of so small a table lives only 10 cycles and a lookup
of 160 visits takes 40, so about half of the loss averages out while the lookup is on its way. With
tables of 50 and more no loss is left. Revisits of the same peer cost less still, for the same
reason: by the time a walk comes back, the peer's table has other entries.
"""

from __future__ import annotations

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from weft.engine.core.draws import random_peers
from weft.engine.tera.lookup import Lookups
from weft.engine.tera.world import WorldSettings, build
from weft.lab import ground
from weft.lab.defect import Defect
from weft.lab.experiment import Columns, Entry, Params, Size, every
from weft.lab.experiments.tera_3 import blind_to_popularity, halved
from weft.lab.figures import Figure, colour, means, panels, plain_log
from weft.lab.measures import reals, smalls, told
from weft.lab.memberships import memberships_of
from weft.pipeline.schemas import AT_MOST, joined
from weft.pipeline.transforms import largest, magnitude, measured, over_seeds, together
from weft.rules.deployment import lookup_success
from weft.rules.tera import steps_of_each

SEEDS = {"quick": 3, "full": 10}
_WALKS = 4  # paper


def points(size: Size) -> list[Params]:
    shape = {"peers": 1_000, "topics": 1_000, "subscriptions": 5_000}
    if size == "full":
        tables, lookups = [10, 20, 50, 100, 200, 400], 4_000
    else:
        tables, lookups = [10, 50, 400], 2_000
    same = {**shape, "lookups": lookups, "cycles": 1_000, "visits_max": 500}
    return every(same, table_size=tables)


def run(params: Params, seed: int) -> Columns:
    """Rows: one per K."""
    held = memberships_of(params, seed, all_active=False)
    settings = WorldSettings(
        table_size=params["table_size"], walks=_WALKS, exchange_in_topics=False
    )
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


LARGE_TABLE = 50
SMALL_TABLE = 10
LARGE = "largest gap, tables of 50 and more"
TEN = "largest gap, tables of 10"
COLUMNS = joined(
    smalls("table_size", "visits"),
    reals("success", "predicted"),
    smalls("active"),
    reals("entries_mean"),
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
    filled = {"share of entries in use": F.col("entries_mean") / F.col("table_size")}
    sized = F.concat(F.lit("tables of "), F.col("table_size"), F.lit(": "))
    return together(
        large.transform(measured(LARGE, AT_MOST, 0.02)),
        ten.transform(measured(TEN, AT_MOST, 0.03)),
        worst.transform(measured(F.concat(F.lit("gap with tables of "), "table_size"))),
        rows.where(F.col("visits") == 1).transform(told(filled, ("table_size",), sized)),
    )


def figure(rows: DataFrame) -> Figure:
    drawing, [panel] = panels()
    drawn = means(rows, ("table_size", "visits"), "success", "predicted")
    for number, (size, line) in enumerate(drawn.groupby("table_size")):
        panel.plot(line["visits"], line["success"], color=colour(number), label=f"APT {size}")
        panel.plot(line["visits"], line["predicted"], "--", color="black", lw=0.9)
    panel.plot([], [], "--", color="black", lw=0.9, label="1 − (1 − APT/active)^K")
    plain_log(panel, (1, 3, 10, 30, 100, 300))
    panel.set(xlim=(1, drawn["visits"].max()), ylim=(0, 1.02), xlabel="visits K, over four walks")
    panel.set_ylabel("lookups that succeed")
    panel.legend(loc="lower right")
    return drawing


ENTRY = Entry.of(
    __name__,
    title="Lookups succeed as often as the formula says",
    claim="A lookup that visits K peers finds an access point with probability "
    "1 − (1 − APT/active)^K, with four walks sharing the visits.",
    tolerances={
        LARGE: ground.asked(
            "2026-11-15",
            "Tables of 50 and more hold nearly uniform samples and walks are short against "
            "the network; what is left is the noise of the lookups made.",
        ),
        TEN: ground.asked(
            "2026-11-15",
            "A topic is in 10 ± 3 of the 1000 tables, and failing is convex in that number; "
            "walks are long and revisit peers. Both cost success, up to 0.03 together.",
        ),
    },
    defects=(
        Defect("tables of half the size", {"weft.engine.tera.world:empty_tables": halved}),
        Defect(
            "every topic admitted alike, whatever its popularity",
            {"weft.engine.tera.world:receive_adverts": blind_to_popularity},
        ),
    ),
    seconds=lambda params: 1.0 + float(params["table_size"]) / 200,
)
