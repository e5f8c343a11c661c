"""tadht-fair: copies forwarded per event received, peer by peer (paper 002, Section 6).

10⁴ peers, 10³ topics with popularity by Zipf 0.7, 2·10⁵ subscriptions. Every topic has the same
number of events, each published by a random member and spread by that member's tree; and once more
all events of a topic have one publisher, so that one tree carries them. Per peer: copies of events
sent, and events received, over all of its topics.
"""

from __future__ import annotations

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from weft.engine.topic_dht.roles import settled
from weft.engine.topic_dht.schemes import LINKS, SCHEMES, Events
from weft.engine.topic_dht.space import places_of
from weft.lab import ground, schemes
from weft.lab.counted import COUNTS, Count, loads_of, rows_of
from weft.lab.defect import Defect, Function
from weft.lab.experiment import Columns, Entry, Params, Size
from weft.lab.experiments.tadht_messages import K, modes_of
from weft.lab.figures import Figure, colour, panels, table
from weft.lab.measures import at_least, each, reasons, texts, truths, wholes
from weft.lab.memberships import memberships_of
from weft.pipeline.schemas import joined
from weft.pipeline.transforms import numbers
from weft.protocol.delivery import DELIVER_MESSAGE
from weft.protocol.topic_dht.events import Cast
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
    """Every scheme with several links per level, with random publishers and with a single one in
    each topic; and trees with the paper's one link per level, with random publishers."""
    return [
        {**SIZES[size], "k": K, "scheme": scheme, "mode": mode, "links": links, "single": single}
        for scheme in SCHEMES
        for mode in modes_of(scheme)
        for links in ((LINKS, 1) if scheme.endswith("treecast") else (LINKS,))
        for single in ((False, True) if links == LINKS else (False,))
    ]


def run(params: Params, seed: int) -> Columns:
    """Rows: of each peer the copies it sent, and the events it received (`lab/counted.py`)."""
    held = memberships_of(params, seed)
    roles = settled(held, places_of(held.peers, seed), params["k"], seed)
    events = Events(roles, params["scheme"], seed, params["mode"], params["links"])
    missed = 0
    for topic in range(held.topics):
        only = events.random_member(topic)
        for _ in range(params["events"]):
            publisher = only if params["single"] else events.random_member(topic)
            missed += events.publish(topic, publisher).missed
    sent = np.bincount(held.members, weights=events.sent, minlength=held.peers)
    received = np.bincount(held.members, weights=events.received, minlength=held.peers)
    counts = [
        Count("copies", sent.astype(np.int64), Cast.__name__),
        Count("events", received.astype(np.int64), kind=DELIVER_MESSAGE),
    ]
    locations = roles.locations.astype(np.int64)
    return {
        **rows_of(counts, topics_held=held.per_peer(), locations=locations),
        "missed": missed,
    }


COLUMNS = joined(
    texts("scheme", "mode"),
    truths("single"),
    wholes("links"),
    COUNTS,
    wholes("topics_held", "locations", "missed"),
)
TITLES = {
    "jain": "Jain's index of forwarded over received",
    "jain_roles": "Jain's index of locations over topics",
    "mean": "mean of forwarded over received",
    "most": "largest forwarded over received",
    "copies": "copies per event received",
}
ONE_LINK = ", one link per level"
SINGLE = ", one publisher in a topic"


JUDGED = [f"{name}{single}" for name in schemes.ORDER for single in ("", SINGLE)]


def named_by_links(rows: DataFrame) -> DataFrame:
    """The scheme's name; trees with the paper's single link per level, and topics with a single
    publisher, by names of their own."""
    link = F.when(F.col("links") == 1, F.lit(ONE_LINK)).otherwise("")
    single = F.when(F.col("single"), F.lit(SINGLE)).otherwise("")
    return rows.withColumn("way", F.concat(schemes.named(), link, single))


def forwarded(rows: DataFrame) -> DataFrame:
    """Per peer that received anything: copies `sent`, and events `received`."""
    known = ("scheme", "mode", "single", "links", "seed", "topics_held", "locations")
    loads = rows.transform(loads_of, {}, *known).where("deliveries > 0")
    return loads.withColumns({"sent": F.col("payload_sent"), "received": F.col("deliveries")})


def fairness(rows: DataFrame) -> DataFrame:
    """Per scheme and seed: how equal forwarded/received is."""
    share = F.col("sent") / F.col("received")
    location_share = F.col("locations") / F.col("topics_held")

    def evenness(name: str) -> Column:
        return jain(F.sum(name), F.sum(F.col(name) * F.col(name)), F.count(name))

    shares = (
        rows.transform(forwarded)
        .transform(named_by_links)
        .withColumns({"share": share, "location_share": location_share})
    )
    return shares.groupBy("way", "seed").agg(
        evenness("share").alias("jain"),
        evenness("location_share").alias("jain_roles"),
        F.avg("share").alias("mean"),
        F.max("share").alias("most"),
        (F.sum("sent") / F.sum("received")).alias("copies"),
    )


def measure(rows: DataFrame, size: Size) -> DataFrame:
    asked, judged = at_least(0.95, "jain"), F.col("way").isin(*JUDGED)
    return rows.transform(fairness).transform(
        numbers(TITLES, asked, by=("way",), prefix=each("way"), judged_where=judged)
    )


def for_others(spread: Function) -> Function:
    """A planted defect: of every four members of a topic, one does the work of all."""

    def instead(*args: object) -> tuple[object, ...]:
        hops, sent, *others = spread(*args)
        groups = sent[: len(sent) // 4 * 4].reshape(-1, 4)
        groups[:, 0], groups[:, 1:] = groups.sum(axis=1), 0
        return hops, sent, *others

    return instead


def figure(rows: DataFrame) -> Figure:
    share = (F.col("sent") / F.col("received")).alias("share")
    some = rows.where((F.col("links") == LINKS) & ~F.col("single")).transform(forwarded)
    drawn = table(some.select(schemes.named().alias("way"), share))
    drawing, [panel] = panels()
    for number, name in enumerate(schemes.ORDER):
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
    "their ratio over all peers, at least 0.95, for each scheme, whether events are published by "
    "all members or by one.",
    tolerances=reasons(
        TITLES,
        [f"{name}: " for name in schemes.TREES],
        jain=ground.asked(
            "2026-11-15",
            "With a random root for each event every member does the same work in the long run; "
            "0.95 leaves room for the noise of so many events and for unlike places.",
        ),
    )
    | reasons(
        TITLES,
        [f"{name}: " for name in JUDGED if name not in schemes.TREES],
        jain=ground.asked(
            "2026-11-16",
            "The same is asked of gossip, and of topics with one publisher, whose tree is always "
            "the same.",
        ),
    ),
    defects=(
        Defect(
            "one member in four forwards for all four",
            {
                "weft.engine.topic_dht.schemes:Events._by_trees": for_others,
                "weft.engine.topic_dht.schemes:Events._by_gossip": for_others,
            },
        ),
    ),
    seconds=lambda params: 2.0 + float(params["events"] * params["subscriptions"]) * 2.5e-6,
)
