"""tadht-messages: copies of an event, by scheme and size of the topic (Baehni and others, 5, 6).

Topics of 2⁴ … 2¹⁴ members. Every peer is in ten topics of the same size, so that forwarders have
children (a peer in one topic only must forward it). Publishers are random members of one of the
topics; a topic's events are counted one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from weft.engine.data.memberships import memberships
from weft.engine.topic_dht.roles import settled
from weft.engine.topic_dht.schemes import SCHEMES, Events
from weft.engine.topic_dht.space import places_of
from weft.lab import ground, schemes
from weft.lab.defect import Defect
from weft.lab.experiment import Columns, Entry, Params, Size
from weft.lab.figures import BLACK, Figure, means, panels
from weft.lab.measures import at_most, each, texts, wholes
from weft.pipeline.schemas import joined
from weft.pipeline.traces import figures
from weft.pipeline.transforms import Bound, Transform, count, numbers, together
from weft.rules.treecast import Mode

SEEDS = {"quick": 2, "full": 5}
K = 8
"""guess, as in the machines' settings: children of a forwarder."""
_EXPONENTS = {"quick": range(4, 11), "full": range(4, 15)}
_EVENTS = {"quick": 40, "full": 60}


def modes_of(scheme: str) -> tuple[Mode, ...]:
    return ("push", "push-pull") if scheme.endswith("gossip") else ("push",)


def points(size: Size) -> list[Params]:
    return [
        {"members": 2**exponent, "scheme": scheme, "mode": mode, "k": K, "events": _EVENTS[size]}
        for exponent in _EXPONENTS[size]
        for scheme in SCHEMES
        for mode in modes_of(scheme)
    ]


def seconds(params: Params) -> float:
    work = params["events"] * params["members"] * math.log2(params["members"])
    return 0.2 + float(work) * (4e-8 if params["scheme"].endswith("treecast") else 6e-8)


_TOPICS = 10


def run(params: Params, seed: int) -> Columns:
    """Rows: one per event."""
    count = params["members"]
    offsets = np.arange(_TOPICS + 1, dtype=np.int64) * count
    held = memberships(count, offsets, np.tile(np.arange(count, dtype=np.int32), _TOPICS))
    roles = settled(held, places_of(count, seed), params["k"], seed)
    events = Events(roles, params["scheme"], seed, params["mode"])
    outcomes = []
    for event in range(params["events"]):
        topic = event % _TOPICS
        outcomes.append(events.publish(topic, events.random_member(topic)))
    forwarders = roles.state.forwarders[np.arange(params["events"]) % _TOPICS]
    return {
        "event": np.arange(params["events"]),
        "forwarders": forwarders,
        **{
            name: np.array([getattr(each, name) for each in outcomes])
            for name in ("payloads", "handovers", "calls", "rounds", "missed")
        },
    }


COLUMNS = joined(
    wholes("members"),
    texts("scheme", "mode"),
    wholes("k", "event", "forwarders", "payloads", "handovers", "calls", "rounds", "missed"),
)
EXCESS = "largest difference from N_t − 1 copies"
LOGARITHM = "most copies per member, over ln n + 4"
FEWER = "push-pull over push, copies and calls in the largest topic"
_SPARE = 4
"""The fan-out is ln n + 3, rounded up."""


def costs(rows: DataFrame) -> DataFrame:
    """Per scheme, size and seed: copies per member that gossips, and how far from N_t − 1; and by
    the pipeline's count of copies, those per member and per delivery."""
    gossiping = F.when(F.col("scheme").startswith("full"), F.col("members")).otherwise(
        F.col("forwarders")
    )
    handed = F.when(F.col("scheme").startswith("full"), 0).otherwise(
        F.col("members") - F.col("forwarders")
    )
    per_member = (F.col("payloads") - handed) / gossiping
    found = rows.withColumns({"way": schemes.named(), "group": gossiping, "each": per_member})
    by = ("way", "members", "seed")
    came = found.withColumns(
        {
            "copies": F.col("payloads"),  # arrays hold members alone: no copy is a parasite
            "parasites": F.lit(0),
            "routed": F.lit(0),
            "deliveries": F.col("members") - 1 - F.col("missed"),  # to others than the publisher
        }
    )
    copies = came.transform(figures.copied, came, *by).select(*by, "copies", "copies_per_delivery")
    costs = found.groupBy(*by).agg(
        F.max(F.abs(F.col("payloads") - F.col("members") + 1)).alias("excess"),
        F.max(F.col("each") / (F.log("group") + _SPARE)).alias("logarithm"),
        count("events"),
        F.avg(F.col("calls") / F.col("members")).alias("calls"),
        F.avg(F.col("missed") / F.col("members")).alias("missed"),
    )
    per_member = F.col("copies") / F.col("events") / F.col("members")
    return costs.join(copies, list(by)).withColumn("per_member", per_member)


def summed(found: DataFrame) -> DataFrame:
    """Per scheme and seed: the worst of all sizes, and the largest size by itself."""
    return found.groupBy("way", "seed").agg(
        F.max("excess").alias("excess"),
        F.max("logarithm").alias("logarithm"),
        F.max_by("per_member", "members").alias("per_member"),
        F.max_by("copies_per_delivery", "members").alias("copies_per_delivery"),
        F.max_by("calls", "members").alias("calls"),
        F.avg("missed").alias("missed"),
    )


def saved(found: DataFrame) -> DataFrame:
    """Per seed: messages by push-pull, its calls included, over those by push, where all members
    gossip."""
    messages = F.col("per_member") + F.col("calls")
    largest = found.groupBy("way", "seed").agg(F.max_by(messages, "members").alias("copies"))
    pulled = F.max(F.when(F.col("way") == "FullGossip, push-pull", F.col("copies")))
    pushed = F.max(F.when(F.col("way") == "FullGossip", F.col("copies")))
    return largest.groupBy("seed").agg((pulled / pushed).alias("fewer"))


def measure(rows: DataFrame, size: Size) -> DataFrame:
    found = rows.transform(costs)
    totals = found.transform(summed)
    trees = F.col("way").isin(*schemes.TREES)

    def by_way(titles: dict[str, str], asked: dict[str, Bound] | None = None) -> Transform:
        return numbers(titles, asked, by=("way",), prefix=each("way"))

    others = {
        "per_member": "copies per member, largest topic",
        "copies_per_delivery": "copies per delivery, largest topic",
        "calls": "calls per member in rounds of pulling, largest topic",
        "missed": "share of members an event missed",
    }
    return together(
        totals.where(trees).transform(by_way({"excess": EXCESS}, at_most(0.0, "excess"))),
        totals.where(~trees).transform(by_way({"logarithm": LOGARITHM}, at_most(1.0, "logarithm"))),
        found.transform(saved).transform(numbers({"fewer": FEWER}, at_most(1.0, "fewer"))),
        totals.transform(by_way(others)),
    )


def as_by_push(fanout: Callable[[int, Mode], int]) -> Callable[[int, Mode], int]:
    """A planted defect: push-pull pushes to as many members as push does."""
    return lambda members, mode: fanout(members, "push")


def figure(rows: DataFrame) -> Figure:
    drawn = means(rows.transform(costs), ("way", "members"), "per_member")
    drawing, [panel] = panels()
    for name in schemes.ORDER:
        some = drawn[drawn["way"] == name]
        panel.plot(some["members"], some["per_member"], **schemes.style(name))
    panel.axhline(1.0, color=BLACK, ls=":", lw=0.9, label="one copy per member")
    panel.set_xscale("log", base=2)
    panel.set(ylim=(0, None), xlabel="members of the topic", ylabel="copies of an event per member")
    panel.legend()
    return drawing


ENTRY = Entry.of(
    __name__,
    title="Trees send one copy per member, gossip O(log n)",
    claim="FullTreeCast and ForwardTreeCast send exactly N_t − 1 copies of an event, a child's "
    "handover to its parent included. Push gossip sends O(n log n), push-pull fewer.",
    tolerances={
        **{
            f"{name}: {EXCESS}": ground.by_construction(
                "2026-11-16",
                "Ranges are cut in two and each part is sent one copy. Whether machines do so is "
                "judged in tadht-parasite.",
            )
            for name in schemes.TREES
        },
        **{
            f"{name}: {LOGARITHM}": ground.by_construction(
                "2026-11-16", "Each of n members tells ln n + 3 others, rounded up, at most."
            )
            for name in schemes.ORDER
            if name not in schemes.TREES
        },
        FEWER: ground.paper(
            "2026-11-16", "Push-pull needs fewer messages; calls that bring nothing are messages."
        ),
    },
    defects=(
        Defect(
            "push-pull pushes as much as push does",
            {"weft.rules.treecast:fanout": as_by_push},
            where=lambda params: params["scheme"] == "full-gossip",
        ),
    ),
)
