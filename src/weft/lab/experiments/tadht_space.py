"""tadht-space: locations and table entries per peer (paper 002, Section 6, Space complexity).

Every peer is in about |T_p| of the topics, from a few to many, and topics are dense: each has far
more than k members. Counted after all have subscribed, one after the other: |L_p|, and the
entries of a peer's tables once every bucket is as full as it gets (20 to a bucket). The lobby,
in which every peer has a location, too, is counted apart. One run has the operations that the paper
starts; in another, forwarders also stop if the forwarders around them have room (makechild,
`rules/roles.py` `retires`).

Also larger and larger networks with the same number of topics per peer: entries per table against
the logarithm of the number N of all locations, those in the lobby included. Over arrays tables are
computed, with all buckets full. So the tables of simulated peers, of as many as the time allows,
are counted as well. Their buckets are small; else tables would hold every one of so few peers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from weft.engine.core.draws import base_key
from weft.engine.data.memberships import Memberships, topic_name
from weft.engine.topic_dht.roles import FORWARDS, Roles, settled
from weft.engine.topic_dht.space import places_of, table_sizes
from weft.ids import Topic
from weft.lab import ground
from weft.lab.defect import Defect, Function, left_out
from weft.lab.experiment import Columns, Entry, Params, Size
from weft.lab.figures import BLACK, Figure, colour, look, means, panels
from weft.lab.measures import at_most, reasons, wholes
from weft.lab.memberships import memberships_of
from weft.pipeline.schemas import joined
from weft.pipeline.transforms import numbers, together
from weft.protocol.config import KademliaSettings, TopicDhtSettings
from weft.protocol.topic_dht.roles import LOBBY, TOPICS
from weft.rules.draw import absorb, stream_of
from weft.rules.roles import location_view_bound
from weft.sim.topic_dht import Run

SEEDS = {"quick": 2, "full": 5}
CHILDREN_MAX, PER_PEER = (4, 8, 16), (2, 5, 10, 20, 40)
"""How many children a forwarder may have (k), and how many topics a peer subscribes to."""
_MEMBERS = 100  # of a topic, on average


def points(size: Size) -> list[Params]:
    peers = 10_000 if size == "full" else 1_000
    sizes = [2**exponent * 125 for exponent in range(8 if size == "full" else 5)]
    every = [(peers, k, held, packs) for packs in (0, 1) for k in CHILDREN_MAX for held in PER_PEER]
    every += [(count, 8, 10, 0) for count in sizes]
    arrays: list[Params] = [
        {
            "peers": count,
            "k": k,
            "per_peer": held,
            "topics": max(1, count * held // _MEMBERS),
            "subscriptions": count * held,
            "packs": packs,
            "machines": 0,
        }
        for count, k, held, packs in dict.fromkeys(every)
    ]
    few = (16, 32, 64) if size == "quick" else (16, 32, 64, 128, 256)
    machines = {"k": 4, "per_peer": 5, "topics": 10, "packs": 0, "machines": 1}
    return arrays + [{**machines, "peers": count, "subscriptions": 5 * count} for count in few]


BUCKET = 20
"""paper (Kademlia's k)."""
FEW_BUCKET = 4
"""asked: entries in a bucket of the machines' tables."""
_SUBSCRIBE_MS = 500
"""guess: between two peers' subscriptions, one after the other."""
_PERIODS = 12
"""guess: in so many periods every peer has looked after its tables a few times."""


def run(params: Params, seed: int) -> Columns:
    """Rows: one per peer."""
    held = memberships_of(params, seed)
    if params["machines"]:
        return _of_machines(held, params, seed)
    places = places_of(held.peers, seed)
    roles = settled(held, places, params["k"], seed, bool(params["packs"]))
    forwards = np.flatnonzero(roles.parent == FORWARDS)
    key = int(base_key(seed, stream_of("tadht-space.topic")))
    hashes = np.array([absorb(key, topic) for topic in range(held.topics + 1)], np.uint64)
    topics = np.concatenate([held.topic_of[forwards], np.full(held.peers, held.topics)])
    owners = np.concatenate([held.members[forwards], np.arange(held.peers)])
    sizes = table_sizes(hashes[topics], places[owners], BUCKET)
    own, lobby = sizes[: len(forwards)], sizes[len(forwards) :]
    entries = np.bincount(held.members[forwards], weights=own, minlength=held.peers)
    some = held.per_peer() > 0
    return {
        "peer": np.flatnonzero(some),
        "topics_held": held.per_peer()[some],
        "locations": roles.locations[some].astype(np.int64),
        "children_most": int(roles.state.children.max()),
        "entries": entries[some].astype(np.int64),
        "entries_lobby": lobby[some],
        "network": len(owners),
    }


def _of_machines(held: Memberships, params: Params, seed: int) -> Columns:
    """What the tables of simulated peers hold once all have subscribed."""
    settings = TopicDhtSettings(children_max=params["k"], packs=bool(params["packs"]))
    bucket = params.get("bucket", FEW_BUCKET)
    net = Run(seed, held.peers, settings, dht=KademliaSettings(enabled=True, k=bucket))
    net.come_up()
    names: list[list[Topic]] = [[] for _ in range(held.peers)]
    for peer, topic in zip(held.members.tolist(), held.topic_of.tolist(), strict=True):
        names[peer].append(Topic(topic_name(topic)))
    for peer, topics in enumerate(names):
        net.subscribe(peer, topics)
        net.run(_SUBSCRIBE_MS)
    net.run(_PERIODS * settings.period_ms)
    rows = []
    for peer, topics in enumerate(names):
        machine = net.machine(peer)
        assert machine is not None
        roles = [role.forwarder for role in machine.topics.roles.by_topic.values()]
        forwards = [each for each in roles if each is not None]
        own = sum(len(each.place.table) for each in forwards)
        lobby = len(machine.dht.places[TOPICS.number, LOBBY].table)
        most = max((len(each.children) for each in forwards), default=0)
        rows.append((peer, len(topics), len(forwards), most, own, lobby))
    peer, topics_held, locations, children, entries, entries_lobby = np.array(rows, np.int64).T
    some = topics_held > 0
    return {
        "peer": peer[some],
        "topics_held": topics_held[some],
        "locations": locations[some],
        "children_most": int(children.max()),
        "entries": entries[some],
        "entries_lobby": entries_lobby[some],
        "network": int(locations.sum()) + held.peers,
    }


COLUMNS = joined(
    wholes("peers", "k", "per_peer", "topics", "packs", "machines"),
    wholes("peer", "topics_held", "locations"),
    wholes("children_most", "entries", "entries_lobby", "network"),
)
RATIO = "mean |L_p| over its bound 1 + |T_p|/(k+1)"
RATIOS = {0: RATIO, 1: f"packed, {RATIO}"}
"""Without and with forwarders that stop."""
TITLES = {
    "tables": "entries per table in topics, over 20·(log₂ N + 2.67)",
    "lobby": "entries per table in the lobby, over 20·(2·log₂ N + 2.67)",
    "children": "most children of a forwarder, over k",
    "growth": "entries per table in topics, for each doubling of N",
    "growth_lobby": "entries per table in the lobby, for each doubling of N",
}
MACHINES = {
    "tables": f"machines: entries per table in topics, over {FEW_BUCKET}·(log₂ N + 2.67)",
    "lobby": f"machines: entries per table in the lobby, over {FEW_BUCKET}·(2·log₂ N + 2.67)",
    "children": "machines: most children of a forwarder, over k",
    "growth": "machines: entries per table in topics, for each doubling of N",
    "growth_lobby": "machines: entries per table in the lobby, for each doubling of N",
}
_MORE = 2.67
"""A random tree of prefixes with n leaves has log₂ n + 1.33 forks above a leaf; there are two such
trees here, one of topics, and in each of its leaves one of peers."""


def space(rows: DataFrame) -> DataFrame:
    """Per point and seed: mean |L_p| against its bound, and entries per table."""
    bound = 1 + F.col("topics_held") / (F.col("k") + 1)
    each = F.sum("entries") / F.sum("locations")
    return rows.groupBy("machines", "packs", "peers", "k", "per_peer", "seed").agg(
        (F.avg("locations") / F.avg(bound)).alias("ratio"),
        F.avg("locations").alias("locations"),
        (F.sum("locations") / F.sum("topics_held")).alias("forwarding"),
        each.alias("entries"),
        F.avg("entries_lobby").alias("entries_lobby"),
        F.avg(F.col("entries") + F.col("entries_lobby")).alias("entries_of_peer"),
        F.log2(F.first("network")).alias("doublings"),
        (F.first("children_most") / F.first("k")).alias("children"),
    )


def tables(found: DataFrame, bucket: int = BUCKET) -> DataFrame:
    """Per seed: the longest tables, over what full buckets at all forks would hold; and how they
    grow with the network, where all else is the same."""
    doublings = F.col("doublings")
    same = found.where((F.col("k") != 8) | (F.col("per_peer") == 10)).where(
        (F.col("k") == 8) | (F.col("machines") == 1)
    )
    return (
        found.groupBy("seed")
        .agg(
            F.max(F.col("entries") / (bucket * (doublings + _MORE))).alias("tables"),
            F.max(F.col("entries_lobby") / (bucket * (2 * doublings + _MORE))).alias("lobby"),
            F.max("children").alias("children"),
        )
        .join(
            same.groupBy("seed").agg(
                F.regr_slope("entries", "doublings").alias("growth"),
                F.regr_slope("entries_lobby", "doublings").alias("growth_lobby"),
            ),
            "seed",
        )
    )


def measure(rows: DataFrame, size: Size) -> DataFrame:
    found = rows.transform(space)
    machines, arrays = found.where("machines = 1"), found.where("machines = 0")
    prefix = F.concat(
        F.lit("k = "), F.col("k"), F.lit(", "), F.col("per_peer"), F.lit(" topics each: ")
    )
    asked = at_most(1.0, "tables", "lobby", "children")
    by_point = {
        "locations": "mean |L_p|",
        "forwarding": "share of subscriptions that are forwarders",
        "entries_of_peer": "table entries of a peer",
    }
    ratio, by = at_most(1.0, "ratio"), ("k", "per_peer")
    plain, packed = (arrays.where(F.col("packs") == packs) for packs in (0, 1))
    return together(
        plain.transform(numbers({"ratio": RATIOS[0], **by_point}, ratio, by=by, prefix=prefix)),
        packed.transform(numbers({"ratio": RATIOS[1]}, ratio, by=by, prefix=prefix)),
        plain.transform(tables).transform(numbers(TITLES, asked)),
        machines.transform(tables, FEW_BUCKET).transform(numbers(MACHINES, asked)),
    )


def with_no_children(subscribe: Function) -> Function:
    """A planted defect: a forwarder has no room for children."""

    def instead(roles: Roles, batches: object) -> None:
        subscribe(replace(roles, k=0), batches)

    return instead


def of_machines(params: Params) -> bool:
    return bool(params["machines"])


def of_arrays(params: Params) -> bool:
    return not params["machines"]


def seconds(params: Params) -> float:
    """measured: CPU time of each subscription, of machines and over arrays."""
    each = 0.05 if params["machines"] else 5e-6
    return 0.5 + each * float(params["subscriptions"])


def figure(rows: DataFrame) -> Figure:
    names = ("locations", "entries", "entries_lobby", "doublings")
    found = rows.where("machines = 0 and packs = 0").transform(space)
    drawn = means(found, ("peers", "k", "per_peer"), *names)
    drawing, (left, right) = panels(columns=2)
    largest = drawn[drawn["peers"] == drawn[drawn["k"] != 8]["peers"].max()]
    for number, (k, some) in enumerate(largest.groupby("k")):
        line = some.sort_values("per_peer")
        left.plot(line["per_peer"], line["locations"], label=f"k = {k}", **look(number))
        topics = range(1, 1 + int(line["per_peer"].max()))
        bound = [location_view_bound(each, int(k)) for each in topics]
        left.plot(topics, bound, "--", color=colour(number), lw=0.9)
    left.plot([], [], "--", color=BLACK, lw=0.9, label="1 + |T_p|/(k+1)")
    left.set(ylim=(0, None), xlabel="topics per peer |T_p|", ylabel="mean of |L_p|")
    left.legend()
    same = drawn[(drawn["k"] == 8) & (drawn["per_peer"] == 10)].sort_values("doublings")
    steps = np.linspace(0, same["doublings"].max())
    lines = (("entries", "in topics", 1), ("entries_lobby", "in the lobby", 2))
    for number, (name, label, forks) in enumerate(lines):
        right.plot(same["doublings"], same[name], label=label, **look(number))
        allowed = BUCKET * (forks * steps + _MORE)
        right.plot(steps, allowed, "--", color=colour(number), lw=0.9)
    right.plot([], [], "--", color=BLACK, lw=0.9, label="20 for each fork expected")
    right.set(ylim=(0, None), xlabel="log₂ of all locations N", ylabel="entries per table")
    right.legend()
    return drawing


_DENSE = ground.paper(
    "2026-11-15",
    "The paper's bound, which takes it that every forwarder has all the k children it may have "
    "and that one location more may be needed per peer.",
)
_FULL = ground.derived(
    "2026-11-18",
    "O(|L_p| log N): a full bucket at each fork of the tree of prefixes, as many forks as "
    "expected; counted in the tables of simulated peers, which find others by their own lookups.",
)
ENTRY = Entry.of(
    __name__,
    title="Few locations per peer, short tables",
    claim="Where topics have more than k subscribers, a peer of |T_p| topics has at most "
    "1 + |T_p|/(k+1) locations on average, and no forwarder more than k children. The tables "
    "of a peer have O(|L_p| log N) entries: a bucket of 20 for each fork of the tree of "
    "prefixes of all N locations.",
    tolerances={
        **{
            f"k = {k}, {held} topics each: {ratio}": _DENSE
            for ratio in RATIOS.values()
            for k in CHILDREN_MAX
            for held in PER_PEER
        },
        **reasons(
            TITLES,
            tables=ground.by_construction(
                "2026-11-16",
                "A bucket of 20 at each fork of the tree of prefixes, as many as expected: tables "
                "are computed from ideal trees of prefixes, which the form is about.",
            ),
            lobby=ground.by_construction(
                "2026-11-16",
                "The same; all peers are in the lobby, so it has up to twice as many forks.",
            ),
            children=ground.by_construction("2026-11-16", "Forwarders with more than k split."),
        ),
        **reasons(
            MACHINES,
            tables=_FULL,
            lobby=_FULL,
            children=ground.paper(
                "2026-11-18", "A forwarder with more than k children has one of them split."
            ),
        ),
    },
    defects=(
        Defect(
            "nobody takes a child",
            {
                "weft.engine.topic_dht.roles:subscribe_in_turn": with_no_children,
                "weft.engine.topic_dht.roles:relieve": left_out,  # nor afterwards, by packing
            },
            where=of_arrays,
        ),
        Defect(
            "tables keep eight times as many, and nobody splits",
            {"weft.protocol.topic_dht.operations:Initiator._shed": left_out},
            params={"bucket": 8 * FEW_BUCKET},
            where=of_machines,
        ),
    ),
    seconds=seconds,
)
