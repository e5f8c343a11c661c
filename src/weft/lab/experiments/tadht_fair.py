"""tadht-fair: copies forwarded per event received, peer by peer (paper 002, Section 6).

10⁴ peers, 10³ topics with popularity by Zipf 0.7, 2·10⁵ subscriptions; as many events in each
topic, each published by a random member, whose tree it goes out by. Per peer: copies of events
sent, and events received, over all of its topics.
"""

from __future__ import annotations

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from weft.engine.topic_dht.roles import settled
from weft.engine.topic_dht.schemes import LINKS, SCHEMES, Events
from weft.engine.topic_dht.space import places_of
from weft.lab.experiment import Columns, Entry, Params, Size
from weft.lab.experiments import _tadht as tadht
from weft.lab.experiments.tadht_messages import K, modes_of
from weft.lab.figures import Figure, colour, panels, table
from weft.lab.measures import at_least, each, reasons, texts, wholes
from weft.lab.simulation import workload
from weft.pipeline.schemas import joined
from weft.pipeline.transforms import numbers
from weft.rules.fairness import jain

SEEDS = {"quick": 2, "full": 3}
SIZES: dict[str, Params] = {
    "quick": {"peers": 2_000, "topics": 1_000, "subscriptions": 40_000, "zipf": 0.7, "events": 5},
    "full": {
        "peers": 10_000,
        "topics": 1_000,
        "subscriptions": 200_000,
        "zipf": 0.7,
        "events": 30,
    },
}


def points(size: Size) -> list[Params]:
    """Every scheme with several links per level, and trees with the paper's one."""
    return [
        {**SIZES[size], "k": K, "scheme": scheme, "mode": mode, "links": links}
        for scheme in SCHEMES
        for mode in modes_of(scheme)
        for links in ((LINKS, 1) if scheme.endswith("treecast") else (LINKS,))
    ]


def run(params: Params, seed: int) -> Columns:
    """Rows: one per peer."""
    held = workload(params, seed)
    roles = settled(held, places_of(held.peers, seed), params["k"], seed)
    events = Events(roles, params["scheme"], seed, params["mode"], params["links"])
    missed = 0
    for topic in range(held.topics):
        for _ in range(params["events"]):
            missed += events.publish(topic, events.random_member(topic)).missed
    sent = np.bincount(held.members, weights=events.sent, minlength=held.peers)
    received = np.bincount(held.members, weights=events.received, minlength=held.peers)
    some = received > 0
    return {
        "peer": np.flatnonzero(some),
        "topics_held": held.per_peer()[some],
        "locations": roles.locations[some].astype(np.int64),
        "sent": sent[some].astype(np.int64),
        "received": received[some].astype(np.int64),
        "missed": missed,
    }


COLUMNS = joined(
    texts("scheme", "mode"),
    wholes("links", "peer", "topics_held", "locations", "sent", "received", "missed"),
)
TITLES = {
    "jain": "Jain's index of forwarded over received",
    "jain_roles": "Jain's index of locations over topics",
    "mean": "mean of forwarded over received",
    "most": "largest forwarded over received",
    "copies": "copies per event received",
}
ONE_LINK = ", one link per level"


def named_by_links(rows: DataFrame) -> DataFrame:
    """The scheme's name; trees with the paper's single link per level by a name of their own."""
    name = F.when(F.col("links") == 1, F.concat(tadht.named(), F.lit(ONE_LINK)))
    return rows.withColumn("way", F.coalesce(name, tadht.named()))


def fairness(rows: DataFrame) -> DataFrame:
    """Per scheme and seed: how equal forwarded/received is."""
    share = F.col("sent") / F.col("received")
    location_share = F.col("locations") / F.col("topics_held")

    def evenness(name: str) -> Column:
        return jain(F.sum(name), F.sum(F.col(name) * F.col(name)), F.count(name))

    shares = rows.transform(named_by_links).withColumns(
        {"share": share, "location_share": location_share}
    )
    return shares.groupBy("way", "seed").agg(
        evenness("share").alias("jain"),
        evenness("location_share").alias("jain_roles"),
        F.avg("share").alias("mean"),
        F.max("share").alias("most"),
        (F.sum("sent") / F.sum("received")).alias("copies"),
    )


def measure(rows: DataFrame, size: Size) -> DataFrame:
    asked, trees = at_least(0.95, "jain"), F.col("way").isin(*tadht.TREES)
    return rows.transform(fairness).transform(
        numbers(TITLES, asked, by=("way",), prefix=each("way"), judged_where=trees)
    )


def figure(rows: DataFrame) -> Figure:
    share = (F.col("sent") / F.col("received")).alias("share")
    drawn = table(rows.where(F.col("links") == LINKS).select(tadht.named().alias("way"), share))
    drawing, [panel] = panels()
    for number, name in enumerate(tadht.ORDER):
        values = np.sort(drawn[drawn["way"] == name]["share"].to_numpy())
        if len(values):
            scaled = values / values.mean()
            index = values.sum() ** 2 / (len(values) * (values**2).sum())
            above = np.arange(1, len(values) + 1) / len(values)
            panel.plot(scaled, above, color=colour(number), label=f"{name}: {index:.3f}")
    panel.set(xlim=(0, 3), xlabel="forwarded over received, relative to the scheme's mean")
    panel.set_ylabel("share of peers with at most so much")
    panel.legend(title="Jain's index")
    return drawing


ENTRY = Entry.of(
    __name__,
    title="Work is shared fairly",
    claim="What a peer forwards is in proportion to what it receives: Jain's index of "
    "their ratio over all peers, for each scheme; by trees with random roots at least 0.95.",
    tolerances=reasons(
        TITLES,
        [f"{name}: " for name in tadht.TREES],
        jain="With a random root for each event every member does the same work in the long run; "
        "0.95 leaves room for the noise of so many events and for unlike places.",
    ),
    seconds=lambda params: 2.0 + float(params["events"] * params["subscriptions"]) * 2.5e-6,
)
